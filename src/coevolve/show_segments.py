"""Who was paid for what, token by token: a conversation as a grid of segments, for notebooks and terminals.

As `show`: only tags and inline styles that an untrusted notebook keeps, no text colour, all text escaped.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby

from coevolve.segments import owners, segments
from coevolve.show import PRE, Markup, Shown, element, per_sample, rewards, signed, token_texts, visible
from coevolve.types import Sample

COLOURS = ("0,114,178", "230,159,0", "0,158,115", "204,121,167", "86,180,233", "213,94,0")  # Okabe and Ito
CELL = "text-align:left;vertical-align:top;padding:0.3em 0.6em;border:1px solid rgba(128,128,128,0.4);max-width:22em"
WHOLE = "whole reply"  # what a segment without a name is called


def legend(samples: Sequence[Sample]) -> dict[str, str]:
    """Give every segment its colour, in order of appearance."""
    names = dict.fromkeys(name for sample in samples for name in segments(sample))
    return {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}


def paid(
    sample: Sample, advantages: Sequence[float | None] | None = None, colours: Mapping[str, str] | None = None
) -> Shown:
    """Show one reply with its segments coloured; hovering a token tells its segment, reward and advantage.

    Paid segments are filled, masked ones underlined, and tokens of no segment left plain. `advantages` holds one
    value per token, None where masked.
    """
    reply, earned, colours = sample.reply, segments(sample), colours or legend([sample])
    if not len(reply.ids) == len(reply.ends) == len(reply.ids if advantages is None else advantages):
        raise ValueError(f"advantages must hold one value per token: {len(reply.ids)} tokens")
    spans, text = [], ""
    tokens = enumerate(zip(owners(sample), token_texts(reply), strict=True))
    for name, run in groupby(tokens, key=lambda token: token[1][0]):
        style, note, said = "", "no segment", ""
        if name is not None:
            masked = earned[name] is None
            style = "border-bottom:2px dotted rgba({},0.9)" if masked else "background-color:rgba({},0.35)"
            note = f"{name or WHOLE}, reward {signed(earned[name])}"
        for number, (_, piece) in run:
            told = "" if advantages is None else f", advantage {signed(advantages[number])}"
            title = f"token {number}: {note}{told}"
            spans.append(element("span", piece, title=title, style=style.format(colours.get(name))))
            said += piece
        text += said if name is None else f"[{name or WHOLE} {signed(earned[name])}: {said}]"
    return Shown(element("pre", *spans, style=PRE), visible(text).replace("\n", "\n    "))


def conversation(
    samples: Sequence[Sample], advantages: Sequence[Sequence[float | None]] | None = None, title: str = ""
) -> Shown:
    """Show a conversation as a table: a row per agent, a column per round, and every token's segment as in `paid`.

    `samples` are one conversation's, agent by agent, each with one reply per round.
    """
    values, colours = per_sample(samples, advantages), legend(samples)
    rounds = list(dict.fromkeys(sample.role for sample in samples))
    head = [element("th", name, style=CELL) for name in ("agent", *rounds)]
    rows, text = [], [visible(title)] if title else []
    for first in range(0, len(samples), len(rounds)):
        agent = str(first // len(rounds))
        cells = [element("td", agent, style=CELL)]
        for sample, given in zip(
            samples[first : first + len(rounds)], values[first : first + len(rounds)], strict=True
        ):
            view = paid(sample, given, colours)
            cells.append(element("td", element("code", rewards(sample)), Markup(view.html), style=CELL))
            text.append(visible(f"agent {agent}, {sample.role}: {rewards(sample)}\n    ") + view.text)
        rows.append(element("tr", *cells))
    marks = [element("span", name or WHOLE, style=f"background-color:rgba({c},0.35)") for name, c in colours.items()]
    caption = [element("p", title)] if title else []
    table = element("table", element("tr", *head), *rows)
    return Shown(element("div", *caption, element("p", Markup(" ".join(marks))), table), "\n".join(text))
