"""Answers to published questions, scored: five scorers of `coevolve.verify`, and a sixth, a judge, that is not here.

Formulas, letters, aliases, numbers within a margin, programs with tests. Nothing but verdicts comes out.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from codesandbox import code
from codesandbox.pool import cores, spread
from coevolve.verify import Verdict, verify
from coevolve.verify.plain import rational
from published.rows import Item, program

POWER = re.compile(r"\s*(?:\\times|\\cdot|×|\*)\s*10\s*\^\s*\{?\s*([+-]?\d{1,3})\s*\}?")
LIMITS = {"cpu_seconds": 10.0, "wall_seconds": 20.0}  # MAE's evaluation: EvalPlus with a minimum of ten seconds
ZERO = 1e-6  # how near an answer has to come to a gold of 0, where a relative margin would ask for equality


def grade(item: Item, answer: str | None) -> Verdict:
    """Score one answer; None (it did not parse) is wrong, and an item that only a judge can score is unscored."""
    if answer is None:
        return Verdict("wrong", "no answer")
    match item.scorer:
        case "judge":
            return Verdict("unscored", "only a judge can say")
        case "code":
            return _program(item.gold, program(answer))
        case "float":
            return _number(answer, str(item.gold), item.tolerance)
        case "math" if error := item.meta.get("error"):  # OlympiadBench states how far off an answer may be
            margin, gold = rational(_plain(str(error).split(",")[0])), rational(_plain(str(item.gold)))
            if margin and gold is not None:
                return verify(
                    "float", _plain(answer), _plain(str(item.gold)), tolerance=float(abs(margin) / max(1, abs(gold)))
                )
        case "exact" if isinstance(item.gold, tuple):
            return verify("exact", answer, list(item.gold))
    return verify(item.scorer, answer, item.gold)


def grade_all(pairs: Iterable[tuple[Item, str | None]]) -> list[Verdict]:
    """Score many answers, as many at once as there are cores; the same order comes back."""
    return spread(lambda pair: grade(*pair), pairs, cores())


def _plain(number: str) -> str:
    """`3.2 \\times 10^{5}` as `3.2e5`, with an ASCII minus; other text as it is."""
    return POWER.sub(r"e\1", number.replace("−", "-")).strip(" $")


def _number(answer: str, gold: str, tolerance: float) -> Verdict:
    """Within `tolerance` of the gold, relative to it however small it is."""
    wanted = rational(_plain(gold))
    size = 1.0 if wanted is None else min(1.0, float(abs(wanted)))
    return verify("float", _plain(answer), _plain(gold), tolerance=tolerance * size or ZERO)


def _program(gold: Mapping, text: str) -> Verdict:
    """All tests of a program have to pass; `before` is the start that the question gave, `after` an entry point."""
    whole = f"{gold.get('before', '')}\n{text}{gold.get('after', '')}"
    limits = LIMITS | gold.get("limits", {})
    if "stdio" in gold:
        return _every(whole, gold["stdio"], limits)
    try:
        if "calls" not in gold:
            raise TypeError
        result = code.run_calls(
            whole,
            gold["entry"],
            [tuple(call) for call in gold["calls"]],
            gold["expected"],
            strict=False,
            tolerance=gold.get("tolerance", 0.0),
            **limits,
        )
    except TypeError:  # values that are not plain data stay in the tests' own process
        result = code.run_tests(whole, gold["tests"], entry=gold["entry"], **limits)
    return Verdict(result.verdict, result.detail, result.level)


def _every(whole: str, tests: Sequence[tuple[str, str]], limits: Mapping[str, float]) -> Verdict:
    """The first test that does not pass decides."""
    result = None
    for given, expected in tests:
        result = code.run_stdio(whole, given, expected, **limits)
        if result.verdict != "pass":
            break
    return Verdict("unscored", "no tests") if result is None else Verdict(result.verdict, result.detail, result.level)
