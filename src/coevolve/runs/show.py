"""Turns, replies, outcomes, conversations and token credit, as HTML and as plain text.

The HTML uses only tags and inline styles that JupyterLab keeps in an untrusted notebook. It sets no
text colour, so it is legible on light and dark pages. `element` escapes all text. Knows no model
and no paper.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from coevolve.advantages.segments import owners, segments
from coevolve.types import Outcome, Reply, Sample, Turn

Advantages = Sequence[float | None]  # one per token; None is masked

WRAP_STYLE = "white-space:pre-wrap;overflow-wrap:break-word"
PRE_STYLE = f"{WRAP_STYLE};margin:0.3em 0 0.6em 1em"
CELL_STYLE = (
    "text-align:left;vertical-align:top;padding:0.3em 0.6em;"
    "border:1px solid rgba(128,128,128,0.4);max-width:30em"
)
MASKED_STYLE = "border-bottom:2px dotted rgba(128,128,128,0.9)"
BLUE = "0,114,178"  # positive advantages
ORANGE = "213,94,0"  # negative advantages
CHIP_STYLE = "padding:0 0.3em;border-radius:0.3em;background-color:rgba({colour},0.25)"
GREEN = "0,158,115"  # correct
RED = "213,54,0"  # wrong
BAR_STYLE = (
    "display:inline-block;height:0.7em;margin-right:0.4em;"
    "background-color:rgba(0,114,178,0.6);width:{width:.2f}em"
)
BAR_WIDTH = 4.0  # of a reward of 1, in em
CORRECT = "✓"
WRONG = "✗"
SEPARATOR = " · "  # of the parts of a head
SHORT = 100  # characters of a text that is shown next to its speaker
NO_CHARACTER = "▯"  # shown for an empty text and for tokens that complete no character, such as EOS


@dataclass(frozen=True, repr=False)
class Shown:
    """A view of something: HTML in notebooks, plain text elsewhere."""

    html: str
    text: str

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class _Entry:
    """A turn with its reply's text (None before the reply) and remarks about it."""

    turn: Turn
    text: str | None
    remarks: list[str]


def visible(text: str) -> str:
    r"""Escape all unprintable characters (`\x1b`, `\u202e`) except line feed and tab."""
    characters = []
    for character in text:
        if character.isprintable() or character in "\n\t":
            characters.append(character)
        else:
            escaped = character.encode("unicode_escape")
            characters.append(escaped.decode("ascii"))
    return "".join(characters)


def element(name: str, *content: str, **attributes: str) -> Markup:
    """Return an HTML element. Content is escaped unless it is Markup, attributes always.

    Attributes with an empty value are left out.
    """
    attribute_text = ""
    for key, value in attributes.items():
        if value:
            attribute_text += f' {key}="{escape(visible(value))}"'
    inside = Markup("").join(_as_html(part) for part in content)
    return Markup(f"<{name}{attribute_text}>{inside}</{name}>")


def _as_html(content: str) -> Markup:
    if isinstance(content, Markup):
        return content
    return escape(visible(content))


def table(rows: Iterable[Sequence[str]]) -> Markup:
    """Return an HTML table."""
    table_rows = []
    for row in rows:
        cells = [element("td", cell, style=CELL_STYLE) for cell in row]
        table_rows.append(element("tr", *cells))
    return element("table", *table_rows)


def mark(is_correct: bool | None) -> str:
    """Return an oracle's verdict as text, which `replies` colours; "" if there is none."""
    if is_correct is None:
        return ""
    return f"{CORRECT} correct" if is_correct else f"{WRONG} wrong"


def records(rows: Iterable[Mapping[str, object]], bars: Collection[str] = ()) -> Shown:
    """Show rows with the same keys as a table with a head.

    True and False become a green tick and a red cross, None an empty cell, and floats have two
    digits. Numbers of the columns in `bars` also have a bar, whose full length is 1.
    """
    page: list[str] = []
    lines: list[str] = []
    for row in rows:
        if not page:
            head = [element("th", name, style=CELL_STYLE) for name in row]
            page.append(element("tr", *head))
            lines.append(" | ".join(row))
        cells = []
        for name, value in row.items():
            content = _cell(value, has_bar=name in bars)
            cells.append(element("td", *content, style=f"{CELL_STYLE};{WRAP_STYLE}"))
        page.append(element("tr", *cells))
        lines.append(" | ".join(_plain(value) for value in row.values()))
    return Shown(str(element("table", *page)), visible("\n".join(lines)))


def _cell(value: object, has_bar: bool) -> list[str]:
    """Return the content of a cell of `records`."""
    if isinstance(value, bool):
        return [_chip(mark(value))]
    text = _plain(value)
    if has_bar and isinstance(value, int | float):
        width = BAR_WIDTH * max(value, 0)
        return [element("span", style=BAR_STYLE.format(width=width)), text]
    return [text]


