"""SRT-S, SRT-M and RL with ground truth (CoNL, Appendix E): rewards, and no oracle for SRT."""

import pytest
from core.conftest import Sums, by_hand, earned, prompts, scripted

from coevolve.methods.base import Method
from coevolve.methods.baselines.srt import SRT, GroundTruth
from coevolve.methods.conl.method import CoNL
from coevolve.rollout.stepper import EpisodeStepper
from coevolve.training import config
from coevolve.types import Outcome, Turn

BOTH = pytest.mark.parametrize("method", [SRT, GroundTruth])


class SumsWithoutSix(Sums):
    """A world that has no verdict on the answer 6."""

    def is_correct(self, question: str, answer: str | None) -> bool | None:
        if answer == "6":
            return None
        return super().is_correct(question, answer)


def answer_lines(*answers: str) -> list[str]:
    return [f"ANSWER: {answer}" for answer in answers]


def play_answers(method: Method, *answers: str) -> Outcome:
    """Play an episode of one round, in which agent i proposes answer i to 2+3."""
    (outcome,), _ = scripted(method, answer_lines(*answers))
    return outcome


def turns_of(method: Method, *answers: str) -> list[Turn]:
    """Return the turns of such an episode."""
    _, asked = scripted(method, answer_lines(*answers))
    return asked


class TestSRTWithSingleSolutions:
    """SRT-S on a question whose majority, 6, is incorrect."""

    ANSWERS = ["6", "5", "6", "7"]

    @pytest.fixture
    def outcome(self) -> Outcome:
        return play_answers(SRT(world=Sums()), *self.ANSWERS)

    def test_the_majority_is_rewarded_whether_correct_or_not(
        self, outcome: Outcome
    ) -> None:
        rewards = [("proposal", reward) for reward in (1.0, 0.0, 1.0, 0.0)]
        assert earned(outcome) == rewards

    def test_a_question_has_one_baseline(self, outcome: Outcome) -> None:
        assert {sample.group_id for sample in outcome.samples} == {(0,)}

    def test_each_agent_has_a_persona(self) -> None:
        asked = turns_of(SRT(world=Sums()), *self.ANSWERS)
        question = "<question>train: 2+3</question>"
        first, second = prompts(asked)[:2]
        assert first == f"analyst propose{question}"
        assert second == f"creator propose{question}"

    def test_facts(self, outcome: Outcome) -> None:
        expected = {
            "question": "train: 2+3",
            "answers": self.ANSWERS,
            "majority_right": 0.0,
            "right_final": 0.25,
            "tokens_turn": 0.0,
        }
        assert outcome.facts == expected
        assert list(outcome.facts) == list(expected)


@pytest.mark.parametrize(
    ("answers", "rewards"),
    [
        pytest.param(
            ["6", "5", "5", "6"],
            [1.0, 0.0, 0.0, 1.0],
            id="a tie: the one seen first",
        ),
        pytest.param(
            ["", "5", "", ""],
            [0.0, 1.0, 0.0, 0.0],
            id="no answer is never the majority",
        ),
        pytest.param(["", "", "", ""], [0.0] * 4, id="no answer at all"),
        pytest.param(
            ["5 ", " 5", "5.0", "6"],
            [1.0, 1.0, 0.0, 0.0],
            id="texts without surrounding spaces, not numbers",
        ),
    ],
)
def test_rewards_of_the_majority(answers: list[str], rewards: list[float]) -> None:
    outcome = play_answers(SRT(world=Sums()), *answers)
    assert earned(outcome, "proposal") == rewards


class TestFullPrompts:
    """Prompts for real models."""

    @BOTH
    def test_agents_that_solve_alone_have_no_persona(self, method: type) -> None:
        asked = turns_of(method(world=Sums(), prompt="full"), "6", "5", "6", "7")
        assert len(asked) == 4
        (prompt,) = set(prompts(asked))
        assert "{" not in prompt
        assert "Query: train: 2+3" in prompt
        assert "Formalist" not in prompt

    def test_in_conversation_they_have_personas(self) -> None:
        steps = by_hand(SRT(form="multi", world=Sums(), prompt="full"))
        assert "Rigorous Formalist" in prompts(steps.pending_turns)[0]


