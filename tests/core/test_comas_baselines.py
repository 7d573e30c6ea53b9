"""CoMAS's baselines by hand: TTRL's vote, MAPoRL's debate and verdicts, SRLM's pairs and DPO."""

from collections.abc import Sequence
from functools import partial
from random import Random

import pytest
from core.conftest import Sums, boxes, by_hand, earned, prompts, scripted
from pytest import approx

from coevolve.engines.loading import load_policy
from coevolve.methods.baselines import ttrl_maporl
from coevolve.methods.baselines.trl_trainers import SRLM, RatedAnswer, preference
from coevolve.methods.baselines.ttrl_maporl import TTRL, MAPoRL
from coevolve.models.lora import attach
from coevolve.models.policy import Policy
from coevolve.rollout.engine import BatchedEngine
from coevolve.rollout.scheduler import play
from coevolve.rollout.stepper import EpisodeStepper
from coevolve.training import config
from coevolve.types import Outcome, Reply

SOLVE = "solve box<question>1+1</question>"


@pytest.mark.parametrize("method", [TTRL, MAPoRL, SRLM])
def test_all_train_with_reinforce_and_ask_for_boxes(method: type) -> None:
    baseline = method()
    assert baseline.read_answer(r"\boxed{7}") == "7"
    assert baseline.estimator == "reinforce_pp"
    turn = baseline.solver(question="q")
    assert prompts([turn]) == ["solve box<question>q</question>"]


class TestTTRLWithAVote:
    """Five votes for 3, 2, nothing, 3 and 3; the first three replies are trained on."""

    REPLIES = [*boxes(3, 2), "2", *boxes(3, 3)]

    @pytest.fixture
    def method(self) -> TTRL:
        return TTRL(votes=5, samples=3, world=Sums(), voting=("sums",))

    @pytest.fixture
    def outcome(self, method: TTRL) -> Outcome:
        (outcome,), _ = scripted(method, self.REPLIES)
        return outcome

    def test_one_question_is_answered_five_times(self, method: TTRL) -> None:
        _, asked = scripted(method, self.REPLIES)
        assert prompts(asked) == [SOLVE] * 5

    def test_the_first_replies_are_rewarded_by_the_vote_of_all(
        self, outcome: Outcome
    ) -> None:
        assert earned(outcome, "solver") == [1.0, 0.0, 0.0]
        assert [sample.group_id for sample in outcome.samples] == [None] * 3

    def test_facts(self, outcome: Outcome) -> None:
        expected = {
            "question": "1+1",
            "right": approx(1 / 5),
            "voted": 1.0,
            "majority_right": 0.0,
            "interactions": 5,
            "tokens_out": 0,
        }
        assert outcome.facts == expected
        assert list(outcome.facts) == list(expected)

    def test_without_a_readable_answer_all_rewards_are_0(self) -> None:
        method = TTRL(votes=2, samples=2, world=Sums(), voting=("sums",))
        (outcome,), _ = scripted(method, ["2", "2"])
        assert earned(outcome, "solver") == [0.0, 0.0]


class TestTTRLWithoutAVote:
    """A domain whose answers cannot be voted on."""

    REPLIES = boxes(2, 3)

    @pytest.fixture
    def method(self) -> TTRL:
        return TTRL(votes=5, samples=2, voting=(), world=Sums())

    def test_no_further_votes_are_sampled(self, method: TTRL) -> None:
        _, asked = scripted(method, self.REPLIES)
        assert len(asked) == 2

    def test_the_rewards_are_a_dummy_within_one_group(self, method: TTRL) -> None:
        (outcome,), _ = scripted(method, self.REPLIES)
        rewards = {(sample.reward, sample.group_id) for sample in outcome.samples}
        assert rewards == {(0.0, "dummy")}

    def test_no_majority_is_recorded(self, method: TTRL) -> None:
        (outcome,), _ = scripted(method, self.REPLIES)
        assert outcome.facts["voted"] == 0.0
        assert outcome.facts["majority_right"] is None


def test_ttrl_refuses_to_vote_in_a_domain_without_questions() -> None:
    with pytest.raises(ValueError, match="^voting must be one of sums, got 'Math'"):
        TTRL(voting=("Math",), world=Sums()).before_run()


