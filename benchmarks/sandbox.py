"""Time the verifiers: programs a second at each level, formulas, and how long the hostile ones are allowed to last.

Every level that this machine reaches is measured in a process of its own; results are printed and written to JSON.
"""

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pandas as pd

from codesandbox import level, run_calls, run_stdio, run_tests
from coevolve.text.verify import math, verify

ROUNDS, BATCH, BATCHES = 600, 250, 9
LEVELS = ("process", "kernel", "namespaces")
PROGRAM = "def f(x):\n    return x * x\n"
TESTS = "assert f(3) == 9\nassert f(-4) == 16\nassert f(0) == 0"
LOOP = "for i in range(5):\n    assert f(i) == i * i"
FORMULAS = [("x^2-1", "(x-1)(x+1)"), (r"2\sqrt{3}", r"\sqrt{12}"), ("(1,2)", "(2,1)"), (r"\frac{\pi}{2}", r"\pi/2")]
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
CORPUS, STRINGS = DATA / "hostile_programs", DATA / "hostile_strings.jsonl"
CALLS = [([1, 2, 3],), ([],), ([-4],), ([10**6] * 3,), (list(range(100)),)]
EXPECTED = [14, 0, 16, 3 * 10**12, 328350]


def milliseconds(function, rounds: int) -> list[float]:
    """Milliseconds of every call."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        times.append(1e3 * (time.perf_counter() - start))
    return times


def median_ms(function, rounds: int) -> float:
    """Median milliseconds of a call."""
    return round(statistics.median(milliseconds(function, rounds)), 2)


def programs() -> dict[str, float]:
    """Start-up, one program, tests that need two processes, and many programs at once, at the level asked for."""
    start = time.perf_counter()
    reached = level.programs().reported
    began = time.perf_counter() - start
    single = milliseconds(lambda: run_tests(PROGRAM, TESTS), ROUNDS)
    rates, passed = [], 0
    for _ in range(BATCHES):
        start = time.perf_counter()
        with ThreadPoolExecutor(level.programs().size) as threads:
            found = list(threads.map(lambda tests: run_tests(PROGRAM, tests), [TESTS] * BATCH))
        rates.append(BATCH / (time.perf_counter() - start))
        passed += sum(said.verdict == "pass" for said in found)
    return {
        "level": reached,
        "start_s": round(began, 2),
        "median_ms": round(statistics.median(single), 2),
        "fastest_tenth_ms": round(statistics.quantiles(single, n=10)[0], 2),
        "programs_per_s": round(statistics.median(rates)),
        "fastest_batch_per_s": round(max(rates)),
        "two_process_tests_ms": median_ms(lambda: run_tests(PROGRAM, LOOP), ROUNDS // 3),
        "passed": passed / BATCH / BATCHES,
    }


def corpus() -> dict[str, object]:
    """Every hostile and honest program under the corpus' own limits: who got a verdict its first line allows."""
    slowest, wrong, count = 0.0, [], 0
    for path in sorted(CORPUS.rglob("*.py")):
        text = path.read_text()
        must = json.loads(text.partition("\n")[0].removeprefix("# MUST "))
        start = time.perf_counter()
        if must["kind"] == "call":
            said = run_calls(text, "solve", CALLS, EXPECTED)
        else:
            said = run_stdio(text, "1 2 3\n", "14")
        slowest, count = max(slowest, time.perf_counter() - start), count + 1
        wrong += [] if said.verdict in must["verdict"] else [f"{path.stem}: {said.verdict} ({said.detail})"]
    level.programs().close()
    return {
        "level": level.programs().reported,
        "programs": count,
        "not_allowed": wrong,
        "slowest_s": round(slowest, 2),
        "peak_mib": peak_mib(),
    }


def formulas(rounds: int = 40) -> dict[str, object]:
    """Ordinary pairs, each `rounds` times; time and memory of the hostile ones, and which got a verdict not allowed."""
    start = time.perf_counter()
    verify("math", "x+1", "1+x")
    began = time.perf_counter() - start
    times = [median_ms(partial(verify, "math", answer, gold), rounds) for gold, answer in FORMULAS]
    math._equal()._pool.close()  # what has ended is counted: this is the memory that honest pairs want
    honest = peak_mib()
    rows = [row for row in map(json.loads, STRINGS.open()) if row["kind"] == "math_equiv"]
    pairs = [json.loads(row["input"]) for row in rows]
    asked = [(pair["pred"], pair["gold"], row["expected"]) for row, pair in zip(rows, pairs, strict=True)]
    worst, wrong = 0.0, []
    for answer, gold, right in [*asked, *((bomb, "42", False) for bomb in BOMBS)]:
        start = time.perf_counter()
        said = verify("math", answer, gold)
        worst = max(worst, time.perf_counter() - start)
        wrong += [answer[:40]] if said.correct is not right else []
    math._equal()._pool.close()
    return {
        "start_s": round(began, 2),
        "median_ms": times,
        "hostile": len(asked) + len(BOMBS),
        "not_allowed": wrong,
        "slowest_hostile_s": round(worst, 2),
        "honest_peak_mib": honest,
        "hostile_peak_mib": peak_mib(),
    }


def peak_mib() -> int:
    """Most resident memory, in MiB, of any process that was started here and has ended, and of theirs."""
    return round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)


PARTS = {"programs": programs, "corpus": corpus, "formulas": formulas}


def apart(part: str, environment: dict[str, str]) -> dict | None:
    """Measure a part in a process of its own; None where it cannot run."""
    run = [sys.executable, __file__, part]
    done = subprocess.run(run, env=os.environ | environment, capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else None


def main() -> None:
    """Measure, print Markdown, write JSON beside this file; with a part's name and numbers for it, that part only."""
    if len(sys.argv) > 1:
        sys.stdout.write(json.dumps(PARTS[sys.argv[1]](*map(int, sys.argv[2:]))))
        return
    rows = [row for name in LEVELS if (row := apart("programs", {level.VARIABLE: name}))]
    result = {
        "machine": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
        "user": "root" if os.geteuid() == 0 else "ordinary",
        "levels": rows,
        "corpus": apart("corpus", {}),
        "formulas": apart("formulas", {}),
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    print(pd.DataFrame(rows).to_markdown(index=False))
    print(f"\ncorpus: {json.dumps(result['corpus'])}\nformulas: {json.dumps(result['formulas'])}")


if __name__ == "__main__":
    main()
