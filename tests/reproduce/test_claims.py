"""The ledger on made-up runs: verdicts by rule, and claims that name what exists."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd
import pytest
from data_files import tables
from pytest import approx

from coevolve.runs.record import Recorder, write_json
from reproduce.analysis import claims, verdicts
from reproduce.analysis.evidence import RunFolders, with_added
from reproduce.analysis.stats import Effect

ROOT = Path(__file__).parents[2]
CASES = tables("claims")
QUESTIONS = 20


def claim_of(kind: str, **fields: Any) -> dict[str, Any]:
    return {**CASES["any"], **CASES[kind], **fields}


def greater(*arms: str, **fields: Any) -> dict[str, Any]:
    """A claim that the first of two runs is better."""
    return claim_of("greater", arms=list(arms), **fields)


def order(*arms: str, **fields: Any) -> dict[str, Any]:
    """A claim that puts several runs in order, the best first."""
    return claim_of("order", arms=list(arms), **fields)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> claims.Ledger:
    """Runs of ten steps, answers to 20 word questions, and a Judge that is idle in run `like`."""
    folder = tmp_path_factory.mktemp("runs")
    runs = {}
    for run, correct_by_seed in CASES["correct"].items():
        runs[run] = range(len(correct_by_seed))
        for seed, correct in enumerate(correct_by_seed):
            recorder = Recorder(folder / f"{run}-s{seed}")
            steps = 0 if run == "base" else 9
            acted = 0.0 if run == "like" else 0.5
            summary = {
                "steps": steps,
                "acted": {"reward of judge": acted},
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
            "pool": step**2,
            "share": (step + seed) / 20,
            "varied": float(seed > 0),
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


def verdict_on(ledger: claims.Ledger, claim: dict[str, Any]) -> str:
    """The verdict of a ledger with one claim."""
    row = weigh(ledger, claim)
    return str(row["verdict"])


@pytest.mark.parametrize("case", CASES["verdicts"])
def test_a_verdict_follows_by_rule(case: dict, ledger: claims.Ledger) -> None:
    row = weigh(ledger, claim_of(case["kind"], **case["claim"]))
    assert row["verdict"] == case["verdict"]
    reason = row["why"].replace(claims.ONE_BACKBONE, "")
    assert bool(reason) == case.get("why", False)
    if "effect" in case:
        assert row["effect"] == approx(case["effect"], abs=0.01)
        assert row["low"] < row["effect"] < row["high"]
        assert row["smallest"] < 88


def test_a_claim_about_one_backbone_says_so(ledger: claims.Ledger) -> None:
    row = weigh(ledger, greater("good", "base", note="mine"))
    assert row["units"] == "3 seeds / 1 seed"
    assert row["why"] == f"mine; {claims.ONE_BACKBONE}"


def test_an_order_is_flat_only_if_all_of_its_steps_are(ledger: claims.Ledger) -> None:
    flat = order("full", "full", "full")
    assert verdict_on(ledger, flat) == verdicts.NO_EFFECT
    as_printed = flat | {"paper_effect": [0.0, 0.0]}
    assert verdict_on(ledger, as_printed) == verdicts.AS_SMALL
    one_as_printed = flat | {"paper_effect": [0.0, 3.0]}
    assert verdict_on(ledger, one_as_printed) == verdicts.NO_EFFECT
    falling = order("full", "part", "part")
    assert verdict_on(ledger, falling) == verdicts.UNDECIDED


@pytest.fixture
def on_two_backbones(ledger: claims.Ledger, tmp_path: Path) -> claims.Ledger:
    """Three seeds of two runs; the first and the last one speak the same backbone."""
    for run in ("good", "bad"):
        for seed, model in enumerate(["tiny", "tiny-1", "tiny"]):
            name = f"{run}-s{seed}"
            home = tmp_path / name
            shutil.copytree(ledger.evidence.folder / name, home)
            config = {"method": "mae", "model": model}
            write_json(home / "config.json", config)
    return claims.Ledger(RunFolders(tmp_path, ledger.runs))


def test_seeds_of_one_backbone_are_one_unit(on_two_backbones: claims.Ledger) -> None:
    row = weigh(on_two_backbones, greater("good", "bad"))
    assert row["seeds"] == "3 / 3"
    assert row["units"] == "2 backbones / 2 backbones"
    assert not row["why"]
    first_backbone = 19 - 2  # with both seeds
    second_backbone = 20 - 1
    gain = (first_backbone + second_backbone) / 2
    assert row["effect"] == approx(100 * gain / QUESTIONS)


SURE = greater("good", "bad")
UNSURE = greater("good", "like")


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
    one_seed = greater("good", "lone")
    untestable = claim_of("greater", cannot="no sound")
    table = claims.weigh(ledger, {"a": one_seed, "b": untestable})
    numbers = table[["low", "high", "smallest", "p_corrected"]]
    assert numbers.isna().all(axis=None)
    seeds = table["seeds"]
    assert seeds.tolist() == ["3 / 1", ""]


def test_a_ratio_of_one_arm_is_a_share_of_all_steps(ledger: claims.Ledger) -> None:
    mean_of_steps = 5.5
    mean_of_seeds = 1
    row = weigh(ledger, claim_of("share"))
    share = (mean_of_steps + mean_of_seeds) / 20
    assert row["effect"] == approx(100 * share)
    assert row["low"] > 0
    assert row["high"] < 100


def test_the_limits_of_a_share_are_shares(ledger: claims.Ledger) -> None:
    row = weigh(ledger, claim_of("share", column="varied"))
    assert row["effect"] == approx(200 / 3)
    assert row["low"] == 0
    assert row["high"] == 100


def test_a_ratio_over_all_stand_ins_is_noted_beside_it(ledger: claims.Ledger) -> None:
    alone = weigh(ledger, claim_of("share_of_gains"))
    beside = weigh(ledger, claim_of("share_of_gains", over_all=True))
    note = beside["why"].removeprefix(alone["why"])
    value, low, high = re.findall(r"-?\d+\.\d\d", note)
    assert float(value) == approx(alone["effect"], abs=0.005)
    assert float(low) == approx(alone["low"], abs=0.005)
    assert float(high) == approx(alone["high"], abs=0.005)


def test_a_column_can_be_measured_by_its_growth(ledger: claims.Ledger) -> None:
    row = weigh(ledger, claim_of("growth"))
    # Squares grow by odd numbers: 3 and 5 at first, from 1 to 2 and to 3, and 19 at last.
    assert row["effect"] == approx(19 - fmean([3, 5]))


def test_a_peak_names_its_weaker_side_and_what_is_printed_for_it(
    ledger: claims.Ledger,
) -> None:
    row = weigh(ledger, claim_of("no_peak"))
    assert "the weaker side of the peak: its fall" in row["why"]
    assert row["paper_effect"] == 3.0
    assert row["p"] == 1.0, "a curve that only rises has no peak, nor its opposite"


def test_every_claim_has_a_row_where_nothing_was_run(tmp_path: Path) -> None:
    table = claims.weigh(claims.Ledger(RunFolders(tmp_path, {})))
    assert set(table["claim"]) == set(claims.CLAIMS)
    verdict = table["verdict"]
    assert set(verdict) == {"not run", "cannot be tested here", "by construction"}


def test_an_untrained_arm_has_no_seed_noise(ledger: claims.Ledger) -> None:
    row = weigh(ledger, greater("good", "base"))
    assert row["verdict"] == "found"


def test_a_claim_over_the_untrained_model_has_a_gain_over_its_control(
    ledger: claims.Ledger,
) -> None:
    row = weigh(ledger, greater("good", "base", control="bad"))
    over_bad = weigh(ledger, greater("good", "bad"))
    assert row["over_control"] == over_bad["effect"]
    assert row["over_control_low"] == over_bad["low"]
    assert row["over_control_high"] == over_bad["high"]
    assert row["effect"] != row["over_control"]


def test_a_control_is_compared_with_the_untrained_model(ledger: claims.Ledger) -> None:
    claim = greater(
        "good",
        "base",
        control="bad",
    )
    control = claims.control_over_untrained(ledger, claim)
    alone = greater("bad", "base")
    row = weigh(ledger, alone)
    assert control.value == row["effect"]
    assert control.low == row["low"]
    assert control.high == row["high"]


@pytest.mark.parametrize("fields", [{}, {"control": "never trained"}])
def test_a_claim_without_a_trained_control_has_no_gain_over_one(
    fields: dict, ledger: claims.Ledger
) -> None:
    row = weigh(ledger, greater("good", "base", **fields))
    over_control = row[list(claims.OVER_CONTROL)]
    assert over_control.isna().all()
    assert row["verdict"] == "found"


def test_an_order_is_tested_by_its_weakest_step(ledger: claims.Ledger) -> None:
    row = weigh(ledger, order("like", "good", "bad"))
    assert row["verdict"] == "undecided"
    assert row["effect"] == approx(0, abs=1)
    assert "the weakest step: like over good" in row["why"]


def test_the_printed_effect_beside_an_order_is_that_of_the_step_shown(
    ledger: claims.Ledger,
) -> None:
    row = weigh(ledger, claim_of("printed_order"))
    assert "the weakest step: part over wild" in row["why"]
    assert row["paper_effect"] == 4.0


def test_the_weakest_step_is_the_least_sure_and_not_the_smallest(
    ledger: claims.Ledger,
) -> None:
    row = weigh(ledger, order("full", "part", "wild"))
    assert row["effect"] == approx(70 - 100 / 3), "30 points are sure, 37 are not"
    assert row["verdict"] == "undecided"


def test_a_reversed_order_counts_every_step_as_a_test(
    ledger: claims.Ledger,
) -> None:
    reversed_order = weigh(ledger, order("like", "bad", "good"))
    step = weigh(ledger, greater("bad", "good"))
    assert reversed_order["verdict"] == "opposite"
    assert reversed_order["p"] == approx(2 * step["p"])


def test_top_ranked_answers_are_compared_on_the_questions_that_were_discussed(
    ledger: claims.Ledger,
) -> None:
    for seed in range(3):
        home = ledger.evidence.home("good", seed)
        discuss(home, correct=4)
    mixed = claim_of("conversation_over_answer", arms=["good", "bad"])
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
    conversations = []
    for question in range(4):
        is_correct = question < correct
        conversation = conversation_about(question, pass_1=float(is_correct))
        conversations.append(conversation)
    write(conversations, run)


def write(conversations: list[dict[str, Any]], run: Path) -> None:
    """Write the file of a run's conversations."""
    path = run / "conversations.jsonl"
    lines = map(json.dumps, conversations)
    path.write_text("\n".join(lines))


