"""R-Zero and Strong Challenger, baselines of SPICE's Table 1, by hand.

Absolute Zero, the third baseline, is in test_azr.
"""

import math

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
from coevolve.types import Outcome, Reply, Sample
from tinyworld import tasks as tiny
from tinyworld.oracle import TinyWorld


def start(*waves: list[str], seed: int = 0, **fields) -> EpisodeStepper:
    """Start an R-Zero episode and answer its first waves."""
    return by_hand(RZero(**fields), *waves, seed=seed, key=(5, 2))


def seed_of_free_form_questions() -> int:
    """Return the first seed whose request is for a question with a string as answer."""
    for seed in range(100):
        (first, *_) = start(seed=seed).pending_turns
        if text(first) == "ask String":
            return seed
    raise AssertionError("no seed below 100 asks for a string")


STRING_SEED = seed_of_free_form_questions()


def propose(*questions: str, answer: str = "x") -> list[str]:
    """Return the Challenger's replies that propose these questions."""
    return [free(question, answer, "String") for question in questions]


def task_relative_advantages(samples: list[Sample]) -> list[float]:
    """Return the task-relative advantage of every sample, as if each were one token long."""
    one_token_each = [
        Reply(sample.reply.turn, "", completion_ids=(1,)).earns(
            sample.reward, sample.group_id
        )
        for sample in samples
    ]
    return [values[0] for values in task_relative(EstimatorInputs(one_token_each))]


class TestWholeEpisode:
    """Four proposals, the second of them invalid; five answers to each valid one."""

    QUESTIONS = [
        "Who wrote it then?",
        "Which moon is large?",
        "Name a far away river",
    ]

    @pytest.fixture
    def started(self) -> EpisodeStepper:
        return start(seed=STRING_SEED)

    @pytest.fixture
    def proposed(self, started: EpisodeStepper) -> EpisodeStepper:
        first, second, third = propose(*self.QUESTIONS)
        started.answer([first, "x", second, third])
        return started

    @pytest.fixture
    def outcome(self, proposed: EpisodeStepper) -> Outcome:
        divided = [*boxes("a", "A", "b", "c"), "none"]  # agreement 2/5, case ignored
        agreed = boxes("a", "a", "a", "a", "b")  # 4/5
        balanced = boxes("a", "a", "a", "b", "c")  # 3/5
        proposed.answer([*divided, *agreed, *balanced])
        return proposed.outcome

    def test_the_challenger_proposes_four_questions(
        self, started: EpisodeStepper
    ) -> None:
        policies = [turn.policy for turn in started.pending_turns]
        assert policies == ["challenger"] * 4

    def test_the_solver_answers_every_valid_question_five_times(
        self, proposed: EpisodeStepper
    ) -> None:
        first, second, third = (
            f"solve box<question>{question}</question>" for question in self.QUESTIONS
        )
        expected = [first] * 5 + [second] * 5 + [third] * 5
        assert prompts(proposed.pending_turns) == expected
        assert {turn.policy for turn in proposed.pending_turns} == {"solver"}

    def test_the_challenger_earns_uncertainty_less_repetition(
        self, outcome: Outcome
    ) -> None:
        repetition = 0.25  # each of the three questions is a cluster of 1 in 4
        assert earned(outcome, "challenger") == [
            approx(0.8 - repetition),
            approx(-1.0),
            approx(0.4 - repetition),
            approx(0.8 - repetition),
        ]

    def test_the_solver_learns_from_questions_that_divide_it(
        self, outcome: Outcome
    ) -> None:
        first_question = [1, 1, 0.1, 0.1, 0]
        third_question = [1, 1, 1, 0.1, 0.1]
        # The agreement on the second question is further than 1/4 from one half.
        rewards = earned(outcome, "solver")
        assert rewards == approx([*first_question, *third_question])

    def test_questions_of_a_request_and_answers_to_a_question_are_groups(
        self, outcome: Outcome
    ) -> None:
        proposals = [((5, 2, 0), 0)] * 4
        first_answers = [((5, 2, 0), 0)] * 5
        third_answers = [((5, 2, 0), 2)] * 5
        groups = [sample.group_id for sample in outcome.samples]
        assert groups == [*proposals, *first_answers, *third_answers]

    def test_the_facts_are_recorded_in_this_order(self, outcome: Outcome) -> None:
        facts = {
            "valid": 0.75,
            "taught": 0.5,
            "agreement": approx(0.6),
            "gold_correct": None,
            "questions": self.QUESTIONS,
        }
        assert outcome.facts == facts
        assert list(outcome.facts) == list(facts)

    def test_the_advantages_are_those_of_grpo(self, outcome: Outcome) -> None:
        rewards = (1, 1, 0.1, 0.1, 0)  # of the answers to the first question
        mean = 0.44
        std = math.sqrt((2 * 0.56**2 + 2 * 0.34**2 + 0.44**2) / 5)
        advantages = task_relative_advantages(outcome.samples)[4:9]
        expected = [(reward - mean) / std for reward in rewards]
        assert advantages == approx(expected, abs=1e-6)


class ContraryWorld(TinyWorld):
    """A tiny world whose oracle returns the opposite of every verdict."""

    def is_correct(self, question: str, answer: str | None) -> bool:
        return not super().is_correct(question, answer)


