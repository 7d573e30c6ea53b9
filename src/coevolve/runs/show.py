"""Turns, replies, outcomes, conversations and token credit as HTML for notebooks and plain text for terminals.

Uses only tags and inline styles that JupyterLab keeps in an untrusted notebook, and sets no text colour: it
reads on light and dark pages. All text goes into a page through `element`, which escapes it. Knows no model, no paper.
"""

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from coevolve.advantages.segments import owners, segments
from coevolve.types import Outcome, Reply, Sample, Turn

PRE = "white-space:pre-wrap;overflow-wrap:break-word;margin:0.3em 0 0.6em 1em"
CELL = "text-align:left;vertical-align:top;padding:0.3em 0.6em;border:1px solid rgba(128,128,128,0.4);max-width:30em"
POSITIVE, NEGATIVE = "0,114,178", "213,94,0"
SHORT = 100  # characters of a text that stands beside its speaker
EMPTY = "▯"  # stands for a token that completes no character, such as the end token


@dataclass(frozen=True, repr=False)
class Shown:
    """Something to look at: HTML for notebooks, plain text elsewhere."""

    html: str
    text: str

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.text


class Markup(str):
    """HTML that `element` made; any other string is text."""


def visible(text: str) -> str:
    r"""Spell out every character that is not printable (`\x1b`, `\u202e`), except line feed and tab."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode("ascii") for c in text)


def element(name: str, *content: str, **attributes: str) -> Markup:
    """Return an HTML element; content that is no Markup is escaped, and so are attributes (empty ones left out)."""
    inside = "".join(part if isinstance(part, Markup) else html.escape(visible(part)) for part in content)
    marks = "".join(f' {key}="{html.escape(visible(value))}"' for key, value in attributes.items() if value)
    return Markup(f"<{name}{marks}>{inside}</{name}>")


def table(rows: Iterable[Sequence[str]]) -> Markup:
    """Return an HTML table."""
    return element("table", *(element("tr", *(element("td", cell, style=CELL) for cell in row)) for row in rows))


def turns(turns: Sequence[Turn]) -> Shown:
    """Show what each role will read: a short text at once, a longer one in a fold."""
    return _listed([(turn, None, _limits(turn)) for turn in turns])


def replies(replies: Sequence[Reply], samples: Sequence[Sample] | None = None, notes: Sequence[str] = ()) -> Shown:
    """Show what was said: a short reply at once, a longer one in a fold, and below it what the speaker read.

    The `samples` given tell what a reply earned. `notes` are remarks, one per reply: an oracle's verdicts, say.
    """
    entries = []
    for i, reply in enumerate(replies):
        said = [*filter(None, notes[i : i + 1]), _size(reply)]
        if samples is not None:  # matched by identity: an equal reply is not the same reply
            said += [rewards(sample) for sample in samples if sample.reply is reply] or ["earns nothing"]
        entries.append((reply.turn, reply.text, said))
    return _listed(entries)


def outcome(outcome: Outcome) -> Shown:
    """Show an episode's end: its facts by name, then every sample with its reward."""
    facts = [(str(name), _fact(value)) for name, value in sorted(outcome.facts.items())]
    shown = replies([sample.reply for sample in outcome.samples], outcome.samples)
    text = "\n".join([*(visible(f"{name}: {fact}") for name, fact in facts), shown.text])
    return Shown(table((name, element("code", fact)) for name, fact in facts) + shown.html, text)


def credit(sample: Sample, advantages: Sequence[float | None]) -> Shown:
    """Show a sample's text as a heat map of one advantage per token; hovering a token tells its id and value.

    Blue pays, orange costs, dotted (None) is masked. Every run of tokens starts with the segment that it belongs to,
    if the sample is paid by segment, and with +, - or 0. ValueError for another number of advantages than tokens.
    """
    reply = sample.reply
    if not len(advantages) == len(reply.completion_ids) == len(reply.char_ends):
        raise ValueError(f"advantages must hold one per token: {len(reply.completion_ids)} tokens, {len(advantages)} values")
    peak = max((abs(value) for value in advantages if value), default=1.0)
    labels = [_label(name, value) for name, value in zip(owners(sample), advantages, strict=True)]
    parts, text, start = [], "", 0
    for i, (value, end) in enumerate(zip(advantages, reply.char_ends, strict=True)):
        if i == 0 or labels[i] != labels[i - 1]:
            parts.append(element("sup", labels[i]))
            text += f"[{labels[i]}]"
        piece, start = reply.text[start:end] or EMPTY, end
        title = f"token {i}, id {reply.completion_ids[i]}, credit {signed(value)}"
        parts.append(element("span", piece, title=title, style=_heat(value, peak)))
        text += piece
    head = f"{_who(reply.turn)} · {_size(reply)} · {rewards(sample)} · full colour is {peak:.3g}"
    shown = element("div", _fold(head, element("pre", *parts, style=PRE), is_open=True))
    return Shown(shown, visible("\n    ".join([head, *text.split("\n")])))


