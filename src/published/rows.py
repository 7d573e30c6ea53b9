"""Readers from rows of published data sets, in their original schema, to questions and golds.

The fields of benchmarks.toml name the columns of question and answer. A reader returns None for a
row that is left out, and raises KeyError for a missing column. The module downloads nothing, and
executes nothing that a data set holds.
"""

import base64
import hashlib
import json
import pickletools
import re
import unicodedata
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import getitem
from random import Random
from typing import Any, ClassVar

from coevolve.text.parse import boxed
from published import livecodebench

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
STDIN_INSTRUCTION = (
    "Write a Python program that reads from standard input "
    "and writes to standard output."
)
# The sandbox has no numpy, and EvalPlus uses nothing else of it.
NUMPY_STAND_IN = """class np:
    ndarray = ()
    @staticmethod
    def allclose(a, b, rtol=1e-5, atol=1e-8):
        if isinstance(a, (list, tuple)):
            return len(a) == len(b) and all(np.allclose(x, y, rtol, atol) for x, y in zip(a, b))
        return abs(a - b) <= atol + rtol * abs(b)
"""
USACO_LEVELS = ("gold", "platinum")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Item:
    """A question of a benchmark.

    `gold` is text, a tuple of accepted answers, or for programs a mapping: `tests` (assertions),
    `calls` of `entry` with the `expected` values, or `stdio` pairs. `before` and `after` in it
    surround the program; `options` are those of the sandbox's function that judges it.
    """

    family: str  # the benchmark's key; the tiny world has families in this place
    id: str
    question: str  # as the solver reads it
    gold: Any
    scorer: str  # math, choice, exact, number, float, code or judge
    judge: str = ""  # the kind of MAE's judge prompt
    stem: str = ""  # the question without options, passage and instructions
    origin: str = ""  # the benchmark whose numbers identify the questions
    split: str = "test"
    # At which the paper evaluates; None: that of the run.
    temperature: float | None = None
    meta: Row = field(default_factory=dict)
    level: ClassVar[None] = None  # no oracle grades these questions
    misconception: ClassVar[None] = None  # no oracle knows the typical mistake

    @property
    def identity_keys(self) -> tuple[str, str]:
        """The normalised text, and the number at the origin.

        Two items that share one of them are the same question.
        """
        return normal(self.question), f"{self.origin or self.family} {self.id}"

    @property
    def answer(self) -> str:
        """The gold answer as text: the first accepted one, or the published program ("": none)."""
        if isinstance(self.gold, Mapping):
            return str(self.meta.get("solution", ""))
        if isinstance(self.gold, tuple):
            return str(self.gold[0])
        return str(self.gold)


@dataclass(frozen=True)
class Reading:
    """The question and the gold of a row; `gold` is as in `Item`."""

    question: str
    gold: Any


def normal(text: str) -> str:
    """Normalise case, spacing and Unicode: questions with equal results are the same."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(folded.split())


def digest(text: str) -> str:
    """Return sixteen hex digits of the SHA-256 of the normalised text.

    They are the id of a row that has none, and decide on splits by hash.
    """
    encoded = normal(text).encode(errors="surrogatepass")
    return hashlib.sha256(encoded).hexdigest()[:16]


def columns(row: Row, paths: str | Sequence[str]) -> list[Any]:
    """Return the values of one or several columns; a list contributes each of its values.

    A dot in a path leads into a nested column.
    """
    if isinstance(paths, str):
        paths = [paths]
    nested = [reduce(getitem, path.split("."), row) for path in paths]
    values: list[Any] = []
    for value in nested:
        if isinstance(value, list):
            values += value
        else:
            values.append(value)
    return values


def question_text(row: Row, spec: Row) -> str:
    """Return the question as the solver reads it, with the unit that the answer should have."""
    question = spec["question"].format_map(row).strip()
    unit = ""
    if "unit" in spec:
        unit = str(row.get("unit") or "").strip()
    return question + spec["unit"].format(unit=unit) if unit else question


def read_open_ended(row: Row, spec: Row) -> Reading | None:
    """Read a question with a free answer; with `join`, several golds make one text."""
    golds = []
    for value in columns(row, spec["answer"]):
        gold = _gold_text(value, spec)
        if gold and gold not in golds:
            golds.append(gold)
    if not golds:
        return None
    if "skip" in spec and golds[0].startswith(spec["skip"]):
        return None
    question = question_text(row, spec)
    if "join" in spec:
        return Reading(question, spec["join"].join(golds))
    return Reading(question, tuple(golds) if len(golds) > 1 else golds[0])


def _gold_text(value: Any, spec: Row) -> str:
    """Return a gold answer as text, or "" if the row has none."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = "" if value is None else str(value)
    if "after" in spec:
        text = text.rsplit(spec["after"], 1)[-1].replace(",", "")
    elif "boxed" in spec:
        text = boxed(text) or ""
    return text.strip().strip(spec.get("strip", "")).strip()


