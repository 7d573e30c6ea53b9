"""The ledger on made-up runs: verdicts by rule, and claims that name what exists."""

import json
import shutil
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
import pytest
from data_files import tables
from pytest import approx

from coevolve.runs.record import Recorder, write_json
from reproduce import registry
from reproduce.analysis import arms, claims, standins, verdicts
from reproduce.analysis.evidence import RunFolders, with_added
from reproduce.analysis.stats import Effect
from reproduce.report_claims import UNITS
from tools import readme_numbers

ROOT = Path(__file__).parents[2]
CASES = tables("claims")
QUESTIONS = 20
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
    "paper",
    "paper_effect",
    "paper_numbers",
    "rows",
    "says",
    "setup",
    "size",
    "where",
}


def claim_of(kind: str, **fields: Any) -> dict[str, Any]:
    return {**CASES["any"], **CASES[kind], **fields}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> claims.Ledger:
    """Runs of ten steps, answers to 20 word questions, and a Judge that is idle in run `like`."""
    folder = tmp_path_factory.mktemp("runs")
    runs = {}
    for run, correct_by_seed in CASES["correct"].items():
        runs[run] = range(len(correct_by_seed))
        for seed, correct in enumerate(correct_by_seed):
            recorder = Recorder(folder / f"{run}-s{seed}")
            summary = {
                "steps": 0 if run == "base" else 9,
                "acted": {"reward of judge": 0.0 if run == "like" else 0.5},
            }
            config = {"method": "mae", "model": "tiny"}
            write_json(recorder.out / "config.json", config)
            write_json(recorder.out / "summary.json", summary)
            recorder.rows("metrics", metrics(seed))
            recorder.scores(scores(correct))
    return claims.Ledger(RunFolders(folder, runs))


def metrics(seed: int) -> Iterator[dict[str, float]]:
    """A metric that rises from step to step, and validation before and after training."""
    yield {"step": 0, "validation": 0.25}
    for step in range(1, 11):
        yield {
            "step": step,
            "x": step + seed,
            "hill": seed - abs(step - 5),
            "tp": step,
            "fp": 10 - step,
        }
    yield {"step": 11, "validation": 0.5}


def scores(correct: int) -> Iterator[dict[str, Any]]:
    for item in range(QUESTIONS):
        yield {
            "stage": "after",
            "strategy": "vanilla",
            "split": "test",
            "family": "word",
            "level": 1,
            "item": item,
            "question": item,
            "correct": int(item < correct),
        }


def weigh(ledger: claims.Ledger, claim: dict[str, Any]) -> pd.Series:
    """The row of a ledger with one claim."""
    return claims.weigh(ledger, {"x": claim}).iloc[0]


@pytest.mark.parametrize("case", CASES["verdicts"])
def test_a_verdict_follows_by_rule(case: dict, ledger: claims.Ledger) -> None:
    row = weigh(ledger, claim_of(case["kind"], **case["claim"]))
    assert row["verdict"] == case["verdict"]
    reason = row["why"].removesuffix(claims.ONE_BACKBONE)
    assert bool(reason) == case.get("why", False)
    if "effect" in case:
        assert row["effect"] == approx(case["effect"], abs=0.01)
        assert row["low"] < row["effect"] < row["high"]
        assert row["smallest"] < 88


def test_a_claim_about_one_backbone_says_so(ledger: claims.Ledger) -> None:
    row = weigh(ledger, claim_of("greater", arms=["good", "base"], note="mine"))
    assert row["units"] == "3 seeds / 1 seed"
    assert row["why"] == f"mine; {claims.ONE_BACKBONE}"


def test_an_order_is_flat_only_if_all_of_its_steps_are(ledger: claims.Ledger) -> None:
    flat = claim_of("order", arms=["full", "full", "full"])
    assert weigh(ledger, flat)["verdict"] == verdicts.NO_EFFECT
    falling = claim_of("order", arms=["full", "part", "part"])
    assert weigh(ledger, falling)["verdict"] == verdicts.UNDECIDED


@pytest.fixture
def on_two_backbones(ledger: claims.Ledger, tmp_path: Path) -> claims.Ledger:
    """Three seeds of two runs; the first and the last one speak the same backbone."""
    for run in ("good", "bad"):
        for seed, model in enumerate(["tiny", "tiny-1", "tiny"]):
            name = f"{run}-s{seed}"
            home = tmp_path / name
            shutil.copytree(ledger.evidence.folder / name, home)
            write_json(home / "config.json", {"method": "mae", "model": model})
    return claims.Ledger(RunFolders(tmp_path, ledger.runs))


def test_seeds_of_one_backbone_are_one_unit(on_two_backbones: claims.Ledger) -> None:
    row = weigh(on_two_backbones, claim_of("greater", arms=["good", "bad"]))
    assert row["seeds"] == "3 / 3"
    assert row["units"] == "2 backbones / 2 backbones"
    assert not row["why"]
    first_backbone = (19 + 19) / 2 - (2 + 2) / 2
    second_backbone = 20 - 1
    gain = (first_backbone + second_backbone) / 2
    assert row["effect"] == approx(100 * gain / QUESTIONS)


