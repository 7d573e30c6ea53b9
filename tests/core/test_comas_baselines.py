"""CoMAS's baselines by hand: TTRL's vote, MAPoRL's debate, SRLM's pairs and DPO steps."""

from functools import partial
from random import Random
from typing import Any
from unittest.mock import Mock

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
from coevolve.types import Outcome, Reply, Turn


@pytest.mark.parametrize("method", [TTRL, MAPoRL, SRLM])
def test_all_train_with_reinforce_and_ask_for_boxes(method: type) -> None:
    baseline = method()
    assert baseline.estimator == "reinforce_pp"
    assert baseline.read_answer(r"\boxed{7}") == "7"
    prompt = "solve box<question>q</question>"
    assert prompts([baseline.solver(question="q")]) == [prompt]


class TestTTRL:
    """TTRL rewards the majority's answer."""

    PROMPT = "solve box<question>1+1</question>"

    @staticmethod
    def play(replies: list[str], **fields) -> tuple[Outcome, list[Turn]]:
        """Play an episode; return its outcome and its turns."""
        outcomes, turns = scripted(TTRL(world=Sums(), **fields), replies)
        (outcome,) = outcomes
        return outcome, turns

    @pytest.fixture
    def voted(self) -> tuple[Outcome, list[Turn]]:
        """Five answers vote, the first three are trained on; the majority is wrong."""
        replies = [*boxes(3, 2), "2", *boxes(3, 3)]
        return self.play(replies, votes=5, samples=3, voting=("sums",))

    def test_every_vote_is_an_answer(self, voted: tuple[Outcome, list[Turn]]) -> None:
        _, turns = voted
        assert prompts(turns) == [self.PROMPT] * 5

    def test_the_first_samples_earn_by_the_vote_of_all(
        self, voted: tuple[Outcome, list[Turn]]
    ) -> None:
        outcome, _ = voted
        rewards = [(sample.reward, sample.group_id) for sample in outcome.samples]
        assert rewards == [(1.0, None), (0.0, None), (0.0, None)]

    def test_the_facts_are_recorded_in_this_order(
        self, voted: tuple[Outcome, list[Turn]]
    ) -> None:
        outcome, _ = voted
        facts = {
            "question": "1+1",
            "correct": approx(1 / 5),
            "voted": 1.0,
            "majority_correct": 0.0,
            "reward_correct": 0.0,  # of the two readable answers that earn
            "interactions": 5,
            "tokens_out": 0,
        }
        assert outcome.facts == facts
        assert list(outcome.facts) == list(facts)

    def test_spellings_of_one_answer_vote_together(self) -> None:
        replies = boxes("2", "$3$", r"\text{3}", "3 ", "2")
        outcome, _ = self.play(replies, votes=5, samples=5, voting=("sums",))
        assert earned(outcome, "solver") == [0.0, 1.0, 1.0, 1.0, 0.0]

    def test_without_a_parsable_answer_no_sample_earns(self) -> None:
        outcome, _ = self.play(["2", "2"], votes=2, samples=2, voting=("sums",))
        assert earned(outcome, "solver") == [0.0, 0.0]

    def test_rewards_are_dummies_in_a_domain_without_a_vote(self) -> None:
        outcome, turns = self.play(boxes(2, 3), votes=5, samples=2, voting=())
        assert len(turns) == 2, "only the trained samples are drawn"
        rewards = {(sample.reward, sample.group_id) for sample in outcome.samples}
        assert rewards == {(0.0, "dummy")}
        assert outcome.facts["voted"] == 0.0
        assert outcome.facts["majority_correct"] is None
        assert outcome.facts["reward_correct"] is None

    def test_a_vote_can_be_right_about_some_answers(self) -> None:
        outcome, _ = self.play(boxes(3, 3, 4, 2), votes=4, samples=4, voting=("sums",))
        assert outcome.facts["reward_correct"] == approx(1 / 4), (
            "4 is wrong and earns 0"
        )

    def test_a_domain_without_training_questions_is_refused(self) -> None:
        method = TTRL(voting=("Math",), world=Sums())
        with pytest.raises(ValueError, match="^voting must be one of sums, got 'Math'"):
            method.before_run()


class TestRewardOfMAPoRL:
    """A verdict and the discounted ones of later rounds, as a weighted mean."""

    # Verdicts of two agents in three rounds
    VERDICTS = [
        [1.0, 0.0],
        [0.0, 0.0],
        [1.0, 0.0],
    ]

    @pytest.mark.parametrize(
        ("agent", "own_verdict"),
        [
            (0, 1.0),
            (1, 0.0),
        ],
    )
    def test_shared_rounds_count_with_the_mean_of_all_agents(
        self, agent: int, own_verdict: float
    ) -> None:
        weights = 1 + 0.3 + 0.09
        later_means = 0.3 * 0 + 0.09 * 0.5
        reward = ttrl_maporl.reward(self.VERDICTS, 0, agent, 0.3, True)
        assert reward == approx((own_verdict + later_means) / weights)

    def test_unshared_rounds_count_with_the_agents_own_verdict(self) -> None:
        reward = ttrl_maporl.reward(self.VERDICTS, 1, 0, 0.3, False)
        assert reward == approx((0 + 0.3 * 1) / (1 + 0.3))

    @pytest.mark.parametrize(("agent", "verdict"), [(0, 1.0), (1, 0.0)])
    def test_the_last_round_earns_its_own_verdict(
        self, agent: int, verdict: float
    ) -> None:
        assert ttrl_maporl.reward(self.VERDICTS, 2, agent, 0.3, True) == verdict

    def test_later_rounds_do_not_count_with_a_discount_of_0(self) -> None:
        assert ttrl_maporl.reward(self.VERDICTS, 0, 0, 0.0, True) == 1.0


