"""Turns, replies, outcomes and token credit as HTML, Markdown and plain text for notebooks and terminals.

Uses only tags and inline styles that JupyterLab keeps in an untrusted notebook, and sets no text colour: it
reads on light and dark pages. All text goes into a page through `element`, which escapes it. Knows no model, no paper.
"""

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from coevolve.segments import segments
from coevolve.types import Outcome, Reply, Sample, Turn

PRE = "white-space:pre-wrap;overflow-wrap:break-word;margin:0.3em 0 0.6em 1em"
CELL = "text-align:left;vertical-align:top;padding:0.1em 0.8em"
POSITIVE, NEGATIVE = "0,114,178", "213,94,0"
EMPTY = "▯"  # stands for a token that completes no character, such as the end token


@dataclass(frozen=True, repr=False)
class Shown:
    """Something to look at: HTML for notebooks, Markdown and plain text elsewhere."""

    html: str
    text: str

    def _repr_html_(self) -> str:
        return self.html

    def _repr_markdown_(self) -> str:
        return fenced(self.text)

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


def fenced(text: str) -> str:
    """Wrap text in a Markdown code fence longer than any run of backticks inside it."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{visible(text)}\n{fence}"


def turns(turns: Sequence[Turn]) -> Shown:
    """Show what each role will read, one fold per turn with the first one open."""
    entries = []
    for turn in turns:
        notes = [turn.role, f"policy {turn.policy}"]
        notes += [f"temperature {turn.temperature:g}"] if turn.temperature is not None else []
        notes += [f"at most {turn.max_tokens} tokens"] if turn.max_tokens is not None else []
        text = "\n".join(f"{message['role']}: {message['content']}" for message in turn.messages)
        entries.append((" · ".join(notes), text, _messages(turn)))
    return _folded(entries)


def replies(
    replies: Sequence[Reply],
    samples: Sequence[Sample] | None = None,
    advantages: Sequence[Sequence[float]] | None = None,
) -> Shown:
    """Show what was said, one fold per reply: who spoke, what it earned, its mean advantage, its length.

    `samples` are matched to replies by identity; `advantages` holds one list of token values per sample.
    """
    earned = list(zip(samples or (), per_sample(samples or (), advantages), strict=True))
    entries = []
    for reply in replies:
        notes = []
        for sample, values in earned:
            if sample.reply is reply:
                notes += [rewards(sample), *([f"advantage {signed(sum(values) / len(values))}"] if values else [])]
        if samples is not None and not notes:
            notes = ["earns nothing"]
        body = pre(reply.text) + _fold("what it read", _messages(reply.turn))
        entries.append((" · ".join([_says(reply), *notes]), reply.text, body))
    return _folded(entries)


def outcome(outcome: Outcome) -> Shown:
    """Show an episode's end: its facts as a table, then every sample with its reward and group."""
    facts = {str(name): f"{v:.4g}" if isinstance(v, float) else str(v) for name, v in outcome.facts.items()}
    lines = [
        element("tr", element("th", name, style=CELL), element("td", element("code", fact), style=CELL))
        for name, fact in facts.items()
    ]
    entries = []
    for sample in outcome.samples:
        group = str(sample.group) if len(str(sample.group)) <= 60 else f"{str(sample.group)[:59]}…"
        notes = [_says(sample.reply), rewards(sample)] + ([] if sample.group is None else [f"group {group}"])
        entries.append((" · ".join(notes), sample.reply.text, pre(sample.reply.text)))
    shown = _folded(entries, first_open=False)
    text = "\n".join([*(visible(f"{name}: {fact}") for name, fact in facts.items()), shown.text])
    return Shown(element("div", *([element("table", *lines)] if lines else []), Markup(shown.html)), text)


def credit(sample: Sample, values: Sequence[float]) -> Shown:
    """Show a sample's text as a heat map of one value per token; hovering a token tells its id and value.

    Blue pays, orange costs, and every run of equal sign starts with + or - (0 where nothing is paid).
    """
    reply = sample.reply
    if not len(values) == len(reply.ids) == len(reply.ends):
        raise ValueError(f"values must hold one number per token: {len(reply.ids)} tokens, {len(values)} values")
    peak = max(map(abs, values), default=0.0) or 1.0
    marked, text = [], ""
    tokens = enumerate(zip(reply.ids, token_texts(reply), values, strict=True))
    for sign, run in groupby(tokens, key=lambda token: "+" if token[1][2] > 0 else "-" if token[1][2] < 0 else "0"):
        marked.append(element("sup", sign))
        text += f"[{sign}]"
        for index, (token_id, piece, value) in run:
            colour = f"rgba({NEGATIVE if value < 0 else POSITIVE},{0.6 * abs(value) / peak:.2f})"
            title = f"token {index}, id {token_id}, credit {signed(value)}"
            marked.append(element("span", piece, title=title, style=f"background-color:{colour}"))
            text += piece
    head = f"{_says(reply)} · {rewards(sample)} · full colour is {peak:.3g}"
    return _folded([(head, text, element("pre", *marked, style=PRE))])


def per_sample(samples: Sequence[Sample], advantages: Sequence[Sequence] | None) -> Sequence[Sequence | None]:
    """Return the advantages of every sample, or None for each; ValueError for another number of lists."""
    if advantages is None:
        return [None] * len(samples)
    if len(advantages) != len(samples):
        raise ValueError(f"advantages must hold one list per sample: {len(samples)} samples, {len(advantages)} lists")
    return advantages


def token_texts(reply: Reply) -> list[str]:
    """Return the characters that each token completes, a mark for a token that completes none."""
    starts = (0, *reply.ends[:-1])
    return [reply.text[start:end] or EMPTY for start, end in zip(starts, reply.ends, strict=False)]


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


def _messages(turn: Turn) -> Markup:
    return Markup("".join(element("b", m["role"]) + pre(m["content"]) for m in turn.messages))


def _fold(head: str, body: str, is_open: bool = False) -> Markup:
    summary = element("summary", element("code", head))
    return element("details", summary, Markup(body), open="open" if is_open else "")


def _folded(entries: Iterable[tuple[str, str, str]], first_open: bool = True) -> Shown:
    """Show entries one below the other: a heading, text, and the HTML to unfold."""
    folds, texts = [], []
    for number, (head, text, body) in enumerate(entries):
        folds.append(_fold(head, body, first_open and number == 0))
        texts.append("\n    ".join([head, *text.split("\n")]))
    return Shown(element("div", *folds), visible("\n\n".join(texts)))
