"""The baselines of SPICE's Table 1 by hand: R-Zero and Strong Challenger (Absolute Zero: test_azr)."""

import math

import pytest
from core.conftest import boxes, by_hand, earned, free, prompts, text

from coevolve.advantages.estimators import task_relative
from coevolve.advantages.inputs import EstimatorInputs
from coevolve.methods.baselines.rzero import (
    RZero,
    StrongChallenger,
    Vote,
    bleu,
    majority,
    repetition_penalties,
)
from coevolve.methods.spice.method import SPICE
from coevolve.rollout.stepper import EpisodeStepper
from coevolve.types import Reply
from tinyworld import tasks as tiny
from tinyworld.oracle import TinyWorld


def asks(*questions: str, answer: str = "x") -> list[str]:
    return [free(question, answer, "String") for question in questions]


def begin(*waves: list[str], seed: int = 0, **fields) -> EpisodeStepper:
    return by_hand(RZero(**fields), *waves, seed=seed, key=(5, 2))


STRING = next(
    seed
    for seed in range(100)
    if text(begin(seed=seed).pending_turns[0]) == "ask String"
)


def test_a_whole_episode_of_rzero_by_hand() -> None:
    steps = begin(seed=STRING)
    assert [turn.policy for turn in steps.pending_turns] == ["challenger"] * 4
    questions = ["Who wrote it then?", "Which moon is large?", "Name a far away river"]
    first, second, third = asks(*questions)
    steps.answer([first, "x", second, third])
    assert prompts(steps.pending_turns) == [
        f"solve box<question>{q}</question>" for q in questions for _ in range(5)
    ]
    assert {turn.policy for turn in steps.pending_turns} == {"solver"}
    steps.answer(
        [
            *boxes("a", "A", "b", "c"),
            "none",
            *boxes("a", "a", "a", "a", "b"),
            *boxes("a", "a", "a", "b", "c"),
        ]
    )
    outcome = steps.outcome
    # shares of the majority: 2/5 (case aside), 4/5, 3/5; three questions unlike each other: each a cluster of 1 in 4
    assert earned(outcome, "challenger") == pytest.approx(
        [0.8 - 0.25, -1.0, 0.4 - 0.25, 0.8 - 0.25]
    )
    # within 1/4 of one half: the first and the third question, not the second
    assert earned(outcome, "solver") == pytest.approx(
        [1, 1, 0.1, 0.1, 0, 1, 1, 1, 0.1, 0.1]
    )
    groups = [sample.group_id for sample in outcome.samples]
    assert groups == [((5, 2, 0), 0)] * 9 + [((5, 2, 0), 2)] * 5
    assert " ".join(outcome.facts) == "valid taught agreement gold_right questions"
    assert [*outcome.facts.values()] == [0.75, 0.5, pytest.approx(0.6), None, questions]
    samples = [
        Reply(s.reply.turn, "", completion_ids=(1,)).earns(s.reward, s.group_id)
        for s in outcome.samples
    ]
    advantages = [values[0] for values in task_relative(EstimatorInputs(samples))][
        4:9
    ]  # GRPO: rewards 1, 1, .1, .1, 0
    mean, std = 0.44, math.sqrt((2 * 0.56**2 + 2 * 0.34**2 + 0.44**2) / 5)
    assert advantages == pytest.approx(
        [(r - mean) / std for r in (1, 1, 0.1, 0.1, 0)], abs=1e-6
    )


class Contrary(TinyWorld):
    """Its oracle says the opposite."""

    def is_correct(self, question: str, answer: str | None) -> bool:
        return not super().is_correct(question, answer)


def test_neither_the_challengers_own_answer_nor_the_worlds_oracle_decides_what_is_paid() -> (
    None
):
    paid = []
    for gold, world in (
        ("red", TinyWorld()),
        ("gold", TinyWorld()),
        ("red", Contrary()),
    ):
        asked = asks("Ba color?", "Da pet?", answer=gold)
        steps = begin(asked, seed=STRING, rollouts=2, world=world)
        assert not any(gold in said for said in prompts(steps.pending_turns))
        steps.answer(boxes(*["red", "red", "red", "blue", "gold"] * 2))
        paid.append(earned(steps.outcome))
    assert paid[0] == paid[1] == paid[2] and len(paid[0]) == 12