@pytest.mark.parametrize(
    ("gold", "world"),
    [
        ("gold", TinyWorld()),
        ("red", ContraryWorld()),
    ],
)
def test_neither_the_challengers_answer_nor_the_oracle_decides_a_reward(
    gold: str, world: TinyWorld
) -> None:
    def rewards(gold: str, world: TinyWorld) -> list[tuple[str, float]]:
        proposals = propose("Ba color?", "Da pet?", answer=gold)
        steps = start(proposals, seed=STRING_SEED, rollouts=2, world=world)
        for prompt in prompts(steps.pending_turns):
            assert gold not in prompt
        steps.answer(boxes("red", "red", "red", "blue", "gold") * 2)
        return earned(steps.outcome)

    reference = rewards("red", TinyWorld())
    assert len(reference) == 12
    assert rewards(gold, world) == reference


@pytest.mark.parametrize(
    ("alike", "repetition", "rewards"),
    [
        (3, 1.0, [0.8 - 3 / 4] * 3 + [0.8 - 1 / 4]),
        (4, 2.0, [0.0] * 4),  # a valid question never earns less than 0
    ],
)
def test_repeated_questions_share_a_cluster(
    alike: int, repetition: float, rewards: list[float]
) -> None:
    repeated = ["Which moon of Mars is the larger one?"] * alike
    others = ["Who was king?"] * (4 - alike)
    proposals = propose(*repeated, *others)
    answers = boxes("a", "a", "a", "b", "c") * 4
    steps = start(proposals, answers, seed=STRING_SEED, repetition=repetition)
    assert earned(steps.outcome, "challenger") == approx(rewards)


def test_the_questions_of_a_request_are_a_group() -> None:
    steps = start(requests=3, rollouts=2, answers=2)
    requests = prompts(steps.pending_turns)
    assert len(requests) == 6
    assert requests[::2] == requests[1::2]
    steps.answer(["x"] * 6)
    groups = [sample.group_id for sample in steps.outcome.samples]
    assert groups == [((5, 2, 0), request) for request in (0, 0, 1, 1, 2, 2)]


def test_a_held_out_question_trains_no_solver() -> None:
    held_out = next(task.question for task in tiny.items("test", 1, ("fact",)))
    answers = boxes("a", "a", "a", "b", "c")
    steps = start(propose(held_out), answers, seed=STRING_SEED, rollouts=1)
    assert earned(steps.outcome) == [("challenger", 0.0)], "0.8 less 1 for repetition"
    assert steps.outcome.facts["taught"] == 0.0


def test_a_question_without_a_boxed_answer_trains_no_solver() -> None:
    replies = ["none"] * 5
    steps = start(propose("Which one?"), replies, seed=STRING_SEED, rollouts=1)
    assert earned(steps.outcome) == [("challenger", 0.0)]


def test_the_majority_ignores_case_punctuation_and_missing_answers() -> None:
    assert majority([None, None]) == Vote(None, 0.0)
    assert majority(["B", "b.", "c", None]) == Vote("b", 0.5)


class TestBleu:
    """Sentence BLEU over words and single digits, smoothed with 0.1."""

    @pytest.mark.parametrize("question", ["a b c d e", "30+7", "x", ""])
    def test_equal_texts_score_1(self, question: str) -> None:
        assert bleu(question, question) == 1.0

    def test_an_order_without_a_match_counts_as_a_tenth(self) -> None:
        # "3 0 + 7" against "3 0 + 8": matches of order 1 to 4 in turn
        precisions = 3 / 4 * 2 / 3 * 1 / 2 * 0.1
        assert bleu("30+7", "30+8") == approx(precisions**0.25)

    def test_a_shorter_text_has_a_brevity_penalty(self) -> None:
        # Both of its tokens match; the reference has four.
        assert bleu("a b", "a b c d") == approx(math.exp(1 - 4 / 2))

    def test_a_longer_text_has_no_brevity_penalty(self) -> None:
        assert bleu("a b c d", "a b") == approx(math.sqrt(2 / 4 * 1 / 3))

    def test_repeated_tokens_are_clipped(self) -> None:
        precisions = 1 / 3 * 0.05 * 0.1
        assert bleu("a a a", "a b c") == approx(precisions ** (1 / 3))

    def test_an_empty_text_scores_0(self) -> None:
        assert bleu("", "a") == 0.0


class TestRepetitionPenalties:
    """The fraction of the batch that each question's cluster takes."""

    ALIKE = "What is the sum of 3 and 4 in all?"
    QUESTIONS = [
        ALIKE,
        "What is the sum of 3 and 4 in total?",
        "Name a river.",
    ]

    @pytest.mark.parametrize(
        ("similarity", "batch", "expected"),
        [
            (0.5, 8, [2 / 8, 2 / 8, 1 / 8]),
            (0.0, 8, [1 / 8] * 3),
            (1.0, 4, [3 / 4] * 3),
        ],
    )
    def test_similarity_decides_which_questions_share_a_cluster(
        self, similarity: float, batch: int, expected: list[float]
    ) -> None:
        assert repetition_penalties(self.QUESTIONS, similarity, batch) == expected

    def test_fewer_than_two_questions_need_no_clustering(self) -> None:
        assert repetition_penalties([self.ALIKE], 0.5, 4) == [0.25]
        assert repetition_penalties([], 0.5, 4) == []

    def test_equal_questions_share_a_cluster_at_similarity_0(self) -> None:
        assert repetition_penalties([self.ALIKE] * 3, 0.0, 3) == [1.0] * 3


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
    assert strong.ask_mcq.policy == "challenger"
    assert strong.select.policy == "challenger"
    assert strong.solver.policy == "shared"
