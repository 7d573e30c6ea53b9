"""Our side of `benchmarks/authors.py`: what this package makes of one input, by comparison."""

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

from coevolve.advantages import estimators
from coevolve.advantages.inputs import EstimatorInputs
from coevolve.methods.baselines import absolute_zero, rzero
from coevolve.methods.baselines.rzero import AnsweredQuestion, Proposal, RZero, Vote
from coevolve.methods.baselines.ttrl_maporl import TTRL
from coevolve.methods.format_reward import format_reward
from coevolve.methods.mae import MAE
from coevolve.methods.mae.reading import READINGS
from coevolve.methods.mae.rewards import score_or_neutral
from coevolve.text.parse import boxed, tag
from coevolve.types import Reply, Turn

Case = Mapping[str, Any]
Texts = Sequence[str]
Rewards = list[float]
Function = Callable[[Any], Any]

VARIANTS = ("paper", "official")
GOLD = "42"  # the right answer of all questions that a verifier judges, and the label
ATTEMPTS = 5  # of MAE's Solver at a proposed question
TRIES = 8  # of Absolute Zero's Solver at a proposed task
REPETITION = 0.5  # the distance below which R-Zero's questions repeat each other


def as_reply(text: str, role: str = "solver", tokens: int = 1) -> Reply:
    """Return a reply of a role, with tokens that nobody reads."""
    turn = Turn(role, messages=())
    return Reply(turn, text, completion_ids=tuple(range(tokens)))


def answered(dialogue: Generator, waves: Sequence[Texts]) -> Any:
    """Play a dialogue in which each wave of turns gets these replies; return its result."""
    replies = None
    upcoming = iter(waves)
    while True:
        try:
            dialogue.send(replies)
        except StopIteration as end:
            return end.value
        replies = [as_reply(text) for text in next(upcoming)]


# MAE.


def mae_score(variant: str, text: str) -> float:
    """Return the score of a judgement, 0.5 if it is unreadable."""
    reading = READINGS[variant]
    return score_or_neutral(reading.score(text))


def mae_format(variant: str, text: str, name: str) -> float:
    """Return the format reward of a reply."""
    return READINGS[variant].format(text, name)


def mae_question(variant: str, text: str) -> str | None:
    """Return the question of a proposal."""
    return READINGS[variant].question(text)


def mae_proposal_reward(variant: str, case: Case) -> float:
    """Return the reward of a proposal, given the judgements of question and attempts."""
    method = MAE(variant=variant, attempts=ATTEMPTS)
    proposal = as_reply(case["proposal"], "proposer")
    attempts = [f"<answer>{attempt}</answer>" for attempt in range(ATTEMPTS)]
    waves = [[case["quality"], *attempts], case["attempts"]]
    question = method.reading.question(proposal.text)
    assessment = answered(method.assess(question), waves)
    return method.proposer_reward(proposal, assessment)


def mae_solver_reward(variant: str, case: Case) -> float:
    """Return the reward of an answer, given its judgement."""
    method = MAE(variant=variant)
    reply = as_reply(case["answer"])
    pairs = method.read_pairs(["1+1?"], [reply])
    (judged,) = answered(method.judge_pairs(pairs), [[case["judgement"]]])
    return method.solver_reward(reply, judged.score)


# Absolute Zero.


def azr_format(text: str) -> float:
    """Return whether the form of an answer is right, which its reward asks."""
    return float(format_reward(text, "answer") == 1)


def azr_answer(text: str) -> str | None:
    """Return the answer in tags."""
    return tag(text, "answer")


def azr_solver_reward(text: str) -> float:
    """Return the reward of an answer where `GOLD` is right."""
    is_correct = tag(text, "answer") == GOLD
    form = format_reward(text, "answer")
    return absolute_zero.solver_reward(is_correct, form)


def azr_proposal_reward(case: Case) -> float:
    """Return the reward of a proposal, so many of whose attempts were right."""
    is_well_formed = case["is_well_formed"]
    solve_rate = None
    if is_well_formed and case["is_valid"]:
        solve_rate = case["solved"] / TRIES
    return absolute_zero.proposer_reward(solve_rate, float(is_well_formed))


