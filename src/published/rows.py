"""Rows of published data sets, in their original schema, to questions with gold answers.

The fields of benchmarks.toml say where question and answer stand. A reader returns None for a row that is not to be
used, and raises KeyError when a column is missing. Nothing here downloads or runs what a data set holds.
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

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
PRELUDE = "\n".join(  # what LiveCodeBench's starting code takes for granted
    f"from {name} import *" for name in "typing collections heapq bisect itertools functools math".split()
)
STDIN = "Write a Python program that reads from standard input and writes to standard output."
SHIM = """class np:
    ndarray = ()
    @staticmethod
    def allclose(a, b, rtol=1e-5, atol=1e-8):
        if isinstance(a, (list, tuple)):
            return len(a) == len(b) and all(np.allclose(x, y, rtol, atol) for x, y in zip(a, b))
        return abs(a - b) <= atol + rtol * abs(b)
"""  # the sandbox has no numpy, and EvalPlus asks it for nothing else
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Item:
    """A question of a benchmark. `gold` is text, a tuple of answers that all count, or for a program a mapping:

    `tests` (assertions), `calls` of `entry` with what is `expected`, or `stdio` pairs; `before` and `after` stand
    around the program.
    """

    family: str  # the benchmark's key, in the place of a family of the tiny world
    id: str
    question: str  # as it stands in the solver's prompt
    gold: Any
    scorer: str  # math, choice, exact, number, float, code or judge
    judge: str = ""  # which of MAE's four prompts a judge gets
    stem: str = ""  # the question without options, passage and instructions
    origin: str = ""  # the benchmark that numbers the same questions
    split: str = "test"
    temperature: float | None = None  # that the paper answers it at; None: the set-up's own
    meta: Row = field(default_factory=dict)
    level: ClassVar[None] = None  # no oracle grades these questions
    misconception: ClassVar[None] = None  # or knows how one gets them wrong

    @property
    def marks(self) -> tuple[str, str]:
        """Two items that share one of these are the same question: the text, and the number where it comes from."""
        return normal(self.question), f"{self.origin or self.family} {self.id}"

    @property
    def answer(self) -> str:
        """The gold answer as text: the first that counts, or a program that passes (empty where none is published)."""
        if isinstance(self.gold, Mapping):
            return str(self.meta.get("solution", ""))
        return str(self.gold[0]) if isinstance(self.gold, tuple) else str(self.gold)


def normal(text: str) -> str:
    """Return a question's text without case and spacing: equal means the same question."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def digest(text: str) -> str:
    """Return sixteen hex digits of the normalised text's SHA-256: an id for rows that have none, and their split."""
    return hashlib.sha256(normal(text).encode(errors="surrogatepass")).hexdigest()[:16]


def columns(row: Row, paths: str | Sequence[str]) -> list[Any]:
    """Return the values of one or several columns; a dot goes into a column, one of lists gives all of its values."""
    values = [reduce(getitem, path.split("."), row) for path in ([paths] if isinstance(paths, str) else paths)]
    return [one for value in values for one in (value if isinstance(value, list) else [value])]


def shown(row: Row, spec: Row) -> str:
    """Return the question as the solver reads it, with the unit that its answer should have."""
    unit = str(row.get("unit") or "").strip() if "unit" in spec else ""
    return spec["question"].format_map(row).strip() + (spec["unit"].format(unit=unit) if unit else "")


def open_ended(row: Row, spec: Row) -> tuple[str, str | tuple[str, ...]] | None:
    """Read a question that is answered freely; several golds all count, or with `join` make one text."""
    golds = tuple(dict.fromkeys(filter(None, (_gold(value, spec) for value in columns(row, spec["answer"])))))
    if not golds or "skip" in spec and golds[0].startswith(spec["skip"]):
        return None
    if "join" in spec:
        return shown(row, spec), spec["join"].join(golds)
    return shown(row, spec), golds if len(golds) > 1 else golds[0]


def _gold(value: Any, spec: Row) -> str:
    """A gold answer as text; empty where the row has none."""
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


