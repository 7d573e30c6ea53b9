"""Who was paid for what, token by token: a conversation as a grid of segments, for notebooks and terminals.

As `show`: only tags and inline styles that an untrusted notebook keeps, no text colour, model text escaped.
"""

from collections.abc import Sequence
from itertools import groupby

from coevolve.segments import owners, segments
from coevolve.show import EMPTY, PRE, Shown, escape, signed, visible
from coevolve.types import Sample

COLOURS = ("0,114,178", "230,159,0", "0,158,115", "204,121,167", "86,180,233", "213,94,0")  # Okabe and Ito
CELL = "text-align:left;vertical-align:top;padding:0.3em 0.6em;border:1px solid rgba(128,128,128,0.4);max-width:22em"


def legend(samples: Sequence[Sample]) -> dict[str, str]:
    """Give every segment its colour, in order of appearance."""
    names = list(dict.fromkeys(name for sample in samples for name in segments(sample)))
    return {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}


def paid(
    sample: Sample, advantages: Sequence[float | None] | None = None, colours: dict[str, str] | None = None
) -> Shown:
    """Show one reply with its segments coloured; hovering a token tells its segment, reward and advantage.

    Paid segments are filled, masked ones underlined, and tokens of no segment left plain. `advantages` holds one
    value per token, None where masked.
    """
    rows, colours = _tokens(sample, advantages), colours or legend([sample])
    spans = []
    for _, name, text, note in rows:
        style = _style(name, sample, colours)
        spans.append(f'<span title="{escape(note)}"{style}>{escape(text or EMPTY)}</span>')
    return Shown(f'<pre style="{PRE}">{"".join(spans)}</pre>', _plain(sample, rows))


def conversation(
    samples: Sequence[Sample], advantages: Sequence[Sequence[float | None]] | None = None, title: str = ""
) -> Shown:
    """Show a conversation as a table: a row per agent, a column per round, and every token's segment as in `paid`.

    `samples` are one conversation's, agent by agent, each with one reply per round.
    """
    if advantages is not None and len(advantages) != len(samples):
        raise ValueError(f"advantages must hold one list per sample: {len(samples)} samples, {len(advantages)} lists")
    values = [None] * len(samples) if advantages is None else list(advantages)
    rounds = list(dict.fromkeys(sample.role for sample in samples))
    colours = legend(samples)
    marks = " ".join(
        f'<span style="background-color:rgba({colour},0.35)">{escape(name or "whole reply")}</span>'
        for name, colour in colours.items()
    )
    head = "".join(f'<th style="{CELL}">{escape(name)}</th>' for name in ("agent", *rounds))
    lines, text = [], [visible(title)] if title else []
    for agent in range(0, len(samples), len(rounds)):
        mine = list(zip(samples[agent : agent + len(rounds)], values[agent : agent + len(rounds)], strict=True))
        shown = [(_reward(sample), paid(sample, its, colours)) for sample, its in mine]
        number = agent // len(rounds)
        cells = "".join(f'<td style="{CELL}"><code>{escape(note)}</code>{view.html}</td>' for note, view in shown)
        lines.append(f'<tr><td style="{CELL}">{number}</td>{cells}</tr>')
        text += [
            f"agent {number}, {sample.role}: {note}\n    {view.text}"
            for (sample, _), (note, view) in zip(mine, shown, strict=True)
        ]
    caption = f"<p>{escape(title)}</p>" if title else ""
    return Shown(f"<div>{caption}<p>{marks}</p><table><tr>{head}</tr>{''.join(lines)}</table></div>", "\n".join(text))


def _tokens(sample: Sample, advantages: Sequence[float | None] | None) -> list[tuple[int, str | None, str, str]]:
    """Return (number, segment, text, note) of every token."""
    reply = sample.reply
    if not len(reply.ids) == len(reply.ends) == len(advantages if advantages is not None else reply.ids):
        raise ValueError(f"advantages must hold one value per token: {len(reply.ids)} tokens")
    starts, rewards, rows = (0, *reply.ends), segments(sample), []
    for i, name in enumerate(owners(sample)):
        reward = None if name is None else rewards[name]
        note = f"token {i}: " + ("no segment" if name is None else f"{name or 'whole reply'}, reward {signed(reward)}")
        if advantages is not None:
            note += f", advantage {signed(advantages[i])}"
        rows.append((i, name, reply.text[starts[i] : reply.ends[i]], note))
    return rows


def _style(name: str | None, sample: Sample, colours: dict[str, str]) -> str:
    if name is None:
        return ""
    if segments(sample)[name] is None:
        return f' style="border-bottom:2px dotted rgba({colours[name]},0.9)"'
    return f' style="background-color:rgba({colours[name]},0.35)"'


def _plain(sample: Sample, rows: Sequence[tuple[int, str | None, str, str]]) -> str:
    """The same as text: every segment in brackets with its reward."""
    rewards, parts = segments(sample), []
    for name, run in groupby(rows, key=lambda row: row[1]):
        said = visible("".join(text for _, _, text, _ in run))
        parts.append(said if name is None else f"[{name or 'whole reply'} {signed(rewards[name])}: {said}]")
    return "".join(parts).replace("\n", "\n    ")


def _reward(sample: Sample) -> str:
    return ", ".join(f"{name or 'reward'} {signed(value)}" for name, value in segments(sample).items())
