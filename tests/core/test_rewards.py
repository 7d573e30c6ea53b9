"""The equations of MAE, SAGE, SPICE and CoMAS by hand, as pure functions of scores."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from coevolve.methods.comas import rewards as comas
from coevolve.methods.format_reward import format_reward
from coevolve.methods.mae import rewards as mae
from coevolve.methods.sage import rewards as sage
from coevolve.methods.spice import rewards as spice

PAIR = "<question>5</question>"
UNFILLED = "<question>[Your question goes here]</question>"
SUM = "<question>2+3</question><type>math</type><answer>5</answer>"


class TestFormatReward:
    """One valid pair of tags earns 1, several with a valid one earn 0.5 (MAE)."""

    REWARDS = {
        PAIR * 2: 0.5,
        PAIR * 7: 0.5,
        UNFILLED: 0,
        UNFILLED * 2: 0,
        UNFILLED + PAIR: 0.5,
        f"{PAIR}<question>": 0,
    }

    @pytest.mark.parametrize(("text", "reward"), REWARDS.items())
    def test_of_repeated_and_unfilled_questions(self, text: str, reward: float) -> None:
        assert format_reward(text, "question") == reward

    def test_of_repeated_scores(self) -> None:
        assert format_reward("<score>X</score><score>7</score>", "score") == 0.5


class TestMAE:
    """Sections 4.1 to 4.3."""

    @pytest.mark.parametrize(
        ("score", "value"), [(None, 0.5), (0.0, 0.0), (0.25, 0.25)]
    )
    def test_an_unreadable_score_is_neutral(
        self, score: float | None, value: float
    ) -> None:
        assert mae.score_or_neutral(score) == value

    DIFFICULTIES = [
        ([1.0, 1.0, 0.5, 0.0, 0.0], 0.5),
        ([0.75], 0.25),
        ([1.0, None, 0.5, None], 0.25),
        ([0.0, None], 1.0),
        ([None, None], 0.5),
        ([], 0.5),
    ]

    @pytest.mark.parametrize(("scores", "difficulty"), DIFFICULTIES)
    def test_difficulty_is_one_minus_the_mean_readable_score(
        self, scores: list[float | None], difficulty: float
    ) -> None:
        assert mae.difficulty(scores) == difficulty

    # Quality, difficulty and format; the reward.
    PROPOSER_REWARDS = [
        ((0.9, 0.6, 1.0), 2.5 / 3),
        ((0.0, 1.0, 0.5), 0.5),
        ((1.0, 1.0, 1.0), 1.0),
        ((None, 0.25, 1.0), 1.75 / 3),
        ((0.0, 0.0, 0.5), 0.5 / 3),
        ((0.9, 0.6, None), 0.75),
    ]

    @pytest.mark.parametrize(("terms", "reward"), PROPOSER_REWARDS)
    def test_the_proposer_earns_thirds(self, terms: tuple, reward: float) -> None:
        assert mae.proposer_reward(*terms) == approx(reward)

    # The Judge's score and format; the reward.
    SOLVER_REWARDS = [
        ((0.8, 1.0), 0.9),
        ((0.8, 0.0), 0.4),
        ((0.0, 0.5), 0.25),
        ((None, 1.0), 0.75),
        ((0.8, None), 0.8),
    ]

    @pytest.mark.parametrize(("terms", "reward"), SOLVER_REWARDS)
    def test_the_solver_earns_halves(self, terms: tuple, reward: float) -> None:
        assert mae.solver_reward(*terms) == approx(reward)


class TestOfficialProposerReward:
    """The reward in the released code of MAE's authors."""

    # Quality; the sum of the three terms for a difficulty of 0.9 and a format reward of 1.
    SUMS = [(0.6, 1.6), (0.7, 2.6), (6 / 9, 6 / 9 + 1), (None, 1.5)]

    @pytest.mark.parametrize(("quality", "total"), SUMS)
    def test_difficulty_counts_only_for_good_questions(
        self, quality: float | None, total: float
    ) -> None:
        reward = mae.official_proposer_reward(quality, 0.9, 1.0, parsed=True)
        assert reward == approx(total / 3)

    def test_the_threshold_is_a_setting(self) -> None:
        reward = mae.official_proposer_reward(0.6, 0.9, 1.0, parsed=True, threshold=0.5)
        assert reward == approx(2.5 / 3)

    def test_the_weight_of_an_ablated_format_reward_is_redistributed(self) -> None:
        reward = mae.official_proposer_reward(0.6, 0.9, None, parsed=True)
        assert reward == approx(0.3)

    def test_a_question_that_does_not_parse_earns_nothing(self) -> None:
        assert mae.official_proposer_reward(0.9, 0.9, 0.5, parsed=False) == 0.0