SURE = claim_of("greater", arms=["good", "bad"])
UNSURE = claim_of("greater", arms=["good", "like"])


def test_headline_claims_are_corrected_by_holm(ledger: claims.Ledger) -> None:
    first, second, *_ = claims.HEADLINE["mae"]
    named = {
        first: SURE,
        second: UNSURE,
        "other": UNSURE,
    }
    table = claims.weigh(ledger, named).set_index("claim")
    tests = table["tests"]
    assert tests.tolist() == ["headline", "headline", "other"]
    # The sure claim passes .05 / 2, so that the other one needs .05.
    alpha = table["alpha"]
    assert alpha.tolist() == approx([0.05 / 2, 0.05, 0.05])


def test_other_claims_are_corrected_by_benjamini_and_hochberg(
    ledger: claims.Ledger,
) -> None:
    named = {
        "a": SURE,
        "b": UNSURE,
        "c": UNSURE,
    }
    table = claims.weigh(ledger, named)
    # Beside the sure claim, two of three tests may reach 2 / 3 of .05.
    alpha = table["alpha"]
    assert alpha.tolist() == approx([0.05 / 3, 0.1 / 3, 0.1 / 3])
    verdict = table["verdict"]
    assert verdict.tolist() == ["found", "undecided", "undecided"]


@pytest.mark.parametrize("tests", [1, 10])
def test_what_would_be_seen_is_under_the_correction_of_the_verdict(
    tests: int, ledger: claims.Ledger
) -> None:
    names = [str(number) for number in range(tests)]
    table = claims.weigh(ledger, dict.fromkeys(names, UNSURE))
    row = table.iloc[0]
    effect = Effect(
        row["effect"],
        row["standard_error"],
        row["dof"],
    )
    smallest = effect.detectable(0.8, alpha=0.05 / tests)
    assert row["smallest"] == approx(smallest)


def test_a_ledger_of_single_seeds_has_every_column(ledger: claims.Ledger) -> None:
    one_seed = claim_of("greater", arms=["good", "lone"])
    untestable = claim_of("greater", cannot="no sound")
    table = claims.weigh(ledger, {"a": one_seed, "b": untestable})
    numbers = table[["low", "high", "smallest", "p_corrected"]]
    assert numbers.isna().all(axis=None)
    assert list(table["seeds"]) == ["3 / 1", ""]


def test_a_ratio_of_one_arm_is_a_share_of_all_steps(ledger: claims.Ledger) -> None:
    fields = {"metric": "column", "column": "x", "direction": "up"}
    claim = claim_of("ratio", arms=["good"], paper_effect=650, **fields)
    mean_of_steps = 5.5
    mean_of_seeds = 1
    assert weigh(ledger, claim)["effect"] == approx(
        100 * (mean_of_steps + mean_of_seeds)
    )


def test_every_claim_has_a_row_where_nothing_was_run(tmp_path: Path) -> None:
    table = claims.weigh(claims.Ledger(RunFolders(tmp_path, {})))
    assert set(table["claim"]) == set(claims.CLAIMS)
    verdict = table["verdict"]
    assert set(verdict) == {"not run", "cannot be tested here", "by construction"}


def test_an_untrained_arm_has_no_seed_noise(ledger: claims.Ledger) -> None:
    row = weigh(ledger, claim_of("greater", arms=["good", "base"]))
    assert row["verdict"] == "found"


def test_a_claim_over_the_untrained_model_has_a_gain_over_its_control(
    ledger: claims.Ledger,
) -> None:
    arms = ["good", "base"]
    row = weigh(ledger, claim_of("greater", arms=arms, control="bad"))
    over_bad = weigh(ledger, claim_of("greater", arms=["good", "bad"]))
    assert row["over_control"] == over_bad["effect"]
    assert row["over_control_low"] == over_bad["low"]
    assert row["over_control_high"] == over_bad["high"]
    assert row["effect"] != row["over_control"]


@pytest.mark.parametrize("fields", [{}, {"control": "never trained"}])
def test_a_claim_without_a_trained_control_has_no_gain_over_one(
    fields: dict, ledger: claims.Ledger
) -> None:
    row = weigh(ledger, claim_of("greater", arms=["good", "base"], **fields))
    assert np.isnan([row[name] for name in claims.OVER_CONTROL]).all()
    assert row["verdict"] == "found"


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


def test_an_order_is_tested_by_its_weakest_step(ledger: claims.Ledger) -> None:
    row = weigh(ledger, claim_of("order", arms=["like", "good", "bad"]))
    assert row["verdict"] == "undecided"
    assert row["effect"] == approx(0, abs=1)


def test_the_weakest_step_is_the_least_sure_and_not_the_smallest(
    ledger: claims.Ledger,
) -> None:
    row = weigh(ledger, claim_of("order", arms=["full", "part", "wild"]))
    assert row["effect"] == approx(70 - 100 / 3), "30 points are sure, 37 are not"
    assert row["verdict"] == "undecided"


