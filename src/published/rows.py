"""Readers from rows of published data sets, in their original schema, to questions and golds.

The fields of benchmarks.toml name the columns of question and answer. A reader raises LeftOut for a
row that is left out, KeyError for a missing column, and ValueError for a row that casts doubt on
the whole data set. The module downloads nothing, and executes nothing that a data set holds.
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
from random import Random
from string import Formatter
from typing import Any, ClassVar

from coevolve.text.parse import boxes
from published import livecodebench
from published.options import (
    LETTERS,
    label_change,
    label_text,
    labelled_option,
    listed_options,
    option_texts,
    with_options,
)
from published.values import (
    LeftOut,
    Unwanted,
    columns,
    follow,
    is_missing,
    plain_text,
    texts_of,
)

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
    """The question and the gold of a row; `gold` is as in `Item`.

    `changes` says in words what the row does not write as published.
    """

    question: str
    gold: Any
    changes: tuple[str, ...] = ()


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


def with_lists(row: Row, template: str) -> Row:
    """Return the row with the lists that a template indexes, as in {turns[0]}, as lists.

    A CSV file writes them as text. Raises LeftOut for any other text.
    """
    for _, path, _, _ in Formatter().parse(template):
        name, bracket, _ = (path or "").partition("[")
        if bracket and isinstance(row[name], str):
            values = texts_of(row[name])
            if values == [row[name]]:
                raise LeftOut(f"{name} is no list", repr(row[name])[:60])
            row = {**row, name: values}
        if bracket and is_missing(row[name]):
            raise LeftOut(f"{name} is missing")
    return row


def check_columns(row: Row, template: str) -> None:
    """Raise LeftOut unless every column of a template holds text."""
    for _, path, _, _ in Formatter().parse(template):
        if path is None:
            continue
        value, _ = Formatter().get_field(path, (), row)
        if is_missing(value):
            raise LeftOut(f"{path} is missing")
        if not isinstance(value, str):
            raise LeftOut(f"{path} is not text", repr(value)[:60])


def question_text(row: Row, spec: Row) -> str:
    """Return the question as the solver reads it, with the unit that the answer should have.

    Raises LeftOut if a column of it is missing.
    """
    check_columns(row, spec["question"])
    question = spec["question"].format_map(row).strip()
    unit = plain_text(row.get("unit")) if "unit" in spec else ""
    return question + spec["unit"].format(unit=unit) if unit else question


def read_open_ended(row: Row, spec: Row) -> Reading:
    """Read a question with a free answer; with `join`, several golds make one text."""
    question = question_text(row, spec)
    golds = []
    for value in _answers(row, spec):
        gold = _gold_text(value, spec)
        if gold and gold not in golds:
            golds.append(gold)
    if not golds:
        raise LeftOut(f"{_answer_column(spec)} is missing")
    if "skip" in spec and golds[0].startswith(spec["skip"]):
        raise Unwanted(f"{_answer_column(spec)} begins with {spec['skip']!r}")
    if "join" in spec:
        return Reading(question, spec["join"].join(golds))
    return Reading(question, tuple(golds) if len(golds) > 1 else golds[0])


def _answer_column(spec: Row) -> str:
    paths = spec["answer"]
    return paths if isinstance(paths, str) else paths[0]


def _answers(row: Row, spec: Row) -> list[Any]:
    """Return the values of the answer columns; raises Unwanted for an empty list.

    SQuAD's questions without an answer have one.
    """
    values = columns(row, spec["answer"])
    if not values:
        raise Unwanted(f"{_answer_column(spec)} is empty")
    if "list" in spec and len(values) == 1:
        return texts_of(values[0])
    return values


def _gold_text(value: Any, spec: Row) -> str:
    """Return a gold answer as text, or "" if the row has none."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = plain_text(value)
    if not text:
        return ""
    if "boolean" in spec:
        return _yes_or_no(text, spec)
    if "after" in spec:
        _, mark, text = text.rpartition(spec["after"])
        if not mark:
            raise LeftOut(f"{_answer_column(spec)} has no {spec['after']}")
        text = text.replace(",", "")
    elif "boxed" in spec:
        text = boxed_gold(text)
        if not text:
            raise LeftOut(
                f"{_answer_column(spec)} has no single answer in a \\boxed{{...}}"
            )
    return text.strip().strip(spec.get("strip", "")).strip()


