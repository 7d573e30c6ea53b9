"""Speed of the verifiers: programs per second at each level, formulas, and hostile inputs.

Every level that this machine reaches is measured in a separate process. Prints the results and
writes them to sandbox.json.
"""

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd

from codesandbox import level, run_calls, run_stdio, run_tests
from coevolve.text.verify import math, verify

ROUNDS = 600
BATCH = 250
BATCHES = 9
LEVELS = ("process", "kernel", "namespaces")
PROGRAM = "def f(x):\n    return x * x\n"
TESTS = "assert f(3) == 9\nassert f(-4) == 16\nassert f(0) == 0"
LOOP = "for i in range(5):\n    assert f(i) == i * i"


@dataclass(frozen=True)
class Formula:
    """An answer, the gold formula, and the expected verdict."""

    answer: str
    gold: str
    is_correct: bool = True


FORMULAS = [
    Formula("(x-1)(x+1)", gold="x^2-1"),
    Formula(r"\sqrt{12}", gold=r"2\sqrt{3}"),
    Formula("(2,1)", gold="(1,2)"),
    Formula(r"\pi/2", gold=r"\frac{\pi}{2}"),
]
BOMBS = [
    "(5^(5^(5^(5^5))-4)-5)/16",
    "9^{9^9}",
    "2^{10^{10}}",
    "(10^{10})!",
    r"\binom{10^9}{5\cdot 10^8}",
    r"\int_{-\infty}^{\infty} e^{-x^{x}} dx",
    r"(1+\sqrt{2})^{100000}",
    "(x+y+z)^{120}",
    "42=9^{9^9}",
    r"\Gamma(10^8)",
    "x+" * 400,
    "9" * 500,
    "(" * 200 + "1" + ")" * 200,
]
DATA = Path(__file__).parents[1] / "tests" / "data"
CORPUS = DATA / "hostile_programs"
STRINGS = DATA / "hostile_strings.jsonl"
CALLS = [([1, 2, 3],), ([],), ([-4],), ([10**6] * 3,), (list(range(100)),)]
EXPECTED = [14, 0, 16, 3 * 10**12, 328350]


