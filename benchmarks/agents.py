"""What CoMAS costs against the number of agents l (Table 3, appendix D): samples, tokens, memory and time for 1 to 8.

Every l runs in a process of its own, so that peak memory is its own; full fine-tuning and LoRA side by side.
Prints Markdown and writes agents.json beside this file.
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
QUESTIONS = 2  # a step
LORA = [8, 16, 0.0]
FACTS = ("interactions", "tokens_in", "tokens_out")


def peak_rss_mb() -> float:
    """Peak resident memory of this process in MiB (Linux counts KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(agents: int, lora: list) -> dict[str, float]:
    """Play and learn a few steps of CoMAS with m = 2 l; means per question and per step."""
    torch.set_num_threads(1)
    fields = {"agents": agents, "rounds_per_agent": 2, "reuse": 4, "batch_size": QUESTIONS, "lora": lora}
    with tempfile.TemporaryDirectory() as out:
        trainer = Trainer(config.build("comas", "quick", out=out, overrides=fields))
    loaded, facts, seconds = peak_rss_mb(), [], []
    for step in range(1, STEPS + 1):
        start = time.perf_counter()
        outcomes = trainer.play(step)
        trainer.learn(step, outcomes)
        seconds.append(time.perf_counter() - start)
        facts += [outcome.facts for outcome in outcomes]
    means = {name: statistics.fmean(fact[name] for fact in facts) for name in FACTS}
    policies = [trainer.team.policies[name] for name in trainer.team.trained]
    trained = sum(p.numel() * p.element_size() for policy in policies for p in policy.parameters())
    return {
        "agents": agents,
        "lora": bool(lora),
        **means,
        "trained_mb": 4 * trained / 1e6,
        "loaded_rss_mb": loaded,
        "peak_rss_mb": peak_rss_mb(),
        "step_s": statistics.median(seconds[1:]),
    }


def exponent(rows: list[dict[str, float]], name: str) -> float:
    """The slope of log(name) over log(agents): 1 is linear growth, 2 is the square."""
    x, y = [math.log(row["agents"]) for row in rows], [math.log(row[name]) for row in rows]
    mean_x, mean_y = statistics.fmean(x), statistics.fmean(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum((a - mean_x) ** 2 for a in x)


def main() -> None:
    """Measure all l, print Markdown, write JSON beside this file."""
    if len(sys.argv) > 1 and sys.argv[1] == "one":
        sys.stdout.write(json.dumps(measure(int(sys.argv[2]), json.loads(sys.argv[3]))))
        return
    rows = []
    for lora in ([], LORA):
        for agents in AGENTS:
            command = [sys.executable, __file__, "one", str(agents), json.dumps(lora)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            rows.append(json.loads(done.stdout.splitlines()[-1]))
    full = [row for row in rows if not row["lora"]]
    slopes = {name: exponent(full, name) for name in (*FACTS, "trained_mb", "step_s")}
    result = {"torch": torch.__version__, "threads": 1, "questions": QUESTIONS, "rows": rows, "exponents": slopes}
    Path(__file__).with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    print("| agents | LoRA | interactions | tokens read | written | trained, MB | peak RSS, MB | s a step |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(f"| {row['agents']} | {'yes' if row['lora'] else 'no'} | {row['interactions']:.0f} | ", end="")
        print(f"{row['tokens_in']:.0f} | {row['tokens_out']:.0f} | {row['trained_mb']:.2f} | ", end="")
        print(f"{row['peak_rss_mb']:.0f} | {row['step_s']:.2f} |")
    print("\nexponents over l, full fine-tuning (the paper says 2 for samples and tokens, 1 for memory): ", end="")
    print(", ".join(f"{name} {value:.2f}" for name, value in slopes.items()))


if __name__ == "__main__":
    main()
