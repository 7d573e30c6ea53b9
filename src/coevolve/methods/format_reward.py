"""The format reward of MAE (sections 4.1 to 4.3) and SAGE (4.1). Reads a role's own raw output, never the prompt."""

from coevolve.text import parse

KINDS = {"math": "answer", "code": "tests"}  # what a SAGE task may be: the tag that holds its verifier
READERS = {"score": parse.number, "type": lambda content: KINDS.get(content.strip())}  # of any other tag: parse.filled


def format_reward(text: str, tag: str) -> float:
    """Return 1.0 for exactly one valid <tag> pair, 0.5 for several pairs of which one is valid, else 0.0.

    A pair is valid when it is filled; a <score> pair when it holds a number, in range or not; a <type> pair when it
    names a kind of task. Tags that do not alternate pay nothing. So 1.0 is paid exactly when `parse.tag` (or
    `score_value`) reads a value.
    """
    read, pairs = READERS.get(tag, parse.filled), parse.tag_pairs(text, tag) or []
    if not any(read(content) is not None for content in pairs):
        return 0.0
    return 1.0 if len(pairs) == 1 else 0.5
