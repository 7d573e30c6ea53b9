"""Small copies of the papers' data sets in their original schema. All content is invented here.

Rows are in data/benchmarks.json: "*" makes so many of a row, in which %d is the number, "%i" its last digit as a number,
%m a level from 1 to 5. Rows that hold programs are below, the programs in data/programs.toml.
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
TABLES = json.loads((DATA / "benchmarks.json").read_text(encoding="utf-8"))
TEXTS = tables("programs")
DOUBLE, STARTER = TEXTS["DOUBLE"], TEXTS["STARTER"]
HUMANEVAL_PLUS, MBPP_PLUS = TEXTS["PLUS"] + TEXTS["HUMANEVAL_PLUS"], TEXTS["PLUS"] + TEXTS["MBPP_PLUS"]
PROGRAMS = {  # what passes and what fails the tests of a row
    "lcb_v1_5/a": ("print(2 * int(input()))", "print(int(input()))"),
    "lcb_v1_5/twice": (STARTER + "return 2 * n", STARTER + "return n"),
    "usaco/1_gold": ("print(2 * int(input()))", "print(6)"),
    "usaco/2_platinum": ("print(2 * int(input()))", "print(2)"),  # right on the first test only
}


def hidden(tests: list[Row]) -> str:
    """LiveCodeBench's private tests: JSON in a pickled string under zlib and base64."""
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


def contest(name: str, starter: str, shown: Row, private: str) -> Row:
    metadata = json.dumps({"func_name": name} if starter else {})
    about = {"question_id": name, "starter_code": starter, "metadata": metadata}
    tests = {"public_test_cases": json.dumps([shown]), "private_test_cases": private}
    return {"question_content": f"Contest {name}: print or return twice the number.", **about, **tests}


def task(number: int, text: str, *tests: str, setup: str = "") -> Row:
    return {"task_id": number, "text": text, "code": DOUBLE, "test_setup_code": setup, "test_list": tests}


def function(number: int, mark: str, test: str) -> Row:
    about = {"task_id": f"HumanEval/{number}", "entry_point": "double", "canonical_solution": "    return 2 * n\n"}
    return {"prompt": TEXTS["START"] % f"{number}{mark}", "test": test, **about}


def coded(number: int) -> Row:
    about = {"style": "full", "subset": "Prefill", "gpt_difficulty": ("easy", "medium", "hard")[number % 3]}
    question = f"Write double, task {number}."
    return {"question_id": f"k{number}", "question": question, "solution": DOUBLE, "test": TEXTS["PYTEST"], **about}


CALL = {"input": "3\n", "output": "6"}
CODE: dict[str, list[Row]] = {
    "mbpp": [task(11, "Double!", "assert double(2) == 4", "assert set([double(3)]) == {6}", setup="import math")],
    "mbpp_plus": [{**task(11, "", "assert double(2) == 4"), "prompt": "Double the number.", "test": MBPP_PLUS}],
    "humaneval": [function(number, ".", TEXTS["HUMANEVAL"]) for number in range(2)],
    "humaneval_plus": [function(number, "!", HUMANEVAL_PLUS) for number in range(2)],
    "kodcode": [coded(number) for number in range(60)],
    "lcb_v1_5": [
        contest("a", "", {"input": "3\n", "output": "6\n"}, hidden([{"input": "-4\n", "output": "-8\n"}])),
        contest("twice", STARTER, CALL, json.dumps([CALL])),
    ],
}
WAYS = [task(601 + n, f"Double it, way {n}.", f"assert double({n}) == {2 * n}") for n in range(150)]
BBH = {"snarks": ("Which is sarcastic?\n(A) one\n(B) two", "(B)"), "word_sorting": ("Sort: b a", "a b")}


def expanded(rows: Iterable[Row]) -> Iterator[Row]:
    """Make the rows that "*" stands for."""
    for row in rows:
        text = json.dumps({name: value for name, value in row.items() if name != "*"})
        for n in range(row.get("*", 1)):
            yield json.loads(text.replace('"%i"', str(n % 10)).replace("%d", str(n)).replace("%m", str(n % 5 + 1)))


TESTS = {key: list(expanded(rows)) for key, rows in TABLES["test"].items()} | CODE
TRAIN = {key: list(expanded(rows)) for key, rows in TABLES["train"].items()}
TRAIN["mbpp"] = [*WAYS, task(11, "The same task in other words.", "assert double(1) == 2")]


def sums(folder: Path) -> Path:
    """Write a mirror of GSM8K alone, with sums that the embedded backbone knows, and return its folder."""
    from tinyworld import tasks as tiny

    for split in ("train", "test"):
        made = tiny.items(split, 40, ("add", "sub", "mul"))
        rows = [{"question": task.question, "answer": f"A sum.\n#### {task.answer}"} for task in made]
        lines(folder / "gsm8k" / f"{split}.jsonl", rows)
    return folder


def write(folder: Path) -> Path:
    """Write the mirror and return its folder."""
    from published.data import BENCHMARKS

    for key, known in BENCHMARKS.items():
        several = len(known.configs) > 1
        for config in known.configs if several else ():
            question, gold = BBH.get(config, (f"{config}?", "Yes"))
            lines(folder / key / config / f"{known.split}.jsonl", [{"input": question, "target": gold}])
        for name, row in zip(known.files, TESTS.get(key, []), strict=False):
            lines(folder / key / name, [row])
        if not several and not known.files:
            lines(folder / key / f"{known.split}.jsonl", TESTS[key])
        if key in TRAIN:
            lines(folder / key / f"{known.train}.jsonl", TRAIN[key])
    return folder


def lines(path: Path, rows: Iterable[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
