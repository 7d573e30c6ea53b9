"""MAE against the paper, by hand: sections 4.1 to 4.3 and Algorithm 1, the ablations of Table 2, the settings."""

import re
from collections.abc import Callable

import pytest
from core.conftest import Sums, by_hand, earned, prompts, scripted, text
from pytest import approx

from coevolve.methods.mae.method import MAE
from coevolve.text.parse import tag
from coevolve.types import Outcome, Turn

BELOW, ABOVE = 1309, 1779  # Random(1309).random() is 0.4990, Random(1779).random() is 0.5014
PROPOSAL = ["<question>2+3</question>"]


def saying(proposal: str = PROPOSAL[0], quality: str = "<score>9</score>") -> Callable[[Turn], str]:
    """Right answers, judged 7; the proposal and its quality as told."""

    def say(turn: Turn) -> str:
        answer = Sums().answer(tag(text(turn), "question") or "")
        judged = "<score>7</score>" if "<answer>" in text(turn) else quality
        return {"proposer": proposal, "solver": f"<answer>{answer}</answer>", "judge": judged}[turn.role]

    return say


def run(say: Callable[[Turn], str], count: int = 1, **fields) -> tuple[list[Outcome], list[Turn], MAE]:
    mae = MAE(**{"world": Sums(), **fields})
    return *scripted(mae, say, range(count)), mae


SETTINGS = [
    ("zero", BELOW, "0+0"), ("zero", ABOVE, None), ("no", BELOW, None), ("no", ABOVE, None),
    ("half", BELOW, "1+1"), ("half", ABOVE, None), ("with", BELOW, "1+1"), ("with", ABOVE, "1+1"),
]  # fmt: skip


@pytest.mark.parametrize(("setting", "seed", "reference"), SETTINGS)
def test_a_whole_episode_by_hand(setting: str, seed: int, reference: str | None) -> None:
    mae = MAE(setting=setting, solves=2, world=Sums())
    steps = by_hand(mae, seed=seed)
    assert prompts(steps.pending_turns) == ["propose" if reference is None else f"propose<ref>{reference}</ref>"]  # 4-9
    steps.answer(["<think>a sum</think><question> 2+3 </question>"])
    assert prompts(steps.pending_turns) == ["judge<question>2+3</question>"] + ["solve<question>2+3</question>"] * 5  # 10
    tries = [*(f"<answer>{answer}</answer>" for answer in (5, 6, 7)), "5", "<answer>5</answer>" * 2]
    steps.answer(["<score>8</score>", *tries])
    assert prompts(steps.pending_turns) == [f"judge<question>2+3</question><answer>{a}</answer>" for a in (5, 6, 7)]
    steps.answer(["<score>10</score>", "<score>1</score>", "<score>X</score>"])
    asked = [re.fullmatch("solve<question>(.*)</question>", prompt)[1] for prompt in prompts(steps.pending_turns)]  # 16
    assert len(asked) == 2 and set(asked) <= {"2+3", "0+0" if setting == "zero" else "1+1"}
    steps.answer(["<answer>2</answer>", "<answer>1</answer> or <answer>2</answer>"])  # 17
    assert prompts(steps.pending_turns) == [f"judge<question>{asked[0]}</question><answer>2</answer>"]  # 18-19
    steps.answer(["<score>7</score>"])
    assert prompts(steps.pending_turns) == [f"judge<question>{asked[0]}</question><answer>2</answer>"] * 2  # 20
    steps.answer(["<think>right</think><score>9</score>", "<score>9</score><score>9</score>"])  # 21
    # quality (8 - 1)/9; difficulty 1 - (1 + 0 + 0 + 0)/4: one judgement unreadable, two answers without a value
    assert earned(steps.outcome, "proposer") == [approx((7 / 9 + 3 / 4 + 1) / 3)]
    assert earned(steps.outcome)[1:3] == [("solver", approx((6 / 9 + 1) / 2)), ("solver", approx((0 + 0.5) / 2))]
    assert earned(steps.outcome)[3:] == [("judge", 1.0), ("judge", 0.5)]
    assert {sample.group_id for sample in steps.outcome.samples} == {None}, "a baseline per role"
    assert steps.outcome.adds == {"questions": ["2+3"], "pairs": [(asked[0], "2")]}
    assert {name: len(pool) for name, pool in mae.pools.items()} == {"questions": 1, "pairs": 0}, "before the step ends"
    assert steps.outcome.facts == {
        "parsed": 1.0, "quality": approx(7 / 9), "difficulty": 0.75, "valid": 1.0, "level": 1, "true_difficulty": 0.8,
        "judge_question_right": 1.0, "unreadable": 0.25, "accepted": 1.0, "kept": 1.0,
        "proposal": "2+3", "reference": reference, "answered": 0.5, "judged": approx(6 / 9),
        "right": float(asked[0] == "1+1"), "judge_answer_right": float(asked[0] == "1+1"),
    }  # fmt: skip