def choice(row: Row, spec: Row) -> tuple[str, str] | None:
    """Read a question with options, which are lettered (A), (B), ... whatever the row calls them."""
    question, options = shown(row, spec), [str(option).strip() for option in columns(row, spec["options"])]
    order = list(range(len(options)))
    if "shuffle" in spec:  # by the question's text: the same everywhere
        Random(f"options {digest(question)}").shuffle(order)
    right = _right(row, spec)
    if right not in order:  # an unlabelled row of a hidden test split
        return None
    lines = [f"({letter}) {options[i]}" for letter, i in zip(LETTERS, order, strict=False)]
    return "\n".join([question, *lines, "Answer with the letter of the right option."]), LETTERS[order.index(right)]


def _right(row: Row, spec: Row) -> int:
    """Which option is right, from 0: the gold is a label, a letter or a number; -1 where there is none."""
    gold = str(row[spec["answer"]]).strip() if "answer" in spec else "0"
    labels = [str(label) for label in columns(row, spec.get("labels", []))]
    if gold in labels:
        return labels.index(gold)
    if gold.isdecimal():
        return int(gold) - spec.get("first", 0)
    return LETTERS.find(gold) if len(gold) == 1 else -1


def tested(row: Row, spec: Row) -> tuple[str, dict[str, Any]]:
    """Read a task with tests in Python: assertions, a function that checks, or functions for pytest."""
    tests = "\n".join(filter(None, columns(row, spec["tests"]))).replace("import numpy as np", SHIM)
    tests = re.sub(r"(?m)^(from solution import|import solution).*\n?", "", tests)
    if "entry" in spec:  # tests may call what the task defines before its function (HumanEval/32, 38 and 50)
        tests = row[spec["before"]].rpartition(f"def {row[spec['entry']]}(")[0] + tests
    calls = [f"{name}()" for name in re.findall(r"(?m)^def (test\w*)\(", tests)]
    calls += [spec["call"].format_map(row)] if "call" in spec else []
    asked = [name for name in re.findall(r"(\w+)\(\*inp\)", tests) if f"def {name}(" not in tests]  # by EvalPlus
    gold = {"tests": "\n".join([tests, *calls])} | ({"entry": asked[0]} if asked else {})
    return shown(row, spec), gold | {name: row[spec[name]] for name in ("entry", "before") if name in spec}


def contest(row: Row, spec: Row) -> tuple[str, dict[str, Any]] | None:
    """Read a task of LiveCodeBench or USACO (gold and platinum only): standard input, or a function to be called."""
    if row.get("problem_level", "gold") not in ("gold", "platinum"):
        return None
    if "tests" in row:
        limits = {"cpu_seconds": float(row.get("runtime_limit") or 2), "memory_mb": int(row.get("memory_limit") or 256)}
        return f"{shown(row, spec)}\n\n{STDIN}", {"stdio": row["tests"], "limits": limits}
    tests = json.loads(row["public_test_cases"]) + hidden(row["private_test_cases"])
    if not row.get("starter_code"):
        return f"{shown(row, spec)}\n\n{STDIN}", {"stdio": [(test["input"], test["output"]) for test in tests]}
    name = json.loads(row["metadata"])["func_name"]
    calls = [[json.loads(line) for line in test["input"].split("\n") if line.strip()] for test in tests]
    gold = {"entry": name, "calls": calls, "expected": [json.loads(test["output"]) for test in tests]}
    if "class Solution" in row["starter_code"]:
        gold["before"] = PRELUDE
        gold["after"] = f"\ndef {name}(*given): return Solution().{name}(*given)\n"
    return f"{shown(row, spec)}\n\nStart from this code:\n{row['starter_code']}", gold


def hidden(text: str) -> list[dict[str, str]]:
    """Read hidden tests: JSON, or JSON as one pickled string under zlib and base64, which is not unpickled."""
    if text.startswith("["):
        return json.loads(text)
    opcodes = pickletools.genops(zlib.decompress(base64.b64decode(text)))
    return json.loads([value for code, value, _ in opcodes if "UNICODE" in code.name][0])


READERS = {reader.__name__: reader for reader in (open_ended, choice, tested, contest)}
