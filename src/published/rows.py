"""Rows of published data sets, in their original schema, to questions with gold answers.

One reader a shape of row; a reader returns None for a row that is not to be used, and raises KeyError when a
field is missing. Nothing here downloads, and nothing a data set holds is run or unpickled.
"""

import ast
import base64
import builtins
import hashlib
import json
import pickletools
import re
import unicodedata
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from coevolve.parse import boxed

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
BY_LETTER = "Answer with the letter of the right option."
LETTER_GOLD = re.compile(r"\(([A-Z])\)")
NUMPY = "import numpy as np"
SHIM = """class np:
    @staticmethod
    def allclose(a, b, rtol=1e-5, atol=1e-8):
        def flat(x):
            return [z for y in x for z in flat(y)] if isinstance(x, (list, tuple)) else [x]
        a, b = flat(a), flat(b)
        return len(a) == len(b) and all(abs(x - y) <= atol + rtol * abs(y) for x, y in zip(a, b))
"""  # the sandbox has no numpy, and EvalPlus asks it for nothing else
OWN_IMPORT = re.compile(r"from solution import|import solution")
STDIN = "Write a Python program that reads from standard input and writes to standard output."
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Item:
    """A question of a benchmark. `gold` is text, a number, a tuple of aliases, or a mapping for programs."""

    benchmark: str
    id: str
    question: str  # as it stands in the solver's prompt
    gold: Any
    scorer: str  # math, choice, exact, float, code or judge
    tolerance: float = 0.0
    judge: str = ""  # which of MAE's four prompts a judge gets
    stem: str = ""  # the question without options and instructions
    origin: str = ""  # the benchmark that numbers the same questions
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def marks(self) -> tuple[str, str]:
        """Two items that share one of these are the same question: the text, and the number where it comes from."""
        return normal(self.question), f"{self.origin or self.benchmark} {self.id}"

    @property
    def family(self) -> str:
        """The benchmark, in the place of a family of the tiny world."""
        return self.benchmark

    @property
    def level(self) -> None:
        """No oracle grades these questions."""

    @property
    def answer(self) -> str:
        """The gold answer as text: the first alias, or a program that passes (empty where none is published)."""
        if isinstance(self.gold, Mapping):
            return str(self.meta.get("solution") or "")
        return str(self.gold[0]) if isinstance(self.gold, tuple) else str(self.gold)


def normal(text: str) -> str:
    """A question's text without case and spacing: equal means the same question."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def digest(text: str) -> str:
    """Sixteen hex digits of the normalised text's SHA-256: an id for rows that have none, and their split."""
    return hashlib.sha256(normal(text).encode(errors="surrogatepass")).hexdigest()[:16]


def lettered(question: str, options: list[str], ask: str = "") -> str:
    """A question with its options as (A), (B), ... below it."""
    lines = [f"({letter}) {option}" for letter, option in zip(LETTERS, options, strict=False)]
    return "\n".join([*filter(None, [ask]), question, *lines, BY_LETTER])


def program(text: str) -> str:
    """The program in an answer: the content of its last complete code fence, or all of it."""
    fences = re.findall(r"```[A-Za-z0-9]*[ \t]*\n(.*?)```", text, re.DOTALL)
    return fences[-1] if fences else text


def _dotted(row: Row, path: str) -> Any:
    value: Any = row
    for name in path.split("."):
        value = value[name]
    return value


def _plain(row: Row, spec: Mapping) -> tuple[str, Any] | None:
    question, gold = _dotted(row, spec["question"]), _dotted(row, spec["answer"])
    question = question[0] if isinstance(question, list) else str(question)
    if "after" in spec:
        gold = str(gold).rsplit(spec["after"], 1)[-1].strip().replace(",", "")
    elif spec.get("boxed"):
        gold = boxed(str(gold))
    elif isinstance(gold, bool):
        gold = "yes" if gold else "no"
    elif isinstance(gold, list):
        gold = tuple(map(str, gold))
    elif isinstance(gold, float) and gold.is_integer():
        gold = str(int(gold))
    if gold in (None, "", ()):
        return None
    parts = [row[spec["passage"]] if "passage" in spec else "", question, spec.get("ask", "")]
    return "\n\n".join(filter(None, parts)), gold if isinstance(gold, tuple) else str(gold).strip()