class TestSAGEEquation2:
    """The map of the Critic's score to [0, 1]."""

    NORMS = {
        0.0: 0.0,
        0.25: 0.25,
        0.999999: 0.999999,
        1.0: 0.0,
        1.5: 0.5 / 9,
        2.0: 1 / 9,
        5.5: 0.5,
        7.0: 6 / 9,
        8.0: 7 / 9,
        10.0: 1.0,
        10.000001: 0.5,
        11.0: 0.5,
        -1.0: 0.5,
        -0.5: 0.5,
        None: 0.5,
        math.inf: 0.5,
        -math.inf: 0.5,
    }

    @pytest.mark.parametrize(("score", "value"), NORMS.items())
    def test_the_worst_grade_maps_to_0(self, score: float | None, value: float) -> None:
        assert sage.norm(score) == approx(value)

    @pytest.mark.parametrize(("score", "value"), NORMS.items())
    def test_as_printed_only_the_worst_grade_differs_and_passes_both_gates(
        self, score: float | None, value: float
    ) -> None:
        printed = 1.0 if score == 1.0 else value
        assert sage.norm(score, literal=True) == approx(printed)


class TestSAGEFormatReward:
    """The mean over the required tags (section 4.1)."""

    REWARDS = {
        f"Here:\n{SUM}\nDone.": 1,
        "<question>2+3</question>": 1 / 3,
        "2+3 = 5": 0,
        "<think></think>": 0,
        # The caller decides which tag must hold the verifier of a kind.
        "<question>2+3</question><type> code </type><answer>5</answer>": 1,
        "<question>2+3</question><type>poem</type><answer>5</answer>": 2 / 3,
        "<question>2+3</question><type>math</type><answer></answer>": 2 / 3,
        SUM.replace("2+3", "[Your generated task goes here]"): 2 / 3,
        f"<question>{SUM}": 2 / 3,
        f"{SUM}<answer>6</answer>": 2.5 / 3,
        SUM * 2: 0.5,
        "": 0.5,
        "\n\t \u00a0": 0.5,
    }

    @pytest.mark.parametrize(("text", "reward"), REWARDS.items())
    def test_of_a_challenge(self, text: str, reward: float) -> None:
        tags = ("question", "type", "answer")
        assert sage.format_reward(text, tags) == approx(reward)

    def test_silence_can_earn_nothing(self) -> None:
        assert sage.format_reward(" ", ("score",), empty=0.0) == 0.0

    SCORE_REWARDS = {
        "<score>99</score>": 1,
        "<score>high</score>": 0,
        "7": 0,
        "<score>7</score><score>x</score>": 0.5,
    }

    @pytest.mark.parametrize(("text", "reward"), SCORE_REWARDS.items())
    def test_of_a_judgement(self, text: str, reward: float) -> None:
        assert sage.format_reward(text, ("score",)) == reward


