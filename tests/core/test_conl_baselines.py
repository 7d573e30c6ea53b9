"""SRT-S, SRT-M and RL with ground truth against Appendix E of CoNL.

The tests check which samples earn a reward, that no oracle rewards SRT, and that the trained
policies are examined in CoNL's conversation.
"""

from pathlib import Path
from typing import Any

import pytest
from core.conftest import Scripted, Sums, by_hand, earned, prompts, scripted

from coevolve.methods.base import Method
from coevolve.methods.baselines.srt import SRT, GroundTruth
from coevolve.methods.conl.method import CoNL
from coevolve.rollout.stepper import EpisodeStepper
from coevolve.runs import record
from coevolve.runs.record import Recorder
from coevolve.training import config
from coevolve.types import Outcome, Turn

QUESTION = "<question>train: 2+3</question>"
FACTS = ["question", "answers", "majority_correct", "correct_final", "tokens_turn"]


class Unscored(Sums):
    """A world of sums without a verdict on the answer 6."""

    def is_correct(self, question: str, answer: str | None) -> bool | None:
        return None if answer == "6" else super().is_correct(question, answer)


def play_proposals(method: Method, *answers: str) -> tuple[Outcome, list[Turn]]:
    """Play an episode in which agent i proposes answer i to 2+3."""
    (outcome,), turns = scripted(method, [f"ANSWER: {answer}" for answer in answers])
    return outcome, turns


def outcome_of(method: Method, *answers: str) -> Outcome:
    """Play an episode of proposals; return its outcome."""
    outcome, _ = play_proposals(method, *answers)
    return outcome


def turns_of(method: Method, *answers: str) -> list[Turn]:
    """Play an episode of proposals; return its turns."""
    _, turns = play_proposals(method, *answers)
    return turns


class TestSingleSRT:
    """SRT-S votes on independent proposals: here 6 wins against the correct 5."""

    @pytest.fixture
    def played(self) -> tuple[Outcome, list[Turn]]:
        return play_proposals(SRT(world=Sums()), "6", "5", "6", "7")

    def test_the_majority_earns_though_it_is_wrong(
        self, played: tuple[Outcome, list[Turn]]
    ) -> None:
        outcome, _ = played
        assert earned(outcome) == [
            ("proposal", 1.0),
            ("proposal", 0.0),
            ("proposal", 1.0),
            ("proposal", 0.0),
        ]

    def test_the_baseline_is_per_question(
        self, played: tuple[Outcome, list[Turn]]
    ) -> None:
        outcome, _ = played
        assert {sample.group_id for sample in outcome.samples} == {(0,)}

    def test_compact_proposals_have_personas(
        self, played: tuple[Outcome, list[Turn]]
    ) -> None:
        _, turns = played
        first_two = prompts(turns)[:2]
        personas = ("analyst", "creator")
        assert first_two == [f"{persona} propose{QUESTION}" for persona in personas]

    def test_the_facts_are_recorded_in_this_order(
        self, played: tuple[Outcome, list[Turn]]
    ) -> None:
        outcome, _ = played
        assert list(outcome.facts) == FACTS
        assert outcome.facts == {
            "question": "train: 2+3",
            "answers": ["6", "5", "6", "7"],
            "majority_correct": 0.0,
            "correct_final": 0.25,
            "tokens_turn": 0.0,
        }

    @pytest.mark.parametrize(
        ("answers", "rewards"),
        [
            # A tie goes to the answer seen first.
            (["6", "5", "5", "6"], [1.0, 0.0, 0.0, 1.0]),
            # A missing answer is never the majority.
            (["", "5", "", ""], [0.0, 1.0, 0.0, 0.0]),
            (["", "", "", ""], [0.0, 0.0, 0.0, 0.0]),
            # Answers are compared in their spelling: as text, not as numbers.
            (["5 ", " 5", "5.0", "6"], [1.0, 1.0, 0.0, 0.0]),
            (["6", "$5$", "**5**", "5."], [0.0, 1.0, 1.0, 1.0]),
        ],
    )
    def test_ties_missing_answers_and_spellings(
        self, answers: list[str], rewards: list[float]
    ) -> None:
        outcome = outcome_of(SRT(world=Sums()), *answers)
        assert earned(outcome, "proposal") == rewards