def _options(row: Row, spec: Mapping) -> tuple[str, str] | None:
    """The gold is a label, a letter, or a number counted from `first` (default 0); the letters are always ours."""
    where, gold = spec["options"], str(row[spec["answer"]]).strip()
    options = [str(row[name]) for name in where] if isinstance(where, list) else list(_dotted(row, where))
    labels = [str(label) for label in _dotted(row, spec["labels"])] if "labels" in spec else []
    if gold in labels:
        right = labels.index(gold)
    elif gold.isdecimal():
        right = int(gold) - spec.get("first", 0)
    else:
        right = LETTERS.find(gold) if len(gold) == 1 else -1
    if not 0 <= right < len(options):  # unlabelled rows of a hidden test split
        return None
    return lettered(str(row[spec["question"]]), list(map(str, options)), spec.get("ask", "")), LETTERS[right]


def _gpqa(row: Row, spec: Mapping) -> tuple[str, str]:
    """The order of the options hangs on the question's text, so it is the same everywhere and never always (A)."""
    options = [str(row[name]).strip() for name in ("Correct Answer", *(f"Incorrect Answer {i}" for i in (1, 2, 3)))]
    order = list(range(4))
    Random(f"options {digest(row['Question'])}").shuffle(order)
    return lettered(str(row["Question"]).strip(), [options[i] for i in order]), LETTERS[order.index(0)]


def _triviaqa(row: Row, spec: Mapping) -> tuple[str, tuple[str, ...]]:
    answer = row["answer"]
    return row["question"], tuple(dict.fromkeys([answer["value"], *answer["aliases"]]))


def _squad(row: Row, spec: Mapping) -> tuple[str, tuple[str, ...]] | None:
    golds = tuple(dict.fromkeys(row["answers"]["text"]))
    return (f"{row['context']}\n\n{row['question']}", golds) if golds else None


def _olympiad(row: Row, spec: Mapping) -> tuple[str, Any] | None:
    golds = [str(gold).strip().strip("$") for gold in row["final_answer"] or []]
    unit = f" The unit of the answer is {row['unit']}." if row.get("unit") else ""
    return (f"{row['question']}{unit}", ", ".join(golds)) if golds else None


def _scibench(row: Row, spec: Mapping) -> tuple[str, str]:
    unit = str(row.get("unit") or "").strip()
    ask = f'\nThe unit of the answer should be "{unit}".' if unit else ""
    return f"{str(row['problem_text']).strip()}{ask}", str(row["answer_number"]).strip()


def _frontierscience(row: Row, spec: Mapping) -> tuple[str, str] | None:
    research = str(row["answer"]).lstrip().startswith("Points")  # a list of points to be awarded, no answer
    return None if research else (row["problem"], str(row["answer"]).strip())


def _mbpp(row: Row, spec: Mapping) -> tuple[str, dict]:
    shown = f"Your function has to pass this test:\n{row['test_list'][0]}"
    if "tests" in spec:
        gold = {"tests": row[spec["tests"]].replace(NUMPY, SHIM), **published(row[spec["tests"]])}
    else:
        gold = {"tests": "\n".join([*filter(None, [row.get(spec["setup"])]), *row["test_list"]])}
    return f"{row[spec['question']]}\n{shown}", {"entry": _called(row["test_list"][0]), **gold}


def _called(test: str) -> str | None:
    """The function of the program that an assert calls: the outermost call by a name that is not Python's own."""
    try:
        calls = [
            node.func.id
            for node in ast.walk(ast.parse(test.strip()))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        ]
    except SyntaxError:
        return None
    return next((name for name in calls if not hasattr(builtins, name)), None)


def _humaneval(row: Row, spec: Mapping) -> tuple[str, dict]:
    tests = f"{row['test'].replace(NUMPY, SHIM)}\ncheck({row['entry_point']})"
    gold = {"entry": row["entry_point"], "before": row["prompt"], "tests": tests, **published(row["test"])}
    return f"Complete this Python function. Answer with the whole function.\n\n{row['prompt']}", gold


def published(test: str) -> dict[str, Any]:
    """Inputs, results and tolerance of an EvalPlus test, which states them as literals; {} for any other test."""
    found: dict[str, Any] = {}
    try:
        for node in ast.walk(ast.parse(test)):
            match node:
                case ast.Assign(targets=[ast.Name(id="inputs" | "results" as name)], value=value):
                    found[name] = ast.literal_eval(value)
                case ast.Call(func=ast.Name(id="assertion"), args=[ast.Call(args=[ast.Starred()]), _, tolerance]):
                    found["tolerance"] = float(ast.literal_eval(tolerance)) or 1e-6
                case ast.FunctionDef(name="assertion", body=body) if len(body) > 2:  # an oracle of its own
                    return {}
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return {}
    if found.keys() != {"inputs", "results", "tolerance"} or len(found["inputs"]) != len(found["results"]):
        return {}
    return {"calls": found["inputs"], "expected": found["results"], "tolerance": found["tolerance"]}


