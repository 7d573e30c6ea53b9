"""The ledger by hand: differences with the noise of both arms, verdicts by rule, and claims that name what exists."""

import json
from pathlib import Path

import numpy as np
import pytest
from pytest import approx

from coevolve.runs.record import Recorder, write_json
from reproduce import registry
from reproduce.analysis import claims, standins

ROOT = Path(__file__).parents[2]
ALLOWED = """paper where says kind mechanism arms cannot metric rows column direction setup paper_effect
    paper_numbers""".split()
GREATER = {"paper": "mae", "where": "", "says": "", "kind": "greater", "metric": "accuracy", "rows": ["GSM8K"]}
TREND = GREATER | {"kind": "trend", "metric": "column", "direction": "up", "arms": ["good"], "column": "x"}


def test_a_ratio_of_gains_has_the_noise_of_both_and_none_over_no_gain() -> None:
    a, b, base = np.array([[1.0, 1.0], [1.0, 0.0]]), np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([[0.1, 0.1]])
    gains = claims._share([[a], [b], [base]], [False, False, True])
    assert gains.delta == approx((0.75 - 0.1) / (0.25 - 0.1)) and gains.error > 0
    assert np.isnan(claims._share([[a], [a], [a]], [False, False, True]).delta)


@pytest.fixture
def ledger(tmp_path: Path) -> claims.Ledger:
    """Runs whose word questions are right as often as told, by seed, and whose judge speaks as often as told."""
    right = {"good": (19, 20, 19), "bad": (2, 1, 2), "like": (18, 20, 20), "lone": (20,), "base": (2,)}
    right |= {"full": (20, 20, 20), "part": (14, 14, 14), "wild": (0, 0, 20)}
    for run, counts in right.items():
        for seed, count in enumerate(counts):
            log = Recorder(tmp_path / f"{run}-s{seed}")
            acted = {"reward of judge": 0.0 if run == "like" else 0.5}
            write_json(log.out / "summary.json", {"steps": 0 if run == "base" else 9, "acted": acted})
            rows = [{"step": step, "x": step + seed, "tp": step, "fp": 10 - step} for step in range(1, 11)]
            rows = [{"step": 0, "validation": 0.25}, *rows, {"step": 11, "validation": 0.5}]
            log.rows("metrics", rows)
            same = {"stage": "after", "setup": "vanilla", "split": "test", "family": "word", "level": 1}
            log.scores(same | {"item": i, "question": i, "correct": int(i < count)} for i in range(20))
    return claims.Ledger(tmp_path, {run: range(len(counts)) for run, counts in right.items()})


RATIO = GREATER | {"kind": "ratio", "arms": ["good", "like"]}
ORDERS = {"unsure": "full part wild", "turned": "like bad good"}
VERDICTS = {
    "found": GREATER | {"arms": ["good", "bad"]},
    "opposite": GREATER | {"arms": ["bad", "good"]},
    "found ": RATIO | {"paper_effect": 1.0},
    "other size": RATIO | {"paper_effect": 200.0},
    "undecided": GREATER | {"arms": ["good", "like"]},
    "undecided ": RATIO | {"paper_effect": 0.01, "arms": ["bad", "good", "base"]},
    "one seed": GREATER | {"arms": ["good", "lone"]},
    "idle": GREATER | {"arms": ["like", "bad"], "mechanism": "reward of judge"},
    "not run": GREATER | {"arms": ["good", "never"]},
    "not run ": GREATER | {"arms": ["good", "bad"], "setup": "debate"},
    "cannot be tested here": {"paper": "mae", "kind": "greater", "cannot": "no sound"},
}


@pytest.mark.parametrize("verdict", VERDICTS)
def test_a_verdict_follows_by_rule(verdict: str, ledger: claims.Ledger) -> None:
    (row,) = claims.weigh(ledger, {"x": VERDICTS[verdict]}).to_dict("records")
    assert row["verdict"] == verdict.strip()
    assert bool(row["why"]) == (verdict.strip() in ("idle", "not run", "cannot be tested here"))
    if verdict in ("found", "opposite"):
        assert row["effect"] == approx(88.333 if verdict == "found" else -88.333, abs=0.01)
        assert row["low"] < row["effect"] < row["high"] and row["smallest"] < 88


