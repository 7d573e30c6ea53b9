"""Turns, replies, outcomes, token credit and paid segments as HTML for notebooks and plain text for terminals.

Uses only tags and inline styles that JupyterLab keeps in an untrusted notebook, and sets no text colour: it
reads on light and dark pages. All text goes into a page through `element`, which escapes it. Knows no model, no paper.
"""

import html
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from coevolve.credit import owners, segments
from coevolve.types import Outcome, Reply, Sample, Turn

PRE = "white-space:pre-wrap;overflow-wrap:break-word;margin:0.3em 0 0.6em 1em"
CELL = "text-align:left;vertical-align:top;padding:0.3em 0.6em;border:1px solid rgba(128,128,128,0.4);max-width:30em"
POSITIVE, NEGATIVE = "0,114,178", "213,94,0"
COLOURS = ("0,114,178", "230,159,0", "0,158,115", "204,121,167", "86,180,233", "213,94,0")  # Okabe and Ito
PAID, MASKED = "background-color:rgba({},0.35)", "border-bottom:2px dotted rgba({},0.9)"
WHOLE = "whole reply"  # what a segment without a name is called
EMPTY = "▯"  # stands for a token that completes no character, such as the end token
Mark = tuple[str | None, str, str]  # of a token: the label that it shares with neighbours, a style and a title


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


def escape(text: object) -> str:
    """Return text that HTML shows literally, in elements and attributes, with hidden characters visible."""
    return html.escape(visible(str(text)), quote=True)


def element(name: str, *content: str, **attributes: str) -> Markup:
    """Return an HTML element; content that is no Markup is escaped, and so are attributes (empty ones left out)."""
    inside = "".join(part if isinstance(part, Markup) else escape(part) for part in content)
    marks = "".join(f' {key}="{escape(value)}"' for key, value in attributes.items() if value)
    return Markup(f"<{name}{marks}>{inside}</{name}>")


def table(rows: Iterable[Sequence[str]]) -> Markup:
    """Return an HTML table."""
    return element("table", *(element("tr", *(element("td", cell, style=CELL) for cell in row)) for row in rows))


def turns(turns: Sequence[Turn]) -> Shown:
    """Show what each role will read, one fold per turn with the first one open."""
    entries = []
    for turn in turns:
        notes = [turn.role, f"policy {turn.policy}"]
        notes += [] if turn.temperature is None else [f"temperature {turn.temperature:g}"]
        notes += [] if turn.max_tokens is None else [f"at most {turn.max_tokens} tokens"]
        text = "\n".join(f"{message['role']}: {message['content']}" for message in turn.messages)
        entries.append((" · ".join(notes), text, _messages(turn)))
    return _folded(entries)


def replies(replies: Sequence[Reply], samples: Sequence[Sample] | None = None) -> Shown:
    """Show what was said, one fold per reply: who spoke, how much, and what it earned by the `samples` given."""
    entries = []
    for reply in replies:
        head = _says(reply)
        if samples is not None:  # matched by identity: an equal reply is not the same reply
            earned = [rewards(sample) for sample in samples if sample.reply is reply]
            head = " · ".join([head, *(earned or ["earns nothing"])])
        entries.append((head, reply.text, pre(reply.text) + _fold("what it read", _messages(reply.turn))))
    return _folded(entries)


def outcome(outcome: Outcome) -> Shown:
    """Show an episode's end: its facts as a table, then every sample with its reward and group."""
    facts = [(str(name), f"{v:.4g}" if isinstance(v, float) else str(v)) for name, v in outcome.facts.items()]
    entries = []
    for sample in outcome.samples:
        head, group = f"{_says(sample.reply)} · {rewards(sample)}", str(sample.group)
        if sample.group is not None:
            head += f" · group {group if len(group) <= 60 else group[:59] + '…'}"
        entries.append((head, sample.reply.text, pre(sample.reply.text)))
    shown = _folded(entries)
    text = "\n".join([*(visible(f"{name}: {fact}") for name, fact in facts), shown.text])
    return Shown(table((name, element("code", fact)) for name, fact in facts) + shown.html, text)


def credit(sample: Sample, advantages: Sequence[float]) -> Shown:
    """Show a sample's text as a heat map of one value per token; hovering a token tells its id and value.

    Blue pays, orange costs, and every run of equal sign starts with + or - (0 where nothing is paid).
    """
    reply, peak = sample.reply, max(map(abs, advantages), default=0.0) or 1.0

    def mark(number: int, value: float) -> Mark:
        sign = "+" if value > 0 else "-" if value < 0 else "0"
        colour = f"rgba({NEGATIVE if value < 0 else POSITIVE},{0.6 * abs(value) / peak:.2f})"
        title = f"token {number}, id {reply.ids[number]}, credit {signed(value)}"
        return sign, f"background-color:{colour}", title

    parts, text = [], ""
    for sign, spans, said in runs(reply, advantages, mark):
        parts += [element("sup", str(sign)), *spans]
        text += f"[{sign}]{said}"
    head = f"{_says(reply)} · {rewards(sample)} · full colour is {peak:.3g}"
    return _folded([(head, text, element("pre", *parts, style=PRE))])


