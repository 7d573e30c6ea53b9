"""Scoring of answers to published questions, by the verifiers of `coevolve.text.verify`.

Formulas, letters, texts, numbers (equal, or within a margin) and programs with tests. Items that
need a judge stay unscored; see judge.py. The module returns nothing but verdicts.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from coevolve.text.fences import last_program
from coevolve.text.parse import BOX, boxed
from coevolve.text.verify import Verdict, verify
from coevolve.text.verify.exact import rational
from published.rows import Item

POWER_OF_TEN = re.compile(
    r"\s*(?:\\times|\\cdot|×|\*)\s*10\s*\^\s*\{?\s*([+-]?\d{1,3})\s*\}?"
)
NUMBER = re.compile(r"[+-]?[0-9.,/]*[0-9]")
# Behind a number: m/s, kJ mol^{-1}, \text{ m}; but neither another number nor a second answer.
UNIT = re.compile(
    r"(?<=[0-9])(?!.*\b(?:or|and|to)\b)[\s$]*(?:\\[ ,;])*\s*"
    r"(?:\\(?:text|mathrm)\{[^{}]*\}"
    r"|(?!e[+-]?[0-9])(?:[A-Za-zµ°Ω]+(?:\^?\{?-?[0-9]\}?)?[ ·*/]*)+)\$?$"
)
# MAE's evaluation: EvalPlus with a minimum of ten seconds.
LIMITS = {"cpu_seconds": 10.0, "wall_seconds": 20.0}
RELATIVE_MARGIN = 0.05  # of a gold number (SciBench)
# Absolute: a relative margin around a gold of 0 would require equality.
MARGIN_AT_ZERO = 1e-6


def grade(item: Item, answer: str | None) -> Verdict:
    """Score one answer.

    None (an answer that did not parse) is wrong. An item that requires a judge is unscored.
    """
    if answer is None:
        return Verdict("wrong", "no answer")
    if item.scorer == "judge":
        return Verdict("unscored", "only a judge can say")
    if item.scorer == "code":
        return _run_tests(item.gold, program(answer))
    tolerance = 0.0 if item.scorer == "number" else _tolerance(item)
    if tolerance is None:
        return verify(item.scorer, answer, item.gold)
    number = _plain_number(answer)
    gold = _plain_number(item.gold)
    return verify("float", number, gold, tolerance=tolerance)


def _tolerance(item: Item) -> float | None:
    """Return the allowed error, absolute and relative to a gold above 1; None for other golds."""
    if item.scorer != "float" and "error" not in item.meta:
        return None
    gold = rational(_plain_number(item.gold))
    if gold is None:
        return None
    if item.scorer == "float":  # relative to the gold, however small it is
        return RELATIVE_MARGIN * min(1.0, float(abs(gold))) or MARGIN_AT_ZERO
    # OlympiadBench states the margin as a distance.
    stated = str(item.meta["error"]).split(",")[0]
    margin = rational(_plain_number(stated))
    return float(abs(margin) / max(1, abs(gold))) if margin else None


def _plain_number(text: str) -> str:
    r"""Rewrite `3.2 \times 10^{5} m/s` as `3.2e5`; other text only loses its box and dollars.

    The number may stand in one box. Minus signs become ASCII.
    """
    inside = boxed(text) if BOX in text else text
    ascii_text = (inside or text).replace("−", "-").replace(r"\approx", " ")
    number = POWER_OF_TEN.sub(r"e\1", ascii_text).strip(" $")
    return UNIT.sub("", number) if NUMBER.match(number) else number


def program(text: str) -> str:
    """Return the program in an answer: its last block of code, or all of the text.

    Python blocks have precedence, and closed blocks (see `coevolve.text.fences`).
    """
    return last_program(text)


def _run_tests(gold: Mapping[str, Any], answer: str) -> Verdict:
    """Run a program with its tests, all of which must pass; the first failure decides."""
    from codesandbox import code

    source = f"{gold.get('before', '')}\n{answer}{gold.get('after', '')}"
    limits = LIMITS | gold.get("limits", {})
    options = gold.get("options", {})
    if "tests" in gold:
        result = code.run_tests(
            source, gold["tests"], entry=gold.get("entry"), **limits
        )
    elif "calls" in gold:
        calls = [tuple(call) for call in gold["calls"]]
        options = {"strict": False} | options | limits
        result = code.run_calls(
            source, gold["entry"], calls, gold["expected"], **options
        )
    else:
        result = _run_stdio(source, gold.get("stdio", ()), options | limits)
    if result is None:
        return Verdict("unscored", "no tests")
    return Verdict(result.verdict, result.detail)


def _run_stdio(
    source: str, pairs: Iterable[tuple[str, str]], options: Mapping[str, Any]
) -> Any:
    """Return the result of the first pair of input and output that fails, else of the last."""
    from codesandbox import code

    result = None
    for stdin, stdout in pairs:
        result = code.run_stdio(source, stdin, stdout, **options)
        if result.verdict != "pass":
            break
    return result
