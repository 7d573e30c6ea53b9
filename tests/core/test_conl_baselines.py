"""SRT-S, SRT-M and RL with ground truth against Appendix E: who is paid what, and that no oracle pays SRT."""

from random import Random

import pytest

from coevolve import config
from coevolve.baselines.ground_truth import GroundTruth
from coevolve.baselines.srt import SRT
from coevolve.driver import Batched, play
from coevolve.papers.conl.method import CoNL
from coevolve.types import Outcome, Reply, Turn


class Toy:
    """One question whose right answer is 5."""

    def problems(self, split: str, families: tuple[str, ...]) -> list[str]:
        return [f"{split} 2+3"]

    def right(self, question: str, answer: str | None) -> bool:
        return answer == "5"


def run(protocol: object, answers: list[str], revised: list[str] | None = None) -> tuple[Outcome, list[Turn]]:
    asked = []

    def generate(turns: list[Turn]) -> list[Reply]:
        replies = []
        for i, turn in enumerate(turns):
            said = {
                "proposal": f"ANSWER: {answers[i]}",
                "review": "",
                "verdict": "",
                "revision": f"<revised_solution>ANSWER: {(revised or answers)[i]}</revised_solution>",
            }
            replies.append(Reply(turn, said[turn.role]))
        asked.extend(turns)
        return replies

    (outcome,) = play([protocol.episode(Random(0))], Batched(generate), (1,))
    return outcome, asked


def paid(outcome: Outcome) -> list[tuple[str, float]]:
    return [(sample.role, sample.reward) for sample in outcome.samples]


def test_srt_s_pays_the_majority_whether_it_is_right_or_not() -> None:
    outcome, asked = run(SRT(world=Toy()), ["6", "5", "6", "7"])
    assert paid(outcome) == [("proposal", 1.0), ("proposal", 0.0), ("proposal", 1.0), ("proposal", 0.0)]
    assert [turn.messages[0]["content"] for turn in asked[:2]] == [
        "analyst propose<question>train 2+3</question>",
        "creator propose<question>train 2+3</question>",
    ]
    facts = outcome.facts
    assert (facts["majority_share"], facts["majority_right"], facts["right_final"]) == (0.5, 0.0, 0.25)
    assert {sample.group for sample in outcome.samples} == {(1, 0)}


@pytest.mark.parametrize(
    ("answers", "rewards"),
    [
        (["5", "5", "5", "5"], [1.0] * 4),
        (["5", "6", "7", "8"], [1.0, 0.0, 0.0, 0.0]),
        (["6", "5", "5", "6"], [1.0, 0.0, 0.0, 1.0]),
        (["", "5", "", ""], [0.0, 1.0, 0.0, 0.0]),
        (["", "", "", ""], [0.0] * 4),
        (["5 ", " 5", "5.0", "6"], [1.0, 1.0, 0.0, 0.0]),
    ],
)
def test_ties_go_to_the_answer_seen_first_and_no_answer_is_never_the_majority(answers: list, rewards: list) -> None:
    outcome, _ = run(SRT(world=Toy()), answers)
    assert [reward for _, reward in paid(outcome)] == rewards


def test_srt_m_plays_the_four_rounds_and_votes_on_revised_solutions() -> None:
    outcome, asked = run(SRT(form="multi", world=Toy()), ["6", "6", "6", "6"], ["5", "7", "5", "6"])
    assert [turn.role for turn in asked] == ["proposal"] * 4 + ["review"] * 4 + ["revision"] * 4 + ["verdict"] * 4
    rewards = [1.0, 0.0, 1.0, 0.0]
    expected = [(role, reward) for role in ("proposal", "review", "revision", "verdict") for reward in rewards]
    assert paid(outcome) == expected, "one reward for all that an agent said"
    assert outcome.facts["answers"] == ["5", "7", "5", "6"] and outcome.facts["majority_right"] == 1.0


def test_ground_truth_pays_what_is_right_whatever_the_majority_says() -> None:
    outcome, _ = run(GroundTruth(world=Toy()), ["6", "5", "6", ""])
    assert paid(outcome) == [("proposal", 0.0), ("proposal", 1.0), ("proposal", 0.0), ("proposal", 0.0)]
    assert outcome.facts["right_final"] == 0.25


class Unscored(Toy):
    """Knows no verdict on one answer."""

    def right(self, question: str, answer: str | None) -> bool | None:
        return None if answer == "6" else super().right(question, answer)


def test_an_answer_that_nobody_could_score_is_neither_paid_nor_counted() -> None:
    outcome, _ = run(GroundTruth(world=Unscored()), ["6", "5", "7", "6"])
    assert paid(outcome) == [("proposal", 1.0), ("proposal", 0.0)]
    assert outcome.facts["right_final"] == 0.5
    outcome, _ = run(SRT(world=Unscored()), ["6", "5", "6", "7"])
    assert outcome.facts["majority_right"] is None and outcome.facts["right_final"] == 0.5


@pytest.mark.parametrize("method", [SRT, GroundTruth])
def test_they_share_conls_data_solver_and_training_configuration(method: type) -> None:
    baseline, conl = method(world=Toy()), CoNL(world=Toy())
    assert method.TRAINING == CoNL.TRAINING and baseline.table.questions == conl.questions
    assert baseline.solver == conl.solver and baseline.read("ANSWER: 5") == "5"
    assert method(world=Toy(), test_time=True).table.questions == ["test 2+3"]
    assert len(run(method(world=Toy(), agents=2), ["5", "5"])[1]) == 2
    assert baseline.pools == {}


@pytest.mark.parametrize("preset", ["quick", "full", "gpu"])
@pytest.mark.parametrize(("method", "fields"), [("srt", {"form": "multi"}), ("srt", {}), ("ground_truth", {})])
def test_their_presets_train_with_conls_configuration(method: str, fields: dict, preset: str) -> None:
    theirs, conl = config.build(method, preset, out=".", overrides=fields), config.build("conl", preset, out=".")
    apart = {"method", "protocol"}
    if method == "ground_truth":  # solves alone: what it says is far shorter than either limit
        apart.add("max_tokens")
    mine, its = ({name: value for name, value in run.describe().items() if name not in apart} for run in (theirs, conl))
    assert mine == its
    assert theirs.protocol.solver == conl.protocol.solver and theirs.protocol.test_time == conl.protocol.test_time
    if method == "srt":
        mine, its = config.settings(theirs.protocol.table), config.settings(conl.protocol)
        shared = {"agents", "blind", "own_votes", "judge_temperature", "revision_reads", "memory", "prompt", "world"}
        assert {name: mine[name] for name in shared} == {name: its[name] for name in shared}


def test_srt_m_ranks_at_conls_temperature() -> None:
    _, asked = run(SRT(form="multi", judge_temperature=0.4, world=Toy()), ["5"] * 4)
    heats = {turn.role: turn.temperature for turn in asked}
    assert heats == {"proposal": None, "review": 0.4, "revision": None, "verdict": 0.4}
    assert {turn.temperature for turn in run(SRT(form="multi", world=Toy()), ["5"] * 4)[1]} == {None}


def test_a_wrong_field_is_named() -> None:
    with pytest.raises(ValueError, match="form must be one of single, multi"):
        SRT(form="both", world=Toy())
    with pytest.raises(ValueError, match="agents"):
        GroundTruth(agents=1, world=Toy())
    with pytest.raises(ValueError, match="judge_temperature"):
        SRT(judge_temperature=-1.0, world=Toy())
