"""The claims as data: their fields, rows, units and runs exist, and numbers have a source."""

from datetime import date
from pathlib import Path

import pytest

from reproduce import registry
from reproduce.analysis import arms, claims, standins
from reproduce.report_claims import UNITS
from tools import readme_numbers

ROOT = Path(__file__).parents[2]
FIELDS = {
    "arms",
    "by_construction",
    "cannot",
    "column",
    "control",
    "direction",
    "gates",
    "kind",
    "mechanism",
    "metric",
    "note",
    "over_all",
    "paper",
    "paper_effect",
    "paper_numbers",
    "per_step",
    "rows",
    "says",
    "setup",
    "size",
    "where",
}


@pytest.mark.parametrize("name", claims.CLAIMS)
def test_a_claim_names_rows_units_and_numbers_that_exist(name: str) -> None:
    claim = claims.CLAIMS[name]
    assert set(claim) <= FIELDS
    untested = {"cannot", "by_construction"} & set(claim)
    assert untested or "arms" in claim
    assert not ("cannot" in claim and "arms" in claim)
    column = claim.get("column", "validation")
    is_ratio = " / " in column or claim["kind"] == "ratio"
    assert is_ratio or column in UNITS
    rows = claim.get("rows", "all")
    if rows not in list(arms.AVERAGES):
        layout = standins.layout(claim["paper"])
        assert set(rows) <= set(layout.families)
    source = claim.get("paper_numbers", "not printed").split(" ")[0]
    file = source.rstrip(":,")
    if file.endswith(".csv"):
        assert (ROOT / "reproduce/paper_numbers" / file).is_file()


@pytest.mark.parametrize("name", claims.CLAIMS)
def test_a_claim_of_several_steps_has_a_printed_effect_for_each(name: str) -> None:
    claim = claims.CLAIMS[name]
    printed = claim.get("paper_effect", [])
    if claim["kind"] == "order":
        assert len(printed) == len(claim["arms"]) - 1
    elif claim.get("direction") == "peak":
        assert len(printed) == len(("rise", "fall"))
        assert min(printed) > 0
    else:
        assert printed == [] or isinstance(printed, float)


def test_a_control_differs_from_its_arm_in_the_rewards_alone() -> None:
    _, entries = registry.read(ROOT, "quick")
    unimportant = {"control", "snapshots", "strategies"}  # not what is trained
    for claim in claims.CLAIMS.values():
        if "control" not in claim:
            continue
        own = entries.runs[claim["arms"][0]]
        control = entries.runs[claim["control"]]
        assert control.overrides["control"] == "shuffled"
        assert control.method == own.method
        for name in {*own.overrides, *control.overrides} - unimportant:
            assert own.overrides.get(name) == control.overrides.get(name)


def test_a_paper_has_four_or_five_headline_claims_the_readme_s_among_them() -> None:
    assert claims.HEADLINE["chosen"] <= date.today()
    for paper in readme_numbers.PAPERS:
        names = claims.HEADLINE[paper.key]
        assert len(names) in (4, 5)
        assert paper.over_untrained in names
        assert paper.over_baseline in names
        for name in names:
            claim = claims.CLAIMS[name]
            assert claim["paper"] == paper.key


def test_the_ledger_s_runs_are_those_that_claims_name() -> None:
    _, entries = registry.read(ROOT, "quick")
    arms = set()
    for claim in claims.CLAIMS.values():
        arms |= set(claim.get("arms", ()))
        if "control" in claim:
            arms.add(claim["control"])
    assert arms <= set(entries.runs)
    assert arms == set(entries.artefacts["claims"].runs)