def test_a_reversed_order_counts_every_step_as_a_test(
    ledger: claims.Ledger,
) -> None:
    order = weigh(ledger, claim_of("order", arms=["like", "bad", "good"]))
    step = weigh(ledger, claim_of("greater", arms=["bad", "good"]))
    assert order["verdict"] == "opposite"
    assert order["p"] == approx(2 * step["p"])


def test_top_ranked_answers_are_compared_on_the_questions_that_were_discussed(
    ledger: claims.Ledger,
) -> None:
    for seed in range(3):
        discuss(ledger.evidence.home("good", seed), correct=4)
    mixed = claim_of("greater", arms=["good", "bad"], setup=["top_ranked", "greedy"])
    row = weigh(ledger, mixed)
    correct_of_bad = 2 + 1 + 2  # of four questions with three seeds
    assert row["effect"] == approx(100 * (1 - correct_of_bad / 12))


def conversation_about(
    item: int, pass_1: float, rank_rho: float | None = None
) -> dict[str, Any]:
    """Return what a run records of a conversation."""
    return {
        "item": item,
        "family": "word",
        "level": 1,
        "question": str(item),
        "pass_1": pass_1,
        "pass_k": 1.0,
        "rank_rho": rank_rho,
        "wrong_before": 0.0,
        "fixed": 0.0,
        "correct_before": 4.0,
        "harmed": 0.0,
    }


def discuss(run: Path, correct: int) -> None:
    """Write a run's conversations about four questions, the first of which end correctly."""
    lines = []
    for question in range(4):
        conversation = conversation_about(question, pass_1=float(question < correct))
        lines.append(json.dumps(conversation) + "\n")
    path = run / "conversations.jsonl"
    path.write_text("".join(lines))


def test_the_conversation_alone_is_a_claim_about_one_untrained_arm(
    ledger: claims.Ledger,
) -> None:
    discuss(ledger.evidence.home("base", 0), correct=3)
    setups = ["top_ranked", "greedy"]
    alone = claim_of("greater", arms=["base", "base"], setup=setups, note="a remark")
    row = weigh(ledger, alone)
    assert row["effect"] == approx(100 * (3 - 2) / 4)
    assert row["low"] < row["effect"] < row["high"], "of questions alone"
    assert row["why"] == "a remark"


def test_trained_arms_are_compared_in_the_same_conversation(
    ledger: claims.Ledger,
) -> None:
    for seed in range(3):
        discuss(ledger.evidence.home("good", seed), correct=3)
        discuss(ledger.evidence.home("bad", seed), correct=1 + seed % 2)
    same = claim_of("greater", arms=["good", "bad"], setup="top_ranked")
    row = weigh(ledger, same)
    assert row["effect"] == approx(75 - 100 / 3)


def write_conversations(
    ledger: claims.Ledger, run: str, rhos: list[float | None]
) -> None:
    """Record a conversation of three seeds per Rank-rho, None where it is not defined."""
    lines = []
    for item, rho in enumerate(rhos):
        conversation = conversation_about(item, pass_1=1.0, rank_rho=rho)
        lines.append(json.dumps(conversation) + "\n")
    for seed in range(3):
        path = ledger.evidence.home(run, seed) / "conversations.jsonl"
        path.write_text("".join(lines))


def test_rank_rho_is_compared_over_conversations_that_define_it_for_both(
    ledger: claims.Ledger,
) -> None:
    write_conversations(ledger, "full", [0.9, 0.5, 0.1, None])
    write_conversations(ledger, "part", [None, 0.1, 0.1, -1.0])
    fields = {"metric": "conversations", "column": "Rank-rho"}
    claim = claim_of("greater", arms=["full", "part"], direction="up", **fields)
    of_first = [0.5, 0.1]
    of_second = [0.1, 0.1]
    expected = fmean(of_first) - fmean(of_second)
    assert weigh(ledger, claim)["effect"] == approx(expected)
    reversed_claim = claim | {"arms": ["part", "full"]}
    assert weigh(ledger, reversed_claim)["effect"] == approx(-expected)


@pytest.mark.parametrize("case", CASES["trends"])
def test_trends_peaks_and_ratios_of_sums(case: dict, ledger: claims.Ledger) -> None:
    row = weigh(ledger, claim_of("trend", **case["claim"]))
    assert row["effect"] == approx(case["effect"])


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


def test_the_share_of_added_questions_leaves_out_those_of_the_first_step() -> None:
    steps = pd.DataFrame(
        {
            "seed": [0, 0, 0, 1, 1],
            "pool/questions": [100, 110, 120, 100, 100],
            "pool_ill_formed": [0.1, 13 / 110, 0.15, 0.0, 0.0],
        }
    )
    shares = with_added(steps)["added_ill_formed"]
    assert shares[[1, 2]].tolist() == approx([0.3, 0.4])
    assert shares[[0, 3, 4]].isna().all()  # nothing was added
    without_questions = steps.drop(columns="pool/questions")
    assert "added_ill_formed" not in with_added(without_questions)