def read_choice(row: Row, spec: Row) -> Reading | None:
    """Read a multiple-choice question; the options become (A), (B), ..., whatever their labels."""
    question = question_text(row, spec)
    options = [str(option).strip() for option in columns(row, spec["options"])]
    order = list(range(len(options)))
    if "shuffle" in spec:  # seeded by the question's text: the same order everywhere
        Random(f"options {digest(question)}").shuffle(order)
    correct = _correct_option(row, spec)
    if correct not in order:  # an unlabelled row of a hidden test split
        return None
    lines = [question]
    for letter, i in zip(LETTERS, order, strict=False):
        lines.append(f"({letter}) {options[i]}")
    lines.append("Answer with the letter of the right option.")
    return Reading("\n".join(lines), LETTERS[order.index(correct)])


def _correct_option(row: Row, spec: Row) -> int:
    """Return the index of the correct option, or -1 if the row has no label.

    The gold is a label, a number or a letter; without an answer column it is the first option.
    """
    gold = str(row[spec["answer"]]).strip() if "answer" in spec else "0"
    labels = [str(label) for label in columns(row, spec.get("labels", []))]
    if gold in labels:
        return labels.index(gold)
    if gold.isdecimal():
        return int(gold) - spec.get("first", 0)
    return LETTERS.find(gold) if len(gold) == 1 else -1


def read_tested(row: Row, spec: Row) -> Reading:
    """Read a task with Python tests: assertions, a checking function, or functions for pytest."""
    test_texts = [text for text in columns(row, spec["tests"]) if text]
    tests = "\n".join(test_texts).replace("import numpy as np", NUMPY_STAND_IN)
    tests = re.sub(r"(?m)^(from solution import|import solution).*\n?", "", tests)
    if "entry" in spec:
        # Tests may call what the task defines before its function (HumanEval/32, 38 and 50).
        prompt = row[spec["before"]]
        definitions, _, _ = prompt.rpartition(f"def {row[spec['entry']]}(")
        tests = definitions + tests
    test_functions = re.findall(r"(?m)^def (test\w*)\(", tests)
    lines = [tests, *(f"{name}()" for name in test_functions)]
    if "call" in spec:
        lines.append(spec["call"].format_map(row))
    gold = {"tests": "\n".join(lines)}
    for name in re.findall(r"(\w+)\(\*inp\)", tests):  # EvalPlus calls the candidate so
        if f"def {name}(" not in tests:
            gold["entry"] = name
            break
    for name in ("entry", "before"):
        if name in spec:
            gold[name] = row[spec[name]]
    return Reading(question_text(row, spec), gold)


def read_contest(row: Row, spec: Row) -> Reading | None:
    """Read a task of LiveCodeBench, or of USACO (gold and platinum only)."""
    if row.get("problem_level", "gold") not in USACO_LEVELS:
        return None
    question = question_text(row, spec)
    if "tests" in row:
        return Reading(f"{question}\n\n{STDIN_INSTRUCTION}", _usaco_gold(row))
    public_tests = json.loads(row["public_test_cases"])
    tests = public_tests + read_hidden_tests(row["private_test_cases"])
    starter_code = row.get("starter_code")
    if not starter_code:
        pairs = [(test["input"], test["output"]) for test in tests]
        gold = livecodebench.stdio_gold(pairs)
        return Reading(f"{question}\n\n{STDIN_INSTRUCTION}", gold)
    function = json.loads(row["metadata"])["func_name"]
    gold = _calls_gold(function, tests)
    return Reading(f"{question}\n\nStart from this code:\n{starter_code}", gold)


def _usaco_gold(row: Row) -> dict[str, Any]:
    limits = {
        "cpu_seconds": float(row.get("runtime_limit") or 2),
        "memory_mb": int(row.get("memory_limit") or 256),
    }
    # As USACO's judge has it: `1e3` is not 1000.
    return {"stdio": row["tests"], "limits": limits, "options": {"compare": "text"}}


def _calls_gold(function: str, tests: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Return LiveCodeBench's calls of a function: one argument a line of the input, as JSON."""
    calls = []
    expected = []
    for test in tests:
        lines = [line for line in test["input"].split("\n") if line.strip()]
        calls.append([json.loads(line) for line in lines])
        expected.append(json.loads(test["output"]))
    return livecodebench.calls_gold(function, calls, expected)


def read_hidden_tests(text: str) -> list[dict[str, str]]:
    """Read LiveCodeBench's hidden tests: JSON, or a pickled string of JSON under zlib and base64.

    The string is taken out of the pickle without unpickling it, which could run code.
    """
    if text.startswith("["):
        return json.loads(text)
    pickled = zlib.decompress(base64.b64decode(text))
    strings = []
    for opcode, value, _ in pickletools.genops(pickled):
        if "UNICODE" in opcode.name:
            strings.append(value)
    return json.loads(strings[0])


READERS = {
    "open_ended": read_open_ended,
    "choice": read_choice,
    "tested": read_tested,
    "contest": read_contest,
}