def _yes_or_no(text: str, spec: Row) -> str:
    """Read a truth value that a CSV or pandas made a word or a number."""
    word = text.casefold()
    if word in ("true", "yes", "1"):
        return "yes"
    if word in ("false", "no", "0"):
        return "no"
    raise LeftOut(f"{_answer_column(spec)} is neither true nor false", repr(text)[:60])


def boxed_gold(solution: str) -> str:
    """Return the content of a solution's last box, "" if there is none."""
    found = boxes(solution)
    if not found:
        return ""
    return found[-1] or ""


def read_choice(row: Row, spec: Row) -> Reading:
    """Read a multiple-choice question; the options become (A), (B), ..., whatever their labels."""
    question = question_text(row, spec)
    options = _options(row, spec)
    correct, changes = _correct_option(row, spec, len(options))
    order = list(range(len(options)))
    if "shuffle" in spec:  # seeded by the question's text: the same order everywhere
        Random(f"options {digest(question)}").shuffle(order)
    shown = [options[i] for i in order]
    gold = LETTERS[order.index(correct)]
    return Reading(with_options(question, shown), gold, changes)


def _options(row: Row, spec: Row) -> list[str]:
    """Return the options: those of one column, or one of each of several columns."""
    paths = spec["options"]
    if isinstance(paths, str):
        return listed_options(follow(row, paths), paths)
    return option_texts([follow(row, path) for path in paths], " and ".join(paths))


def _correct_option(row: Row, spec: Row, count: int) -> tuple[int, tuple[str, ...]]:
    """Return the index of the correct option, and how the label differs from the published form.

    Without an answer column the first option is correct.
    """
    if "answer" not in spec:
        return 0, ()
    column = spec["answer"]
    value = follow(row, column)
    label = label_text(value, column)
    labels = []
    if "labels" in spec:
        labels = [plain_text(known) for known in texts_of(follow(row, spec["labels"]))]
    correct = labelled_option(label, labels, count, spec.get("first", 0), column)
    change = "" if label in labels else label_change(value, label, column)
    return correct, (change,) if change else ()


def read_tested(row: Row, spec: Row) -> Reading:
    """Read a task with Python tests: assertions, a checking function, or functions for pytest."""
    question = question_text(row, spec)
    test_texts = []
    for path in spec["tests"]:
        texts = texts_of(follow(row, path))
        test_texts += [text for text in texts if not is_missing(text)]
    if not test_texts:
        raise LeftOut(f"{spec['tests'][-1]} is missing")
    tests = "\n".join(test_texts).replace("import numpy as np", NUMPY_STAND_IN)
    tests = re.sub(r"(?m)^(from solution import|import solution).*\n?", "", tests)
    if "entry" in spec:
        # Tests may call what the task defines before its function (HumanEval/32, 38 and 50).
        for name in ("before", "entry"):
            check_columns(row, f"{{{spec[name]}}}")
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
    return Reading(question, gold)


def read_contest(row: Row, spec: Row) -> Reading:
    """Read a task of LiveCodeBench, or of USACO (gold and platinum only)."""
    if row.get("problem_level", "gold") not in USACO_LEVELS:
        raise Unwanted("problem_level is neither gold nor platinum")
    question = question_text(row, spec)
    if "tests" in row:
        if not row["tests"]:
            raise LeftOut("tests is empty")
        return Reading(f"{question}\n\n{STDIN_INSTRUCTION}", _usaco_gold(row))
    public_tests = json.loads(row["public_test_cases"])
    tests = public_tests + read_hidden_tests(row["private_test_cases"])
    if not tests:
        raise LeftOut("public_test_cases and private_test_cases are empty")
    starter_code = row.get("starter_code")
    if is_missing(starter_code):
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
