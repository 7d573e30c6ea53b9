"""The ledger without one backbone: that of the other runs, and what changes in it."""

import pandas as pd
import pretend_runs
import pytest
from ledger_rows import ledger_row
from pandas.testing import assert_frame_equal

from reproduce.analysis import claims, one_out, verdicts
from reproduce.analysis.arms import Ledger
from reproduce.analysis.evidence import RunFolders
from reproduce.analysis.one_out import KEPT, SIGN_TURNS, Without

FIRST, SECOND = pretend_runs.BACKBONES
COLUMNS = ["claim", "effect", "verdict", "seeds"]
# A claim of each metric.
SOME = {
    name: claims.CLAIMS[name]
    for name in (
        "mae_half_over_base",
        "mae_difficulty_rises",
        "spice_reasoner_gets_better",
        "conl_rho_not_blind",
    )
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> RunFolders:
    """Pretend runs of all arms of the ledger, a seed for each of two backbones."""
    return pretend_runs.make(tmp_path_factory.mktemp("runs"))


def test_the_backbones_of_units_are_found(folders: RunFolders) -> None:
    assert one_out.backbones(folders) == [FIRST, SECOND]


def test_the_ledger_is_that_of_the_runs_that_are_left(folders: RunFolders) -> None:
    second_seed = pretend_runs.SEEDS[1]
    left = dict.fromkeys(folders.runs, [second_seed])
    alone = RunFolders(folders.folder, left, folders.crossed)
    expected = claims.weigh(Ledger(alone), SOME)[COLUMNS]
    without = claims.weigh(Ledger(Without(folders, FIRST)), SOME)[COLUMNS]
    assert_frame_equal(without, expected)
    assert not without.equals(claims.weigh(Ledger(folders), SOME)[COLUMNS])


def test_a_run_of_one_backbone_keeps_its_seeds(folders: RunFolders) -> None:
    alone = RunFolders(folders.folder, {"mae_half": [0]}, folders.crossed)
    assert alone.summaries("mae_half")[0].backbone == FIRST
    assert Without(alone, FIRST).runs == {"mae_half": [0]}
    assert one_out.backbones(alone) == []


def test_every_backbone_is_left_out_once(folders: RunFolders) -> None:
    some = dict(list(claims.CLAIMS.items())[:3])
    assert list(one_out.ledgers(folders, some)) == [FIRST, SECOND]


def ledger(**verdict_of: str) -> pd.DataFrame:
    rows = [ledger_row(claim=name, verdict=verdict_of[name]) for name in verdict_of]
    return pd.DataFrame(rows)


def test_verdicts_are_compared_by_their_group() -> None:
    whole = ledger(
        a=verdicts.FOUND, b=verdicts.NO_EFFECT, c=verdicts.UNDECIDED, d=verdicts.CANNOT
    )
    first = ledger(
        a=verdicts.OPPOSITE, b=verdicts.SMALLER, c=verdicts.FOUND, d=verdicts.CANNOT
    )
    first["effect"] = whole["effect"] + 1.0
    table = one_out.table(whole, {"first": first, "second": whole})
    table = table.set_index("claim")
    assert list(table.index) == ["a", "b", "c"]  # d cannot be decided
    assert dict(table[KEPT]) == {"a": False, "b": True, "c": False}
    assert dict(table[SIGN_TURNS]) == {"a": True, "b": False, "c": False}


def test_words_name_the_backbones_that_a_verdict_rests_on() -> None:
    whole = ledger(
        a=verdicts.FOUND,
        b=verdicts.FOUND,
        c=verdicts.CANNOT,
    )
    first = whole.assign(effect=whole["effect"] + 1.0)
    first.loc[first["claim"] == "a", "verdict"] = verdicts.UNDECIDED
    without = {
        "first": first,
        "second": whole,
        "third": first,
        "fourth": first,
    }
    words = one_out.stability(whole, without)
    assert words == {
        "a": "would be undecided without first, third or fourth",
        "b": KEPT,
    }
    assert one_out.stability(whole, {}) == {}


def test_a_claim_that_loses_no_data_is_left_out() -> None:
    whole = ledger(a=verdicts.FOUND, b=verdicts.FOUND)
    first = whole.copy()
    first.loc[first["claim"] == "a", "effect"] += 1.0
    table = one_out.table(whole, {"first": first, "second": whole})
    assert list(table["claim"]) == ["a"]
