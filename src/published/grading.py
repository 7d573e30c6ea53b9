"""Answers to published questions, scored: the verifiers of `coevolve.text.verify`, and a judge, that is not here.

Formulas, letters, texts, numbers (equal, or within a margin), programs with tests. Nothing but verdicts comes out.
"""

import re
from collections.abc import Mapping
from typing import Any

from coevolve.text.parse import BOX, boxed
from coevolve.text.verify import Verdict, verify
from coevolve.text.verify.exact import rational
from published.rows import Item

POWER = re.compile(r"\s*(?:\\times|\\cdot|×|\*)\s*10\s*\^\s*\{?\s*([+-]?\d{1,3})\s*\}?")
NUMBER = re.compile(r"[+-]?[0-9.,/]*[0-9]")
UNIT = re.compile(  # behind a number: m/s, kJ mol^{-1}, \text{ m}; not another number, and no second answer
    r"(?<=[0-9])(?!.*\b(?:or|and|to)\b)[\s$]*(?:\\[ ,;])*\s*"
    r"(?:\\(?:text|mathrm)\{[^{}]*\}|(?!e[+-]?[0-9])(?:[A-Za-zµ°Ω]+(?:\^?\{?-?[0-9]\}?)?[ ·*/]*)+)\$?$"
)
LIMITS = {"cpu_seconds": 10.0, "wall_seconds": 20.0}  # MAE's evaluation: EvalPlus with a minimum of ten seconds
MARGIN = 0.05  # of a gold number (SciBench)
ZERO = 1e-6  # how near an answer has to come to a gold of 0, where a relative margin would ask for equality


def grade(item: Item, answer: str | None) -> Verdict:
    """Score one answer; None (it did not parse) is wrong, and an item that only a judge can score is unscored."""
    if answer is None:
        return Verdict("wrong", "no answer")
    if item.scorer == "judge":
        return Verdict("unscored", "only a judge can say")
    if item.scorer == "code":
        return _program(item.gold, program(answer))
    tolerance = 0.0 if item.scorer == "number" else _tolerance(item)
    if tolerance is None:
        return verify(item.scorer, answer, item.gold)
    return verify("float", _number(answer), _number(item.gold), tolerance=tolerance)


def _tolerance(item: Item) -> float | None:
    """How far off a number may be, absolute and relative to a gold above 1; None where no number is asked for."""
    gold = rational(_number(item.gold)) if item.scorer == "float" or "error" in item.meta else None
    if gold is None:
        return None
    if item.scorer == "float":  # relative to the gold, however small it is
        return MARGIN * min(1.0, float(abs(gold))) or ZERO
    margin = rational(_number(str(item.meta["error"]).split(",")[0]))  # OlympiadBench states it, as a distance
    return float(abs(margin) / max(1, abs(gold))) if margin else None


def _number(text: str) -> str:
    r"""`3.2 \times 10^{5} m/s` as `3.2e5`, with an ASCII minus, out of its one box; other text as it is."""
    inside = boxed(text) if BOX in text else text
    number = POWER.sub(r"e\1", (inside or text).replace("−", "-").replace(r"\approx", " ")).strip(" $")
    return UNIT.sub("", number) if NUMBER.match(number) else number


def program(text: str) -> str:
    """Return the program in an answer: its last complete code fence, of Python if one says so, or all of it."""
    fences = re.findall(r"```([A-Za-z0-9]*)[ \t]*\n(.*?)```", text, re.DOTALL)
    python = [content for language, content in fences if language.lower() in ("py", "python", "python3")]
    return (python or [content for _, content in fences] or [text])[-1]


def _program(gold: Mapping[str, Any], text: str) -> Verdict:
    """Run a program with its tests, all of which have to pass: the first that does not decides."""
    from codesandbox import code

    whole = f"{gold.get('before', '')}\n{text}{gold.get('after', '')}"
    limits = LIMITS | gold.get("limits", {})
    result = None
    for given, expected in gold.get("stdio", ()):
        result = code.run_stdio(whole, given, expected, **limits)
        if result.verdict != "pass":
            break
    if "calls" in gold:
        calls = [tuple(call) for call in gold["calls"]]
        result = code.run_calls(whole, gold["entry"], calls, gold["expected"], strict=False, **limits)
    if "tests" in gold:
        result = code.run_tests(whole, gold["tests"], entry=gold.get("entry"), **limits)
    return Verdict(result.verdict, result.detail) if result else Verdict("unscored", "no tests")
