"""Inference strategies as episodes without rewards: they end with an answer and its cost.

Every strategy takes a `Conversation`: a question, a method whose solver answers it, and the agents'
policies. Later rounds use evaluation/prompts, and then \\boxed{} is read as well.
"""

import inspect
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from coevolve.evaluation.conversation import DEFAULT_AGENTS, SHOWN_ROUNDS, Conversation
from coevolve.evaluation.top_ranked import top_ranked
from coevolve.methods.base import Method
from coevolve.rollout.engine import BatchedEngine, Engine
from coevolve.rollout.scheduler import play
from coevolve.text import blocks, prompts
from coevolve.types import Dialogue, Episode, Reply
from coevolve.validation import check_choice

if TYPE_CHECKING:
    from coevolve.models.policy import Policy

ACCEPTED = re.compile(r": right\W*$", re.IGNORECASE)
# Tokens of a reply in `ask`; CoMAS, Table 2.
LIMITS = {"compact": 64, "plain": 64, "full": 4096}


def vanilla(conversation: Conversation) -> Episode:
    """Ask once."""
    (reply,) = yield from conversation.ask(conversation.solve())
    return conversation.outcome(conversation.method.read_answer(reply.text))


def consistency(conversation: Conversation, samples: int = 5) -> Episode:
    """Self-Consistency: take the majority of several samples (CoNL, appendix E: 5 samples)."""
    replies = yield from _solutions(conversation, samples)
    return conversation.end_by_vote(
        [conversation.method.read_answer(reply.text) for reply in replies]
    )


def consistency_summed(conversation: Conversation, samples: int = 5) -> Episode:
    """Self-Consistency as in MASLab, which CoMAS uses: a model reads all samples and answers."""
    replies = yield from _solutions(conversation, samples)
    return (yield from conversation.end_by_summary(replies))


def debate(
    conversation: Conversation, agents: int = DEFAULT_AGENTS, rounds: int = 3
) -> Episode:
    """Debate (CoNL, appendix E): all agents solve, read each other and solve again.

    The answers of the last round vote.
    """
    replies = yield from _debate(conversation, agents, rounds)
    return conversation.end_by_vote(
        [conversation.read_answer(reply) for reply in replies]
    )


def debate_summed(
    conversation: Conversation, agents: int = 3, rounds: int = 2
) -> Episode:
    """Debate as in MASLab, which CoMAS uses: a model reads all last solutions and answers."""
    replies = yield from _debate(conversation, agents, rounds)
    return (yield from conversation.end_by_summary(replies))


def _solutions(conversation: Conversation, agents: int) -> Dialogue[list[Reply]]:
    """Return a solution of each agent, who know nothing of each other."""
    turns = [conversation.solve(agent) for agent in range(agents)]
    return (yield from conversation.ask(*turns))


def _debate(
    conversation: Conversation, agents: int, rounds: int
) -> Dialogue[list[Reply]]:
    """Return the agents' solutions in the last round of a debate."""
    replies = yield from _solutions(conversation, agents)
    for _ in range(rounds - 1):
        shown = [
            blocks.discussion([(conversation.shown(reply), ())]) for reply in replies
        ]
        turns = []
        for agent, own in enumerate(shown):
            others = "\n".join(shown[:agent] + shown[agent + 1 :])
            turns.append(conversation.prompted(agent, "debate", own=own, others=others))
        replies = yield from conversation.ask(*turns)
    return replies


def self_refine(conversation: Conversation, iterations: int = 3) -> Episode:
    """Self-Refine: one agent criticises its own solution and rewrites it.

    CoNL, appendix E: three iterations, and the last solution counts.
    """
    return (yield from _revise(conversation, iterations, "feedback", critic=0))


def autogen(conversation: Conversation, turns: int = 3) -> Episode:
    """AutoGen: an assistant, and a user's proxy that accepts the solution or asks for more.

    The proxy is the second agent, if there is one. The assistant speaks at most three times, as in
    MASLab, which CoMAS uses (section 4.1); no code is executed.
    """
    return (
        yield from _revise(
            conversation, turns - 1, "proxy", critic=1, accepted=ACCEPTED
        )
    )


def _revise(
    conversation: Conversation,
    revisions: int,
    critic_prompt: str,
    critic: int,
    accepted: re.Pattern[str] | None = None,
) -> Episode:
    """Solve, then alternate feedback and revisions until the feedback matches `accepted`."""
    (reply,) = yield from conversation.ask(conversation.solve())
    answers = [conversation.read_answer(reply)]
    rounds: list[tuple[str, list[str]]] = []  # solutions with their feedback
    for _ in range(revisions):
        solution = conversation.shown(reply)
        history = blocks.discussion(rounds[-SHOWN_ROUNDS:])
        feedback_turn = conversation.prompted(
            critic, critic_prompt, solution=solution, discussion=history
        )
        (feedback,) = yield from conversation.ask(feedback_turn)
        if accepted and accepted.search(feedback.text):
            break
        rounds.append((solution, [feedback.text]))
        history = blocks.discussion(rounds[-SHOWN_ROUNDS:])
        (reply,) = yield from conversation.ask(
            conversation.prompted(0, "revision", discussion=history)
        )
        answers.append(conversation.read_answer(reply))
    return conversation.outcome(answers[-1], answers=answers)