def milliseconds(function: Callable[[], object], rounds: int) -> list[float]:
    """Return the milliseconds of every call."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        times.append(1e3 * (time.perf_counter() - start))
    return times


def median_ms(function: Callable[[], object], rounds: int) -> float:
    """Return the median milliseconds of a call."""
    return round(statistics.median(milliseconds(function, rounds)), 2)


def run_batch() -> tuple[float, int]:
    """Run a batch of passing programs on all servers; return programs per second, and passes."""
    start = time.perf_counter()
    with ThreadPoolExecutor(level.programs().size) as threads:
        results = list(
            threads.map(lambda tests: run_tests(PROGRAM, tests), [TESTS] * BATCH)
        )
    rate = BATCH / (time.perf_counter() - start)
    return rate, sum(result.verdict == "pass" for result in results)


def programs() -> dict[str, float]:
    """Return the times of start-up, of one program, of two-process tests and of many programs."""
    start = time.perf_counter()
    reached = level.programs().reported
    start_seconds = time.perf_counter() - start
    single = milliseconds(lambda: run_tests(PROGRAM, TESTS), ROUNDS)
    rates = []
    passed = 0
    for _ in range(BATCHES):
        rate, passed_in_batch = run_batch()
        rates.append(rate)
        passed += passed_in_batch
    return {
        "level": reached,
        "start_s": round(start_seconds, 2),
        "median_ms": round(statistics.median(single), 2),
        "fastest_tenth_ms": round(statistics.quantiles(single, n=10)[0], 2),
        "programs_per_s": round(statistics.median(rates)),
        "fastest_batch_per_s": round(max(rates)),
        "two_process_tests_ms": median_ms(
            lambda: run_tests(PROGRAM, LOOP), ROUNDS // 3
        ),
        "passed": passed / BATCH / BATCHES,
    }


def corpus() -> dict[str, object]:
    """Run every hostile and honest program under the corpus' limits.

    Returns the programs whose verdict their first line does not allow, and the slowest time.
    """
    slowest = 0.0
    not_allowed = []
    paths = sorted(CORPUS.rglob("*.py"))
    for path in paths:
        text = path.read_text()
        first_line = text.partition("\n")[0]
        must = json.loads(first_line.removeprefix("# MUST "))
        start = time.perf_counter()
        if must["kind"] == "call":
            result = run_calls(text, "solve", CALLS, EXPECTED)
        else:
            result = run_stdio(text, "1 2 3\n", "14")
        slowest = max(slowest, time.perf_counter() - start)
        if result.verdict not in must["verdict"]:
            not_allowed.append(f"{path.stem}: {result.verdict} ({result.detail})")
    level.programs().close()
    return {
        "level": level.programs().reported,
        "programs": len(paths),
        "not_allowed": not_allowed,
        "slowest_s": round(slowest, 2),
        "peak_mib": peak_mib(),
    }


def hostile_formulas() -> list[Formula]:
    """Return the hostile pairs of the corpus of strings, and the formulas that explode."""
    formulas = []
    for row in map(json.loads, STRINGS.open()):
        if row["kind"] == "math_equiv":
            pair = json.loads(row["input"])
            formulas.append(Formula(pair["pred"], pair["gold"], row["expected"]))
    formulas += [Formula(bomb, gold="42", is_correct=False) for bomb in BOMBS]
    return formulas


def formulas(rounds: int = 40) -> dict[str, object]:
    """Time ordinary formulas, each `rounds` times, and hostile ones.

    Returns times, memory, and the hostile answers whose verdict is wrong.
    """
    start = time.perf_counter()
    verify("math", "x+1", "1+x")
    start_seconds = time.perf_counter() - start
    times = []
    for formula in FORMULAS:
        judge = partial(verify, "math", formula.answer, formula.gold)
        times.append(median_ms(judge, rounds))
    # Only ended processes count: this is the memory of honest pairs.
    math._guarded_equal()._pool.close()
    honest_peak_mib = peak_mib()
    hostile = hostile_formulas()
    slowest = 0.0
    not_allowed = []
    for formula in hostile:
        start = time.perf_counter()
        verdict = verify("math", formula.answer, formula.gold)
        slowest = max(slowest, time.perf_counter() - start)
        if verdict.correct is not formula.is_correct:
            not_allowed.append(formula.answer[:40])
    math._guarded_equal()._pool.close()
    return {
        "start_s": round(start_seconds, 2),
        "median_ms": times,
        "hostile": len(hostile),
        "not_allowed": not_allowed,
        "slowest_hostile_s": round(slowest, 2),
        "honest_peak_mib": honest_peak_mib,
        "hostile_peak_mib": peak_mib(),
    }


def peak_mib() -> int:
    """Return the peak resident memory in MiB of any ended descendant of this process."""
    return round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)


PARTS = {"programs": programs, "corpus": corpus, "formulas": formulas}


def measure_in_a_process(part: str, environment: dict[str, str]) -> dict | None:
    """Measure a part in a separate process; return None where it cannot run."""
    command = [sys.executable, __file__, part]
    env = os.environ | environment
    process = subprocess.run(command, env=env, capture_output=True, text=True)
    return json.loads(process.stdout) if process.returncode == 0 else None


def main() -> None:
    """Measure, print Markdown, write JSON beside this file; or measure only the named part."""
    if len(sys.argv) > 1:
        arguments = map(int, sys.argv[2:])
        sys.stdout.write(json.dumps(PARTS[sys.argv[1]](*arguments)))
        return
    rows = [measure_in_a_process("programs", {level.VARIABLE: name}) for name in LEVELS]
    rows = [row for row in rows if row]
    result = {
        "machine": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
        "user": "root" if os.geteuid() == 0 else "ordinary",
        "levels": rows,
        "corpus": measure_in_a_process("corpus", {}),
        "formulas": measure_in_a_process("formulas", {}),
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    print(pd.DataFrame(rows).to_markdown(index=False))
    print(f"\ncorpus: {json.dumps(result['corpus'])}")
    print(f"formulas: {json.dumps(result['formulas'])}")


if __name__ == "__main__":
    main()