def _kodcode(row: Row, spec: Mapping) -> tuple[str, dict]:
    """Pytest functions: their import of the solution goes, and each is called."""
    lines = [line for line in str(row["test"]).splitlines() if not OWN_IMPORT.match(line)]
    names = [line.split("(")[0].removeprefix("def ").strip() for line in lines if line.startswith("def test")]
    return str(row["question"]), {"entry": None, "tests": "\n".join([*lines, *(f"{name}()" for name in names)])}


def _livecodebench(row: Row, spec: Mapping) -> tuple[str, dict]:
    tests = json.loads(row["public_test_cases"]) + _private(row["private_test_cases"])
    starter, name = str(row.get("starter_code") or ""), json.loads(row["metadata"]).get("func_name")
    if not starter:
        return f"{row['question_content']}\n\n{STDIN}", {"stdio": [(test["input"], test["output"]) for test in tests]}
    calls = [[json.loads(line) for line in test["input"].split("\n") if line.strip()] for test in tests]
    after = f"\ndef {name}(*given): return Solution().{name}(*given)\n" if "class Solution" in starter else ""
    gold = {"entry": name, "calls": calls, "expected": [json.loads(test["output"]) for test in tests], "after": after}
    return f"{row['question_content']}\n\nStart from this code:\n{starter}", gold


def _private(text: str) -> list[dict[str, str]]:
    """The hidden tests: JSON, or JSON as one pickled string under zlib and base64, read without unpickling."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        data = zlib.decompress(base64.b64decode(text))
    strings = [value for code, value, _ in pickletools.genops(data) if "UNICODE" in code.name]
    return json.loads(strings[0])


def _usaco(row: Row, spec: Mapping) -> tuple[str, dict] | None:
    if row["problem_level"] not in ("gold", "platinum"):
        return None
    limits = {"cpu_seconds": float(row.get("runtime_limit") or 2), "memory_mb": int(row.get("memory_limit") or 256)}
    return f"{row['description']}\n\n{STDIN}", {"stdio": row["tests"], "limits": limits}


READERS: dict[str, Callable[[Row, Mapping], tuple[str, Any] | None]] = {
    "plain": _plain,
    "options": _options,
    "gpqa": _gpqa,
    "triviaqa": _triviaqa,
    "squad": _squad,
    "olympiad": _olympiad,
    "scibench": _scibench,
    "frontierscience": _frontierscience,
    "mbpp": _mbpp,
    "humaneval": _humaneval,
    "kodcode": _kodcode,
    "livecodebench": _livecodebench,
    "usaco": _usaco,
}
SOLUTIONS = {"mbpp": ("code",), "humaneval": ("prompt", "canonical_solution"), "kodcode": ("solution",)}
IDS = ("id", "task_id", "question_id", "Record ID", "problem_id", "ind", "unique_id")


def item(benchmark: Any, row: Row) -> Item | None:
    """Read a row of a benchmark (see data.Benchmark); None for a row that is not to be used."""
    read = READERS[benchmark.read](row, benchmark.fields)
    if read is None:
        return None
    question, gold = read
    scorer = benchmark.scorer
    if benchmark.key == "bbh" and (letter := LETTER_GOLD.fullmatch(gold)):
        scorer, gold = "choice", letter[1]
    given = next((str(row[name]) for name in (benchmark.fields.get("id"), *IDS) if row.get(name) is not None), None)
    meta = {name: row[name] for name in (*benchmark.fields.get("keep", ()), "subset", "error") if row.get(name)}
    if parts := SOLUTIONS.get(benchmark.read):
        meta["solution"] = "".join(str(row.get(part) or "") for part in parts)
    stem = row.get(benchmark.fields.get("question", "Question"))
    stem = stem if isinstance(stem, str) else question
    return Item(
        benchmark.key,
        given or digest(question),
        question,
        gold,
        scorer,
        benchmark.tolerance,
        benchmark.judge,
        stem,
        benchmark.origin,
        meta,
    )
