"""CoNL's reply forms: pairwise rankings and critiques with their targets, as values and as character ranges.

Total and linear like `parse`: no text makes them raise, and what cannot be read is dropped.
Knows neither what a vote is worth nor what a critique earns.
"""

import re
from dataclasses import dataclass

from coevolve.text.parse import filled, matched, only

Comparison = tuple[int, int, float]  # winner, loser, how much of a win: 1.0, or 0.5 each way for a tie
Ranking = list[Comparison]  # an agent's readable votes, one per pair
Rankings = list[Ranking]  # by who gave them
Span = tuple[int, int]  # first character and the one after the last

MARKER = r"(?:(?:[-*•]|[0-9]{1,3}[.)])[ \t]+)?"  # of a list; harmless and usual
AGENT = r"Agent (0|[1-9][0-9]{0,2})"
NUMBER, RELATION = re.compile(AGENT), re.compile("[<>=]")
CHAIN = re.compile(rf"{MARKER}{AGENT}(?:[ \t]*[<>=][ \t]*{AGENT})+")
OPENING = re.compile(f'<critique target="{AGENT}">')
CRITIQUE = re.compile(r"<critique(?:[ \t\n][^<>]*)?>|</critique>")
# Of a pair by what is said about it: the places of winner and loser, and how much of a win it is.
SHARES = {">": [(0, 1, 1.0)], "<": [(1, 0, 1.0)], "=": [(0, 1, 0.5), (1, 0, 0.5)]}


@dataclass(frozen=True)
class Critique:
    """What was said about one agent, and where: `span` includes the tags."""

    target: int
    text: str
    span: Span


def span(text: str, name: str) -> tuple[Span, ...]:
    """Where the text's one <name>...</name> pair stands, tags included; nowhere unless there is exactly one.

    As in `parse.tag_pairs`, tags that do not strictly alternate make no pair.
    """
    pairs = matched(text, re.compile(f"<{re.escape(name)}>|</{re.escape(name)}>"))
    return ((pairs[0][0].start(), pairs[0][1].end()),) if pairs and len(pairs) == 1 else ()


def ranking(text: str, name: str, agents: int, author: int | None = None) -> Ranking:
    """Read the votes in the text's one <name> pair among agents 0 to `agents` - 1.

    One comparison a line with >, < or =; a chain gives its adjacent pairs. A line with anything else in it, an
    unknown agent, or an agent against itself is dropped. A pair counts once; stated in two ways it is void. An
    `author`'s votes on its own solution are left out (None: they count). Without exactly one pair of tags
    there are no votes. Comparisons come in order of appearance.
    """
    claims: dict[tuple[int, int], set[str]] = {}  # ordered pair of agents: everything that is said about it
    for line in only(text, name).split("\n"):
        for a, mark, b in _votes(line.strip(), agents):
            if author in (a, b):
                continue
            pair, said = ((a, b), mark) if a < b else ((b, a), {"<": ">", ">": "<"}.get(mark, mark))
            claims.setdefault(pair, set()).add(said)
    sure = {pair: next(iter(said)) for pair, said in claims.items() if len(said) == 1}
    return [(pair[i], pair[j], share) for pair, said in sure.items() for i, j, share in SHARES[said]]


def critiques(text: str, agents: int, author: int | None = None) -> list[Critique]:
    """Read every `<critique target="Agent k">...</critique>`, in order; the first about each agent counts.

    Left out: an unknown target, the author itself, and a critique that is empty or an untouched placeholder.
    None counts when opening and closing tags do not strictly alternate.
    """
    found: dict[int, Critique] = {}
    for opening, closing in matched(text, CRITIQUE) or ():
        target, said = OPENING.fullmatch(opening[0]), filled(text[opening.end() : closing.start()])
        if target and said is not None and int(target[1]) < agents and int(target[1]) != author:
            read = Critique(int(target[1]), said, (opening.start(), closing.end()))
            found.setdefault(read.target, read)
    return list(found.values())


def _votes(line: str, agents: int) -> list[tuple[int, str, int]]:
    """Read `Agent a > Agent b = Agent c` as adjacent (a, relation, b); none from a line that is not of the form."""
    if not CHAIN.fullmatch(line):
        return []
    numbers = [int(number) for number in NUMBER.findall(line)]
    votes = list(zip(numbers, RELATION.findall(line), numbers[1:], strict=False))
    sound = max(numbers) < agents and all(a != b for a, _, b in votes)
    return votes if sound else []
