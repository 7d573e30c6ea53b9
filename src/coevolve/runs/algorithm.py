"""The algorithm of each paper in about ten lines, for a reader who follows it turn by turn.

The lines lie beside the method, in algorithm.txt: a line per step, with its place in the paper
after a bar.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from coevolve.runs.show import Shown, element
from coevolve.validation import check_choice

METHODS = Path(__file__).parents[1] / "methods"
NAME = "algorithm.txt"
HERE = "▶"
CELL_STYLE = "text-align:left;padding:0.1em 0.6em;border:none"
QUIET_STYLE = "opacity:0.75"
CURRENT_STYLE = "background-color:rgba(0,114,178,0.18)"


@dataclass(frozen=True)
class Step:
    """A line of an algorithm."""

    text: str
    place: str
    """Where the paper has it: lines of its Algorithm 1, an equation or a section."""


def papers() -> list[str]:
    """Return the papers that have an algorithm here."""
    return sorted(path.parent.name for path in METHODS.glob(f"*/{NAME}"))


def read(paper: str) -> list[Step]:
    """Return the steps of a paper's algorithm; ValueError for an unknown paper."""
    check_choice("paper", paper, papers())
    text = (METHODS / paper / NAME).read_text(encoding="utf-8")
    steps = []
    for line in text.splitlines():
        what, _, place = line.rpartition(" | ")
        steps.append(Step(what, place))
    return steps


def show(paper: str, *current: int) -> Shown:
    """Show a paper's algorithm; lines whose numbers, from 1, are in `current` are marked.

    Raises ValueError for an unknown paper or line.
    """
    steps = read(paper)
    numbers = range(1, len(steps) + 1)
    for number in current:
        check_choice("line", number, numbers)
    rows = []
    lines = []
    for number, step in zip(numbers, steps, strict=True):
        is_current = number in current
        mark = HERE if is_current else ""
        cells = [mark, str(number), step.text, step.place]
        rows.append(_row(cells, is_current, is_any_current=bool(current)))
        lines.append(f"{mark:1} {number:2}  {step.text}  ({step.place})")
    page = element("table", *rows)
    return Shown(str(page), "\n".join(lines))


def _row(cells: Sequence[str], is_current: bool, is_any_current: bool) -> Markup:
    style = ""
    if is_any_current:
        style = CURRENT_STYLE if is_current else QUIET_STYLE
    made = [element("td", cell, style=CELL_STYLE) for cell in cells]
    return element("tr", *made, style=style)
