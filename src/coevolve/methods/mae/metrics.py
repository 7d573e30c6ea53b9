"""What is recorded about an episode of MAE, by the Judge and by the oracle."""

from collections.abc import Sequence
from typing import Any

from coevolve.methods.facts import agrees, as_float, complement, mean_known
from coevolve.methods.mae.records import Assessment, EpisodeTrace, JudgedAnswer
from coevolve.methods.mae.rewards import score_or_neutral
from coevolve.worlds import World

Metrics = dict[str, Any]


def episode_metrics(trace: EpisodeTrace, world: World, quality_filter: bool) -> Metrics:
    """Return the facts of one episode, see `Method.observe`.

    `quality_filter` says whether the run filters proposed questions by quality.
    """
    assessment = trace.assessment
    accepted = float(assessment.accepted)
    reached_filter = quality_filter and assessment.question is not None
    return {
        **_proposal_metrics(assessment, world),
        "accepted": accepted,
        "kept": accepted if reached_filter else None,
        "proposal": assessment.question,
        "reference": trace.reference,
        **_solution_metrics(trace.solutions, world),
    }


def _proposal_metrics(assessment: Assessment, world: World) -> Metrics:
    """Return how the proposed question and its judgements compare with the oracle."""
    question = assessment.question
    if question is None:
        return {"parsed": 0.0}
    valid = world.valid(question)
    attempts_correct = [
        world.is_correct(question, attempt.answer) for attempt in assessment.attempts
    ]
    judged_attempts = _with_answer(assessment.attempts)
    scores = [assessment.score, *(attempt.score for attempt in judged_attempts)]
    return {
        "parsed": 1.0,
        "quality": assessment.quality,
        "difficulty": assessment.difficulty,
        "valid": as_float(valid),
        "level": world.level(question),
        "true_difficulty": complement(mean_known(attempts_correct)),
        "judge_question_correct": agrees(assessment.quality, valid),
        "unreadable": mean_known(score is None for score in scores),
    }


def _solution_metrics(solutions: Sequence[JudgedAnswer], world: World) -> Metrics:
    """Return how many solutions hold an answer, and whether Judge and oracle accept those."""
    answered = _with_answer(solutions)
    correct = []
    judge_agrees = []
    for solution in answered:
        is_correct = world.is_correct(solution.question, solution.answer)
        correct.append(is_correct)
        judge_agrees.append(agrees(score_or_neutral(solution.score), is_correct))
    return {
        "answered": len(answered) / len(solutions),
        "judged": mean_known(solution.score for solution in answered),
        "correct": mean_known(correct),
        "judge_answer_correct": mean_known(judge_agrees),
    }


def _with_answer(answers: Sequence[JudgedAnswer]) -> list[JudgedAnswer]:
    """Return those that hold an answer; the Judge scores no others."""
    return [judged for judged in answers if judged.answer is not None]