# 0.8 less 3/4 or 1/4 for repetition, and never below 0 for a valid question
@pytest.mark.parametrize(
    ("alike", "repetition", "paid"),
    [(3, 1.0, [0.05] * 3 + [0.55]), (4, 2.0, [0.0] * 4)],
)
def test_repeated_questions_share_a_cluster(
    alike: int, repetition: float, paid: list[float]
) -> None:
    asked = asks(
        *["Which moon of Mars is the larger one?"] * alike,
        *["Who was king?"] * (4 - alike),
    )
    steps = begin(
        asked, boxes("a", "a", "a", "b", "c") * 4, seed=STRING, repetition=repetition
    )
    assert earned(steps.outcome, "challenger") == pytest.approx(paid)


def test_the_questions_of_a_request_are_a_group() -> None:
    steps = begin(requests=3, rollouts=2, answers=2)
    kinds = prompts(steps.pending_turns)
    assert len(kinds) == 6 and kinds[::2] == kinds[1::2]
    steps.answer(["x"] * 6)
    assert [sample.group_id for sample in steps.outcome.samples] == [
        ((5, 2, 0), i) for i in (0, 0, 1, 1, 2, 2)
    ]


def test_a_held_out_question_trains_no_solver_and_without_a_box_there_is_no_majority() -> (
    None
):
    held = next(task.question for task in tiny.items("test", 1, ("fact",)))
    outcome = begin(
        asks(held), boxes("a", "a", "a", "b", "c"), seed=STRING, rollouts=1
    ).outcome
    assert earned(outcome) == [("challenger", 0.0)], "0.8, less 1 for repetition"
    assert outcome.facts["taught"] == 0.0
    outcome = begin(asks("Which one?"), ["none"] * 5, seed=STRING, rollouts=1).outcome
    assert earned(outcome) == [("challenger", 0.0)]
    assert majority([None, None]) == Vote(None, 0.0) and majority(
        ["B", "b.", "c", None]
    ) == Vote("b", 0.5)


def test_bleu_by_hand() -> None:
    assert (
        bleu("a b c d e", "a b c d e")
        == 1.0
        == bleu("30+7", "30+7")
        == bleu("x", "x")
        == bleu("", "")
    )
    # 3 0 + 7 against 3 0 + 8: matches 3 of 4, 2 of 3, 1 of 2, none of 1 (smoothed: 0.1)
    assert bleu("30+7", "30+8") == pytest.approx((3 / 4 * 2 / 3 * 1 / 2 * 0.1) ** 0.25)
    # a shorter text pays for its brevity: all of its two tokens match, the reference has four
    assert bleu("a b", "a b c d") == pytest.approx(math.exp(1 - 4 / 2))
    assert bleu("a b c d", "a b") == pytest.approx(math.sqrt(2 / 4 * 1 / 3))
    assert bleu("a a a", "a b c") == pytest.approx((1 / 3 * 0.05 * 0.1) ** (1 / 3)), (
        "repeats are clipped"
    )
    assert bleu("", "a") == 0.0


def test_cluster_shares() -> None:
    alike = [
        "What is the sum of 3 and 4 in all?",
        "What is the sum of 3 and 4 in total?",
        "Name a river.",
    ]
    assert repetition_penalties(alike, 0.5, 8) == [2 / 8, 2 / 8, 1 / 8]
    assert (
        repetition_penalties(alike, 0.0, 8) == [1 / 8] * 3
        and repetition_penalties(alike, 1.0, 4) == [3 / 4] * 3
    )
    assert (
        repetition_penalties(alike[:1], 0.5, 4) == [0.25]
        and repetition_penalties([], 0.5, 4) == []
    )
    assert repetition_penalties([alike[0]] * 3, 0.0, 3) == [1.0] * 3


def test_only_the_solver_of_rzero_is_scored() -> None:
    rzero = RZero()
    assert rzero.policies == ("solver", "challenger") and rzero.scored == ("solver",)
    assert rzero.solver.policy == "solver" and rzero.read_answer("\\boxed{4}") == "4"


def test_the_strong_challenger_is_another_frozen_model() -> None:
    strong = StrongChallenger(strong="tiny-large")
    assert isinstance(strong, SPICE) and strong.models == {"challenger": "tiny-large"}
    assert (strong.policies, strong.frozen) == (
        ("shared", "challenger"),
        ("challenger",),
    )
    assert (
        strong.ask_mcq.policy == strong.select.policy == "challenger"
        and strong.solver.policy == "shared"
    )
