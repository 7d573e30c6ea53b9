"""The table of the ledger: verdicts first, places that lead to the reproduction, all columns."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ledger_rows import ledger_row

from reproduce import HOME, registry
from reproduce.analysis import claims, ledger_table, verdicts
from reproduce.analysis.evidence import RunFolders

CELL = re.compile(r"(?<!\\)\|")
LINK = re.compile(r"\[[^]]+\]\(\.\./(\w+)/([\w.]+)\)")
_, ENTRIES = registry.read(HOME, "quick")


def ledger_of(*changes: dict[str, Any]) -> pd.DataFrame:
    """A ledger with a row per change of one that is found."""
    return pd.DataFrame([ledger_row(**changed) for changed in changes])


def remarks_of(ledger: pd.DataFrame) -> pd.DataFrame:
    names = ledger["claim"].unique()
    blank = {"replies": "5 / 0", "backbone": "", "stability": "", "limits": ""}
    return pd.DataFrame(blank, index=names)


NOT_RUN = {
    "effect": np.nan,
    "low": np.nan,
    "verdict": verdicts.NOT_RUN,
    "why": "needs mae",
}
ROWS = ledger_of(
    {},
    {"low": np.nan, "high": np.nan, "verdict": verdicts.ONE_SEED},
    NOT_RUN,
    {"low": -np.inf, "high": np.inf, "verdict": verdicts.UNDECIDED, "why": "a note"},
)


def test_effects_have_intervals_and_reasons() -> None:
    here = ledger_table.short(ROWS, remarks_of(ROWS))["here"].tolist()
    assert here == ["+2 [+1, +3]", "+2", "needs mae", "+2 [no limits] (a note)"]


def test_the_complete_table_has_the_gain_over_the_control() -> None:
    table = ledger_table.complete(ROWS, remarks_of(ROWS))
    assert table["over its control"].tolist() == ["+1 [-1, +3]"] * 4
    assert table["smallest detectable effect"].tolist() == [1.5] * 4
    assert table["replies"].tolist() == ["5 / 0"] * 4


def test_a_remark_joins_what_a_verdict_rests_on() -> None:
    ledger = ledger_of({})
    remarks = remarks_of(ledger)
    assert ledger_table.short(ledger, remarks)["remark"].tolist() == [""]
    remarks["backbone"] = "the backbones miss: ranking 0.5"
    remarks["stability"] = "undecided without tiny-1"
    remarks["limits"] = "above zero"
    assert ledger_table.short(ledger, remarks)["remark"].tolist() == [
        "the backbones miss: ranking 0.5; undecided without tiny-1; above zero"
    ]


def test_differences_against_their_claim_are_counted_and_ratios_are_not() -> None:
    ledger = ledger_of(
        {},
        {"effect": -1.0, "verdict": verdicts.SMALLER},
        {"effect": 1.0, "verdict": verdicts.NO_EFFECT},
        {"effect": -1.0, "verdict": verdicts.OTHER_SIZE, "kind": "ratio"},
        NOT_RUN,
    )
    text = ledger_table.against(ledger)
    assert text.startswith(
        "Measured differences that lean against their claim: "
        "1 of 2 *no effect, or another size*. An order"
    )
    assert ledger_table.against(ledger.iloc[:1]) == ""


def test_verdicts_that_no_backbone_changes_are_counted() -> None:
    ledger = ledger_of(
        {"claim": "a"},
        {"claim": "b"},
        {"claim": "c"},
        {"claim": "d", "verdict": verdicts.UNDECIDED},
    )
    remarks = remarks_of(ledger)
    remarks["stability"] = ["kept", "undecided without tiny", "", "kept"]
    assert ledger_table.firm(ledger, remarks).startswith(
        "Verdicts that keep their word, whichever backbone is left out: "
        "1 of 2 *found*, 1 of 1 *undecided*. "
    )
    remarks["stability"] = ""
    assert ledger_table.firm(ledger, remarks) == ""


@pytest.fixture
def page(tmp_path: Path) -> str:
    """The page in Markdown of all claims, of which none was run."""
    ledger = claims.weigh(claims.Ledger(RunFolders(tmp_path, {})))
    ledger_table.save(ledger, remarks_of(ledger), tmp_path / "claims", "quick")
    return (tmp_path / "claims/table.md").read_text("utf-8")


def rows_of(page: str) -> list[list[str]]:
    """The cells of the rows of the only table of a page."""
    lines = [line for line in page.splitlines() if line.startswith("|")]
    _, _, *body = lines
    rows = []
    for line in body:
        cells = CELL.split(line)[1:-1]
        rows.append([cell.strip() for cell in cells])
    return rows


def test_the_page_begins_with_the_counts_and_their_note(page: str) -> None:
    title, counts, note, *_ = page.split("\n\n")
    assert title == "# Verdict on each claim"
    assert counts.startswith(f"**{len(claims.CLAIMS)} claims: 0 found · 0 opposite · ")
    assert "95 % interval" in note
    assert page.index("[all columns](table.csv)") < page.index("| verdict")


def test_the_verdict_of_every_claim_is_in_the_first_column(page: str) -> None:
    rows = rows_of(page)
    assert len(rows) == len(claims.CLAIMS)
    for first, *others in rows:
        assert first in verdicts.MEANINGS
        assert len(others) == 6


def test_every_place_that_is_reproduced_leads_to_its_table_or_figure(page: str) -> None:
    for *_, where in rows_of(page):
        link = LINK.fullmatch(where)
        assert bool(link) == bool(re.search(r"(Table|Figure) \d", where)), where
        if link:
            id, file = link.groups()
            assert file in ENTRIES.artefacts[id].outputs, where


def test_a_figure_is_shown_as_a_picture_and_a_table_as_a_page() -> None:
    places = ["section 5.2.2, Figure 3 (middle)", "section 5.1, Table 1", "section 5"]
    ledger = ledger_of(*({"where": where} for where in places))
    assert ledger_table.addresses(ledger, "quick") == [
        "../mae_fig3_mid/figure.png",
        "../mae_table1/table.md",
        "",
    ]


def test_papers_have_their_names_in_all_files(tmp_path: Path) -> None:
    ledger_table.save(ROWS, remarks_of(ROWS), tmp_path, "quick")
    assert {row[1] for row in rows_of((tmp_path / "table.md").read_text())} == {"MAE"}
    assert set(pd.read_csv(tmp_path / "table.csv")["paper"]) == {"MAE"}
    assert r"found & MAE & better | or not & +2 [+1, +3]" in (
        tmp_path / "table.tex"
    ).read_text("utf-8")
