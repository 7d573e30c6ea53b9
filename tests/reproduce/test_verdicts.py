"""Verdicts of the ledger: one rule after the other, and words that all pages know."""

from dataclasses import dataclass
from itertools import chain

import pandas as pd
import pytest
from ledger_rows import ledger_row

from reproduce.analysis import verdicts
from reproduce.analysis.stats import Effect, Estimate

NAN = float("nan")


@dataclass(frozen=True)
class Case:
    """A difference of many degrees of freedom whose sign stays open after the correction."""

    verdict: str
    delta: float
    standard_error: float = 1.0
    printed: float = NAN
    margin: float = 5.0


CASES = [
    # 1.64 standard errors on both sides of the effect lie inside the margin, or do not.
    Case(verdicts.NO_EFFECT, delta=1.9),
    Case(verdicts.NO_EFFECT, delta=-1.9),
    # 1.96 standard errors leave out zero, although the correction asks for more.
    Case(verdicts.UNDECIDED, delta=2.0),
    Case(verdicts.SMALLER, delta=2.0, printed=9.0),
    Case(verdicts.NO_EFFECT, delta=0.0, standard_error=3.0),
    Case(verdicts.UNDECIDED, delta=0.0, standard_error=3.1),
    Case(verdicts.UNDECIDED, delta=0.0, margin=NAN),
    # 1.96 standard errors above the effect end below the printed one, or do not.
    Case(verdicts.SMALLER, delta=1.0, standard_error=4.0, printed=8.9),
    Case(verdicts.UNDECIDED, delta=1.0, standard_error=4.0, printed=8.8),
    Case(verdicts.UNDECIDED, delta=-1.0, standard_error=4.0, printed=-9.0),
    Case(verdicts.NO_EFFECT, delta=0.0, printed=9.0),
    # A printed effect lies 1.64 standard errors from the effect at most, or does not.
    Case(verdicts.AS_SMALL, delta=1.0, printed=2.6),
    Case(verdicts.NO_EFFECT, delta=1.0, printed=2.7),
    Case(verdicts.UNDECIDED, delta=2.0, printed=3.7),
    Case(verdicts.AS_SMALL, delta=2.0, printed=3.0),
    Case(verdicts.AS_SMALL, delta=-1.0, printed=-2.0),
    Case(verdicts.SMALLER, delta=2.0, printed=4.0),
    Case(verdicts.UNDECIDED, delta=1.0, standard_error=3.0, printed=2.9),
]
ONE_POINT = Effect(
    1.0, 1.0, dof=1e6
)  # is at most 2.6 by two tests, and 2.96 by its limits


@pytest.mark.parametrize("case", CASES)
def test_a_difference_whose_sign_stays_open_is_judged_by_its_size(case: Case) -> None:
    effect = Effect(case.delta, case.standard_error, dof=1e6)
    step = verdicts.Step(effect, case.printed, case.margin)
    assert verdicts.of_size([step]) == case.verdict


@pytest.mark.parametrize(
    ("delta", "p", "verdict"),
    [
        (2.0, 0.05, verdicts.FOUND),
        (-2.0, 0.05, verdicts.OPPOSITE),
        (2.0, 0.051, verdicts.SMALLER),
        (2.0, NAN, verdicts.SMALLER),
    ],
)
def test_a_significant_difference_is_judged_by_its_sign(
    delta: float, p: float, verdict: str
) -> None:
    row = ledger_row(effect=delta, p=p, verdict=verdicts.SMALLER)
    ledger = pd.DataFrame([row | {"standard_error": 1.0, "dof": 4.0}])
    assert verdicts.corrected(ledger)["verdict"].tolist() == [verdict]


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.7, 1.4, verdicts.FOUND),
        (0.6, 1.4, verdicts.UNDECIDED),
        (0.7, 1.6, verdicts.UNDECIDED),
        (-0.5, 2.0, verdicts.UNDECIDED),
        (float("-inf"), float("inf"), verdicts.UNDECIDED),
        (1.1, 1.2, verdicts.OTHER_SIZE),
        (-0.9, 0.9, verdicts.OTHER_SIZE),
    ],
)
def test_a_ratio_is_judged_by_its_size(low: float, high: float, verdict: str) -> None:
    ratio = Estimate((low + high) / 2, low, high)
    assert verdicts.of_ratio(ratio, printed=1.0) == verdict


