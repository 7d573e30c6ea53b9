"""The format reward of MAE, sections 4.1 to 4.3. Reads a role's own raw output, never the prompt."""

from collections.abc import Callable

from coevolve import parse


def format_reward(text: str, tag: str) -> float:
    """Return 1.0 for exactly one valid <tag> pair, 0.5 for several pairs of which one is valid, else 0.0.

    A pair is valid when it is filled; a <score> pair when it holds a number, in range or not. Tags that do
    not alternate pay nothing. So 1.0 is paid exactly when `parse.tag` (or `score_value`) reads a value.
    """
    return pair_reward(text, tag, parse.number if tag == "score" else parse.filled)


def pair_reward(text: str, tag: str, read: Callable[[str], object]) -> float:
    """The same with any rule of what is valid: what `read` gives for a content that is not is None."""
    pairs = parse.tag_pairs(text, tag) or []
    if not any(read(content) is not None for content in pairs):
        return 0.0
    return 1.0 if len(pairs) == 1 else 0.5