def test_a_ledger_of_single_seeds_has_every_column(ledger: claims.Ledger) -> None:
    alone = claims.weigh(ledger, {"a": VERDICTS["one seed"], "b": VERDICTS["cannot be tested here"]})
    assert alone[["low", "high", "smallest", "p_holm"]].isna().all(axis=None) and list(alone["seeds"]) == ["3 / 1", ""]


def test_an_untrained_arm_has_no_seeds_and_an_order_counts_its_weakest_step(ledger: claims.Ledger) -> None:
    two = {"a": GREATER | {"arms": ["good", "base"]}, "b": GREATER | {"kind": "order", "arms": ["like", "good", "bad"]}}
    untrained, order = claims.weigh(ledger, two).to_dict("records")
    assert untrained["verdict"] == "found" and order["verdict"] == "undecided" and order["effect"] == approx(0, abs=1)
    orders = {name: GREATER | {"kind": "order", "arms": arms.split()} for name, arms in ORDERS.items()}
    unsure, turned = claims.weigh(ledger, orders).to_dict("records")
    assert unsure["effect"] == approx(70 - 100 / 3) and unsure["verdict"] == "undecided", (
        "30 points are sure, 37 are not"
    )
    once = claims.weigh(ledger, {"x": GREATER | {"arms": ["bad", "good"]}})["p"][0]
    assert turned["verdict"] == "opposite" and turned["p"] == approx(2 * once), "either step may be the other way"


def test_top_ranked_answers_are_compared_on_the_questions_that_were_talked_about(ledger: claims.Ledger) -> None:
    talks = [{"item": 0, "family": "word", "question": str(i), "pass_1": 1.0, "rank_rho": None} for i in range(4)]
    for seed in range(3):
        (ledger.folder / f"good-s{seed}/conversations.jsonl").write_text("".join(json.dumps(t) + "\n" for t in talks))
    mixed = GREATER | {"arms": ["good", "bad"], "setup": ["top_ranked", "greedy"]}
    assert claims.weigh(ledger, {"x": mixed}).loc[0, "effect"] == approx(100 * (1 - (2 + 1 + 2) / 12))


def test_trends_peaks_and_ratios_of_sums(ledger: claims.Ledger) -> None:
    said = {"up": TREND, "down": TREND | {"direction": "down"}, "peak": TREND | {"direction": "peak"}}
    said |= {"rare": TREND | {"column": "validation"}, "sums": TREND | {"column": "tp / (tp + fp)"}}
    effects = claims.weigh(ledger, said).set_index("claim")["effect"]
    # steps 1-2 against 9-10
    assert effects.to_dict() == approx({"up": 8, "down": -8, "peak": -4, "rare": 25, "sums": 80})


def test_every_claim_names_runs_rows_and_numbers_that_exist() -> None:
    _, found = registry.read(ROOT, "quick")
    numbers = {path.name for path in (ROOT / "reproduce/paper_numbers").iterdir()}
    named, units = set(), (ROOT / "reproduce/report.html.j2").read_text()
    for name, claim in claims.CLAIMS.items():
        assert claim.keys() <= {*ALLOWED} and ("cannot" in claim) != ("arms" in claim), name
        assert set(claim.get("arms", ())) <= found.runs.keys(), name
        column = claim.get("column", "validation")
        assert " / " in column or claim["kind"] == "ratio" or f'"{column}": "' in units, name
        rows = claim.get("rows", "all")
        assert rows in (*claims.AVERAGES,) or set(rows) <= standins.layout(claim["paper"]).families.keys(), name
        printed = claim.get("paper_numbers", "not printed").split(" ")[0].rstrip(":,")
        assert printed in numbers or not printed.endswith(".csv"), name
        named |= set(claim.get("arms", ()))
    assert named == set(found.artefacts["claims"].runs)
