"""CoNL's reply forms: pairwise rankings and critiques, as values and as character spans.

Total and linear like `parse`: no text raises, and unreadable parts are dropped. The rewards of
comparisons and critiques are in `rewards`.
"""

import re
from dataclasses import dataclass

from coevolve.methods.conl.records import Comparison, Critique, Ranking, Span
from coevolve.text.parse import filled, matched, only

LIST_MARKER = r"(?:(?:[-*•]|[0-9]{1,3}[.)])[ \t]+)?"  # models often write one
AGENT = r"Agent (0|[1-9][0-9]{0,2})"
AGENT_NUMBER = re.compile(AGENT)
RELATION = re.compile("[<>=]")
CHAIN = re.compile(rf"{LIST_MARKER}{AGENT}(?:[ \t]*[<>=][ \t]*{AGENT})+")
OPENING = re.compile(f'<critique target="{AGENT}">')
CRITIQUE_TAG = re.compile(r"<critique(?:[ \t\n][^<>]*)?>|</critique>")
MIRRORED = {
    "<": ">",
    ">": "<",
    "=": "=",
}


Pair = tuple[int, int]  # of agents


@dataclass(frozen=True)
class Relation:
    """A relation that a line of a ranking states: `Agent first > Agent second`."""

    first: int
    symbol: str  # <, > or =
    second: int

    @property
    def mirrored(self) -> "Relation":
        """The same relation with the agents exchanged."""
        return Relation(self.second, MIRRORED[self.symbol], self.first)

    @property
    def comparisons(self) -> list[Comparison]:
        """The comparison of this relation; two for a tie."""
        first = self.first
        second = self.second
        if self.symbol == ">":
            return [Comparison(first, second)]
        if self.symbol == "<":
            return [Comparison(second, first)]
        return [
            Comparison(first, second, weight=0.5),
            Comparison(second, first, weight=0.5),
        ]


def span(text: str, name: str) -> tuple[Span, ...]:
    """Return the span of the text's one <name>...</name> pair, tags included.

    Empty unless there is exactly one pair. As in `parse.tag_pairs`, tags that do not strictly
    alternate make no pair.
    """
    tag = re.escape(name)
    pairs = matched(text, re.compile(f"<{tag}>|</{tag}>"))
    if pairs is None or len(pairs) != 1:
        return ()
    opening, closing = pairs[0]
    return ((opening.start(), closing.end()),)


def ranking(text: str, name: str, agents: int, author: int | None = None) -> Ranking:
    """Read the comparisons of agents 0 to `agents` - 1 in the text's one <name> pair.

    A line holds one relation (>, < or =) or a chain of them, read as its adjacent pairs. A line
    with anything else, an unknown agent, or an agent compared with itself is dropped. A pair counts
    once, and not at all when it is stated in two ways. Comparisons with an `author`'s own solution
    are left out (None: they count). Empty without exactly one pair of tags. Comparisons come in
    order of appearance.
    """
    stated: dict[Pair, set[Relation]] = {}  # lower agent first
    for line in only(text, name).split("\n"):
        for relation in _read_chain(line.strip(), agents):
            if author in (relation.first, relation.second):
                continue
            if relation.first > relation.second:
                relation = relation.mirrored
            pair = relation.first, relation.second
            stated.setdefault(pair, set()).add(relation)
    comparisons: Ranking = []
    for relations in stated.values():
        if len(relations) == 1:
            (relation,) = relations
            comparisons += relation.comparisons
    return comparisons


def _read_chain(line: str, agents: int) -> list[Relation]:
    """Read `Agent a > Agent b = Agent c` as adjacent relations; none from any other line."""
    if not CHAIN.fullmatch(line):
        return []
    numbers = [int(number) for number in AGENT_NUMBER.findall(line)]
    symbols = RELATION.findall(line)
    if max(numbers) >= agents:
        return []
    relations = []
    for i, symbol in enumerate(symbols):
        relation = Relation(numbers[i], symbol, numbers[i + 1])
        if relation.first == relation.second:
            return []
        relations.append(relation)
    return relations


def critiques(text: str, agents: int, author: int | None = None) -> list[Critique]:
    """Read every `<critique target="Agent k">...</critique>`, in order; the first per agent counts.

    Critiques of an unknown agent or of the author, empty ones and untouched placeholders are left
    out. None counts when opening and closing tags do not strictly alternate.
    """
    by_target: dict[int, Critique] = {}
    for opening, closing in matched(text, CRITIQUE_TAG) or ():
        target = _read_target(opening[0], agents, author)
        content = filled(text[opening.end() : closing.start()])
        if target is None or content is None:
            continue
        critique_span = opening.start(), closing.end()
        critique = Critique(target, content, critique_span)
        by_target.setdefault(target, critique)
    return list(by_target.values())


def _read_target(opening_tag: str, agents: int, author: int | None) -> int | None:
    """Return the agent that a critique is about; None if unknown or the author."""
    match = OPENING.fullmatch(opening_tag)
    if match is None:
        return None
    target = int(match[1])
    return target if target < agents and target != author else None