class TestFullPrompts:
    """The persona is part of the conversation only."""

    @pytest.mark.parametrize("method", [SRT, GroundTruth])
    def test_agents_that_solve_alone_have_no_persona(self, method: type) -> None:
        baseline = method(world=Sums(), prompt="full")
        turns = turns_of(baseline, "6", "5", "6", "7")
        assert len(turns) == 4
        (prompt,) = set(prompts(turns))
        assert "{" not in prompt
        assert "Query: train: 2+3" in prompt
        assert "Formalist" not in prompt

    def test_agents_in_conversation_have_a_persona(self) -> None:
        steps = by_hand(SRT(form="multi", world=Sums(), prompt="full"))
        assert "Rigorous Formalist" in prompts(steps.pending_turns)[0]


@pytest.mark.parametrize("judge_temperature", [None, 0.4])
class TestMultiSRT:
    """SRT-M plays CoNL's four rounds and votes on the revised solutions."""

    ROLES = ["proposal", "review", "revision", "verdict"]

    @pytest.fixture
    def played(self, judge_temperature: float | None) -> EpisodeStepper:
        method = SRT(
            form="multi",
            judge_temperature=judge_temperature,
            world=Sums(),
        )
        proposals = ["ANSWER: 6"] * 4
        no_rankings = [""] * 4
        revisions = [
            f"<revised_solution>ANSWER: {answer}</revised_solution>"
            for answer in ("5", "7", "5", "6")
        ]
        return by_hand(method, proposals, no_rankings, revisions, no_rankings)

    def test_only_rankings_have_the_judges_temperature(
        self, played: EpisodeStepper, judge_temperature: float | None
    ) -> None:
        turns = [reply.turn for reply in played.replies]
        assert {turn.role: turn.temperature for turn in turns} == {
            "proposal": None,
            "review": judge_temperature,
            "revision": None,
            "verdict": judge_temperature,
        }

    def test_all_replies_of_an_agent_earn_its_reward(
        self, played: EpisodeStepper, judge_temperature: float | None
    ) -> None:
        rewards = [1.0, 0.0, 1.0, 0.0]
        expected = [(role, reward) for role in self.ROLES for reward in rewards]
        assert earned(played.outcome) == expected

    def test_the_vote_is_on_revised_solutions(
        self, played: EpisodeStepper, judge_temperature: float | None
    ) -> None:
        assert played.outcome.facts["answers"] == ["5", "7", "5", "6"]
        assert played.outcome.facts["majority_correct"] == 1.0


def test_ground_truth_rewards_correct_answers_whatever_the_majority_is() -> None:
    outcome = outcome_of(GroundTruth(world=Sums()), "6", "5", "6", "")
    assert earned(outcome, "proposal") == [0.0, 1.0, 0.0, 0.0]
    assert outcome.facts["correct_final"] == 0.25
    assert list(outcome.facts) == FACTS


class TestUnscoredAnswer:
    """The world has no verdict on the answer 6."""

    def test_ground_truth_neither_rewards_nor_counts_it(self) -> None:
        outcome = outcome_of(GroundTruth(world=Unscored()), "6", "5", "7", "6")
        assert earned(outcome, "proposal") == [1.0, 0.0]
        assert outcome.facts["correct_final"] == 0.5

    def test_srt_does_not_count_it(self) -> None:
        outcome = outcome_of(SRT(world=Unscored()), "6", "5", "6", "7")
        assert outcome.facts["majority_correct"] is None
        assert outcome.facts["correct_final"] == 0.5


