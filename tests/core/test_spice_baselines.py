"""The baselines of SPICE's Table 1 by hand: R-Zero, Strong Challenger, and Absolute Zero with boxed answers."""

import json
import math
from random import Random

import pytest

from coevolve import config
from coevolve.advantages import task_relative
from coevolve.baselines.azr import AZR
from coevolve.baselines.rzero import RZero, bleu, majority, shares
from coevolve.baselines.strong_challenger import StrongChallenger
from coevolve.driver import Batched, Steps
from coevolve.papers.spice.method import SPICE
from coevolve.types import Outcome, Reply
from tinyworld import tasks as tiny
from tinyworld.oracle import TinyWorld


def ask(question: str, kind: str, answer: object = "x") -> str:
    return json.dumps({"question": question, "answer": answer, "answer_type": kind})


def box(*answers: object) -> list[str]:
    return [f"\\boxed{{{answer}}}" for answer in answers]


def begin(seed: int = 0, **fields) -> tuple[Steps, str]:
    """An episode of R-Zero after its first turn, and the answer type it asked for."""
    steps = Steps(RZero(**fields).episode(Random(seed)), Batched(lambda turns: []), (5, 2))
    return steps, steps.asked[0].messages[0]["content"].removeprefix("ask ")


def earned(outcome: Outcome, role: str) -> list[float]:
    return [sample.reward for sample in outcome.samples if sample.role == role]


STRING = next(seed for seed in range(100) if begin(seed)[1] == "String")


def test_a_whole_episode_of_rzero_by_hand() -> None:
    steps, kind = begin(STRING)
    assert kind == "String" and len(steps.asked) == 4
    assert {turn.policy for turn in steps.asked} == {"challenger"}
    steps.answer(
        [
            ask("Who wrote it then?", "String"),
            "x",
            ask("Which moon is large?", "String"),
            ask("Name a far away river", "String"),
        ]
    )
    assert [turn.messages[0]["content"] for turn in steps.asked] == [
        f"solve box<question>{q}</question>"
        for q in ["Who wrote it then?"] * 5 + ["Which moon is large?"] * 5 + ["Name a far away river"] * 5
    ]
    assert {turn.policy for turn in steps.asked} == {"solver"}
    steps.answer([*box("a", "A", "b", "c"), "none", *box("a", "a", "a", "a", "b"), *box("a", "a", "a", "b", "c")])
    outcome = steps.outcome
    # shares of the majority: 2/5 (case aside), 4/5, 3/5; three questions unlike each other: each a cluster of 1 in 4
    assert earned(outcome, "challenger") == pytest.approx([0.8 - 0.25, -1.0, 0.4 - 0.25, 0.8 - 0.25])
    # within 1/4 of one half: the first and the third question, not the second
    assert earned(outcome, "solver") == pytest.approx([1, 1, 0.1, 0.1, 0, 1, 1, 1, 0.1, 0.1])
    groups = [sample.group for sample in outcome.samples]
    assert groups == [(5, 2, 0, 0)] * 4 + [(5, 2, 0, 0)] * 5 + [(5, 2, 0, 2)] * 5
    facts = outcome.facts
    assert (facts["valid"], facts["taught"], facts["agreement"]) == (0.75, 0.5, pytest.approx(0.6))
    samples = [Reply(s.reply.turn, "", ids=(1,)).earns(s.reward, s.group) for s in outcome.samples]
    advantages = [values[0] for values in task_relative(samples)][4:9]  # GRPO: rewards 1, 1, .1, .1, 0
    mean, std = 0.44, math.sqrt((2 * 0.56**2 + 2 * 0.34**2 + 0.44**2) / 5)
    assert advantages == pytest.approx([(r - mean) / std for r in (1, 1, 0.1, 0.1, 0)], abs=1e-6)


