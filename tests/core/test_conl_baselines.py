"""SRT-S, SRT-M and RL with ground truth against Appendix E: who is paid what, and that no oracle pays SRT."""

from collections.abc import Sequence
from itertools import count

import pytest
from scripted import earned, played, texts

from coevolve import config
from coevolve.baselines.conl import SRT, GroundTruth
from coevolve.method import Method
from coevolve.papers.conl.method import CoNL
from coevolve.types import Outcome, Turn


class Toy:
    """One question whose right answer is 5."""

    def problems(self, split: str, families: tuple[str, ...]) -> list[str]:
        return [f"{split} 2+3"]

    def right(self, question: str, answer: str | None) -> bool | None:
        return answer == "5"


class Unscored(Toy):
    """Knows no verdict on one answer."""

    def right(self, question: str, answer: str | None) -> bool | None:
        return None if answer == "6" else super().right(question, answer)


def run(method: Method, answers: Sequence[str], revised: Sequence[str] = ()) -> tuple[Outcome, list[Turn]]:
    """Play an episode in which agent i proposes answer i and revises it."""
    seats = {role: count() for role in ("proposal", "revision")}

    def say(turn: Turn) -> str:
        if turn.role == "proposal":
            return f"ANSWER: {answers[next(seats['proposal'])]}"
        if turn.role == "revision":
            return f"<revised_solution>ANSWER: {revised[next(seats['revision'])]}</revised_solution>"
        return ""

    return played(method, say, key=(1,))


def test_srt_s_pays_the_majority_whether_it_is_right_or_not() -> None:
    outcome, asked = run(SRT(world=Toy()), ["6", "5", "6", "7"])
    assert [(s.role, s.reward, s.group) for s in outcome.samples] == [
        ("proposal", reward, (1, 0)) for reward in (1.0, 0.0, 1.0, 0.0)
    ]
    assert texts(asked)[:2] == [
        f"{persona} propose<question>train 2+3</question>" for persona in ("analyst", "creator")
    ]
    assert " ".join(outcome.facts) == "question answers majority_share majority_right right_final tokens_turn"
    assert [*outcome.facts.values()] == ["train 2+3", ["6", "5", "6", "7"], 0.5, 0.0, 0.25, 0.0]


@pytest.mark.parametrize(
    ("answers", "rewards"),
    [
        (["5", "6", "7", "8"], [1.0, 0.0, 0.0, 0.0]),
        (["6", "5", "5", "6"], [1.0, 0.0, 0.0, 1.0]),
        (["", "5", "", ""], [0.0, 1.0, 0.0, 0.0]),
        (["", "", "", ""], [0.0] * 4),
        (["5 ", " 5", "5.0", "6"], [1.0, 1.0, 0.0, 0.0]),
    ],
)
def test_ties_go_to_the_answer_seen_first_and_no_answer_is_never_the_majority(answers: list, rewards: list) -> None:
    assert earned(run(SRT(world=Toy()), answers)[0]) == rewards


@pytest.mark.parametrize("heat", [None, 0.4])
def test_srt_m_plays_the_four_rounds_and_votes_on_revised_solutions(heat: float | None) -> None:
    method = SRT(form="multi", judge_temperature=heat, world=Toy())
    outcome, asked = run(method, ["6", "6", "6", "6"], ["5", "7", "5", "6"])
    rounds = ("proposal", "review", "revision", "verdict")
    assert [turn.role for turn in asked] == [role for role in rounds for _ in range(4)]
    assert {turn.role: turn.temperature for turn in asked} == dict(zip(rounds, (None, heat, None, heat), strict=True))
    paid = [(sample.role, sample.reward) for sample in outcome.samples]
    assert paid == [(role, reward) for role in rounds for reward in (1.0, 0.0, 1.0, 0.0)], "one reward for all of it"
    assert outcome.facts["answers"] == ["5", "7", "5", "6"] and outcome.facts["majority_right"] == 1.0


def test_ground_truth_pays_what_is_right_whatever_the_majority_says() -> None:
    outcome, _ = run(GroundTruth(world=Toy()), ["6", "5", "6", ""])
    assert earned(outcome, "proposal") == [0.0, 1.0, 0.0, 0.0] and outcome.facts["right_final"] == 0.25
    assert list(outcome.facts) == ["question", "answers", "right_final", "tokens_turn"]


def test_an_answer_that_nobody_could_score_is_neither_paid_nor_counted() -> None:
    outcome, _ = run(GroundTruth(world=Unscored()), ["6", "5", "7", "6"])
    assert earned(outcome) == [1.0, 0.0] and outcome.facts["right_final"] == 0.5
    outcome, _ = run(SRT(world=Unscored()), ["6", "5", "6", "7"])
    assert outcome.facts["majority_right"] is None and outcome.facts["right_final"] == 0.5


@pytest.mark.parametrize("method", [SRT, GroundTruth])
def test_they_share_conls_data_solver_and_training_configuration(method: type) -> None:
    baseline, conl = method(world=Toy()), CoNL(world=Toy())
    assert method.TRAINING == CoNL.TRAINING and baseline.table.questions == conl.questions
    assert baseline.solver == conl.solver and baseline.read_answer("ANSWER: 5") == "5"
    assert len(run(method(world=Toy(), agents=2, test_time=True), ["5", "5"])[1]) == 2
    assert method(world=Toy(), test_time=True).table.questions == ["test 2+3"]


@pytest.mark.parametrize("preset", ["quick", "full", "gpu"])
@pytest.mark.parametrize(("method", "fields"), [("srt", {"form": "multi"}), ("srt", {}), ("ground_truth", {})])
def test_their_presets_train_with_conls_configuration(method: str, fields: dict, preset: str) -> None:
    theirs, conl = config.build(method, preset, out=".", overrides=fields), config.build("conl", preset, out=".")
    apart = {"method", "protocol"}
    if method == "ground_truth":  # solves alone: what it says is far shorter than either limit
        apart.add("max_tokens")
    mine, other = ({k: v for k, v in run.describe().items() if k not in apart} for run in (theirs, conl))
    assert mine == other
    assert theirs.protocol.solver == conl.protocol.solver and theirs.protocol.test_time == conl.protocol.test_time
