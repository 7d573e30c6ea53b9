"""Explains an exception in a user's own method: where it stands, and what was said before."""

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from coevolve import plugins
from coevolve.types import Reply

MAX_SHOWN = 60  # characters of a prompt or reply
MAX_REPLIES = 8  # the last ones


class MethodError(ValueError):
    """An exception in a user's own code; `__cause__` is the exception itself."""


@contextmanager
def explained(place: str) -> Iterator[None]:
    """Turn an exception that passes through a user's file into a MethodError."""
    try:
        yield
    except Exception as error:
        if not passed_through_user_code(error):
            raise
        raise explanation(error, place) from error


def passed_through_user_code(error: Exception) -> bool:
    """Whether an exception passed through a user's file and is not explained yet."""
    return not isinstance(error, MethodError) and bool(_users_frames(error))


def _users_frames(error: Exception) -> list[traceback.FrameSummary]:
    frames = traceback.extract_tb(error.__traceback__)
    return [frame for frame in frames if plugins.is_users_file(frame.filename)]


def explanation(
    error: Exception, place: str, replies: Sequence[Reply] = ()
) -> MethodError:
    """Return the error that says where a user's code failed, and the episode's replies so far.

    `place` says what was being done, as in "episode 3".
    """
    last = _users_frames(error)[-1]
    lines = [
        f"{place} failed in {last.filename}, line {last.lineno}, in {last.name}:",
        f"  {last.line}",
        f"  {type(error).__name__}: {error}",
        *reply_lines(replies),
    ]
    return MethodError("\n".join(lines))


def reply_lines(replies: Sequence[Reply]) -> list[str]:
    """Return a line for each of the last replies: role, end of the prompt, start of the reply."""
    lines = []
    first = max(0, len(replies) - MAX_REPLIES)
    for number, reply in enumerate(replies[first:], start=first + 1):
        prompt = _end_of(reply.turn.messages[-1]["content"])
        text = _start_of(reply.text)
        lines.append(f"  reply {number}, {reply.turn.role}: {prompt!r} -> {text!r}")
    return lines


def _end_of(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else "..." + text[3 - MAX_SHOWN :]


def _start_of(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."