def test_the_challengers_own_answer_is_never_used_or_sent() -> None:
    outcomes = []
    for gold in ("first", "second"):
        steps, kind = begin(STRING)
        steps.answer([ask(f"Which {word}?", "String", gold) for word in ("moon", "far river", "old king", "x y z")])
        assert not any(gold in turn.messages[0]["content"] for turn in steps.asked)
        steps.answer(box("a", "a", "a", "b", "c") * 4)
        outcomes.append([(s.role, s.reward) for s in steps.outcome.samples])
    assert outcomes[0] == outcomes[1]


def test_repeated_questions_share_a_cluster() -> None:
    steps, kind = begin(STRING)
    steps.answer([ask("Which moon of Mars is the larger one?", "String")] * 3 + [ask("Who was king?", "String")])
    steps.answer(box("a", "a", "a", "b", "c") * 4)
    assert earned(steps.outcome, "challenger") == pytest.approx([0.8 - 0.75] * 3 + [0.8 - 0.25])
    steps, kind = begin(STRING, repetition=2.0)
    steps.answer([ask("Which moon of Mars is the larger one?", "String")] * 4)
    steps.answer(box("a", "a", "a", "b", "c") * 4)
    assert earned(steps.outcome, "challenger") == [0.0] * 4, "never below 0 for a valid question"


def test_groups_and_clusters_over_several_requests() -> None:
    steps, _ = begin(0, requests=3, rollouts=2, answers=2)
    kinds = [turn.messages[0]["content"].removeprefix("ask ") for turn in steps.asked]
    assert len(kinds) == 6 and kinds[::2] == kinds[1::2]
    steps.answer(["x"] * 6)
    assert [sample.group[-1] for sample in steps.outcome.samples] == [0, 0, 1, 1, 2, 2]
    assert earned(steps.outcome, "challenger") == [-1.0] * 6


def test_a_held_out_question_trains_no_solver() -> None:
    held = next(task.question for task in tiny.items("test", 1, ("fact",)))
    steps, _ = begin(STRING, rollouts=1)
    steps.answer([ask(held, "String", "nothing")])
    steps.answer(box("a", "a", "a", "b", "c"))
    assert earned(steps.outcome, "challenger") == [pytest.approx(0.8 - 1)] or earned(steps.outcome, "challenger") == [
        0.0
    ]
    assert earned(steps.outcome, "solver") == [] and steps.outcome.facts["taught"] == 0.0


def test_answers_without_a_box_have_no_majority() -> None:
    steps, _ = begin(STRING, rollouts=1)
    steps.answer([ask("Which one?", "String")])
    steps.answer(["none"] * 5)
    assert earned(steps.outcome, "challenger") == [0.0] and earned(steps.outcome, "solver") == []
    assert majority([None, None]) == (None, 0.0) and majority(["B", "b.", "c", None]) == ("b", 0.5)


def test_bleu_by_hand() -> None:
    assert bleu("a b c d e", "a b c d e") == 1.0 == bleu("30+7", "30+7") == bleu("x", "x") == bleu("", "")
    # 3 0 + 7 against 3 0 + 8: matches 3 of 4, 2 of 3, 1 of 2, none of 1 (smoothed: 0.1)
    assert bleu("30+7", "30+8") == pytest.approx((3 / 4 * 2 / 3 * 1 / 2 * 0.1) ** 0.25)
    # a shorter text pays for its brevity: all of its two tokens match, the reference has four
    assert bleu("a b", "a b c d") == pytest.approx(math.exp(1 - 4 / 2))
    assert bleu("a b c d", "a b") == pytest.approx(math.sqrt(2 / 4 * 1 / 3))
    assert bleu("a a a", "a b c") == pytest.approx((1 / 3 * 0.05 * 0.1) ** (1 / 3)), "repeats are clipped"
    assert bleu("", "a") == 0.0


