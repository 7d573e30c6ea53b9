"""Stand-ins beside the papers' columns: every family and column has its place, and averages are derived."""

import pandas as pd
import pytest

from coevolve.evaluate import standins, tables
from coevolve.worlds import tiny


def test_every_family_stands_in_for_one_benchmark():
    families = [family for members, _ in standins.STAND_INS.values() for family in members]
    assert sorted(families) == sorted(tiny.NAMES)
    for name in standins.IN_DISTRIBUTION:
        assert set(standins.STAND_INS[name][0]) <= set(tiny.IN_DISTRIBUTION), name
    for name in standins.OUT_OF_DISTRIBUTION:
        assert set(standins.STAND_INS[name][0]) <= set(tiny.OUT_OF_DISTRIBUTION), name


def test_every_column_of_the_paper_is_covered_or_named_as_missing():
    columns = [column for _, columns in standins.STAND_INS.values() for column in columns]
    printed = set(tables.paper_numbers("mae_table1")["benchmark"]) - set(standins.GROUPS)
    assert sorted([*columns, *standins.WITHOUT]) == sorted(printed)


def test_printed_cells_are_means_of_their_columns():
    paper = standins.printed("mae_table1", {"Base": "Base"}).set_index("benchmark")["paper"]
    assert paper["GSM8K"] == 85.20
    assert paper["science"] == pytest.approx((80.60 + 63.40 + 34.67) / 3)
    assert paper["Overall Avg."] == 55.33


def rows(method: str, seed: int, correct: dict[str, list[int]]) -> list[dict]:
    return [{"method": method, "seed": seed, "run": f"{method}{seed}", "benchmark": name, "item": i, "correct": value}
            for name, values in correct.items() for i, value in enumerate(values)]  # fmt: skip


def test_gains_carry_the_paper_delta_and_a_verdict():
    right, wrong = [1] * 40, [0] * 40
    scores = pd.DataFrame(
        rows("Base", 0, dict.fromkeys(standins.STAND_INS, wrong))
        + rows("MAE (zero)", 0, dict.fromkeys(standins.STAND_INS, right))
    )
    paper = standins.printed("mae_table1", {"Base": "Base", "MAE (zero)": "MAE (zero)"})
    gains = standins.gains(scores, "Base", paper).set_index("benchmark")
    overall = gains.loc["Overall Avg."]
    assert (overall["delta"], overall["verdict"]) == (100.0, "agrees")
    assert overall["paper delta"] == pytest.approx(58.51 - 55.33)


def test_beside_writes_ours_then_the_paper():
    scores = pd.DataFrame(rows("Base", 0, dict.fromkeys(standins.STAND_INS, [1, 0, 1, 0])))
    accuracy = tables.accuracy_table(scores, standins.GROUPS)
    wide = standins.beside(accuracy, standins.printed("mae_table1", {"Base": "Base"})).set_index("benchmark")
    assert wide.loc["GSM8K", "Base"].startswith("50.0 [") and wide.loc["GSM8K", "Base"].endswith("/ 85.2")