STRATEGIES: dict[str, Callable[..., Episode]] = {
    "vanilla": vanilla,
    "consistency": consistency,
    "consistency_summed": consistency_summed,
    "autogen": autogen,
    "debate": debate,
    "debate_summed": debate_summed,
    "self_refine": self_refine,
    "top_ranked": top_ranked,
}
# Greedy, or 0.7 where votes or personas need variety: CoMAS's evaluation temperature (Table 2).
TEMPERATURES = {
    "vanilla": 0.0,
    "consistency": 0.7,
    "consistency_summed": 0.7,
    "autogen": 0.0,
    "debate": 0.7,
    "debate_summed": 0.7,
    "self_refine": 0.0,
    "top_ranked": 0.7,
}


def limit(prompt: str = "compact", agents: int = DEFAULT_AGENTS) -> int:
    """Return the default limit of a reply in `ask`, in tokens.

    With short prompts it grows by LIMITS for each agent above four, because CoNL's rankings name
    every other agent; with all rankings cut off, the first agent would be ranked top.
    """
    if prompt == "full":
        return LIMITS[prompt]
    additional_agents = max(0, agents - DEFAULT_AGENTS)
    return LIMITS[prompt] * (1 + additional_agents)


def ask(
    speaker: "Engine | Policy",
    question: str | Sequence[str],
    strategy: str = "vanilla",
    *,
    policies: Sequence[str] = (),
    method: Method | None = None,
    prompt: prompts.Variant = "compact",
    max_tokens: int | None = None,
    seed: int = 0,
    **numbers: int,
) -> Any:
    """Answer one question, or each of a list, under a strategy; return the facts of each answer.

    `method` gives the solver and how its replies are read (default: MAE with `prompt`, which is
    "full" for real models). `policies`, of an engine, speak for the agents in turn (default: those
    that the method scores). `numbers` are the strategy's own: samples, agents, rounds, iterations,
    turns. `max_tokens` is a reply's (default: the solver's, or else `limit`).

    A reply that was cut off makes the fact `finished` False, with a warning, since the answer
    depends on all replies of a conversation. Raises ValueError for an unknown strategy, and for a
    number that it does not take or that is below 1.
    """
    from coevolve.methods.mae.method import MAE

    check_choice("strategy", strategy, STRATEGIES)
    _check_numbers(strategy, numbers)
    method = method or MAE(prompt=prompt)
    agents = numbers.get("agents", DEFAULT_AGENTS)
    max_tokens = (
        max_tokens or method.answering.max_tokens or limit(method.prompt, agents)
    )
    questions = [question] if isinstance(question, str) else question
    episodes = []
    for text in questions:
        conversation = Conversation(
            method,
            text,
            policies=policies or method.scored,
            temperature=TEMPERATURES[strategy],
            max_tokens=max_tokens,
        )
        episodes.append(STRATEGIES[strategy](conversation, **numbers))
    outcomes = play(episodes, _engine_of(speaker), (seed,))
    facts = [outcome.facts for outcome in outcomes]
    _warn_of_cut_replies(facts, strategy, max_tokens)
    return facts[0] if isinstance(question, str) else facts


def _check_numbers(strategy: str, numbers: Mapping[str, int]) -> None:
    """Raise ValueError unless a strategy takes these numbers."""
    _, *allowed = inspect.signature(STRATEGIES[strategy]).parameters
    for name, number in numbers.items():
        if name not in allowed:
            raise ValueError(
                f"strategy {strategy!r} takes {', '.join(allowed) or 'no number'}, got {name}"
            )
        if number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")


def _engine_of(speaker: "Engine | Policy") -> Engine:
    """Return an engine itself, or an engine that samples from a policy."""
    if isinstance(speaker, Engine):
        return speaker
    return BatchedEngine(speaker.generate)


def _warn_of_cut_replies(
    facts: Sequence[Mapping[str, Any]], strategy: str, max_tokens: int
) -> None:
    """Warn the caller of `ask` of conversations with a reply that was cut off."""
    cut = [one for one in facts if not one["finished"]]
    if not cut:
        return
    warnings.warn(
        f"replies were cut off at max_tokens={max_tokens} in {len(cut)} of {len(facts)} "
        f"conversations (strategy {strategy!r}): their answers may not be what the agents meant",
        stacklevel=3,
    )