def test_cluster_shares() -> None:
    alike = ["What is the sum of 3 and 4 in all?", "What is the sum of 3 and 4 in total?", "Name a river."]
    assert shares(alike, 0.5, 8) == [2 / 8, 2 / 8, 1 / 8]
    assert shares(alike, 0.0, 8) == [1 / 8] * 3 and shares(alike, 1.0, 4) == [3 / 4] * 3
    assert shares(alike[:1], 0.5, 4) == [0.25] and shares([], 0.5, 4) == []
    assert shares([alike[0]] * 3, 0.0, 3) == [1.0] * 3


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rollouts", 0),
        ("requests", 0),
        ("answers", 0),
        ("band", 0.6),
        ("similarity", -0.1),
        ("accuracy_weight", 1.1),
        ("repetition", -1.0),
        ("template", "base"),
    ],
)
def test_a_wrong_field_of_rzero_is_named(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{field} must .* got {value!r}"):
        RZero(**{field: value})


def test_only_the_solver_of_rzero_is_scored() -> None:
    assert RZero.policies == ("solver", "challenger") and RZero.scored == ("solver",)
    assert RZero().solver.policy == "solver" and RZero.read("\\boxed{4}") == "4"


def test_the_strong_challenger_is_another_frozen_model() -> None:
    strong = StrongChallenger(strong="tiny-large")
    assert isinstance(strong, SPICE) and strong.models == {"challenger": "tiny-large"}
    assert (strong.policies, strong.frozen) == (("shared", "challenger"), ("challenger",))
    assert strong.ask["MCQ"].policy == strong.select.policy == "challenger" and strong.solver.policy == "shared"
    with pytest.raises(ValueError, match="challenger must be fixed, got 'trained'"):
        StrongChallenger(challenger="trained")


def test_rows_of_table_5() -> None:
    rzero, strong, azr = RZero(), StrongChallenger(), AZR(paper="spice", attempts=8, solves=1)
    assert (rzero.rollouts, rzero.answers, rzero.invalid) == (4, 5, -1.0)
    assert (strong.group, strong.documents, strong.estimator) == (8, 20_000, "group_mean")
    assert config.training(StrongChallenger) == config.training(SPICE)
    assert azr.attempts == 8


def azr_steps(paper: str) -> Steps:
    seed = next(s for s in range(100) if Random(s).choice(["deduction", "abduction", "induction"]) == "deduction")
    return Steps(AZR(paper=paper, solves=3).episode(Random(seed)), Batched(lambda turns: []))


def test_absolute_zero_answers_in_the_papers_form() -> None:
    steps = azr_steps("spice")
    steps.answer(["<question>30+7</question>"])
    assert [turn.messages[0]["content"] for turn in steps.asked] == ["solve box<question>30+7</question>"] * 5
    steps.answer([*box(37, 36, 37), "<answer>37</answer>", "37"])
    assert steps.outcome is None
    questions = [turn.messages[0]["content"].split(">")[1].split("<")[0] for turn in steps.asked]
    right = tiny.read(questions[0]).answer
    steps.answer([box(right)[0], box("-1")[0], "none"])
    assert [s.reward for s in steps.outcome.samples] == pytest.approx([1 - 2 / 5, 1.0, -0.5, -1.0])
    steps = azr_steps("mae")
    steps.answer(["<question>30+7</question>"])
    assert steps.asked[0].messages[0]["content"] == "solve<question>30+7</question>"
    steps.answer([*box(37, 36, 37), "<answer>37</answer>", "37"])
    assert AZR(paper="mae").read("<answer>4</answer>") == "4" == AZR(paper="spice").read("\\boxed{4}")
    with pytest.raises(ValueError, match="paper must be one of mae, spice, got 'conl'"):
        AZR(paper="conl")


def test_the_worlds_oracle_never_decides_what_rzero_pays() -> None:
    class Contrary(TinyWorld):
        def right(self, question: str, answer: str | None) -> bool:
            return not super().right(question, answer)

    paid = []
    for world in (TinyWorld(), Contrary()):
        steps, _ = begin(STRING, rollouts=2, world=world)
        steps.answer([ask("Ba color?", "String"), ask("Da pet?", "String")])
        steps.answer(box(*["red", "red", "red", "blue", "gold"] * 2))
        paid.append([(s.role, s.reward) for s in steps.outcome.samples])
    assert paid[0] == paid[1]