def legend(samples: Sequence[Sample]) -> dict[str, str]:
    """Give every segment its colour, in order of appearance."""
    names = dict.fromkeys(name for sample in samples for name in segments(sample))
    return {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}


def paid(sample: Sample, advantages: Sequence[float | None], colours: Mapping[str, str] | None = None) -> Shown:
    """Show one reply with its segments coloured; hovering a token tells its segment, reward and advantage.

    Paid segments are filled, masked ones underlined, and tokens of no segment left plain. `advantages` holds one
    value per token, None where masked.
    """
    earned, owned, shades = segments(sample), owners(sample), colours or legend([sample])

    def mark(number: int, advantage: float | None) -> Mark:
        name, style, note = owned[number], "", "no segment"
        if name is not None:
            style = (MASKED if earned[name] is None else PAID).format(shades[name])
            note = f"{name or WHOLE}, reward {signed(earned[name])}"
        return name, style, f"token {number}: {note}, advantage {signed(advantage)}"

    parts, text = [], ""
    for name, spans, said in runs(sample.reply, advantages, mark):
        parts += spans
        text += said if name is None else f"[{name or WHOLE} {signed(earned[name])}: {said}]"
    return Shown(element("pre", *parts, style=PRE), visible(text).replace("\n", "\n    "))


def conversation(samples: Sequence[Sample], advantages: Sequence[Sequence[float | None]], title: str = "") -> Shown:
    """Show a conversation as a table: a row per agent, a column per round, and every token's segment as in `paid`.

    `samples` are one conversation's, agent by agent, each with one reply per round. ValueError for another number
    of lists of advantages than samples.
    """
    if len(advantages) != len(samples):
        raise ValueError(f"advantages must hold one list per sample: {len(samples)} samples, {len(advantages)} lists")
    colours, rounds = legend(samples), list(dict.fromkeys(sample.role for sample in samples))
    rows, text = [["agent", *rounds]], [visible(title)] if title else []
    for number, (sample, values) in enumerate(zip(samples, advantages, strict=True)):
        agent, first = divmod(number, len(rounds))
        if first == 0:
            rows.append([str(agent)])
        view = paid(sample, values, colours)
        rows[-1].append(Markup(element("code", rewards(sample)) + view.html))
        text.append(visible(f"agent {agent}, {sample.role}: {rewards(sample)}\n    ") + view.text)
    marks = [element("span", name or WHOLE, style=PAID.format(colour)) for name, colour in colours.items()]
    caption = element("p", title) if title else ""
    return Shown(caption + element("p", Markup(" ".join(marks))) + table(rows), "\n".join(text))


def runs(
    reply: Reply, advantages: Sequence[Any], mark: Callable[[int, Any], Mark]
) -> Iterator[tuple[str | None, list[Markup], str]]:
    """Yield (label, spans, text) for every run of tokens of one label.

    `mark` returns (label, style, title) of a token, given where it stands and what its advantage is. A token that
    completes no character gets a sign that stands for it. ValueError for another number of advantages than tokens.
    """
    if not len(advantages) == len(reply.ids) == len(reply.ends):
        raise ValueError(f"advantages must hold one per token: {len(reply.ids)} tokens, {len(advantages)} values")
    pieces = [reply.text[start:end] or EMPTY for start, end in zip((0, *reply.ends), reply.ends, strict=False)]
    marks = [mark(number, value) for number, value in enumerate(advantages)]
    for label, run in groupby(zip(marks, pieces, strict=True), key=lambda token: token[0][0]):
        tokens = list(run)
        spans = [element("span", piece, title=title, style=style) for (_, style, title), piece in tokens]
        yield label, spans, "".join(piece for _, piece in tokens)


def rewards(sample: Sample) -> str:
    """Return what a sample earned, by segment where it is paid by segment."""
    return "reward " + ", ".join(f"{name} {signed(value)}".strip() for name, value in segments(sample).items())


def signed(value: float | None) -> str:
    """Return a reward or an advantage as text; None is masked."""
    return "masked" if value is None else f"{value:+.3g}"


def pre(text: str) -> Markup:
    """Return text as it is: inside <pre> and <code> a notebook page does not typeset $...$ as mathematics."""
    return element("pre", text or EMPTY, style=PRE)


def _says(reply: Reply) -> str:
    size = f"{len(reply.ids)} tokens" + ("" if reply.finished else ", cut off")
    return f"{reply.turn.role} · policy {reply.turn.policy} · {size}"


def _messages(turn: Turn) -> str:
    return "".join(element("b", message["role"]) + pre(message["content"]) for message in turn.messages)


def _fold(head: str, body: str, is_open: bool = False) -> Markup:
    summary = element("summary", element("code", head))
    return element("details", summary, Markup(body), open="open" if is_open else "")


def _folded(entries: Sequence[tuple[str, str, str]]) -> Shown:
    """Show entries one below the other, the first one open: a heading, text, and the HTML to unfold."""
    folds = [_fold(head, body, is_open=number == 0) for number, (head, _, body) in enumerate(entries)]
    texts = ["\n    ".join([head, *text.split("\n")]) for head, text, _ in entries]
    return Shown(element("div", *folds), visible("\n\n".join(texts)))
