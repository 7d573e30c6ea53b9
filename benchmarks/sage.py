"""Time of SAGE's steps beside MAE's on the embedded backbone, and the cost of verification.

The methods alternate in one process. Prints medians, their ratio, the sandbox runs of each step
and milliseconds per program, and writes them to sage.json.
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
    """Return median seconds of whole steps of both methods, and SAGE's sandbox runs by step."""
    times: dict[str, list[float]] = {"mae": [], "sage": []}
    runs = []
    with tempfile.TemporaryDirectory() as out:
        trainers = {
            name: Trainer(config.build(name, "quick", out=out)) for name in times
        }
        for number in range(1, ROUNDS + 1):
            for name, trainer in trainers.items():
                before = len(verifier.PASS_RATES)
                start = time.perf_counter()
                trainer.learn(number, trainer.play(number))
                times[name].append(time.perf_counter() - start)
                if name == "sage":
                    runs.append(len(verifier.PASS_RATES) - before)
        counts = {name: trainer.run.steps for name, trainer in trainers.items()}
    medians = {name: statistics.median(values) for name, values in times.items()}
    return {
        "step_s": medians,
        "ratio": medians["sage"] / medians["mae"],
        "programs_by_step": runs,
        "run_s": {name: median * counts[name] for name, median in medians.items()},
    }


def verification() -> dict[str, float]:
    """Return median milliseconds of a new program in the sandbox, and of a cached one."""
    fresh_seconds = []
    cached_seconds = []
    tests = "assert f(3)==9"
    for number in range(PROGRAMS):
        program = f"def f(x):\n    return x * 3 + {number}\n"
        start = time.perf_counter()
        run_tests(program, tests)
        fresh_seconds.append(time.perf_counter() - start)
        verifier.pass_rate(program, tests)
        start = time.perf_counter()
        verifier.pass_rate(program, tests)
        cached_seconds.append(time.perf_counter() - start)
    return {
        "sandbox_ms": 1000 * statistics.median(fresh_seconds),
        "seen_ms": 1000 * statistics.median(cached_seconds),
    }


def main() -> None:
    """Measure, print, and write sage.json beside this file."""
    torch.set_num_threads(1)
    verification()  # the servers start on first use
    result = {
        "machine": platform.machine(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        **steps(),
        **verification(),
    }
    text = json.dumps(result, indent=1)
    Path(__file__).with_suffix(".json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
