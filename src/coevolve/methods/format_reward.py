"""The format reward of MAE (sections 4.1 to 4.3) and SAGE (section 4.1).

It reads a role's own raw output, never the prompt.
"""

from collections.abc import Callable

from coevolve.text import parse

# Kinds of SAGE's tasks, each with the tag that holds its verifier.
VERIFIER_TAGS = {"math": "answer", "code": "tests"}


def verifier_tag(kind: str) -> str | None:
    """Return the tag that holds the verifier of a kind of task; None if there is no such kind."""
    return VERIFIER_TAGS.get(kind.strip())


# Readers of tags that must hold more than some text. They return None for invalid content.
READERS: dict[str, Callable[[str], object]] = {
    "score": parse.number,
    "type": verifier_tag,
}


def format_reward(text: str, tag: str) -> float:
    """Return 1.0 for exactly one valid <tag> pair, 0.5 for several with a valid one, else 0.0.

    A pair is valid if it is filled, a <score> pair if it holds a number, in range or not, and a
    <type> pair if it names a kind of task. Tags that do not alternate earn 0.0. So the reward is
    1.0 exactly when `parse.tag` (or `parse.score_value`) reads a value.
    """
    read = READERS.get(tag, parse.filled)
    contents = parse.tag_pairs(text, tag) or []
    valid = [content for content in contents if read(content) is not None]
    if not valid:
        return 0.0
    return 1.0 if len(contents) == 1 else 0.5