# TTRL.


def ttrl_rewards(group: Texts) -> Rewards:
    """Return the rewards of a group's replies for agreeing with its majority."""
    size = len(group)
    method = TTRL(votes=size, samples=size)
    domains = {domain for domain, _ in method.training_questions}
    method.voting = tuple(domains)
    outcome = answered(method.episode(Random(0)), [group])
    return [sample.reward for sample in outcome.samples]


# R-Zero.


def rzero_agreement(group: Texts) -> float:
    """Return the share of a group that gives its most frequent answer."""
    answers = [boxed(text) for text in group]
    return rzero.majority(answers).agreement


def rzero_penalties(questions: Texts) -> Rewards:
    """Return the repetition penalties of questions."""
    return rzero.repetition_penalties(questions, REPETITION, len(questions))


def rzero_challenger_rewards(case: Case) -> Rewards:
    """Return the rewards of questions about whose answers the Solver agrees so far."""
    proposals = []
    valid = []
    reply = as_reply("", "challenger")
    columns = zip(case["questions"], case["agreements"], strict=True)
    for question, agreement in columns:
        proposal = Proposal(reply, request=0, question=question or None)
        proposals.append(proposal)
        if question:
            vote = Vote("1", agreement)
            valid.append(AnsweredQuestion(question, [], vote))
    samples = RZero().challenger_samples(proposals, valid)
    return [sample.reward for sample in samples]


def rzero_solver_reward(text: str) -> float:
    """Return the reward of an answer where the label is `GOLD`."""
    return RZero().solver_reward(as_reply(text), GOLD)


# Advantages.


def advantages(estimator: str, batch: Case) -> Rewards:
    """Return the advantage of each completion, which is the same on all of its tokens."""
    samples = []
    columns = zip(batch["rewards"], batch["lengths"], batch["groups"], strict=True)
    for reward, length, group in columns:
        reply = as_reply("", tokens=length)
        samples.append(reply.earns(reward, group))
    estimate = estimators.ESTIMATORS[estimator]
    rows = estimate(EstimatorInputs(samples))
    return [row[0] for row in rows]


def whole_role(estimator: str, batch: Case) -> Rewards:
    """Return the advantages where a role's batch is one group."""
    one_group = {**batch, "groups": [0] * len(batch["groups"])}
    return advantages(estimator, one_group)


OF_MAE: dict[str, Callable[..., Any]] = {
    "MAE score": mae_score,
    "MAE question": mae_question,
    "MAE format of question": partial(mae_format, name="question"),
    "MAE format of answer": partial(mae_format, name="answer"),
    "MAE format of score": partial(mae_format, name="score"),
    "MAE Proposer": mae_proposal_reward,
    "MAE Solver": mae_solver_reward,
}
OF_OTHERS: dict[str, Function] = {
    "AZR format": azr_format,
    "AZR answer": azr_answer,
    "AZR Solver": azr_solver_reward,
    "AZR Proposer": azr_proposal_reward,
    "TTRL answer": boxed,
    "TTRL reward": ttrl_rewards,
    "REINFORCE++, task_relative": partial(whole_role, "task_relative"),
    "REINFORCE++, reinforce_pp_by_role": partial(whole_role, "reinforce_pp_by_role"),
    "GRPO of TTRL": partial(advantages, "task_relative"),
    "R-Zero vote": rzero_agreement,
    "R-Zero repetition": rzero_penalties,
    "R-Zero Challenger": rzero_challenger_rewards,
    "R-Zero Solver": rzero_solver_reward,
    "GRPO of R-Zero": partial(advantages, "task_relative"),
}


def by_comparison() -> dict[str, Function]:
    """Return our function of each comparison, with both variants of MAE."""
    ours = dict(OF_OTHERS)
    for name, function in OF_MAE.items():
        for variant in VARIANTS:
            ours[f"{name}, {variant}"] = partial(function, variant)
    return ours