MALFORMED = {"2+3": 0, "": 0, "<question>2+3": 0, "<question> </question>": 0, PROPOSAL[0] * 2: 0.5}


@pytest.mark.parametrize(("proposal", "format"), MALFORMED.items())
def test_a_malformed_proposal_is_not_assessed_and_paid_by_format_only(proposal: str, format: float) -> None:
    (outcome,), asked, _ = run(saying(proposal), setting="no", quality_filter=False)
    judged = "judge<question>1+1</question><answer>2</answer>"
    assert prompts(asked) == ["propose", "solve<question>1+1</question>", judged, judged]
    assert earned(outcome, "proposer") == [approx(format / 3)]
    assert outcome.adds["questions"] == [] and outcome.facts["parsed"] == outcome.facts["accepted"] == 0.0
    assert outcome.facts["kept"] is None, "it never came to the filter"
    assert earned(run(saying(proposal), setting="no", variant="official")[0][0], "proposer") == [0.0]


QUALITIES = {"<score>8</score>": 7 / 9, "<score>7</score>": 6 / 9, "<score>11</score>": 0.5, "8": 0.5, "": 0.5}


@pytest.mark.parametrize(("judgement", "quality"), QUALITIES.items())
def test_quality_decides_what_enters_the_pool(judgement: str, quality: float) -> None:
    accepted, difficulty = quality >= 0.7, 1 - 6 / 9  # all five attempts are judged 7
    (outcome,), _, _ = run(saying(quality=judgement), setting="no")
    assert earned(outcome, "proposer") == [approx((quality + difficulty + 1) / 3)]
    assert outcome.adds["questions"] == (["2+3"] if accepted else []) and outcome.facts["accepted"] == accepted
    free = run(saying(quality=judgement), setting="no", threshold=0.6)[0][0].adds["questions"]
    assert free == (["2+3"] if quality >= 0.6 else [])


def test_unreadable_judgements_are_neutral_and_unparsed_attempts_unsolved() -> None:
    mae = MAE(setting="no", world=Sums(), attempts=3)
    judged = ["<score>high</score>"] * 3, ["<answer>2</answer>"], [""], ["six"]
    steps = by_hand(mae, PROPOSAL, ["hm"] + ["<answer>5</answer>"] * 3, *judged)
    assert earned(steps.outcome) == [("proposer", approx((0.5 + 0.5 + 1) / 3)), ("solver", 0.75), ("judge", 0.0)]
    assert (steps.outcome.facts["unreadable"], steps.outcome.facts["judged"]) == (1.0, None)
    steps = by_hand(mae, PROPOSAL, ["<score>10</score>", "5", "", "<answer></answer>"])
    assert [turn.role for turn in steps.pending_turns] == ["solver"], "nothing to judge"
    steps.answer(["no tags"])
    assert earned(steps.outcome) == [("proposer", approx(1.0)), ("solver", 0.0)] and not steps.outcome.adds["pairs"]
    steps = by_hand(mae, PROPOSAL, ["<score>10</score>", "<answer>5</answer>", "5", "5"], ["<score>10</score>"], ["5"])
    assert earned(steps.outcome, "proposer") == [approx((1 + 2 / 3 + 1) / 3)]


def test_without_the_quality_filter_the_solver_is_trained_on_what_the_filter_keeps_out() -> None:
    for filtered in (True, False):
        outcomes, _, _ = run(saying(quality="<score>2</score>"), 30, solves=2, quality_filter=filtered)
        trained = prompts(s.reply.turn for outcome in outcomes for s in outcome.samples if s.role == "solver")
        assert ("solve<question>2+3</question>" in trained) != filtered


def test_without_the_format_reward_its_weight_goes_to_the_others_and_the_judge_earns_nothing() -> None:
    (bare,), asked, _ = run(saying(quality="<score>10</score>"), setting="no", format_reward=False)
    assert earned(bare) == [("proposer", approx((1 + 1 - 6 / 9) / 2)), ("solver", approx(6 / 9))]
    assert asked == run(saying(quality="<score>10</score>"), setting="no")[1]
    assert earned(run(saying("2+3"), setting="no", format_reward=False)[0][0], "proposer") == [0.0]


