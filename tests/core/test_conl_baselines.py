"""SRT-S, SRT-M and RL with ground truth against Appendix E: who is paid what, and that no oracle pays SRT."""

import pytest
from core.conftest import Sums, by_hand, earned, prompts, scripted

from coevolve.methods.base import Method
from coevolve.methods.baselines.srt import SRT, GroundTruth
from coevolve.methods.conl.method import CoNL
from coevolve.training import config
from coevolve.types import Outcome, Turn


class Unscored(Sums):
    """Knows no verdict on one answer."""

    def is_correct(self, question: str, answer: str | None) -> bool | None:
        return None if answer == "6" else super().is_correct(question, answer)


def run(method: Method, *answers: str) -> tuple[Outcome, list[Turn]]:
    """Play an episode in which agent i proposes answer i to 2+3, and that is all."""
    (outcome,), asked = scripted(method, [f"ANSWER: {answer}" for answer in answers])
    return outcome, asked


def test_srt_s_pays_the_majority_whether_it_is_right_or_not() -> None:
    outcome, asked = run(SRT(world=Sums()), "6", "5", "6", "7")
    assert earned(outcome) == [("proposal", reward) for reward in (1.0, 0.0, 1.0, 0.0)]
    assert {sample.group_id for sample in outcome.samples} == {(0,)}, (
        "a baseline per question"
    )
    wanted = [
        f"{persona} propose<question>train: 2+3</question>"
        for persona in ("analyst", "creator")
    ]
    assert prompts(asked)[:2] == wanted
    assert (
        " ".join(outcome.facts)
        == "question answers majority_right right_final tokens_turn"
    )
    assert [*outcome.facts.values()] == [
        "train: 2+3",
        ["6", "5", "6", "7"],
        0.0,
        0.25,
        0.0,
    ]


def test_ties_go_to_the_answer_seen_first_and_no_answer_is_never_the_majority() -> None:
    paid = {
        ("6", "5", "5", "6"): [1.0, 0.0, 0.0, 1.0],
        ("", "5", "", ""): [0.0, 1.0, 0.0, 0.0],
        ("", "", "", ""): [0.0] * 4,
        ("5 ", " 5", "5.0", "6"): [1.0, 1.0, 0.0, 0.0],
    }
    assert {
        answers: earned(run(SRT(world=Sums()), *answers)[0], "proposal")
        for answers in paid
    } == paid


@pytest.mark.parametrize("method", [SRT, GroundTruth])
def test_full_prompts_of_who_solves_alone_have_no_persona(method: type) -> None:
    _, asked = run(method(world=Sums(), prompt="full"), "6", "5", "6", "7")
    assert (
        len(asked) == 4 and len({*prompts(asked)}) == 1 and "{" not in prompts(asked)[0]
    )
    assert (
        "Query: train: 2+3" in prompts(asked)[0]
        and "Formalist" not in prompts(asked)[0]
    )
    multi = by_hand(SRT(form="multi", world=Sums(), prompt="full"))
    assert "Rigorous Formalist" in prompts(multi.pending_turns)[0], (
        "in conversation they have personas"
    )


@pytest.mark.parametrize("heat", [None, 0.4])
def test_srt_m_plays_the_four_rounds_and_votes_on_revised_solutions(
    heat: float | None,
) -> None:
    revised = [
        f"<revised_solution>ANSWER: {answer}</revised_solution>" for answer in "5756"
    ]
    method = SRT(form="multi", judge_temperature=heat, world=Sums())
    steps = by_hand(method, ["ANSWER: 6"] * 4, [""] * 4, revised, [""] * 4)
    heats = {"proposal": None, "review": heat, "revision": None, "verdict": heat}
    assert {reply.turn.role: reply.turn.temperature for reply in steps.replies} == heats
    paid = [(role, reward) for role in heats for reward in (1.0, 0.0, 1.0, 0.0)]
    assert earned(steps.outcome) == paid, "one reward for all of it"
    facts = steps.outcome.facts
    assert facts["answers"] == ["5", "7", "5", "6"] and facts["majority_right"] == 1.0


def test_ground_truth_pays_what_is_right_whatever_the_majority_says() -> None:
    outcome, _ = run(GroundTruth(world=Sums()), "6", "5", "6", "")
    assert (
        earned(outcome, "proposal") == [0.0, 1.0, 0.0, 0.0]
        and outcome.facts["right_final"] == 0.25
    )
    assert list(outcome.facts) == [
        "question",
        "answers",
        "majority_right",
        "right_final",
        "tokens_turn",
    ]


def test_an_answer_that_nobody_could_score_is_neither_paid_nor_counted() -> None:
    outcome, _ = run(GroundTruth(world=Unscored()), "6", "5", "7", "6")
    assert (
        earned(outcome, "proposal") == [1.0, 0.0]
        and outcome.facts["right_final"] == 0.5
    )
    outcome, _ = run(SRT(world=Unscored()), "6", "5", "6", "7")
    assert (
        outcome.facts["majority_right"] is None and outcome.facts["right_final"] == 0.5
    )


@pytest.mark.parametrize("method", [SRT, GroundTruth])
def test_they_share_conls_questions_and_read_its_answers(method: type) -> None:
    baseline, conl = method(world=Sums()), CoNL(world=Sums())
    assert (
        baseline.conl.questions == conl.questions
        and baseline.read_answer("ANSWER: 5") == "5"
    )
    assert len(run(method(world=Sums(), agents=2), "5", "5")[1]) == 2
    assert method(world=Sums(), test_time=True).conl.questions == ["test: 2+3"]


@pytest.mark.parametrize("preset", ["quick", "full", "gpu"])
@pytest.mark.parametrize(
    ("method", "fields"),
    [("srt", {"form": "multi"}), ("srt", {}), ("ground_truth", {})],
)
def test_their_presets_train_with_conls_configuration(
    method: str, fields: dict, preset: str
) -> None:
    theirs, conl = (
        config.build(method, preset, out=".", overrides=fields),
        config.build("conl", preset, out="."),
    )
    mine, apart = theirs.describe(), ["method", "protocol"]
    if (
        method == "ground_truth"
    ):  # solves alone: what it says is far shorter than either limit
        apart.append("max_tokens")
    assert mine == conl.describe() | {name: mine[name] for name in apart}
    assert (
        theirs.protocol.solver == conl.protocol.solver
        and theirs.protocol.test_time == conl.protocol.test_time
    )