def test_the_conversation_alone_is_a_claim_about_one_untrained_arm(
    ledger: claims.Ledger,
) -> None:
    home = ledger.evidence.home("base", 0)
    discuss(home, correct=3)
    alone = claim_of("conversation_over_answer", arms=["base", "base"], note="mine")
    row = weigh(ledger, alone)
    assert row["effect"] == approx(100 * (3 - 2) / 4)
    assert row["low"] < row["effect"] < row["high"], "of questions alone"
    assert row["why"] == "mine"


def test_trained_arms_are_compared_in_the_same_conversation(
    ledger: claims.Ledger,
) -> None:
    for seed in range(3):
        good = ledger.evidence.home("good", seed)
        discuss(good, correct=3)
        bad = ledger.evidence.home("bad", seed)
        discuss(bad, correct=1 + seed % 2)
    same = greater("good", "bad", setup="top_ranked")
    row = weigh(ledger, same)
    assert row["effect"] == approx(75 - 100 / 3)


def write_conversations(
    ledger: claims.Ledger, run: str, rhos: list[float | None]
) -> None:
    """Record a conversation of three seeds per Rank-rho, None where it is not defined."""
    conversations = []
    for item, rho in enumerate(rhos):
        conversation = conversation_about(item, pass_1=1.0, rank_rho=rho)
        conversations.append(conversation)
    for seed in range(3):
        home = ledger.evidence.home(run, seed)
        write(conversations, home)


def test_rank_rho_is_compared_over_conversations_that_define_it_for_both(
    ledger: claims.Ledger,
) -> None:
    write_conversations(ledger, "full", [0.9, 0.5, 0.1, None])
    write_conversations(ledger, "part", [None, 0.1, 0.1, -1.0])
    row = weigh(ledger, claim_of("ranking", arms=["full", "part"]))
    of_first = [0.5, 0.1]
    of_second = [0.1, 0.1]
    expected = fmean(of_first) - fmean(of_second)
    assert row["effect"] == approx(expected)
    reversed_row = weigh(ledger, claim_of("ranking", arms=["part", "full"]))
    assert reversed_row["effect"] == approx(-expected)


@pytest.mark.parametrize("case", CASES["trends"])
def test_trends_peaks_and_ratios_of_sums(case: dict, ledger: claims.Ledger) -> None:
    row = weigh(ledger, claim_of("trend", **case["claim"]))
    assert row["effect"] == approx(case["effect"])


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