def test_a_frozen_judge_speaks_with_its_own_policy_and_earns_nothing() -> None:
    (outcome,), asked, mae = run(saying(), judge_model="tiny-small")
    assert (mae.policies, mae.frozen, mae.scored) == (("shared", "judge"), ("judge",), ("shared",))
    assert mae.models == {"judge": "tiny-small"}
    assert {turn.policy for turn in asked if turn.role == "judge"} == {"judge"} and not earned(outcome, "judge")
    assert {turn.policy for turn in asked if turn.role != "judge"} == {"shared"}


def test_only_answers_to_drawn_questions_and_judgements_of_drawn_pairs_earn() -> None:
    outcomes, asked, _ = run(saying(), 6, solves=3, judge_temperature=0.25)
    for i, outcome in enumerate(outcomes):
        mine = [turn for turn in asked if turn.key[0] == i]
        assert len(mine) == 1 + 6 + 5 + 3 + 3 + 3
        trained = [sample.reply.turn for sample in outcome.samples]
        assert trained == [mine[0], *mine[12:15], *mine[18:]]  # no attempts, no scoring
        assert all(turn.temperature is None for turn in trained), "what is trained is sampled like everything else"
        assert all(turn.temperature == 0.25 for turn in mine[7:12] + mine[15:18] + mine[1:2])


@pytest.mark.parametrize("variant", ["compact", "full"])
def test_a_proposer_sees_questions_and_never_an_answer(variant: str) -> None:
    mae, seen = MAE(setting="with", solves=2, prompt=variant, world=Sums()), []
    said = "<question>{0}+{0}</question><answer>GOLD</answer><score>9</score>"
    for _ in range(4):
        outcomes, asked = scripted(mae, lambda turn: said.format(turn.key[0]), range(9))
        seen += [turn for turn in asked if turn.role == "proposer"]
        for name, pool in mae.pools.items():
            pool.extend(item for outcome in outcomes for item in outcome.adds[name])
    assert len(mae.pools["questions"]) == 9 and len(mae.pools["pairs"]) == 72
    before, after = mae.proposer_reference.prompt.split("{reference}")
    known = {f"{before}{question}{after}" for question in mae.pools["questions"].items}
    assert {*prompts(seen)} <= known and not any("GOLD" in prompt for prompt in prompts(seen))


def test_a_held_out_question_is_assessed_but_never_enters_the_pool() -> None:
    outcomes, asked, _ = run(saying(), 20, world=Sums(held=("2+3",)), solves=2, quality_filter=False)
    assert not any(outcome.adds["questions"] for outcome in outcomes)
    assert prompts(asked).count("solve<question>2+3</question>") == 20 * 5, "attempts only"
    assert "2+3" not in {question for outcome in outcomes for question, _ in outcome.adds["pairs"]}


def test_pools_are_read_as_of_the_start_of_the_step() -> None:
    def say(turn: Turn) -> str:
        return f"<question>{turn.key[0]}+0</question>" if turn.role == "proposer" else saying()(turn)

    outcomes, _, mae = run(say, 9, setting="no", solves=8)
    for i, outcome in enumerate(outcomes):
        drawn = {tag(text(s.reply.turn), "question") for s in outcome.samples if s.role != "proposer"}
        assert drawn <= {"1+1", f"{i}+0"}
        assert outcome.adds["questions"] == [f"{i}+0"] and len(outcome.adds["pairs"]) == 8
    assert mae.pools["questions"].items == ["1+1"] and mae.pools["pairs"].items == []
    mae.pools["pairs"].extend([("8+8", "16")])
    _, asked = scripted(mae, lambda turn: "none")  # nothing is answered: the Judge draws what earlier steps left
    assert text(asked[-1]) == "judge<question>8+8</question><answer>16</answer>"


def test_the_pool_of_questions_starts_from_the_setting_and_measures_itself() -> None:
    mae = MAE(world=Sums("1+1", "9+1", "what", "1+1"))
    assert mae.pools["questions"].items == ["1+1", "9+1", "what"] and len(MAE(setting="zero").pools["questions"]) == 16
    assert mae.measure() == {"pool_ill_formed": approx(1 / 3), "pool_level_3": 0.5}
    assert MAE(world=Sums("what")).measure() == {"pool_ill_formed": None, "pool_level_3": None}