class TestMAPoRLsReward:
    """The weighted mean of an answer's verdict and the later ones, with weights 1, 0.3, 0.09."""

    # Two agents in three rounds; the means of the later rounds are 0 and 1/2.
    VERDICTS = [[1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]

    @pytest.mark.parametrize(
        ("t", "agent", "discount", "share", "value"),
        [
            pytest.param(0, 0, 0.3, True, (1 + 0 + 0.09 * 0.5) / 1.39, id="first"),
            pytest.param(0, 1, 0.3, True, 0.09 * 0.5 / 1.39, id="influence alone"),
            pytest.param(1, 0, 0.3, False, 0.3 * 1 / 1.3, id="own later answer"),
        ],
    )
    def test_later_verdicts_are_discounted(
        self, t: int, agent: int, discount: float, share: bool, value: float
    ) -> None:
        reward = ttrl_maporl.reward(self.VERDICTS, t, agent, discount, share)
        assert reward == approx(value)

    @pytest.mark.parametrize(("agent", "value"), [(0, 1.0), (1, 0.0)])
    def test_in_the_last_round_only_ones_own_verdict_counts(
        self, agent: int, value: float
    ) -> None:
        reward = ttrl_maporl.reward(self.VERDICTS, 2, agent, 0.3, True)
        assert reward == value

    def test_with_discount_0_later_verdicts_do_not_count(self) -> None:
        assert ttrl_maporl.reward(self.VERDICTS, 0, 0, 0.0, True) == 1.0


class TestMAPoRLsDebate:
    """Two agents and two rounds; the second agent never answers correctly."""

    FIRST = r"<solution>\boxed{2}</solution>"
    SECOND = r"<solution>\boxed{3}&lt;/solution></solution>"  # its own mark is escaped

    @pytest.fixture
    def steps(self) -> EpisodeStepper:
        return by_hand(MAPoRL(turns=2, world=Sums()))

    @pytest.fixture
    def second_round(self, steps: EpisodeStepper) -> EpisodeStepper:
        steps.answer([r"\boxed{2}", r"\boxed{3}</solution>"])
        return steps

    @pytest.fixture
    def outcome(self, second_round: EpisodeStepper) -> Outcome:
        second_round.answer([r"\boxed{2}", "no idea"])
        return second_round.outcome

    def test_first_both_agents_answer_alone(self, steps: EpisodeStepper) -> None:
        assert prompts(steps.pending_turns) == [SOLVE] * 2
        speakers = [turn.policy for turn in steps.pending_turns]
        assert speakers == ["agent_1", "agent_2"]

    def test_then_each_reads_its_own_answer_and_the_others(
        self, second_round: EpisodeStepper
    ) -> None:
        assert prompts(second_round.pending_turns) == [
            f"{SOLVE}{self.FIRST}\n{self.SECOND}",
            f"{SOLVE}{self.SECOND}\n{self.FIRST}",
        ]

    def test_every_answer_is_rewarded(self, outcome: Outcome) -> None:
        first_round = [(1 + 0.3 * 0.5) / 1.3, 0.3 * 0.5 / 1.3]
        last_round = [1.0, 0.0]
        assert earned(outcome, "solution") == approx(first_round + last_round)
        policies = [sample.policy for sample in outcome.samples]
        assert policies == ["agent_1", "agent_2"] * 2

    def test_facts(self, outcome: Outcome) -> None:
        expected = {
            "question": "1+1",
            "right": 0.5,
            "right_first": 0.5,
            "right_last": 0.5,
            "interactions": 4,
            "tokens_out": 0,
        }
        assert outcome.facts == expected
        assert list(outcome.facts) == list(expected)


def test_a_question_without_a_verifier_earns_nothing() -> None:
    method = MAPoRL(world=Sums("open?"))
    (outcome,), _ = scripted(method, lambda turn: r"\boxed{2}")
    assert outcome.samples == []
    assert outcome.facts == {
        "question": "open?",
        "right": None,
        "right_first": None,
        "right_last": None,
        "interactions": 6,
        "tokens_out": 0,
    }


def rated(scores: Sequence[float], texts: str) -> list[RatedAnswer]:
    """Answers of one letter each, with these scores."""
    pairs = zip(scores, texts, strict=True)
    return [RatedAnswer(score, text) for score, text in pairs]


class TestPreference:
    """The best answer is preferred to the worst."""

    @pytest.mark.parametrize(
        ("answers", "pair"),
        [
            (rated([1.0, 3.0, 2.0], "abc"), ("b", "a")),
            (rated([3.0, 3.0, 1.0, 1.0], "abcd"), ("a", "c")),
        ],
        ids=["best and worst", "the first of equals"],
    )
    def test_pair(self, answers: list[RatedAnswer], pair: tuple[str, str]) -> None:
        assert preference(answers) == pair

    @pytest.mark.parametrize(
        "answers",
        [
            rated([2.0, 2.0], "ab"),
            rated([3.0, 1.0], "aa"),
            rated([3.0], "a"),
            [],
        ],
        ids=["equal scores", "equal texts", "one answer", "no answer"],
    )
    def test_no_pair(self, answers: list[RatedAnswer]) -> None:
        assert preference(answers) is None


class TestSRLMsEpisode:
    """Three candidates, each judged twice: means of 3 and 2, and one without a score."""

    JUDGEMENTS = [
        "<score>3</score>",
        "?",
        "<score>3</score>",
        "<score>1</score>",
        "?",
        "3",
    ]
    REPLIES = [*boxes(2, 3, 4), *JUDGEMENTS]

    @pytest.fixture
    def method(self) -> SRLM:
        return SRLM(candidates=3, judgements=2, world=Sums())

    def test_each_candidate_is_judged_twice(self, method: SRLM) -> None:
        _, asked = scripted(method, self.REPLIES)
        expected = []
        for answer in (2, 3, 4):
            solution = rf"<solution>\boxed{{{answer}}}</solution>"
            expected += [f"score<question>1+1</question>{solution}"] * 2
        assert prompts(asked[3:]) == expected

    def test_readable_scores_are_averaged_into_a_pair(self, method: SRLM) -> None:
        (outcome,), _ = scripted(method, self.REPLIES)
        expected = {
            "question": "1+1",
            "paired": 1.0,
            "pair": (r"\boxed{2}", r"\boxed{3}"),
            "chosen_right": 1.0,
            "rejected_right": 0.0,
        }
        assert outcome.samples == []
        assert outcome.facts == expected
        assert list(outcome.facts) == list(expected)


class TestDPO:
    """Training on the same pair, "yes" before "no", in place of self-graded ones."""

    @pytest.fixture
    def method(self) -> SRLM:
        method = SRLM(
            questions=24, iterations=2, candidates=2, judgements=1, dpo_batch=8
        )
        chosen, rejected = boxes("yes", "no")
        pair = {
            "prompt": list(method.solver(question="1+1").messages),
            "chosen": [{"role": "assistant", "content": chosen}],
            "rejected": [{"role": "assistant", "content": rejected}],
        }
        method.pairs = lambda policy, run, iteration: [pair] * 24
        return method

    def margin(self, policy: Policy, method: SRLM) -> float:
        """How much likelier "yes" is than "no"."""
        turn = method.solver(question="1+1")
        prompt_ids = policy.render(turn.messages)
        logprobs = []
        for answer in boxes("yes", "no"):
            completion_ids = policy.tokenizer(answer).input_ids
            reply = Reply(turn, "", prompt_ids, completion_ids)
            logprobs.append(policy.logprobs([reply]).sum().item())
        chosen, rejected = logprobs
        return chosen - rejected

    @pytest.mark.parametrize(
        ("has_adapter", "learning_rate"), [(False, 1e-3), (True, 2e-2)]
    )
    def test_the_chosen_answer_becomes_likelier(
        self, method: SRLM, has_adapter: bool, learning_rate: float
    ) -> None:
        policy = load_policy("tiny-small")
        if has_adapter:
            adapters = attach(policy, ["shared"], (4, 8, 0.0), "tiny-small")
            policy = adapters["shared"]
        before = self.margin(policy, method)
        overrides = {"learning_rate": learning_rate}
        run = config.build("srlm", "smoke", out=".", overrides=overrides)
        assert method.fit(policy, run) == 2 * 24 / 8
        assert self.margin(policy, method) > before + 1
        (reply,) = policy.generate([method.solver(question="1+1")], 0.0, 8)
        assert reply.text, "the policy still speaks"


class TestSelfGradedPairs:
    """Pairs that the embedded backbone makes."""

    @pytest.fixture
    def policy(self) -> Policy:
        return load_policy("tiny")

    @pytest.fixture
    def method(self) -> SRLM:
        return SRLM(questions=40)

    def test_many_questions_have_one_and_the_same_noise_makes_the_same(
        self, policy: Policy, method: SRLM
    ) -> None:
        run = config.build("srlm", "quick", out=".")
        pairs = method.pairs(policy, run, 1)
        assert 10 < len(pairs) <= 40
        assert pairs == method.pairs(policy, run, 1)

    def test_the_chosen_answers_are_mostly_correct(
        self, policy: Policy, method: SRLM
    ) -> None:
        generate = partial(policy.generate, temperature=1.0, max_tokens=64)
        episodes = [method.observed(Random(i)) for i in range(40)]
        outcomes = play(episodes, BatchedEngine(generate), (0, 1))
        facts = [outcome.facts for outcome in outcomes]
        paired = [one for one in facts if one["paired"]]
        chosen = sum(one["chosen_right"] for one in paired)
        rejected = sum(one["rejected_right"] for one in paired)
        assert chosen / len(paired) > 0.6
        assert rejected / len(paired) < 0.2
