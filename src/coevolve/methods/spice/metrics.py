"""What is recorded about an episode of SPICE: asking, answering, and the oracle's view of both."""

from collections.abc import Callable, Sequence
from typing import Any

from coevolve.methods.facts import as_float, mean_known
from coevolve.methods.spice.parsing import FAULTS, MCQ, Question, stem
from coevolve.methods.spice.records import AnsweredTask, Challenge, EpisodeTrace
from coevolve.worlds import World

Metrics = dict[str, Any]
ReadAnswer = Callable[[str], str | None]


def episode_metrics(
    trace: EpisodeTrace, world: World, read_answer: ReadAnswer
) -> Metrics:
    """Return the facts of one episode, see `Method.observe`."""
    tasks = [answered.task for answered in trace.answered]
    metrics = {
        **_challenge_metrics(trace.challenge, trace.document),
        **_answer_metrics(trace.answered),
        **_task_metrics(tasks, trace.document, world),
        "document": trace.document,
        "questions": [task.text for task in tasks],
        "golds": [task.gold for task in tasks],
    }
    if trace.chosen is not None:
        metrics |= _chosen_task_metrics(trace.chosen, world, read_answer)
    return metrics


def _challenge_metrics(challenge: Challenge, document: str | None) -> Metrics:
    """Return how the Challenger chose a kind of task, and what became of its attempts."""
    attempts = challenge.attempts
    faults = [attempt.fault for attempt in attempts if attempt.fault is not None]
    metrics = {
        "format_unreadable": as_float(challenge.unreadable),
        "mcq": None if document is None else float(challenge.kind == MCQ),
        "attempts": len(attempts),
        "valid": 1 - len(faults) / len(attempts),
    }
    for fault in FAULTS:
        metrics[f"fault/{fault}"] = faults.count(fault) / len(attempts)
    return metrics


def _answer_metrics(answered_tasks: Sequence[AnsweredTask]) -> Metrics:
    """Return the mean pass rate, and the fraction of answers that no verifier could judge."""
    unscored = []
    for answered in answered_tasks:
        unscored += [answer.correct is None for answer in answered.answers]
    return {
        "pass_rate": mean_known(answered.pass_rate for answered in answered_tasks),
        "unscored": mean_known(unscored),
    }


def _task_metrics(
    tasks: Sequence[Question], document: str | None, world: World
) -> Metrics:
    """Return how varied, correct, hard and close to the document the valid tasks are."""
    golds_correct = [world.is_correct(task.text, task.gold) for task in tasks]
    levels = [world.level(task.text) for task in tasks]
    grounded = None
    if document:
        grounded = mean_known(stem(task) in document for task in tasks)
    return {
        "distinct": len(set(tasks)) / len(tasks) if tasks else None,
        "gold_correct": mean_known(golds_correct),
        "level": mean_known(levels),
        "grounded": grounded,
    }


def _chosen_task_metrics(
    chosen: AnsweredTask, world: World, read_answer: ReadAnswer
) -> Metrics:
    """Return the task that trains the Reasoner, and the oracle's verdict on the answers."""
    question = chosen.task.text
    verdicts = []
    for answer in chosen.answers:
        verdicts.append(world.is_correct(question, read_answer(answer.reply.text)))
    return {
        "question": question,
        "gold": chosen.task.gold,
        "correct": mean_known(verdicts),
    }