def _plain(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return mark(value)
    if isinstance(value, float):
        return f"{value:.2f}"
    return str(value)


def _chip(text: str) -> Markup:
    """Return a verdict on a ground of its colour; other text as it is."""
    if text.startswith(CORRECT):
        return element("span", text, style=CHIP_STYLE.format(colour=GREEN))
    if text.startswith(WRONG):
        return element("span", text, style=CHIP_STYLE.format(colour=RED))
    return _as_html(text)


def turns(asked: Sequence[Turn]) -> Shown:
    """Show the prompt of each turn: a short one at once, a longer one folded."""
    return _show_entries([_Entry(turn, None, _limits(turn)) for turn in asked])


def replies(
    said: Sequence[Reply],
    samples: Sequence[Sample] | None = None,
    notes: Sequence[str] = (),
) -> Shown:
    """Show replies, short ones at once and longer ones folded, each with its prompt below it.

    If `samples` are given, each reply's reward is shown too. `notes` are remarks, one per reply,
    for example an oracle's verdicts (see `mark`), which are coloured.
    """
    entries = []
    for i, reply in enumerate(said):
        remarks = [note for note in notes[i : i + 1] if note]
        remarks.append(_size(reply))
        if samples is not None:
            # Matched by identity: two replies may be equal and have different rewards.
            earned = [rewards(sample) for sample in samples if sample.reply is reply]
            remarks += earned or ["earns nothing"]
        entries.append(_Entry(reply.turn, reply.text, remarks))
    return _show_entries(entries)


def outcome(result: Outcome) -> Shown:
    """Show an episode's outcome: its facts by name, then each sample with its reward."""
    rows = []
    lines = []
    for name, value in sorted(result.facts.items()):
        fact = _format_fact(value)
        rows.append([str(name), element("code", fact)])
        lines.append(visible(f"{name}: {fact}"))
    earned = replies([sample.reply for sample in result.samples], result.samples)
    page = str(table(rows)) + earned.html
    return Shown(page, "\n".join([*lines, earned.text]))


def credit(sample: Sample, advantages: Advantages) -> Shown:
    """Show a sample's text as a heat map of one advantage per token, with tooltips for values.

    Positive tokens are blue, negative ones orange, masked ones (None) have a dotted line. Each run
    of tokens starts with its segment, if the sample's reward has segments, and with +, - or 0.
    Raises ValueError for another number of advantages, or of the reply's `char_ends`, than of
    tokens.
    """
    reply = sample.reply
    token_count = len(reply.completion_ids)
    if len(advantages) != token_count:
        raise ValueError(
            f"advantages must hold one per token: {token_count} tokens, {len(advantages)} values"
        )
    if len(reply.char_ends) != token_count:
        raise ValueError(
            "char_ends of the reply must hold one per token: "
            f"{token_count} tokens, {len(reply.char_ends)} values"
        )
    peak = max((abs(value) for value in advantages if value), default=1.0)
    spans = []
    text = ""
    start = 0
    last_label = None
    for i, segment in enumerate(owners(sample)):
        advantage = advantages[i]
        label = _label(segment, advantage)
        if label != last_label:
            spans.append(element("sup", label))
            text += f"[{label}]"
            last_label = label
        end = reply.char_ends[i]
        piece = reply.text[start:end] or NO_CHARACTER
        start = end
        title = f"token {i}, id {reply.completion_ids[i]}, credit {signed(advantage)}"
        style = _token_style(advantage, peak)
        spans.append(element("span", piece, title=title, style=style))
        text += piece
    summary = [
        speaker_of(reply.turn),
        _size(reply),
        rewards(sample),
        f"full colour is {peak:.3g}",
    ]
    head = SEPARATOR.join(summary)
    heat_map = element("pre", *spans, style=PRE_STYLE)
    fold = _fold(head, heat_map, is_open=True)
    lines = [head, *text.split("\n")]
    page = element("div", fold)
    return Shown(str(page), visible("\n    ".join(lines)))


def conversation(
    samples: Sequence[Sample],
    advantages: Sequence[Advantages],
    title: str = "",
) -> Shown:
    """Show a conversation as a table: a row per agent, a column per round, cells as in `credit`.

    `samples` are one conversation's, agent by agent, each with one reply per round. Raises
    ValueError for another number of lists of advantages than of samples.
    """
    if len(advantages) != len(samples):
        raise ValueError(
            "advantages must hold one list per sample: "
            f"{len(samples)} samples, {len(advantages)} lists"
        )
    rounds = list(dict.fromkeys(sample.role for sample in samples))
    rows = [["agent", *rounds]]
    texts = [visible(title)]
    credits = list(map(credit, samples, advantages))
    round_count = len(rounds)
    starts = range(0, len(credits), max(round_count, 1))
    for agent, start in enumerate(starts):
        row = [str(agent)]
        for shown in credits[start : start + round_count]:
            row.append(Markup(shown.html))
            texts.append(f"agent {agent}, {shown.text}")
        rows.append(row)
    page = element("p", title) + table(rows)
    return Shown(str(page), "\n".join(texts).strip())


def rewards(sample: Sample) -> str:
    """Return a sample's reward as text, by segment if it has several."""
    amounts = [
        f"{name} {signed(value)}".strip() for name, value in segments(sample).items()
    ]
    text = "reward " + ", ".join(amounts)
    if sample.parts:
        parts = [f"{name} {signed(value)}" for name, value in sample.parts.items()]
        text += f" ({', '.join(parts)})"
    return text


def signed(value: float | None) -> str:
    """Return a reward or an advantage with its sign; None is masked."""
    return "masked" if value is None else f"{value:+.3g}"


def pre(text: str) -> Markup:
    """Return text verbatim: notebooks do not typeset $...$ as mathematics inside <pre>."""
    return element("pre", text or NO_CHARACTER, style=PRE_STYLE)


def speaker_of(turn: Turn) -> str:
    """Return a turn's role, with its policy unless that is the one that all roles share."""
    if turn.policy == Turn.policy:
        return turn.role
    return f"{turn.role} ({turn.policy})"


def _limits(turn: Turn) -> list[str]:
    limits = []
    if turn.temperature is not None:
        limits.append(f"temperature {turn.temperature:g}")
    if turn.max_tokens is not None:
        limits.append(f"at most {turn.max_tokens} tokens")
    return limits


def _size(reply: Reply) -> str:
    size = f"{len(reply.completion_ids)} tokens"
    return size if reply.finished else f"{size}, cut off"


def _format_fact(value: object) -> str:
    """Return a fact as text: floats rounded, lists item by item, a dash for None."""
    if isinstance(value, list | tuple):
        return ", ".join(_format_fact(item) for item in value)
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{round(value, 3):g}"
    return str(value)


def _label(segment: str | None, advantage: float | None) -> str:
    """Return the label at the start of a run of tokens: its segment, if any, and its sign."""
    if segment is None:
        return "no segment"
    if advantage is None:
        sign = "masked"
    elif advantage:
        sign = signed(advantage)[0]
    else:
        sign = "0"
    return f"{segment} {sign}".strip()


def _token_style(advantage: float | None, peak: float) -> str:
    """Return a token's inline style; an advantage of `peak` has the full colour."""
    if advantage is None:
        return MASKED_STYLE
    colour = ORANGE if advantage < 0 else BLUE
    opacity = 0.6 * abs(advantage) / peak
    return f"background-color:rgba({colour},{opacity:.2f})"


def _fold(head: str, body: Markup, is_open: bool) -> Markup:
    parts = Markup(SEPARATOR).join(map(_chip, head.split(SEPARATOR)))
    summary = element("summary", element("code", parts))
    return element("details", summary, body, open="open" if is_open else "")


def _show_entries(entries: Sequence[_Entry]) -> Shown:
    """Show entries one below the other; a long first one is unfolded.

    Speakers with several entries are numbered. An entry without a reply shows its prompt.
    """
    folds = []
    lines = []
    labels = _numbered_speakers(entries)
    for i, entry in enumerate(entries):
        prompt = _prompt_html(entry.turn)
        text = entry.text
        if text is None:
            text = _prompt_text(entry.turn)
        is_short = len(text) <= SHORT and "\n" not in text
        label = labels[i]
        if is_short:
            label = f"{label}: {text or NO_CHARACTER}"
        head = SEPARATOR.join([label, *entry.remarks])
        lines.append(head)
        if not is_short:
            lines += [f"    {line}" for line in text.split("\n")]
        body = prompt
        if entry.text is not None and not is_short:
            body = pre(text) + _fold("what it read", prompt, is_open=False)
        is_open = i == 0 and not is_short
        folds.append(_fold(head, body, is_open))
    page = element("div", *folds)
    return Shown(str(page), visible("\n".join(lines)))


def _numbered_speakers(entries: Sequence[_Entry]) -> list[str]:
    speakers = [speaker_of(entry.turn) for entry in entries]
    totals = Counter(speakers)
    numbers: Counter[str] = Counter()
    labels = []
    for speaker in speakers:
        total = totals[speaker]
        numbers[speaker] += 1
        if total == 1:
            labels.append(speaker)
        else:
            labels.append(f"{speaker} {numbers[speaker]} of {total}")
    return labels


def _prompt_text(turn: Turn) -> str:
    return "\n".join(message["content"] for message in turn.messages)


def _prompt_html(turn: Turn) -> Markup:
    return Markup("").join(
        element("b", message["role"]) + pre(message["content"])
        for message in turn.messages
    )
