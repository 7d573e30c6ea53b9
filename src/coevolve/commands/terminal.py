"""Text on a terminal: colours where they can be seen, and lines that fit its width."""

import os
import shutil
import textwrap

import typer

GOOD = "green"
BAD = "red"
NAME = "cyan"
QUIET = "bright_black"
MIN_WIDTH = 40
MAX_WIDTH = 110


def styled(text: str, colour: str = "", bold: bool = False) -> str:
    """Return text with the codes of a colour; `show` drops them where they cannot be seen."""
    return typer.style(text, fg=colour or None, bold=bold or None)


def show(text: str = "", to_stderr: bool = False) -> None:
    """Print text; without colours if the output is no terminal or NO_COLOR is set."""
    colour = (
        False if os.environ.get("NO_COLOR") else None
    )  # None: typer asks the stream
    typer.echo(text, err=to_stderr, color=colour)


def width() -> int:
    """Return the number of columns to print on."""
    columns = shutil.get_terminal_size((MAX_WIDTH, 24)).columns
    return max(MIN_WIDTH, min(columns, MAX_WIDTH))


def wrapped(text: str, indent: int) -> list[str]:
    """Return text in lines that leave `indent` columns free; line feeds of the text stay."""
    lines = []
    for paragraph in text.split("\n"):
        lines += textwrap.wrap(paragraph, width() - indent) or [""]
    return lines
