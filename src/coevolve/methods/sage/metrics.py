"""What is recorded about SAGE's episodes: how each role did, by the verifier and by the oracle."""

from typing import TYPE_CHECKING, Any

from coevolve.methods.facts import agrees, as_float, complement, mean_known
from coevolve.text.parse import score_value
from coevolve.worlds import World

if TYPE_CHECKING:
    from coevolve.methods.sage.method import SAGE
    from coevolve.methods.sage.records import Challenge, Played


def facts_of(method: "SAGE", played: "Played", world: World) -> dict[str, Any]:
    """Return the facts of one episode, see `Method.observe`.

    `empty` is the share of everything said that holds no text, `unreadable` that of judgements without a score.
    """
    plans = [plan.reply for plan in played.plans if plan]
    said = [played.proposal, *played.judged, *played.challenge.attempts, *plans, *played.replies]
    challenge = played.challenge
    asked = {"accepted": float(challenge.accepted), "proposal": challenge.task[0], "reference": played.reference}
    return asked | {
        **_challenge(method, challenge, world),
        **_solving(method, played, world),
        "empty": mean_known([not reply.text.strip() for reply in said]),
        "unreadable": mean_known([score_value(reply.text) is None for reply in played.judged]),
    }


def _challenge(method: "SAGE", challenge: "Challenge", world: World) -> dict[str, Any]:
    """What a challenge is worth, and what the oracle says about it."""
    question, kind, verifier = challenge.task
    if question is None:
        return {"parsed": 0.0, "verifier_valid": 0.0}
    well_formed = world.valid(question)
    solved = mean_known([world.is_correct(question, method.read_answer(attempt.text)) for attempt in challenge.attempts])
    said = {"parsed": 1.0, "verifier_valid": float(challenge.valid)}
    return said | {
        "checked": float(challenge.valid) if method.verifier_check and verifier is not None else None,
        "kept": float(challenge.accepted) if challenge.valid else None,
        "quality": challenge.quality,
        "difficulty": challenge.difficulty,
        "kind": kind,
        "true_difficulty": complement(solved),
        "valid": as_float(well_formed),
        "level": world.level(question),
        "critic_question_right": agrees(challenge.quality, well_formed),
        "gold_right": None if kind is None or verifier is None else as_float(world.sound(question, kind, verifier)),
    }


def _solving(method: "SAGE", played: "Played", world: World) -> dict[str, Any]:
    """How planning and solving went."""
    questions = [question for question, *_ in played.drawn]
    answers = [method.read_answer(reply.text) for reply in played.replies]
    truths = [world.is_correct(question, answer) for question, answer in zip(questions, answers, strict=True)]
    planned = [(q, plan) for q, plan in zip(questions, played.plans, strict=True) if plan]
    fits = [None if plan.text is None else world.fits(q, plan.text) for q, plan in planned]
    verified = [(value, truth) for value, truth in zip(played.correct, truths, strict=True) if value is not None]
    return {
        "plan_quality": mean_known([plan.score for _, plan in planned]),
        "plan_right": mean_known(fits),
        "plan_used": mean_known([plan.used is not None for _, plan in planned]),
        "critic_plan_right": mean_known([agrees(plan.score, fit) for (_, plan), fit in zip(planned, fits, strict=True)]),
        "answered": mean_known([answer is not None for answer in answers]),
        "verified": mean_known(played.correct),
        "right": mean_known(truths),
        "unscored": mean_known([value is None for value in played.correct]),
        "verifier_right": mean_known([agrees(value, truth) for value, truth in verified]),
    }
