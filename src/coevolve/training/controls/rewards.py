"""Rewards that take the place of a method's own, after an episode and before the policy learns."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random

from coevolve.methods.base import Method
from coevolve.methods.facts import agrees, mean_known
from coevolve.training.controls.dial import Dial
from coevolve.training.controls.forms import has_form, is_test_prompt
from coevolve.types import Outcome, Reply, Reward, Sample

# The placeholders of prompts that hold the question to answer.
QUESTION_FIELDS = ("question", "problem", "query")
# Prompts that ask for an answer to the question that they show, and nothing else.
ANSWERING = (
    "mae/solver",
    "comas/solver",
    "comas/solution",
    "conl/plain",
    "conl/proposal",
    "conl/revision",
    "spice/reasoner",
    "spice/reasoner_conversation",
)


def shuffled(outcomes: Sequence[Outcome], rng: Random) -> list[Outcome]:
    """Deal the rewards of each role, or of each segment of it, out among its samples again.

    The step pays the same rewards as before, but no longer for what earned them.
    """
    earned: dict[tuple[str, str], list[float]] = defaultdict(list)
    for outcome in outcomes:
        for sample in outcome.samples:
            for segment, reward in _by_segment(sample.reward).items():
                if reward is not None:
                    earned[sample.role, segment].append(reward)
    for rewards in earned.values():
        rng.shuffle(rewards)
    return _with_rewards(
        outcomes, lambda sample, segment: earned[sample.role, segment].pop()
    )


def random(outcomes: Sequence[Outcome], rng: Random) -> list[Outcome]:
    """Draw every reward from 0 to 1, whatever the reply."""
    return _with_rewards(outcomes, lambda sample, segment: rng.random())


def by_form(outcomes: Sequence[Outcome], method: Method) -> list[Outcome]:
    """Reward a reply with 1 if it has the form that its prompt asks for, else with 0."""
    return _with_rewards(
        outcomes, lambda sample, segment: float(has_form(sample.reply, method))
    )


def by_oracle(outcomes: Sequence[Outcome], dial: Dial, method: Method) -> list[Outcome]:
    """Reward the answers to questions by the oracle's verdict, not by a vote or a gold answer.

    All other replies keep the rewards that the method gives them. The fact `reward_correct` says
    how often that verdict is right about a readable answer.
    """

    def paid(sample: Sample) -> Sample:
        reply = sample.reply
        question = answered_question(reply, method)
        if question is None:
            return sample
        answer = method.read_answer(reply.text)
        verdict = float(dial.answer_is_correct(question, answer, reply.turn.key))
        return _with_reward(sample, lambda sample, segment: verdict)

    observed = []
    for outcome in outcomes:
        judged = replace(outcome, samples=list(map(paid, outcome.samples)))
        accuracy = _accuracy(judged, dial, method)
        facts = outcome.facts | {"reward_correct": accuracy}
        observed.append(replace(judged, facts=facts))
    return observed


def _accuracy(outcome: Outcome, dial: Dial, method: Method) -> float | None:
    """Return how often the reward of a readable answer agrees with the exact oracle."""
    agreements = []
    for sample in outcome.samples:
        question = answered_question(sample.reply, method)
        answer = method.read_answer(sample.reply.text)
        if question is None or answer is None:
            continue
        truth = dial.world.is_correct(question, answer)
        for reward in _by_segment(sample.reward).values():
            if reward is not None:
                agreements.append(agrees(reward, truth))
    return mean_known(agreements)


def answered_question(reply: Reply, method: Method) -> str | None:
    """Return the question that a reply answers, None if it does something else.

    A method's prompt for test questions needs no entry in ANSWERING.
    """
    turn = reply.turn
    if is_test_prompt(turn, method):
        (question,) = turn.fields.values()
        return str(question)
    return question_in_prompt(reply) if turn.source in ANSWERING else None


def question_in_prompt(reply: Reply) -> str | None:
    """Return the question in the prompt of a reply; None without any."""
    for name in QUESTION_FIELDS:
        if name in reply.turn.fields:
            return str(reply.turn.fields[name])
    return None


def _by_segment(reward: Reward) -> Mapping[str, float | None]:
    """Return a reward by segment; a plain number is that of a segment without a name."""
    return reward if isinstance(reward, Mapping) else {"": reward}


def _with_rewards(
    outcomes: Sequence[Outcome], pay: Callable[[Sample, str], float]
) -> list[Outcome]:
    """Return the outcomes with other rewards; a masked segment (None) stays masked."""
    paid = []
    for outcome in outcomes:
        samples = [_with_reward(sample, pay) for sample in outcome.samples]
        paid.append(replace(outcome, samples=samples))
    return paid


def _with_reward(sample: Sample, pay: Callable[[Sample, str], float]) -> Sample:
    """Return a sample with another reward, which is no sum of the parts of its own."""
    reward = sample.reward
    if not isinstance(reward, Mapping):
        return replace(sample, reward=pay(sample, ""), parts={})
    paid: dict[str, float | None] = {}
    for segment, part in reward.items():
        paid[segment] = None if part is None else pay(sample, segment)
    return replace(sample, reward=paid, parts={})