class TestDebate:
    """Two agents of MAPoRL answer in two rounds; the second is never correct."""

    QUESTION = "solve box<question>1+1</question>"

    @pytest.fixture
    def started(self) -> EpisodeStepper:
        return by_hand(MAPoRL(turns=2, world=Sums()))

    @pytest.fixture
    def after_one_round(self, started: EpisodeStepper) -> EpisodeStepper:
        started.answer([r"\boxed{2}", r"\boxed{3}</solution>"])
        return started

    @pytest.fixture
    def outcome(self, after_one_round: EpisodeStepper) -> Outcome:
        after_one_round.answer([r"\boxed{2}", "no idea"])
        return after_one_round.outcome

    def test_every_agent_is_a_policy(self, started: EpisodeStepper) -> None:
        assert prompts(started.pending_turns) == [self.QUESTION] * 2
        policies = [turn.policy for turn in started.pending_turns]
        assert policies == ["agent_1", "agent_2"]

    def test_each_agent_reads_its_own_answer_first(
        self, after_one_round: EpisodeStepper
    ) -> None:
        first = r"<solution>\boxed{2}</solution>"
        second = r"<solution>\boxed{3}&lt;/solution></solution>"
        assert prompts(after_one_round.pending_turns) == [
            f"{self.QUESTION}{first}\n{second}",
            f"{self.QUESTION}{second}\n{first}",
        ]

    def test_every_answer_earns_its_discounted_verdicts(self, outcome: Outcome) -> None:
        assert earned(outcome, "solution") == [
            approx((1 + 0.3 * 0.5) / 1.3),
            approx(0.3 * 0.5 / 1.3),
            approx(1.0),
            approx(0.0),
        ]
        policies = [sample.policy for sample in outcome.samples]
        assert policies == ["agent_1", "agent_2"] * 2

    def test_the_facts_are_recorded_in_this_order(self, outcome: Outcome) -> None:
        facts = {
            "question": "1+1",
            "correct": 0.5,
            "correct_first": 0.5,
            "correct_last": 0.5,
            "interactions": 4,
            "tokens_out": 0,
        }
        assert outcome.facts == facts
        assert list(outcome.facts) == list(facts)

    def test_a_question_without_a_verifier_gives_no_samples(self) -> None:
        method = MAPoRL(world=Sums("open?"))
        (outcome,), _ = scripted(method, lambda turn: r"\boxed{2}")
        facts = {
            "question": "open?",
            "correct": None,
            "correct_first": None,
            "correct_last": None,
            "interactions": 6,
            "tokens_out": 0,
        }
        assert outcome.samples == []
        assert outcome.facts == facts
        assert list(outcome.facts) == list(facts)


@pytest.mark.parametrize(
    ("rated", "pair"),
    [
        ([(1.0, "a"), (3.0, "b"), (2.0, "c")], ("b", "a")),
        ([(3.0, "a"), (3.0, "b"), (1.0, "c"), (1.0, "d")], ("a", "c")),
        ([(2.0, "a"), (2.0, "b")], None),
        ([(3.0, "a"), (1.0, "a")], None),
        ([(3.0, "a")], None),
        ([], None),
    ],
)
def test_the_best_is_preferred_to_the_worst(
    rated: list[tuple[float, str]], pair: tuple[str, str] | None
) -> None:
    answers = [RatedAnswer(score, text) for score, text in rated]
    assert preference(answers) == pair


class TestEpisodeOfSRLM:
    """Three answers with two judgements each: scores 3, 2 and unrated."""

    JUDGEMENTS = [
        "<score>3</score>",  # of the first answer
        "?",
        "<score>3</score>",  # of the second
        "<score>1</score>",
        "?",  # of the third
        "3",
    ]

    @pytest.fixture
    def played(self) -> tuple[Outcome, list[Turn]]:
        method = SRLM(candidates=3, judgements=2, world=Sums())
        replies = [*boxes(2, 3, 4), *self.JUDGEMENTS]
        (outcome,), turns = scripted(method, replies)
        return outcome, turns

    def test_each_answer_is_judged_twice(
        self, played: tuple[Outcome, list[Turn]]
    ) -> None:
        _, turns = played
        judged = [
            rf"score<question>1+1</question><solution>\boxed{{{answer}}}</solution>"
            for answer in (2, 2, 3, 3, 4, 4)
        ]
        assert prompts(turns[3:]) == judged

    def test_readable_judgements_are_averaged_and_the_best_chosen(
        self, played: tuple[Outcome, list[Turn]]
    ) -> None:
        outcome, _ = played
        facts = {
            "question": "1+1",
            "paired": 1.0,
            "pair": (r"\boxed{2}", r"\boxed{3}"),
            "chosen_correct": 1.0,
            "rejected_correct": 0.0,
        }
        assert outcome.samples == []
        assert outcome.facts == facts
        assert list(outcome.facts) == list(facts)


