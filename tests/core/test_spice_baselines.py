"""The baselines of SPICE's Table 1 by hand: R-Zero and Strong Challenger (AZR: test_azr)."""

import math
from collections.abc import Sequence

import pytest
from core.conftest import boxes, by_hand, earned, free, prompts, text
from pytest import approx

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
from coevolve.types import Outcome, Reply
from tinyworld import tasks as tiny
from tinyworld.oracle import TinyWorld


def proposals(*questions: str, answer: str = "x") -> list[str]:
    """Replies of the Challenger: tasks whose answers are strings."""
    return [free(question, answer, "String") for question in questions]


def play_by_hand(*replies: list[str], seed: int = 0, **fields) -> EpisodeStepper:
    return by_hand(RZero(**fields), *replies, seed=seed, key=(5, 2))


def seed_of_strings() -> int:
    """The first seed with which the Challenger is asked for an answer that is a string."""
    seed = 0
    while text(play_by_hand(seed=seed).pending_turns[0]) != "ask String":
        seed += 1
    return seed


STRING = seed_of_strings()
THREE_ALIKE = boxes("a", "a", "a", "b", "c")  # 3 of 5 answers agree


class TestEpisodeOfRZero:
    """Three valid questions that are unlike each other, and an invalid one."""

    QUESTIONS = ["Who wrote it then?", "Which moon is large?", "Name a far away river"]
    EPISODE = (5, 2, 0)

    @pytest.fixture
    def asked(self) -> EpisodeStepper:
        """The episode after the Challenger's replies."""
        first, second, third = proposals(*self.QUESTIONS)
        return play_by_hand([first, "x", second, third], seed=STRING)

    @pytest.fixture
    def outcome(self, asked: EpisodeStepper) -> Outcome:
        """Majorities of 2/5 (spelling aside), 4/5 and 3/5."""
        first = [*boxes("a", "A", "b", "c"), "none"]
        second = boxes("a", "a", "a", "a", "b")
        asked.answer([*first, *second, *THREE_ALIKE])
        return asked.outcome

    def test_the_challenger_proposes_four_questions(self) -> None:
        turns = play_by_hand(seed=STRING).pending_turns
        assert [turn.policy for turn in turns] == ["challenger"] * 4

    def test_the_solver_answers_each_valid_question_five_times(
        self, asked: EpisodeStepper
    ) -> None:
        expected = []
        for question in self.QUESTIONS:
            expected += [f"solve box<question>{question}</question>"] * 5
        assert prompts(asked.pending_turns) == expected
        assert {turn.policy for turn in asked.pending_turns} == {"solver"}

    def test_the_challenger_earns_uncertainty_less_repetition(
        self, outcome: Outcome
    ) -> None:
        repetition = 1 / 4  # each question is a cluster of its own, of four proposals
        assert earned(outcome, "challenger") == approx(
            [0.8 - repetition, -1.0, 0.4 - repetition, 0.8 - repetition]
        )

    def test_the_solver_learns_from_questions_that_divide_it(
        self, outcome: Outcome
    ) -> None:
        first = [1, 1, 0.1, 0.1, 0]
        third = [1, 1, 1, 0.1, 0.1]
        assert earned(outcome, "solver") == approx(first + third)

    def test_questions_of_a_prompt_and_answers_to_a_question_are_groups(
        self, outcome: Outcome
    ) -> None:
        challenger = [(self.EPISODE, 0)] * 4
        first_question = [(self.EPISODE, 0)] * 5
        third_question = [(self.EPISODE, 2)] * 5
        groups = [sample.group_id for sample in outcome.samples]
        assert groups == challenger + first_question + third_question

    def test_facts(self, outcome: Outcome) -> None:
        expected = {
            "valid": 0.75,
            "taught": 0.5,
            "agreement": approx(0.6),
            "gold_right": None,
            "questions": self.QUESTIONS,
        }
        assert outcome.facts == expected
        assert list(outcome.facts) == list(expected)

    def test_advantages_are_those_of_grpo(self, outcome: Outcome) -> None:
        samples = []
        for sample in outcome.samples:
            reply = Reply(sample.reply.turn, "", completion_ids=(1,))
            samples.append(reply.earns(sample.reward, sample.group_id))
        advantages = task_relative(EstimatorInputs(samples))
        first_question = [values[0] for values in advantages[4:9]]
        mean = 0.44
        std = math.sqrt((2 * 0.56**2 + 2 * 0.34**2 + 0.44**2) / 5)
        expected = [(reward - mean) / std for reward in (1, 1, 0.1, 0.1, 0)]
        assert first_question == approx(expected, abs=1e-6)


