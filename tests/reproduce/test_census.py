"""How much of the tiny world a test has asked."""

import pandas as pd
import pytest
from pytest import approx

from reproduce.analysis import census
from tinyworld import tasks

WHOLE = "rate"  # a family that is asked whole
UNCOUNTED = "mc"  # a family with more questions than are counted


def asked(family: str) -> pd.DataFrame:
    """Return family and level of the test's questions of a family."""
    items = tasks.items("test", 160, (family,))
    levels = [item.level for item in items]
    return pd.DataFrame({"level": levels, "family": family})


def test_a_family_that_is_asked_whole_is_a_census() -> None:
    assert census.asked_share(asked(WHOLE)) == 1


def test_a_large_family_is_hardly_asked() -> None:
    assert census.asked_share(asked(UNCOUNTED)) == 0


def test_the_share_of_a_level_is_what_was_asked_of_it() -> None:
    size = tasks.population("test", "word", 1)
    assert size is not None
    frame = pd.DataFrame({"family": ["word"] * 20, "level": 1})
    assert census.asked_share(frame) == approx(20 / size)


def test_questions_of_different_families_are_averaged() -> None:
    whole = asked(WHOLE)
    uncounted = asked(UNCOUNTED).head(len(whole))
    both = pd.concat([whole, uncounted])
    assert census.asked_share(both) == approx(0.5)


NOT_COUNTED = {
    "another world": {"family": ["gsm8k"] * 9, "level": 2},
    "no levels": {"item": range(9)},
}


@pytest.mark.parametrize("columns", NOT_COUNTED.values(), ids=NOT_COUNTED)
def test_the_share_is_zero_where_nothing_is_counted(columns: dict) -> None:
    frame = pd.DataFrame(columns)
    assert census.asked_share(frame) == 0


def test_every_benchmark_has_its_share_whatever_the_number_of_seeds() -> None:
    rates = asked(WHOLE).assign(benchmark="rates")
    choices = asked(UNCOUNTED).assign(benchmark="choices")
    frame = pd.concat([rates, choices])
    frame["item"] = range(len(frame))
    two_seeds = pd.concat([frame, frame])
    assert census.asked_shares(two_seeds) == {"rates": 1, "choices": 0}