class TestDPO:
    """DPO steps on pairs that prefer "yes" to "no"."""

    @pytest.fixture
    def method(self) -> SRLM:
        """SRLM whose 24 pairs in each of two iterations are all the same."""
        method = SRLM(
            questions=24,
            iterations=2,
            candidates=2,
            judgements=1,
            dpo_batch=8,
        )
        yes, no = boxes("yes", "no")
        pair = {
            "prompt": list(method.solver(question="1+1").messages),
            "chosen": [{"role": "assistant", "content": yes}],
            "rejected": [{"role": "assistant", "content": no}],
        }
        method.pairs = lambda engine, run, iteration: [pair] * 24
        return method

    @pytest.mark.parametrize("has_adapter", [False, True])
    def test_dpo_makes_the_chosen_answer_likelier(
        self, method: SRLM, has_adapter: bool
    ) -> None:
        policy = load_policy("tiny-small")
        learning_rate = 1e-3
        if has_adapter:
            policy = attach(policy, ["shared"], (4, 8, 0.0), "tiny-small")["shared"]
            learning_rate = 2e-2
        overrides = {"learning_rate": learning_rate}
        run = config.build("srlm", "smoke", out=".", overrides=overrides)
        before = margin(policy, method)
        engine = policy.serve(1.0, 8)
        assert method.fit(policy, run, engine) == 2 * 24 / 8
        assert margin(policy, method) > before + 1
        (reply,) = policy.generate([method.solver(question="1+1")], 0.0, 8)
        assert reply.text, "the policy still replies"


class Sleepy(BatchedEngine):
    """An engine that notes when it sleeps and loads weights."""

    def __init__(self) -> None:
        super().__init__(lambda turns: [])
        self.events: list[str] = []

    def sleep(self) -> None:
        self.events.append("sleep")

    def load_weights(self) -> None:
        self.events.append("load")


def test_the_engine_is_awake_for_pairs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Sleepy()

    def pairs(self: SRLM, engine: Sleepy, run: object, iteration: int) -> list:
        engine.events.append("pairs")
        return []

    monkeypatch.setattr(SRLM, "pairs", pairs)
    run = config.build("srlm", "smoke", out=".")
    assert SRLM(iterations=2).fit(Mock(), run, engine) == 0
    assert engine.events == ["load", "pairs", "sleep"] * 2


def margin(policy: Policy, method: SRLM) -> float:
    """Return the log-probability of "yes" less that of "no"."""
    yes, no = boxes("yes", "no")
    return answer_logprob(policy, method, yes) - answer_logprob(policy, method, no)


def answer_logprob(policy: Policy, method: SRLM, answer: str) -> float:
    """Return the log-probability of an answer to 1+1, summed over its tokens."""
    turn = method.solver(question="1+1")
    answer_ids = policy.tokenizer(answer).input_ids
    reply = Reply(turn, "", policy.render(turn.messages), answer_ids)
    return policy.logprobs([reply]).sum().item()


class TestSelfGradedPairs:
    """Pairs that the embedded backbone grades itself."""

    @pytest.fixture
    def policy(self) -> Policy:
        return load_policy("tiny")

    def test_pairs_are_reproducible(self, policy: Policy) -> None:
        method = SRLM(questions=40)
        run = config.build("srlm", "quick", out=".")
        engine = policy.serve(run.temperature, run.max_tokens)
        pairs = method.pairs(engine, run, 1)
        assert 10 < len(pairs) <= 40
        assert method.pairs(engine, run, 1) == pairs

    def test_chosen_answers_are_more_often_correct_than_rejected_ones(
        self, policy: Policy
    ) -> None:
        method = SRLM(questions=40)
        generate = partial(policy.generate, temperature=1.0, max_tokens=64)
        episodes = [method.observed(Random(i)) for i in range(40)]
        outcomes = play(episodes, BatchedEngine(generate), (0, 1))
        paired = [outcome.facts for outcome in outcomes if outcome.facts["paired"]]
        chosen = mean_of(paired, "chosen_correct")
        rejected = mean_of(paired, "rejected_correct")
        assert chosen > rejected + 0.1


def mean_of(rows: list[dict[str, Any]], name: str) -> float:
    """Return the mean of a fact."""
    return sum(facts[name] for facts in rows) / len(rows)