class TestSRTInConversation:
    """SRT-M: all agents propose 6, and revise their answers to 5, 7, 5 and 6."""

    @pytest.fixture(params=[None, 0.4])
    def judge_temperature(self, request: pytest.FixtureRequest) -> float | None:
        return request.param

    @pytest.fixture
    def steps(self, judge_temperature: float | None) -> EpisodeStepper:
        method = SRT(form="multi", judge_temperature=judge_temperature, world=Sums())
        proposals = answer_lines("6") * 4
        revised = []
        for line in answer_lines("5", "7", "5", "6"):
            revised.append(f"<revised_solution>{line}</revised_solution>")
        nothing = [""] * 4
        return by_hand(method, proposals, nothing, revised, nothing)

    def test_rankings_have_the_judges_temperature(
        self, steps: EpisodeStepper, judge_temperature: float | None
    ) -> None:
        turns = [reply.turn for reply in steps.replies]
        assert {turn.role: turn.temperature for turn in turns} == {
            "proposal": None,
            "review": judge_temperature,
            "revision": None,
            "verdict": judge_temperature,
        }

    def test_the_vote_on_revised_solutions_rewards_all_rounds(
        self, steps: EpisodeStepper
    ) -> None:
        expected = []
        for role in ("proposal", "review", "revision", "verdict"):
            expected += [(role, 1.0), (role, 0.0), (role, 1.0), (role, 0.0)]
        assert earned(steps.outcome) == expected

    def test_facts_are_about_revised_solutions(self, steps: EpisodeStepper) -> None:
        facts = steps.outcome.facts
        assert facts["answers"] == ["5", "7", "5", "6"]
        assert facts["majority_right"] == 1.0


class TestGroundTruth:
    """RL with verifiable rewards."""

    @pytest.fixture
    def outcome(self) -> Outcome:
        return play_answers(GroundTruth(world=Sums()), "6", "5", "6", "")

    def test_correct_answers_are_rewarded_whatever_the_majority(
        self, outcome: Outcome
    ) -> None:
        assert earned(outcome, "proposal") == [0.0, 1.0, 0.0, 0.0]
        assert outcome.facts["right_final"] == 0.25

    def test_facts_are_those_of_srt(self, outcome: Outcome) -> None:
        assert list(outcome.facts) == [
            "question",
            "answers",
            "majority_right",
            "right_final",
            "tokens_turn",
        ]


class TestAnswersWithoutAVerdict:
    """Answers that no verifier can grade."""

    def test_they_earn_nothing_and_are_not_counted(self) -> None:
        method = GroundTruth(world=SumsWithoutSix())
        outcome = play_answers(method, "6", "5", "7", "6")
        assert earned(outcome, "proposal") == [1.0, 0.0]
        assert outcome.facts["right_final"] == 0.5

    def test_a_majority_without_a_verdict_is_not_counted(self) -> None:
        method = SRT(world=SumsWithoutSix())
        outcome = play_answers(method, "6", "5", "6", "7")
        assert outcome.facts["majority_right"] is None
        assert outcome.facts["right_final"] == 0.5


class TestSharedWithCoNL:
    """What the baselines take from CoNL."""

    @BOTH
    def test_the_questions(self, method: type) -> None:
        questions = CoNL(world=Sums()).questions
        assert method(world=Sums()).conl.questions == questions

    @BOTH
    def test_the_test_questions_at_test_time(self, method: type) -> None:
        baseline = method(world=Sums(), test_time=True)
        assert baseline.conl.questions == ["test: 2+3"]

    @BOTH
    def test_the_form_of_answers(self, method: type) -> None:
        assert method(world=Sums()).read_answer("ANSWER: 5") == "5"

    @BOTH
    def test_the_number_of_agents_can_be_set(self, method: type) -> None:
        assert len(turns_of(method(world=Sums(), agents=2), "5", "5")) == 2


@pytest.mark.parametrize("preset", ["quick", "full", "gpu"])
@pytest.mark.parametrize(
    ("method", "fields"),
    [("srt", {"form": "multi"}), ("srt", {}), ("ground_truth", {})],
)
def test_presets_have_conls_configuration(
    method: str, fields: dict, preset: str
) -> None:
    run = config.build(method, preset, out=".", overrides=fields)
    conl_run = config.build("conl", preset, out=".")
    different = ["method", "protocol"]
    if method == "ground_truth":
        # Agents that solve alone write far less than either limit.
        different.append("max_tokens")
    settings = run.describe()
    own_settings = {name: settings[name] for name in different}
    assert settings == conl_run.describe() | own_settings
    assert run.protocol.solver == conl_run.protocol.solver
    assert run.protocol.test_time == conl_run.protocol.test_time