class TestSAGERewards:
    """Equations 4 to 11: the rewards of the Challenger, the Planner and the Solver."""

    DIFFICULTIES = [
        ([1.0, 0.0, 1.0, 1.0, 0.0], approx(0.4)),
        ([0.5, None, 1.0], 0.25),
        ([None, None], None),
        ([], None),
    ]

    @pytest.mark.parametrize(("verified", "difficulty"), DIFFICULTIES)
    def test_equation_4(
        self, verified: list[float | None], difficulty: float | None
    ) -> None:
        assert sage.difficulty(verified) == difficulty

    def test_equation_5(self) -> None:
        assert sage.challenger_reward(0.9, 0.6, 1.0) == approx(2.5 / 3)

    def test_equation_6(self) -> None:
        assert sage.challenger_reward(0.6, None, 1.0) == approx(0.8)

    def test_equation_8(self) -> None:
        reward = sage.planner_reward(7 / 9, 1.0, (0.5, 0.5))
        assert reward == approx(7 / 18 + 1 / 2)
        assert sage.planner_reward(0.2, 1.0, (0.75, 0.25)) == approx(0.4)

    GATED = {0.0: 0.0, 0.299: 0.0, 0.3: 0.3, 0.31: 0.31, 1.0: 1.0}

    @pytest.mark.parametrize(("score", "gated"), GATED.items())
    def test_equation_10(self, score: float, gated: float) -> None:
        assert sage.gated(score, 0.3) == gated

    # Gated plan score (None: no planning), correctness and format; the reward.
    SOLVER_REWARDS = [
        ((7 / 9, 1.0, 1.0), 0.2 * 7 / 9 + 0.8),
        ((0.0, 1.0, 0.5), 0.7),
        ((1.0, 0.0, 0.0), 0.2),
        ((None, 1.0, 0.5), 0.75),
        ((None, 0.0, 1.0), 0.5),
    ]

    @pytest.mark.parametrize(("terms", "reward"), SOLVER_REWARDS)
    def test_equation_11(self, terms: tuple, reward: float) -> None:
        assert sage.solver_reward(*terms, (0.2, 0.6, 0.2)) == approx(reward)

    def test_equation_11_with_other_weights(self) -> None:
        reward = sage.solver_reward(0.5, 1.0, 0.0, (0.5, 0.25, 0.25))
        assert reward == approx(0.5)


class TestSPICE:
    """The Challenger's reward as a function of the pass rate, and its alternatives."""

    # Pass rate: its squared distance in variance, (p (1 - p) - 0.25)^2.
    DISTANCES = {
        0.5: 0,
        0.25: (1 / 16) ** 2,
        0.75: (1 / 16) ** 2,
        0.375: 1 / 4096,
        0.0: 1 / 16,
        1.0: 1 / 16,
    }

    @pytest.mark.parametrize(("p", "distance"), DISTANCES.items())
    def test_the_gaussian_peaks_at_a_pass_rate_of_one_half(
        self, p: float, distance: float
    ) -> None:
        assert spice.gaussian(p) == approx(math.exp(-distance / 0.02))

    def test_the_gaussian_by_hand(self) -> None:
        assert spice.gaussian(0.25) == approx(math.exp(-0.1953125))
        assert spice.gaussian(0.0) == approx(math.exp(-3.125))

    def test_the_gaussian_with_another_optimum_or_width(self) -> None:
        off_optimum = math.exp(-(0.09**2) / 0.02)
        assert spice.gaussian(0.5, optimum=0.16) == approx(off_optimum)
        assert spice.gaussian(0.0, tau=0.1) == approx(math.exp(-0.3125))

    @pytest.mark.parametrize("hits", range(9))
    def test_the_variance_is_over_8_verdicts_and_not_over_7(self, hits: int) -> None:
        verdicts = [1] * hits + [0] * (8 - hits)
        mean = hits / 8
        variance = sum((verdict - mean) ** 2 for verdict in verdicts) / 8
        reward = math.exp(-((variance - 0.25) ** 2) / 0.02)
        assert spice.gaussian(mean) == approx(reward)

    PASS_RATES = (0.0, 0.125, 0.5, 0.875, 1.0)
    ALTERNATIVES = {
        spice.one_minus: (0.0, 0.875, 0.5, 0.125, 0.0),
        spice.threshold: (0.0, 1.0, 1.0, 1.0, 0.0),
        spice.uncertainty: (0.0, 0.25, 1.0, 0.25, 0.0),
    }

    @pytest.mark.parametrize(("function", "rewards"), ALTERNATIVES.items())
    def test_alternatives(
        self, function: Callable[[float], float], rewards: tuple[float, ...]
    ) -> None:
        assert tuple(map(function, self.PASS_RATES)) == rewards

    @pytest.mark.parametrize("kind", spice.CHALLENGER)
    def test_an_invalid_task_costs_a_tenth(self, kind: str) -> None:
        assert spice.challenger_reward(kind, None) == -0.1

    def test_the_penalty_is_a_setting(self) -> None:
        assert spice.challenger_reward("threshold", None, penalty=-1.0) == -1.0


