"""Cost of CoMAS against the number of agents l (Table 3, appendix D), for l from 1 to 8.

Measures samples, tokens, memory and time, for full fine-tuning and for LoRA. Every l runs in a
separate process, so that peak memory is not shared. Prints Markdown and writes agents.json.
"""

import json
import math
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from coevolve.training import config
from coevolve.training.trainer import Trainer

AGENTS = (1, 2, 4, 8)
STEPS = 4  # the first one warms up and is not timed
QUESTIONS_PER_STEP = 2
LORA = [8, 16, 0.0]
FACTS = ("interactions", "tokens_in", "tokens_out")
HEADER = (
    "| agents | LoRA | interactions | tokens read | written "
    "| trained, MB | peak RSS, MB | s a step |"
)


def peak_rss_mb() -> float:
    """Return the peak resident memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Linux counts KiB


def measure(agents: int, lora: list) -> dict[str, float]:
    """Play and learn a few steps of CoMAS with m = 2 l; return means per question and per step."""
    torch.set_num_threads(1)
    fields = {
        "agents": agents,
        "rounds_per_agent": 2,
        "reuse": 4,
        "batch_size": QUESTIONS_PER_STEP,
        "lora": lora,
    }
    with tempfile.TemporaryDirectory() as out:
        trainer = Trainer(config.build("comas", "quick", out=out, overrides=fields))
    loaded_rss_mb = peak_rss_mb()
    facts = []
    seconds = []
    for step in range(1, STEPS + 1):
        start = time.perf_counter()
        outcomes = trainer.play(step)
        trainer.learn(step, outcomes)
        seconds.append(time.perf_counter() - start)
        facts += [outcome.facts for outcome in outcomes]
    means = {}
    for name in FACTS:
        means[name] = statistics.fmean(fact[name] for fact in facts)
    return {
        "agents": agents,
        "lora": bool(lora),
        **means,
        "trained_mb": 4 * trained_bytes(trainer) / 1e6,
        "loaded_rss_mb": loaded_rss_mb,
        "peak_rss_mb": peak_rss_mb(),
        "step_s": statistics.median(seconds[1:]),
    }


def trained_bytes(trainer: Trainer) -> int:
    """Return the bytes of all parameters of the trained policies."""
    total = 0
    for name in trainer.team.trained:
        for parameter in trainer.team.policies[name].parameters():
            total += parameter.numel() * parameter.element_size()
    return total


def exponent(rows: list[dict[str, float]], name: str) -> float:
    """Return the slope of log(name) over log(agents): 1 is linear growth, 2 is quadratic."""
    log_agents = [math.log(row["agents"]) for row in rows]
    log_costs = [math.log(row[name]) for row in rows]
    mean_x = statistics.fmean(log_agents)
    mean_y = statistics.fmean(log_costs)
    pairs = zip(log_agents, log_costs, strict=True)
    covariance = sum((x - mean_x) * (y - mean_y) for x, y in pairs)
    return covariance / sum((x - mean_x) ** 2 for x in log_agents)


def measure_in_a_process(agents: int, lora: list) -> dict[str, float]:
    """Return what `measure` returns, measured in a new process."""
    command = [sys.executable, __file__, "one", str(agents), json.dumps(lora)]
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(process.stdout.splitlines()[-1])


def print_table(rows: list[dict[str, float]], slopes: dict[str, float]) -> None:
    """Print the measured rows and the exponents as Markdown."""
    print(HEADER)
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        cells = [
            str(row["agents"]),
            "yes" if row["lora"] else "no",
            f"{row['interactions']:.0f}",
            f"{row['tokens_in']:.0f}",
            f"{row['tokens_out']:.0f}",
            f"{row['trained_mb']:.2f}",
            f"{row['peak_rss_mb']:.0f}",
            f"{row['step_s']:.2f}",
        ]
        print(f"| {' | '.join(cells)} |")
    print(
        "\nexponents over l, full fine-tuning "
        "(the paper says 2 for samples and tokens, 1 for memory): ",
        end="",
    )
    print(", ".join(f"{name} {value:.2f}" for name, value in slopes.items()))


def main() -> None:
    """Measure all l, print Markdown, write JSON beside this file."""
    if len(sys.argv) > 1 and sys.argv[1] == "one":
        agents = int(sys.argv[2])
        lora = json.loads(sys.argv[3])
        sys.stdout.write(json.dumps(measure(agents, lora)))
        return
    rows = [
        measure_in_a_process(agents, lora) for lora in ([], LORA) for agents in AGENTS
    ]
    full = [row for row in rows if not row["lora"]]
    slopes = {name: exponent(full, name) for name in (*FACTS, "trained_mb", "step_s")}
    result = {
        "torch": torch.__version__,
        "threads": 1,
        "questions": QUESTIONS_PER_STEP,
        "rows": rows,
        "exponents": slopes,
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    print_table(rows, slopes)


if __name__ == "__main__":
    main()
