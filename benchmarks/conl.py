"""Time of CoNL on the embedded backbone: one step by phase, a Bradley-Terry fit, segment credit.

Every step is timed with 2, 4 and 8 agents. Prints medians and the estimated seconds of a run of
preset standard, and writes them to conl.json.
"""

import json
import platform
import random
import statistics
import tempfile
import time
from pathlib import Path

import torch

from coevolve.advantages.inputs import EstimatorInputs
from coevolve.advantages.segments import segment_centred
from coevolve.methods.conl.records import Comparison
from coevolve.methods.conl.rewards import bradley_terry
from coevolve.training import config
from coevolve.training.trainer import Trainer

ROUNDS = 7
AGENTS = (2, 4, 8)
FITS = 2000
AGENTS_AND_VOTES = ((4, 10), (8, 40))  # of the Bradley-Terry fits


def step(agents: int) -> dict[str, float]:
    """Return median seconds of playing, crediting and learning one step of preset standard."""
    with tempfile.TemporaryDirectory() as out:
        run = config.build("conl", "standard", out=out, overrides={"agents": agents})
        trainer = Trainer(run)
        times: dict[str, list[float]] = {"play_s": [], "learn_s": [], "credit_s": []}
        for number in range(1, ROUNDS + 1):
            start = time.perf_counter()
            outcomes = trainer.play(number)
            times["play_s"].append(time.perf_counter() - start)
            samples = [sample for outcome in outcomes for sample in outcome.samples]
            start = time.perf_counter()
            segment_centred(EstimatorInputs(samples))
            times["credit_s"].append(time.perf_counter() - start)
            start = time.perf_counter()
            trainer.learn(number, outcomes)
            times["learn_s"].append(time.perf_counter() - start)
    medians = {name: statistics.median(values) for name, values in times.items()}
    steps = trainer.run.steps
    return {
        "agents": agents,
        **medians,
        "steps": steps,
        "run_s": steps * (medians["play_s"] + medians["learn_s"]),
    }


def vote(rng: random.Random, agents: int) -> Comparison:
    """Return a random comparison of two agents."""
    winner, loser = rng.sample(range(agents), 2)
    return Comparison(winner, loser)


def fits() -> dict[str, float]:
    """Return milliseconds of a Bradley-Terry fit, by numbers of agents and of votes."""
    rng = random.Random(0)
    milliseconds = {}
    for agents, votes in AGENTS_AND_VOTES:
        tables = []
        for _ in range(FITS):
            tables.append([vote(rng, agents) for _ in range(votes)])
        start = time.perf_counter()
        for table in tables:
            bradley_terry(table, agents)
        seconds = time.perf_counter() - start
        milliseconds[f"{agents} agents, {votes} votes"] = 1000 * seconds / FITS
    return milliseconds


def main() -> None:
    """Measure, print Markdown, write JSON beside this file."""
    torch.set_num_threads(1)
    random.seed(0)
    result = {
        "machine": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "threads": 1,
        "steps": [step(agents) for agents in AGENTS],
        "bradley_terry_ms": fits(),
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    print(
        "| agents | play, s | learn, s | segment credit, s | run without evaluation, s |"
    )
    print("|---|---|---|---|---|")
    for row in result["steps"]:
        cells = [
            str(row["agents"]),
            f"{row['play_s']:.2f}",
            f"{row['learn_s']:.2f}",
            f"{row['credit_s']:.3f}",
            f"{row['run_s']:.0f} ({row['steps']} steps)",
        ]
        print(f"| {' | '.join(cells)} |")
    times = [f"{name} {ms:.2f} ms" for name, ms in result["bradley_terry_ms"].items()]
    print(f"\nBradley-Terry: {', '.join(times)}")


if __name__ == "__main__":
    main()
