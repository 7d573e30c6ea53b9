"""Stand-ins beside the papers' columns: every family and column has its place, and averages are derived."""

import pandas as pd
import pytest

from reproduce.analysis import standins, tables
from tinyworld import tasks as tiny

MAE = standins.layout("mae")


@pytest.mark.parametrize("paper", standins.LAYOUTS)
def test_every_layout_names_families_once_and_columns_that_were_printed(paper: str) -> None:
    layout = standins.layout(paper)
    families = [family for members in layout.families.values() for family in members]
    assert families and len(set(families)) == len(families) and set(families) <= set(tiny.NAMES)
    columns = [column for its in layout.columns.values() for column in its]
    printed = set(tables.paper_numbers(f"{paper}_table{2 if paper == 'conl' else 1}")["benchmark"])
    assert {*columns, *layout.without} <= printed and len(set(columns)) == len(columns)
    for members in layout.groups.values():
        assert members and set(members) <= set(layout.families)


def test_mae_uses_every_family_in_its_own_distribution():
    assert sorted(family for members in MAE.families.values() for family in members) == sorted(tiny.NAMES)
    others = set(tiny.NAMES) - set(tiny.IN_DISTRIBUTION)
    for average, allowed in (("ID Avg.", tiny.IN_DISTRIBUTION), ("OOD Avg.", others)):
        assert {family for name in MAE.groups[average] for family in MAE.families[name]} <= set(allowed)
    assert MAE.groups["Overall Avg."] == list(MAE.families)


def test_every_column_of_mae_is_covered_or_named_as_missing():
    columns = [column for its in MAE.columns.values() for column in its]
    printed = set(tables.paper_numbers("mae_table1")["benchmark"]) - set(MAE.groups)
    assert sorted([*columns, *MAE.without]) == sorted(printed)


def test_printed_cells_are_means_of_their_columns():
    paper = standins.printed("mae_table1", {"Base": "Base"}).set_index("benchmark")["paper"]
    assert paper["GSM8K"] == 85.20
    assert paper["science"] == pytest.approx((80.60 + 63.40 + 34.67) / 3)
    assert paper["Overall Avg."] == 55.33


def rows(method: str, seed: int, correct: dict[str, list[int]]) -> list[dict]:
    return [
        {"method": method, "seed": seed, "run": f"{method}{seed}", "benchmark": name, "item": i, "correct": value}
        for name, values in correct.items()
        for i, value in enumerate(values)
    ]


def test_gains_carry_the_paper_delta_and_a_verdict():
    right, wrong = [1] * 40, [0] * 40
    scores = pd.DataFrame(
        rows("Base", 0, dict.fromkeys(MAE.families, wrong)) + rows("MAE (zero)", 0, dict.fromkeys(MAE.families, right))
    )
    paper = standins.printed("mae_table1", {"Base": "Base", "MAE (zero)": "MAE (zero)"})
    gains = standins.gains(scores, "Base", paper).set_index("benchmark")
    overall = gains.loc["Overall Avg."]
    assert (overall["delta"], overall["verdict"]) == (100.0, "agrees")
    assert overall["paper delta"] == pytest.approx(58.51 - 55.33)


def test_beside_writes_ours_then_the_paper():
    scores = pd.DataFrame(rows("Base", 0, dict.fromkeys(MAE.families, [1, 0, 1, 0])))
    accuracy = tables.accuracy_table(scores, MAE.groups)
    wide = standins.beside(accuracy, standins.printed("mae_table1", {"Base": "Base"})).set_index("benchmark")
    assert wide.loc["GSM8K", "Base"].startswith("50.0 [") and wide.loc["GSM8K", "Base"].endswith("/ 85.2")
