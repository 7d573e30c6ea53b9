"""Turns, replies, outcomes and token credit as HTML, Markdown and plain text for notebooks and terminals.

Uses only tags and inline styles that JupyterLab keeps in an untrusted notebook, and sets no text colour: it
reads on light and dark pages. All text that a model wrote goes through `escape`. Knows no model, no paper.
"""

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from coevolve.types import Outcome, Reply, Reward, Sample, Turn

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


def visible(text: str) -> str:
    r"""Spell out every character that is not printable (`\x1b`, `\u202e`), except line feed and tab."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode("ascii") for c in text)


def escape(text: object) -> str:
    """Return text that HTML shows literally, in elements and attributes, with hidden characters visible."""
    return html.escape(visible(str(text)), quote=True)


def fenced(text: str) -> str:
    """Wrap text in a Markdown code fence longer than any run of backticks inside it."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{visible(text)}\n{fence}"


def turns(turns: Sequence[Turn]) -> Shown:
    """Show what each role will read, one fold per turn with the first one open."""
    folds = [_fold(_asks(turn), _messages(turn), i == 0) for i, turn in enumerate(turns)]
    texts = [f"{visible(_asks(turn))}\n{_indent(_prompt(turn))}" for turn in turns]
    return Shown(_block(folds), "\n\n".join(texts))


def replies(
    replies: Sequence[Reply],
    samples: Sequence[Sample] | None = None,
    advantages: Sequence[Sequence[float]] | None = None,
) -> Shown:
    """Show what was said, one fold per reply: who spoke, what it earned, its mean advantage, its length.

    `samples` are matched to replies by identity; `advantages` holds one list of token values per sample.
    """
    earned = list(samples or [])
    if advantages is not None and len(advantages) != len(earned):
        raise ValueError(f"advantages must hold one list per sample: {len(earned)} samples, {len(advantages)} lists")
    rows = []
    for reply in replies:
        mine = [i for i, sample in enumerate(earned) if sample.reply is reply]
        notes = [_says(reply)]
        for i in mine:
            notes.append(f"reward {_reward(earned[i].reward)}")
            if advantages is not None and advantages[i]:
                notes.append(f"advantage {signed(sum(advantages[i]) / len(advantages[i]))}")
        if samples is not None and not mine:
            notes.append("earns nothing")
        rows.append((" · ".join(notes), reply))
    folds = [_fold(head, _pre(reply.text) + _read(reply), i == 0) for i, (head, reply) in enumerate(rows)]
    return Shown(_block(folds), "\n\n".join(f"{visible(head)}\n{_indent(reply.text)}" for head, reply in rows))


def outcome(outcome: Outcome) -> Shown:
    """Show an episode's end: its facts as a table, then every sample with its reward and group."""
    facts = [(str(name), _fact(value)) for name, value in outcome.facts.items()]
    heads = [
        f"{_says(sample.reply)} · reward {_reward(sample.reward)}"
        + ("" if sample.group is None else f" · group {_short(str(sample.group))}")
        for sample in outcome.samples
    ]
    pairs = list(zip(heads, outcome.samples, strict=True))
    folds = [_fold(head, _pre(sample.reply.text)) for head, sample in pairs]
    cells = "".join(
        f'<tr><th style="{CELL}">{escape(name)}</th><td style="{CELL}"><code>{escape(fact)}</code></td></tr>'
        for name, fact in facts
    )
    table = f"<table>{cells}</table>" if cells else ""
    lines = [visible(f"{name}: {fact}") for name, fact in facts]
    lines += [f"{visible(head)}\n{_indent(sample.reply.text)}" for head, sample in pairs]
    return Shown(_block([table, *folds]), "\n".join(lines))


def credit(sample: Sample, values: Sequence[float]) -> Shown:
    """Show a sample's text as a heat map of one value per token; hovering a token tells its id and value.

    Blue pays, orange costs, and every run of equal sign starts with + or - (0 where nothing is paid).
    """
    reply = sample.reply
    if not len(values) == len(reply.ids) == len(reply.ends):
        raise ValueError(f"values must hold one number per token: {len(reply.ids)} tokens, {len(values)} values")
    peak = max((abs(value) for value in values), default=0.0) or 1.0
    starts = (0, *reply.ends[:-1]) if reply.ends else ()
    tokens = list(enumerate(zip(starts, reply.ends, reply.ids, values, strict=True)))
    spans, text = [], []
    for sign, run in groupby(tokens, key=lambda token: _sign(token[1][3])):
        spans.append(f"<sup>{sign}</sup>")
        text.append(f"[{sign}]")
        for index, (start, end, token_id, value) in run:
            piece = reply.text[start:end] or EMPTY
            colour = f"rgba({NEGATIVE if value < 0 else POSITIVE},{0.6 * abs(value) / peak:.2f})"
            title = escape(f"token {index}, id {token_id}, credit {signed(value)}")
            spans.append(f'<span title="{title}" style="background-color:{colour}">{escape(piece)}</span>')
            text.append(visible(piece))
    head = f"{_says(reply)} · reward {_reward(sample.reward)} · full colour is {peak:.3g}"
    body = f'<pre style="{PRE}">{"".join(spans)}</pre>'
    return Shown(_block([_fold(head, body, True)]), f"{visible(head)}\n{_indent(''.join(text))}")


def _sign(value: float) -> str:
    return "+" if value > 0 else "-" if value < 0 else "0"


def signed(value: float | None) -> str:
    """A reward or an advantage as text; None is masked."""
    return "masked" if value is None else f"{value:+.3g}"


def _reward(reward: Reward) -> str:
    if not isinstance(reward, Mapping):
        return signed(reward)
    return ", ".join(f"{tag} {signed(value)}" for tag, value in reward.items())


def _fact(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"


def _asks(turn: Turn) -> str:
    limits = [f"temperature {turn.temperature:g}"] if turn.temperature is not None else []
    limits += [f"at most {turn.max_tokens} tokens"] if turn.max_tokens is not None else []
    return " · ".join([turn.role, f"policy {turn.policy}", *limits])


def _says(reply: Reply) -> str:
    size = f"{len(reply.ids)} tokens" + ("" if reply.finished else ", cut off")
    return f"{reply.turn.role} · policy {reply.turn.policy} · {size}"


def _prompt(turn: Turn) -> str:
    return "\n".join(f"{message['role']}: {message['content']}" for message in turn.messages)


def _messages(turn: Turn) -> str:
    return "".join(f"<b>{escape(m['role'])}</b>{_pre(m['content'])}" for m in turn.messages)


def _read(reply: Reply) -> str:
    return _fold("what it read", _messages(reply.turn))


def _pre(text: str) -> str:
    # Inside <pre> and <code> a notebook page does not typeset $...$ as mathematics.
    return f'<pre style="{PRE}">{escape(text) or EMPTY}</pre>'


def _fold(head: str, body: str, is_open: bool = False) -> str:
    return f"<details{' open' if is_open else ''}><summary><code>{escape(head)}</code></summary>{body}</details>"


def _block(parts: Sequence[str]) -> str:
    return f"<div>{''.join(parts)}</div>"


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in visible(text).split("\n"))