class Contrary(TinyWorld):
    """A world whose oracle says the opposite."""

    def is_correct(self, question: str, answer: str | None) -> bool:
        return not super().is_correct(question, answer)


class TestNoGoldAnswers:
    """Neither the Challenger's own answers nor the world's oracle decide on rewards."""

    def rewards(self, gold: str, world: TinyWorld) -> list[tuple[str, float]]:
        replies = proposals("Ba color?", "Da pet?", answer=gold)
        steps = play_by_hand(replies, seed=STRING, rollouts=2, world=world)
        assert not any(gold in prompt for prompt in prompts(steps.pending_turns))
        answers = boxes("red", "red", "red", "blue", "gold")
        steps.answer(answers * 2)
        return earned(steps.outcome)

    @pytest.fixture
    def reference(self) -> list[tuple[str, float]]:
        return self.rewards("red", TinyWorld())

    def test_all_replies_earn_something(
        self, reference: list[tuple[str, float]]
    ) -> None:
        assert len(reference) == 2 + 2 * 5

    def test_the_challengers_answer_does_not_count(
        self, reference: list[tuple[str, float]]
    ) -> None:
        assert self.rewards("gold", TinyWorld()) == reference

    def test_the_oracle_does_not_count(
        self, reference: list[tuple[str, float]]
    ) -> None:
        assert self.rewards("red", Contrary()) == reference


class TestRepetition:
    """Four questions, each answered with an uncertainty of 0.8."""

    def rewards(self, alike: int, repetition: float) -> list[float]:
        """The Challenger's rewards when this many of its questions are the same."""
        same = ["Which moon of Mars is the larger one?"] * alike
        others = ["Who was king?"] * (4 - alike)
        steps = play_by_hand(
            proposals(*same, *others),
            THREE_ALIKE * 4,
            seed=STRING,
            repetition=repetition,
        )
        return earned(steps.outcome, "challenger")

    def test_repeated_questions_share_a_cluster(self) -> None:
        repeated = 0.8 - 3 / 4
        single = 0.8 - 1 / 4
        assert self.rewards(alike=3, repetition=1.0) == approx(
            [repeated] * 3 + [single]
        )

    def test_a_valid_question_never_earns_less_than_0(self) -> None:
        assert self.rewards(alike=4, repetition=2.0) == [0.0] * 4


def test_the_questions_of_a_request_are_a_group() -> None:
    steps = play_by_hand(requests=3, rollouts=2, answers=2)
    kinds = prompts(steps.pending_turns)
    assert len(kinds) == 6
    assert kinds[::2] == kinds[1::2]
    steps.answer(["x"] * 6)
    groups = [sample.group_id for sample in steps.outcome.samples]
    assert groups == [((5, 2, 0), request) for request in (0, 0, 1, 1, 2, 2)]


class TestQuestionsThatTrainNoSolver:
    """The only question of an episode, from which the Solver does not learn."""

    def outcome(self, question: str, answers: list[str]) -> Outcome:
        replies = proposals(question)
        return play_by_hand(replies, answers, seed=STRING, rollouts=1).outcome

    def test_a_held_out_question(self) -> None:
        (task, *_) = tiny.items("test", 1, ("fact",))
        outcome = self.outcome(task.question, THREE_ALIKE)
        assert earned(outcome) == [("challenger", 0.0)], "0.8, less 1 for repetition"
        assert outcome.facts["taught"] == 0.0

    def test_a_question_whose_answers_have_no_box(self) -> None:
        outcome = self.outcome("Which one?", ["none"] * 5)
        assert earned(outcome) == [("challenger", 0.0)]


