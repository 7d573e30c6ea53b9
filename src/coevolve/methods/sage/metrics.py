"""What is recorded about an episode of SAGE: how each role did, by the verifier and the oracle."""

from collections.abc import Callable, Sequence
from typing import Any

from coevolve.methods.facts import agrees, as_float, complement, mean_known
from coevolve.methods.sage.records import Challenge, EpisodeTrace, Plan, Solution
from coevolve.text.parse import score_value
from coevolve.types import Reply
from coevolve.worlds import World

Metrics = dict[str, Any]
ReadAnswer = Callable[[str], str | None]


def episode_metrics(
    trace: EpisodeTrace, world: World, read_answer: ReadAnswer, verifier_check: bool
) -> Metrics:
    """Return the facts of one episode, see `Method.observe`.

    `read_answer` is the method's; `verifier_check` says whether the run tries out verifiers.
    """
    challenge = trace.challenge
    return {
        "accepted": float(challenge.accepted),
        "proposal": challenge.task.question,
        "reference": trace.reference.question,
        **_challenge_metrics(challenge, world, read_answer, verifier_check),
        **_plan_metrics(trace.solutions, world),
        **_solution_metrics(trace.solutions, world, read_answer),
        "empty": mean_known(not reply.text.strip() for reply in _all_replies(trace)),
        "unreadable": mean_known(
            score_value(judgement.text) is None for judgement in trace.judgements
        ),
    }


def _all_replies(trace: EpisodeTrace) -> list[Reply]:
    """Return every reply of the episode."""
    return [
        trace.proposal,
        *trace.judgements,
        *trace.challenge.attempts,
        *(plan.reply for plan in trace.plans),
        *(solution.reply for solution in trace.solutions),
    ]


def _challenge_metrics(
    challenge: Challenge, world: World, read_answer: ReadAnswer, verifier_check: bool
) -> Metrics:
    """Return how a challenge fared at the gates, and how it compares with the oracle."""
    task = challenge.task
    if task.question is None:
        return {"parsed": 0.0, "verifier_valid": 0.0}
    well_formed = world.valid(task.question)
    complete_task = task.complete
    gold_is_sound = None if complete_task is None else world.sound(*complete_task)
    verifier_valid = float(challenge.valid)
    was_checked = verifier_check and task.verifier is not None
    attempts_correct = []
    for attempt in challenge.attempts:
        answer = read_answer(attempt.text)
        attempts_correct.append(world.is_correct(task.question, answer))
    return {
        "parsed": 1.0,
        "verifier_valid": verifier_valid,
        "checked": verifier_valid if was_checked else None,
        "kept": float(challenge.accepted) if challenge.valid else None,
        "quality": challenge.quality,
        "difficulty": challenge.difficulty,
        "kind": task.kind,
        "true_difficulty": complement(mean_known(attempts_correct)),
        "valid": as_float(well_formed),
        "level": world.level(task.question),
        "critic_question_correct": agrees(challenge.quality, well_formed),
        "gold_correct": as_float(gold_is_sound),
    }


def _plan_metrics(solutions: Sequence[Solution], world: World) -> Metrics:
    """Return how good plans are, by the Critic and by the oracle."""
    plans: list[Plan] = []
    plans_fit = []
    critic_agrees = []
    for solution in solutions:
        plan = solution.plan
        if plan is not None:
            fits = None
            if plan.text is not None:
                fits = world.fits(solution.task.question, plan.text)
            plans.append(plan)
            plans_fit.append(fits)
            critic_agrees.append(agrees(plan.score, fits))
    return {
        "plan_quality": mean_known(plan.score for plan in plans),
        "plan_correct": mean_known(plans_fit),
        "plan_used": mean_known(plan.used is not None for plan in plans),
        "critic_plan_correct": mean_known(critic_agrees),
    }


def _solution_metrics(
    solutions: Sequence[Solution], world: World, read_answer: ReadAnswer
) -> Metrics:
    """Return how solutions do, by the verifier and by the oracle."""
    answers = []
    truths = []
    verifier_agrees = []
    for solution in solutions:
        answer = read_answer(solution.reply.text)
        truth = world.is_correct(solution.task.question, answer)
        answers.append(answer)
        truths.append(truth)
        if solution.correct is not None:
            verifier_agrees.append(agrees(solution.correct, truth))
    verified = [solution.correct for solution in solutions]
    return {
        "answered": mean_known(answer is not None for answer in answers),
        "verified": mean_known(verified),
        "correct": mean_known(truths),
        "unscored": mean_known(value is None for value in verified),
        "verifier_correct": mean_known(verifier_agrees),
    }