def conversation(samples: Sequence[Sample], advantages: Sequence[Sequence[float | None]], title: str = "") -> Shown:
    """Show a conversation as a table: a row per agent, a column per round, and every reply as in `credit`.

    `samples` are one conversation's, agent by agent, each with one reply per round. ValueError for another number
    of lists of advantages than samples.
    """
    if len(advantages) != len(samples):
        raise ValueError(f"advantages must hold one list per sample: {len(samples)} samples, {len(advantages)} lists")
    rounds = list(dict.fromkeys(sample.role for sample in samples))
    rows, texts = [["agent", *rounds]], [visible(title)]
    said = list(map(credit, samples, advantages))
    for agent, start in enumerate(range(0, len(said), len(rounds) or 1)):
        mine = said[start : start + len(rounds)]
        rows.append([str(agent), *(Markup(shown.html) for shown in mine)])
        texts += [f"agent {agent}, {shown.text}" for shown in mine]
    return Shown(element("p", title) + table(rows), "\n".join(texts).strip())


def rewards(sample: Sample) -> str:
    """Return what a sample earned, by segment where it is paid by segment."""
    return "reward " + ", ".join(f"{name} {signed(value)}".strip() for name, value in segments(sample).items())


def signed(value: float | None) -> str:
    """Return a reward or an advantage as text; None is masked."""
    return "masked" if value is None else f"{value:+.3g}"


def pre(text: str) -> Markup:
    """Return text as it is: inside <pre> and <code> a notebook page does not typeset $...$ as mathematics."""
    return element("pre", text or EMPTY, style=PRE)


def _who(turn: Turn) -> str:
    return turn.role if turn.policy == Turn.policy else f"{turn.role} ({turn.policy})"


def _limits(turn: Turn) -> list[str]:
    limits = {"temperature {:g}": turn.temperature, "at most {} tokens": turn.max_tokens}
    return [text.format(value) for text, value in limits.items() if value is not None]


def _size(reply: Reply) -> str:
    return f"{len(reply.completion_ids)} tokens" + ("" if reply.finished else ", cut off")


def _fact(value: object) -> str:
    """Return a fact as text: numbers rounded, a list item by item, a dash for what does not apply."""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_fact, value))
    return "–" if value is None else f"{round(value, 3):g}" if isinstance(value, float) else str(value)


def _label(segment: str | None, advantage: float | None) -> str:
    """Return what a run of tokens starts with."""
    if segment is None:
        return "no segment"
    sign = "masked" if advantage is None else signed(advantage)[0] if advantage else "0"
    return f"{segment} {sign}".strip()


def _heat(advantage: float | None, peak: float) -> str:
    """Return a token's style: `peak` has the full colour."""
    if advantage is None:
        return "border-bottom:2px dotted rgba(128,128,128,0.9)"
    return f"background-color:rgba({NEGATIVE if advantage < 0 else POSITIVE},{0.6 * abs(advantage) / peak:.2f})"


def _fold(head: str, body: str, is_open: bool) -> Markup:
    summary = element("summary", element("code", head))
    return element("details", summary, Markup(body), open="open" if is_open else "")


def _listed(entries: Sequence[tuple[Turn, str | None, list[str]]]) -> Shown:
    """Show who says what, with notes, one below the other: short texts at once, longer ones in folds, the first open.

    Speakers with several entries are counted. Where nothing is said yet (None), the text is what the speaker reads.
    """
    names = [_who(turn) for turn, *_ in entries]
    folds, lines = "", []
    for i, (turn, said, notes) in enumerate(entries):
        text = "\n".join(message["content"] for message in turn.messages) if said is None else said
        who = f"{names[i]} {names[: i + 1].count(names[i])} of {names.count(names[i])}".removesuffix(" 1 of 1")
        short = len(text) <= SHORT and "\n" not in text
        head = " · ".join([f"{who}: {text or EMPTY}" if short else who, *notes])
        read = "".join(element("b", message["role"]) + pre(message["content"]) for message in turn.messages)
        body = read if short or said is None else pre(text) + _fold("what it read", read, is_open=False)
        folds += _fold(head, body, is_open=not short and i == 0)
        lines += [head] if short else [head, *(f"    {line}" for line in text.split("\n"))]
    return Shown(element("div", Markup(folds)), visible("\n".join(lines)))
