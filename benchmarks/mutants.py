"""Agreement of the sandbox with plain Python on published programs and mutants of them.

`python -m benchmarks.mutants HumanEval.jsonl mbpp.jsonl` runs every canonical program and up to
five mutants of it, each with its published tests: once as `run_tests` judges it, once in a plain
Python process, whose exit code is the truth. The programs are trusted. Writes mutants.json.
"""

import ast
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

from codesandbox import run_tests

MUTANTS = 5  # of a program
SECONDS = 10  # of a plain process
RESULT = Path(__file__).with_suffix(".json")
SWAPPED: dict[type, ast.AST] = {
    ast.Add: ast.Sub(),
    ast.Sub: ast.Add(),
    ast.Mult: ast.Add(),
    ast.FloorDiv: ast.Mult(),
    ast.Mod: ast.FloorDiv(),
    ast.Lt: ast.LtE(),
    ast.LtE: ast.Lt(),
    ast.Gt: ast.GtE(),
    ast.GtE: ast.Gt(),
    ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(),
    ast.And: ast.Or(),
    ast.Or: ast.And(),
}


@dataclass(frozen=True)
class Task:
    """A published program with its tests; `entry` is the function that they call."""

    source: str
    program: str
    tests: str
    entry: str | None = None


def read_tasks(humaneval: Path, mbpp: Path) -> Iterator[Task]:
    """Yield the tasks of both files."""
    for line in humaneval.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        program = row["prompt"] + row["canonical_solution"]
        tests = f"{row['test']}\ncheck({row['entry_point']})\n"
        yield Task("HumanEval", program, tests, row["entry_point"])
    for line in mbpp.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        tests = "\n".join([row.get("test_setup_code", ""), *row["test_list"]])
        yield Task("MBPP", row["code"].replace("\r", ""), tests)


def mutants(program: str) -> Iterator[str]:
    """Yield the program with one operator swapped, or one number or return value changed."""
    tree = ast.parse(program)
    count = sum(1 for _ in ast.walk(tree))
    step = 1 + count // 97  # places all over the program
    found = 0
    for index in range(0, count, step):
        changed = deepcopy(tree)
        node = list(ast.walk(changed))[index]
        if found < MUTANTS and _mutate(node):
            found += 1
            yield ast.unparse(changed)


def _mutate(node: ast.AST) -> bool:
    """Change a node in place, if it is one of those that can be changed."""
    match node:
        case ast.BinOp(op=operator) | ast.BoolOp(op=operator) if (
            type(operator) in SWAPPED
        ):
            node.op = SWAPPED[type(operator)]  # type: ignore[assignment]
        case ast.Compare(ops=[operator, *others]) if type(operator) in SWAPPED:
            node.ops = [SWAPPED[type(operator)], *others]  # type: ignore[list-item]
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            node.value = value + 1
        case ast.Return(value=ast.expr()):
            node.value = ast.Constant(None)
        case _:
            return False
    return True


def plainly_passes(task: Task, program: str) -> bool:
    """Whether a plain Python process runs the program and its tests to the end."""
    command = [sys.executable, "-c", f"{program}\n{task.tests}"]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def judge(task: Task, program: str, kind: str) -> Counter[str]:
    """Return one count: whether the sandbox and the plain process agree, and on what."""
    verdict = run_tests(program, task.tests, entry=task.entry).correct
    if verdict is None:
        return Counter({f"{task.source} {kind}: unscored": 1})
    truth = plainly_passes(task, program)
    outcome = "passes" if truth else "fails"
    agreement = "agreed" if verdict is truth else "disagreed"
    return Counter({f"{task.source} {kind}: {outcome}, {agreement}": 1})


def main() -> None:
    """Judge all programs and mutants, write the counts and print them."""
    jobs = []
    for task in read_tasks(*map(Path, sys.argv[1:3])):
        jobs.append((task, task.program, "canonical"))
        jobs += [(task, program, "mutant") for program in mutants(task.program)]
    total: Counter[str] = Counter()
    with ThreadPoolExecutor(os.cpu_count()) as threads:  # more would run out of time
        for counts in threads.map(lambda job: judge(*job), jobs):
            total += counts
    result = dict(sorted(total.items()))
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(RESULT.read_text(encoding="utf-8"), end="")


if __name__ == "__main__":
    main()