@pytest.mark.parametrize(
    ("printed", "verdict"),
    [
        ([1.0, 2.0], verdicts.AS_SMALL),
        ([1.0, 2.8], verdicts.NO_EFFECT),
        ([9.0, 9.0], verdicts.NO_EFFECT),
        ([1.0, NAN], verdicts.NO_EFFECT),
    ],
)
def test_each_step_of_an_order_is_judged_by_its_own_printed_effect(
    printed: list[float], verdict: str
) -> None:
    steps = [verdicts.Step(ONE_POINT, number, margin=5.0) for number in printed]
    assert verdicts.of_size(steps) == verdict


@pytest.mark.parametrize(
    ("printed", "verdict"),
    [
        ([9.0, 9.0], verdicts.SMALLER),
        ([9.0, 2.0], verdicts.UNDECIDED),
    ],
)
def test_an_order_is_smaller_than_printed_only_if_all_of_its_steps_are(
    printed: list[float], verdict: str
) -> None:
    steps = [verdicts.Step(ONE_POINT, number, margin=NAN) for number in printed]
    assert verdicts.of_size(steps) == verdict


def test_an_order_has_no_effect_only_if_none_of_its_steps_has() -> None:
    sure = Effect(3.0, 1.0, dof=1e6)
    steps = [verdicts.Step(effect, NAN, margin=5.0) for effect in (ONE_POINT, sure)]
    assert verdicts.of_size(steps[:1]) == verdicts.NO_EFFECT
    assert verdicts.of_size(steps) == verdicts.UNDECIDED


def test_margins_are_for_points_of_answers_alone() -> None:
    assert verdicts.margin_of({"metric": "accuracy"}) == 5
    assert verdicts.margin_of({"metric": "column", "column": "validation"}) == 5
    difficulty = verdicts.margin_of({"metric": "column", "column": "difficulty"})
    assert difficulty != difficulty, "nan"


def test_a_trend_of_the_printed_size_is_not_none() -> None:
    trend = {"metric": "accuracy", "kind": "trend"}
    assert verdicts.margin_of({**trend, "paper_effect": 1.5}) == 1.5
    assert verdicts.margin_of({**trend, "paper_effect": -1.5}) == 1.5
    assert verdicts.margin_of({**trend, "paper_effect": 20.0}) == 5
    assert verdicts.margin_of({**trend, "kind": "greater", "paper_effect": 1.5}) == 5
    assert verdicts.margin_of({**trend, "kind": "order", "paper_effect": [1.5]}) == 5


def test_a_flat_curve_does_not_refute_a_peak() -> None:
    margin = verdicts.margin_of({"metric": "accuracy", "direction": "peak"})
    assert margin != margin, "nan"


def test_a_ratio_is_not_judged_by_a_margin() -> None:
    margin = verdicts.margin_of({"metric": "accuracy", "kind": "ratio"})
    assert margin != margin, "nan"


def test_verdicts_are_counted_by_paper_in_one_order() -> None:
    rows = [
        {"paper": "mae", "verdict": verdicts.UNDECIDED},
        {"paper": "sage", "verdict": verdicts.FOUND},
        {"paper": "mae", "verdict": verdicts.UNDECIDED},
    ]
    counts = verdicts.counts(pd.DataFrame(rows))
    assert list(counts.columns) == [verdicts.FOUND, verdicts.UNDECIDED]
    assert counts.loc["mae"].tolist() == [0, 2]
    assert counts.loc["sage"].tolist() == [1, 0]
    assert verdicts.explained([verdicts.IDLE]).startswith("- **idle**: ")


def test_every_verdict_has_a_meaning() -> None:
    words = {
        value
        for name, value in vars(verdicts).items()
        if name.isupper() and isinstance(value, str)
    }
    assert words == {*verdicts.MEANINGS, verdicts.NOT_DECIDABLE}


def test_every_verdict_is_in_one_group_in_the_order_of_the_meanings() -> None:
    grouped = list(chain.from_iterable(verdicts.GROUPS.values()))
    assert grouped == list(verdicts.MEANINGS)


def test_the_counts_have_all_groups_in_their_order() -> None:
    given = [verdicts.IDLE, verdicts.FOUND, verdicts.NOT_RUN, verdicts.SMALLER]
    counts = verdicts.counts_of([*given, "a word of an older ledger"])
    assert counts == {
        "found": 1,
        "opposite": 0,
        "no effect, or another size": 1,
        "as small as printed": 0,
        "undecided": 0,
        "not decidable here": 3,
    }
    assert list(counts) == list(verdicts.GROUPS)
