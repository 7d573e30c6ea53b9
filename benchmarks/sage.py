"""Time SAGE's steps on the embedded backbone beside MAE's, alternating in one process, and what verification costs.

Medians, their ratio, the sandbox runs of each step and milliseconds a program are printed and written to sage.json.
"""

import json
import platform
import statistics
import tempfile
import time
from pathlib import Path

import torch

from codesandbox.code import run_tests
from coevolve.methods.sage import verifier
from coevolve.training import config
from coevolve.training.trainer import Trainer

ROUNDS = 20
PROGRAMS = 60


def steps() -> dict[str, object]:
    """Median seconds of whole steps (play and learn) of both methods, and programs run in SAGE's sandbox by step."""
    times: dict[str, list[float]] = {"mae": [], "sage": []}
    runs = []
    with tempfile.TemporaryDirectory() as out:
        trainers = {name: Trainer(config.build(name, "quick", out=out)) for name in times}
        for number in range(1, ROUNDS + 1):
            for name, trainer in trainers.items():
                before = len(verifier.PASSED)
                start = time.perf_counter()
                trainer.learn(number, trainer.play(number))
                times[name].append(time.perf_counter() - start)
                if name == "sage":
                    runs.append(len(verifier.PASSED) - before)
        counts = {name: trainer.run.steps for name, trainer in trainers.items()}
    medians = {name: statistics.median(values) for name, values in times.items()}
    return {
        "step_s": medians,
        "ratio": medians["sage"] / medians["mae"],
        "programs_by_step": runs,
        "run_s": {name: median * counts[name] for name, median in medians.items()},
    }


def verification() -> dict[str, float]:
    """Median milliseconds of one program in the sandbox, and of one that was seen before."""
    fresh, again = [], []
    for number in range(PROGRAMS):
        program, tests = f"def f(x):\n    return x * 3 + {number}\n", "assert f(3)==9"
        start = time.perf_counter()
        run_tests(program, tests)
        fresh.append(time.perf_counter() - start)
        verifier.tested(program, tests)
        start = time.perf_counter()
        verifier.tested(program, tests)
        again.append(time.perf_counter() - start)
    return {"sandbox_ms": 1000 * statistics.median(fresh), "seen_ms": 1000 * statistics.median(again)}


def main() -> None:
    """Measure, print, and write sage.json beside this file."""
    torch.set_num_threads(1)
    verification()  # the servers start on first use
    found = {
        "machine": platform.machine(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        **steps(),
        **verification(),
    }
    text = json.dumps(found, indent=1)
    Path(__file__).with_suffix(".json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
