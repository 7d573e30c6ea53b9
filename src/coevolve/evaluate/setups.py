"""Inference set-ups as protocols that earn nothing: they only say what was answered."""

from collections.abc import Callable

from coevolve.types import Episode, Outcome, Role


def vanilla(solver: Role, question: str, read: Callable[[str], str | None]) -> Episode:
    """Ask once; the facts hold the answer (None: unreadable) and the tokens spent."""
    reply = yield solver(question=question)
    facts = {"answer": read(reply.text), "finished": reply.finished, "tokens_in": len(reply.prompt_ids),
             "tokens_out": len(reply.ids)}  # fmt: skip
    return Outcome([], facts)
