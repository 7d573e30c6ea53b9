"""Texts as other agents read them: quoted, and condensed by the memory buffer (section 4.1)."""

import re

from coevolve.methods.conl.records import Ranking
from coevolve.text.parse import answer_line, filled

BLOCK_TAG = re.compile(
    r"<(?=/?(?:solution|critique|question|initial_ranking|final_ranking)\b)"
)
BACKTICKS = re.compile("`+")
SHORTEST_FENCE = 3


def quoted(text: str) -> str:
    """Return a text that can neither close its own block nor open another agent's."""
    return BLOCK_TAG.sub("&lt;", text)


def condensed(original: str, summary: str) -> str:
    """Return the summary with the original's answer line, which must survive.

    Returns the original unchanged if the summary is empty.
    """
    text = filled(summary)
    if text is None:
        return original
    answer = answer_line(original)
    if answer is None or answer_line(text) == answer:
        return text
    lines = []
    for line in text.split("\n"):
        if not line.strip().startswith("ANSWER:"):
            lines.append(line)
    lines.append(f"ANSWER: {_fenced(answer)}")
    return "\n".join(lines)


def _fenced(answer: str) -> str:
    """Return a program in a block, of which alone all lines are read; any other answer as it is."""
    if "\n" not in answer:
        return answer
    longest_run = max(map(len, BACKTICKS.findall(answer)), default=0)
    fence = "`" * max(SHORTEST_FENCE, longest_run + 1)
    return f"{fence}python\n{answer}{fence}"


def ranking_block(agent: int, name: str, ranking: Ranking) -> str:
    """Write an agent's readable comparisons for later speakers (Table 3, without blind ranking)."""
    strict = []
    ties = []
    for comparison in ranking:
        winner = f"Agent {comparison.winner}"
        loser = f"Agent {comparison.loser}"
        if not comparison.is_tie:
            strict.append(f"{winner} > {loser}")
        elif comparison.winner < comparison.loser:  # a tie is stored each way
            ties.append(f"{winner} = {loser}")
    return "\n".join([f"Agent {agent}<{name}>", *strict, *ties, f"</{name}>"])