class TestCoMAS:
    """Equations 7 and 8, and the ablations."""

    SOLUTION_REWARDS = [
        ([1], 0.0),
        ([2], 0.5),
        ([3], 1.0),
        ([3, 1, 2, 3], (1 + 0 + 1 / 2 + 1) / 4),
        ([3, None], 1.0),
        ([None, None], None),
    ]

    @pytest.mark.parametrize(("scores", "reward"), SOLUTION_REWARDS)
    def test_equation_7_for_a_solution(
        self, scores: list[int | None], reward: float | None
    ) -> None:
        assert comas.solution_reward(scores) == reward

    EVALUATION_REWARDS = {1: 1.0, 2: 0.5, 3: 0.0, None: None}

    @pytest.mark.parametrize(("score", "reward"), EVALUATION_REWARDS.items())
    def test_equation_7_for_an_evaluation(
        self, score: int | None, reward: float | None
    ) -> None:
        assert comas.evaluation_reward(score) == reward

    def test_unreadable_scores_can_be_neutral(self) -> None:
        assert comas.solution_reward([3, None], neutral=True) == 0.75
        assert comas.evaluation_reward(None, neutral=True) == 0.5

    SCORING_REWARDS = {1: 0.0, 2: 0.0, 3: 0.0, None: -1.0}

    @pytest.mark.parametrize(("score", "reward"), SCORING_REWARDS.items())
    def test_equation_8(self, score: int | None, reward: float) -> None:
        assert comas.scoring_reward(score) == reward

    VERDICTS = [True, False, True, None]
    # Index of a verdict, and the fraction of the other readable verdicts that equal it.
    AGREEMENTS = [(0, 0.5), (1, 0.0), (2, 0.5), (3, 0.0)]

    @pytest.mark.parametrize(("index", "fraction"), AGREEMENTS)
    def test_agreement_is_with_the_other_readable_verdicts(
        self, index: int, fraction: float
    ) -> None:
        assert comas.agreement(self.VERDICTS, index) == fraction

    def test_agreement_of_two_verdicts(self) -> None:
        assert comas.agreement([True, None], 0) is None
        assert comas.agreement([False, False], 1) == 1.0

    # Reward of a solution, and whether it is correct.
    SOLUTIONS = [
        (1.0, True),
        (0.75, False),
        (0.5, True),
        (0.0, False),
        (1.0, None),
        (None, True),
        (0.2, True),
    ]

    def test_confusion_counts_known_pairs(self) -> None:
        rewards = [reward for reward, _ in self.SOLUTIONS]
        truths = [truth for _, truth in self.SOLUTIONS]
        counts = comas.confusion(rewards, truths)
        assert counts == {"tp": 1, "fp": 1, "fn": 2, "tn": 1}


SCORES = st.lists(st.sampled_from([1, 2, 3, None]), max_size=5)
VERDICTS = st.lists(st.sampled_from([True, False, None]))


@given(SCORES)
def test_comas_is_a_zero_sum_game(scores: list[int | None]) -> None:
    solution_reward = comas.solution_reward(scores)
    evaluation_rewards = []
    for score in scores:
        reward = comas.evaluation_reward(score)
        if reward is not None:
            evaluation_rewards.append(reward)
    if not evaluation_rewards:
        assert solution_reward is None
        return
    mean_evaluation_reward = sum(evaluation_rewards) / len(evaluation_rewards)
    assert solution_reward + mean_evaluation_reward == approx(1)


@given(VERDICTS)
def test_comas_agreement_is_a_fraction_or_none(verdicts: list[bool | None]) -> None:
    for index in range(len(verdicts)):
        fraction = comas.agreement(verdicts, index)
        assert fraction is None or 0 <= fraction <= 1