class TestMajority:
    """The vote of the Solver's answers."""

    def test_without_answers_there_is_none(self) -> None:
        assert majority([None, None]) == Vote(None, 0.0)

    def test_spellings_are_normalised_and_missing_answers_count(self) -> None:
        assert majority(["B", "b.", "c", None]) == Vote("b", 0.5)


class TestBLEU:
    """Sentence BLEU by hand."""

    @pytest.mark.parametrize("question", ["a b c d e", "30+7", "x", ""])
    def test_equal_texts_give_1(self, question: str) -> None:
        assert bleu(question, question) == 1.0

    def test_orders_without_a_match_are_smoothed(self) -> None:
        # 3 0 + 7 against 3 0 + 8: matches 3 of 4, 2 of 3, 1 of 2, and none of 1.
        precisions = 3 / 4 * 2 / 3 * 1 / 2 * 0.1
        assert bleu("30+7", "30+8") == approx(precisions**0.25)

    def test_a_shorter_text_is_penalised_for_its_brevity(self) -> None:
        # Both of its tokens match; the reference has four.
        assert bleu("a b", "a b c d") == approx(math.exp(1 - 4 / 2))

    def test_a_longer_text_is_not(self) -> None:
        assert bleu("a b c d", "a b") == approx(math.sqrt(2 / 4 * 1 / 3))

    def test_repeated_tokens_are_clipped(self) -> None:
        precisions = 1 / 3 * 0.05 * 0.1
        assert bleu("a a a", "a b c") == approx(precisions ** (1 / 3))

    def test_an_empty_text_is_like_no_other(self) -> None:
        assert bleu("", "a") == 0.0


class TestRepetitionPenalties:
    """Sizes of clusters over the size of the batch."""

    TWO_ALIKE = [
        "What is the sum of 3 and 4 in all?",
        "What is the sum of 3 and 4 in total?",
        "Name a river.",
    ]

    @pytest.mark.parametrize(
        ("similarity", "batch", "penalties"),
        [
            (0.5, 8, [2 / 8, 2 / 8, 1 / 8]),
            (0.0, 8, [1 / 8] * 3),
            (1.0, 4, [3 / 4] * 3),
        ],
    )
    def test_questions_closer_than_the_similarity_share_a_cluster(
        self, similarity: float, batch: int, penalties: list[float]
    ) -> None:
        assert repetition_penalties(self.TWO_ALIKE, similarity, batch) == penalties

    @pytest.mark.parametrize(
        ("questions", "penalties"), [(TWO_ALIKE[:1], [0.25]), ([], [])]
    )
    def test_one_question_or_none(
        self, questions: Sequence[str], penalties: list[float]
    ) -> None:
        assert repetition_penalties(questions, 0.5, 4) == penalties

    def test_equal_questions_share_a_cluster_at_similarity_0(self) -> None:
        questions = [self.TWO_ALIKE[0]] * 3
        assert repetition_penalties(questions, 0.0, 3) == [1.0] * 3


def test_only_the_solver_of_rzero_is_scored() -> None:
    rzero = RZero()
    assert rzero.policies == ("solver", "challenger")
    assert rzero.scored == ("solver",)
    assert rzero.solver.policy == "solver"
    assert rzero.read_answer("\\boxed{4}") == "4"


def test_the_strong_challenger_is_another_frozen_model() -> None:
    strong = StrongChallenger(strong="tiny-large")
    assert isinstance(strong, SPICE)
    assert strong.models == {"challenger": "tiny-large"}
    assert strong.policies == ("shared", "challenger")
    assert strong.frozen == ("challenger",)


def test_the_strong_challenger_speaks_all_roles_but_the_solver() -> None:
    strong = StrongChallenger(strong="tiny-large")
    assert strong.ask_mcq.policy == "challenger"
    assert strong.select.policy == "challenger"
    assert strong.solver.policy == "shared"
