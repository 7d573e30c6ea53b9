"""Time CoNL on the embedded backbone: one step by phase for 2, 4 and 8 agents, a Bradley-Terry fit, segment credit.

Medians, with the seconds that a run of preset standard would take; printed, and written to conl.json.
"""

import json
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from coevolve.advantages.inputs import EstimatorInputs
from coevolve.advantages.segments import segment_centred
from coevolve.methods.conl.rewards import bradley_terry
from coevolve.training import config
from coevolve.training.trainer import Trainer

ROUNDS = 7
AGENTS = (2, 4, 8)
FITS = 2000


def timed(function: Callable[[], object]) -> tuple[float, object]:
    """Wall seconds of one call, and what it returned."""
    start = time.perf_counter()
    value = function()
    return time.perf_counter() - start, value


def step(agents: int) -> dict[str, float]:
    """Median seconds of playing and learning one step of preset standard, and of its segment credit."""
    with tempfile.TemporaryDirectory() as out:
        trainer = Trainer(config.build("conl", "standard", out=out, overrides={"agents": agents}))
        times: dict[str, list[float]] = {"play_s": [], "learn_s": [], "credit_s": []}
        for number in range(1, ROUNDS + 1):
            played, outcomes = timed(lambda number=number: trainer.play(number))
            samples = [sample for outcome in outcomes for sample in outcome.samples]
            credited, _ = timed(lambda samples=samples: segment_centred(EstimatorInputs(samples)))
            learnt, _ = timed(lambda number=number, outcomes=outcomes: trainer.learn(number, outcomes))
            for name, value in zip(times, (played, learnt, credited), strict=True):
                times[name].append(value)
    medians = {name: statistics.median(values) for name, values in times.items()}
    steps = trainer.run.steps
    return {"agents": agents, **medians, "steps": steps, "run_s": steps * (medians["play_s"] + medians["learn_s"])}


def fits() -> dict[str, float]:
    """Milliseconds of a Bradley-Terry fit of four and of eight agents with ten and forty votes."""
    rng, found = random.Random(0), {}
    for n, votes in ((4, 10), (8, 40)):
        tables = [[(*rng.sample(range(n), 2), 1.0) for _ in range(votes)] for _ in range(FITS)]
        seconds, _ = timed(lambda tables=tables, n=n: [bradley_terry(table, n) for table in tables])
        found[f"{n} agents, {votes} votes"] = 1000 * seconds / FITS
    return found


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
    print("| agents | play, s | learn, s | segment credit, s | run without evaluation, s |\n|---|---|---|---|---|")
    for row in result["steps"]:
        seconds = f"{row['play_s']:.2f} | {row['learn_s']:.2f} | {row['credit_s']:.3f}"
        print(f"| {row['agents']} | {seconds} | {row['run_s']:.0f} ({row['steps']} steps) |")
    print("\nBradley-Terry: " + ", ".join(f"{name} {ms:.2f} ms" for name, ms in result["bradley_terry_ms"].items()))


if __name__ == "__main__":
    main()