@pytest.mark.parametrize("method", [SRT, GroundTruth])
class TestSharedWithCoNL:
    """The baselines use CoNL's questions and its form of answers."""

    def test_questions_are_those_of_conl(self, method: type) -> None:
        conl = CoNL(world=Sums())
        assert method(world=Sums()).conl.questions == conl.questions

    def test_answers_are_read_as_in_conl(self, method: type) -> None:
        assert method(world=Sums()).read_answer("ANSWER: 5") == "5"

    def test_answers_are_read_in_a_revised_solution(self, method: type) -> None:
        reply = "<revised_solution>ANSWER: 5</revised_solution>"
        assert method(world=Sums()).read_answer(reply) == "5"

    def test_the_number_of_agents_is_a_field(self, method: type) -> None:
        assert len(turns_of(method(world=Sums(), agents=2), "5", "5")) == 2

    def test_at_test_time_they_train_on_test_questions(self, method: type) -> None:
        baseline = method(world=Sums(), test_time=True)
        assert baseline.conl.questions == ["test: 2+3"]


@pytest.mark.parametrize("preset", ["quick", "full", "gpu"])
@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("srt", {"form": "multi"}),
        ("srt", {}),
        ("ground_truth", {}),
    ],
)
def test_presets_train_with_conls_configuration(
    method: str, fields: dict[str, Any], preset: str
) -> None:
    baseline = config.build(method, preset, out=".", overrides=fields)
    conl = config.build("conl", preset, out=".")
    settings = baseline.describe()
    expected = conl.describe()
    for name in ("method", "method_fields"):
        expected[name] = settings[name]
    assert settings == expected
    assert baseline.method.solver == conl.method.solver
    assert baseline.method.test_time == conl.method.test_time


def test_the_papers_scale_has_the_papers_estimator() -> None:
    for method in ("conl", "srt", "ground_truth"):
        assert config.build(method, "gpu", out=".").method.estimator == "gae"


# Fields of CoNL that make the conversation; its others are about rewards and training.
CONVERSATION = (
    "agents",
    "blind",
    "examined",
    "judge_temperature",
    "memory",
    "own_votes",
    "prior_variance",
    "prompt",
    "revision_reads",
)


@pytest.mark.parametrize("preset", ["smoke", "quick", "standard", "full", "gpu"])
@pytest.mark.parametrize("method", ["srt", "ground_truth"])
def test_presets_examine_every_policy_in_conls_conversation(
    method: str, preset: str
) -> None:
    baseline = config.build(method, preset, out=".")
    conl = config.build("conl", preset, out=".")
    for name in CONVERSATION:
        own = getattr(baseline.method.conl, name)
        assert own == getattr(conl.method, name), name
    assert baseline.temperature == conl.temperature
    assert baseline.max_tokens == conl.max_tokens


@pytest.mark.parametrize(
    "method", [SRT(form="single"), SRT(form="multi"), GroundTruth()]
)
def test_a_trained_policy_is_examined_in_conls_conversation(
    method: Method, tmp_path: Path
) -> None:
    fields = {"examined": 1, "judge_temperature": 0.4}
    own, own_turns = examined(method.replace(**fields), tmp_path / "own")
    conl, conl_turns = examined(CoNL(**fields), tmp_path / "conl")
    assert own == conl
    assert own_turns == conl_turns
    assert {talk["family"] for talk in own} == set(CoNL.families)
    assert own[0]["answers_after"] == ["5"] * 4


def examined(method: Method, folder: Path) -> tuple[list[dict[str, Any]], list[Turn]]:
    """Examine a method as its run does; return the recorded conversations and all turns."""
    engine = Scripted(lambda turn: "ANSWER: 5")
    log = Recorder(folder)
    assert method.after_run(engine, (0, 1), log) == {}
    talks = record.read(log.out, "conversations")
    return talks.to_dict("records"), engine.asked


def test_nothing_is_examined_if_the_user_says_so(tmp_path: Path) -> None:
    log = Recorder(tmp_path)
    SRT(examined=0).after_run(Scripted(), (0, 1), log)
    assert not (tmp_path / "conversations.jsonl").exists()
