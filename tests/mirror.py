"""Small copies of the papers' data sets in their original schema, with invented content.

Rows are in data/benchmarks.json. There "*" is a number of copies, in which %d becomes the copy's
number, "%i" its last digit as a number, and %m a level from 1 to 5. Rows that hold programs are
built in this module; the programs are in data/programs.toml.
"""

import base64
import json
import pickle
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from data_files import DATA, tables

Row = dict[str, Any]
ROWS = json.loads((DATA / "benchmarks.json").read_text(encoding="utf-8"))
TEXTS = tables("programs")
DOUBLE = TEXTS["DOUBLE"]
STARTER = TEXTS["STARTER"]
DOUBLE_STDIN = "print(2 * int(input()))"
# By item: a program that passes the item's tests, and one that fails them.
PROGRAMS = {
    "lcb_v1_5/a": (DOUBLE_STDIN, "print(int(input()))"),
    "lcb_v1_5/twice": (STARTER + "return 2 * n", STARTER + "return n"),
    "usaco/1_gold": (DOUBLE_STDIN, "print(6)"),
    "usaco/2_platinum": (DOUBLE_STDIN, "print(2)"),  # passes the first test only
}


def hidden_tests(tests: list[Row]) -> str:
    """Encode LiveCodeBench's private tests: JSON in a pickled string under zlib and base64."""
    pickled = pickle.dumps(json.dumps(tests))
    return base64.b64encode(zlib.compress(pickled)).decode()


def livecodebench_row(
    name: str, starter: str, public_test: Row, private_tests: str
) -> Row:
    metadata = {"func_name": name} if starter else {}
    return {
        "question_content": f"Contest {name}: print or return twice the number.",
        "question_id": name,
        "starter_code": starter,
        "metadata": json.dumps(metadata),
        "public_test_cases": json.dumps([public_test]),
        "private_test_cases": private_tests,
    }


def mbpp_row(number: int, text: str, *tests: str, setup: str = "") -> Row:
    return {
        "task_id": number,
        "text": text,
        "code": DOUBLE,
        "test_setup_code": setup,
        "test_list": tests,
    }


def humaneval_row(number: int, mark: str, test: str) -> Row:
    return {
        "prompt": TEXTS["START"] % f"{number}{mark}",
        "test": test,
        "task_id": f"HumanEval/{number}",
        "entry_point": "double",
        "canonical_solution": "    return 2 * n\n",
    }


def kodcode_row(number: int) -> Row:
    return {
        "question_id": f"k{number}",
        "question": f"Write double, task {number}.",
        "solution": DOUBLE,
        "test": TEXTS["PYTEST"],
        "style": "full",
        "subset": "Prefill",
        "gpt_difficulty": ("easy", "medium", "hard")[number % 3],
    }


CALL = {"input": "3\n", "output": "6"}
PUBLIC_TEST = {"input": "3\n", "output": "6\n"}
PRIVATE_TEST = {"input": "-4\n", "output": "-8\n"}
MBPP_TESTS = ("assert double(2) == 4", "assert set([double(3)]) == {6}")
MBPP_PLUS_ROW = {
    **mbpp_row(11, "", "assert double(2) == 4"),
    "prompt": "Double the number.",
    "test": TEXTS["PLUS"] + TEXTS["MBPP_PLUS"],
}
HUMANEVAL_PLUS_TEST = TEXTS["PLUS"] + TEXTS["HUMANEVAL_PLUS"]
PROGRAM_ROWS: dict[str, list[Row]] = {
    "mbpp": [mbpp_row(11, "Double!", *MBPP_TESTS, setup="import math")],
    "mbpp_plus": [MBPP_PLUS_ROW],
    "humaneval": [humaneval_row(n, ".", TEXTS["HUMANEVAL"]) for n in range(2)],
    "humaneval_plus": [humaneval_row(n, "!", HUMANEVAL_PLUS_TEST) for n in range(2)],
    "kodcode": [kodcode_row(n) for n in range(60)],
    "lcb_v1_5": [
        livecodebench_row("a", "", PUBLIC_TEST, hidden_tests([PRIVATE_TEST])),
        livecodebench_row("twice", STARTER, CALL, json.dumps([CALL])),
    ],
}
BBH = {
    "snarks": ("Which is sarcastic?\n(A) one\n(B) two", "(B)"),
    "word_sorting": ("Sort: b a", "a b"),
}


def mbpp_training_rows() -> list[Row]:
    """Return rows of MBPP's train split, the last with the number of a test row."""
    rows = []
    for n in range(150):
        test = f"assert double({n}) == {2 * n}"
        rows.append(mbpp_row(601 + n, f"Double it, way {n}.", test))
    rows.append(mbpp_row(11, "The same task in other words.", "assert double(1) == 2"))
    return rows


def copies_of(row: Row) -> Iterator[Row]:
    """Yield the copies of a row that its "*" stands for."""
    columns = {name: value for name, value in row.items() if name != "*"}
    template = json.dumps(columns)
    for n in range(row.get("*", 1)):
        text = template.replace('"%i"', str(n % 10))
        text = text.replace("%d", str(n))
        text = text.replace("%m", str(n % 5 + 1))
        yield json.loads(text)


def all_copies(rows: Iterable[Row]) -> list[Row]:
    """Return the copies of several rows."""
    copies: list[Row] = []
    for row in rows:
        copies += copies_of(row)
    return copies


TESTS = {key: all_copies(rows) for key, rows in ROWS["test"].items()} | PROGRAM_ROWS
TRAIN = {key: all_copies(rows) for key, rows in ROWS["train"].items()}
TRAIN["mbpp"] = mbpp_training_rows()


def sums(folder: Path) -> Path:
    """Write a mirror of GSM8K alone, of sums that the embedded backbone can solve.

    Return its folder.
    """
    from tinyworld import tasks as tiny

    for split in ("train", "test"):
        rows = []
        for task in tiny.items(split, 40, ("add", "sub", "mul")):
            answer = f"A sum.\n#### {task.answer}"
            rows.append({"question": task.question, "answer": answer})
        write_rows(folder / "gsm8k" / f"{split}.jsonl", rows)
    return folder


def write(folder: Path) -> Path:
    """Write the mirror and return its folder."""
    from published.data import BENCHMARKS

    for key, benchmark in BENCHMARKS.items():
        test_file = f"{benchmark.split}.jsonl"
        if len(benchmark.configs) > 1:
            for config in benchmark.configs:
                question, gold = BBH.get(config, (f"{config}?", "Yes"))
                row = {"input": question, "target": gold}
                write_rows(folder / key / config / test_file, [row])
        elif benchmark.files:
            for name, row in zip(benchmark.files, TESTS[key], strict=False):
                write_rows(folder / key / name, [row])
        else:
            write_rows(folder / key / test_file, TESTS[key])
        if key in TRAIN:
            write_rows(folder / key / f"{benchmark.train}.jsonl", TRAIN[key])
    return folder


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write rows as JSON lines, and the folders around the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row) + "\n" for row in rows]
    path.write_text("".join(lines), encoding="utf-8")
