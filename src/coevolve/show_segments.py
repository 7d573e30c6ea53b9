"""Who was paid for what, token by token: a conversation as a grid of segments, for notebooks and terminals.

As `show`: only tags and inline styles that an untrusted notebook keeps, no text colour, all text escaped.
"""

from collections.abc import Mapping, Sequence

from coevolve.credit import owners, segments
from coevolve.show import PRE, Mark, Markup, Shown, element, rewards, runs, signed, table, visible
from coevolve.types import Sample

COLOURS = ("0,114,178", "230,159,0", "0,158,115", "204,121,167", "86,180,233", "213,94,0")  # Okabe and Ito
PAID, MASKED = "background-color:rgba({},0.35)", "border-bottom:2px dotted rgba({},0.9)"
WHOLE = "whole reply"  # what a segment without a name is called


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
