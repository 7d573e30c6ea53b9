"""Scoring of answers to published questions, by the verifiers of `coevolve.text.verify`.

Formulas, letters, texts, numbers (equal, or within a margin) and programs with tests. Items that
need a judge stay unscored; see judge.py. The module returns nothing but verdicts.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from coevolve.text.fences import last_program
from coevolve.text.verify import Verdict, exact, verify
from published.rows import Item

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
    return verify("float", answer, item.gold, tolerance=tolerance)


def _tolerance(item: Item) -> float | None:
    """Return the allowed error, absolute and relative to a gold above 1; None for other golds."""
    if item.scorer != "float" and "error" not in item.meta:
        return None
    number = exact.number(item.gold)
    if number is None:
        return None
    gold = number.value
    if item.scorer == "float":  # relative to the gold, however small it is
        return RELATIVE_MARGIN * min(1.0, float(abs(gold))) or MARGIN_AT_ZERO
    # OlympiadBench states the margin as a distance.
    stated = str(item.meta["error"]).split(",")[0]
    margin = exact.number(stated)
    return float(abs(margin.value) / max(1, abs(gold))) if margin else None


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
