"""Writes a frame as CSV, Markdown and LaTeX so that no format interprets the text in it.

Does not know what the table says.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_float_dtype

from coevolve.runs.show import visible

LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
SIX_DIGITS = "%.6g"
# The start of a cell that a spreadsheet would evaluate. Signed numbers, alone or with an interval
# and a verdict, are not evaluated.
FORMULA = re.compile(r"[=@\t\r]|[+-](?!([\d.]+( \[[-+\d., ]*\])?( \([a-z ]+\))?)?$)")
MARKDOWN = re.compile(r"[|*`!$~]|\](?=[(\[:])|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def save_table(frame: pd.DataFrame, out: Path, caption: str, note: str) -> None:
    """Write `frame` to the folder `out` as table.csv, table.md and table.tex (booktabs).

    The CSV file has full precision. An index that means something becomes a column. Text is escaped
    so that no format interprets it.
    """
    out.mkdir(parents=True, exist_ok=True)
    flat = frame
    if not isinstance(frame.index, pd.RangeIndex):
        flat = frame.reset_index()
    names = [_flat_name(column) for column in flat]
    flat = flat.set_axis([_shown(name) for name in names], axis=1)
    write_csv(flat, out / "table.csv")
    caption = _shown(caption)
    note = _shown(note)
    heading = f"**{_markdown(caption)}**"
    paragraphs = [heading, markdown_table(flat), _markdown(note)]
    (out / "table.md").write_text("\n\n".join(paragraphs) + "\n", "utf-8")
    folder = out.resolve().name
    # The batch writes into .ID.part.
    id = folder.removeprefix(".").removesuffix(".part")
    write_latex(flat, out / "table.tex", caption, note, label=f"tab:{id}")


def rounded_csv(frame: pd.DataFrame) -> str:
    """Return a frame as CSV without its index, numbers with six significant digits."""
    text: str = frame.to_csv(index=False, lineterminator="\n", float_format=SIX_DIGITS)
    return text


def _flat_name(name: object) -> str:
    """Return a column's name as text; the levels of a tuple are joined."""
    if isinstance(name, tuple):
        levels = map(str, name)
        return " / ".join(filter(None, levels))
    return str(name)


def write_csv(frame: pd.DataFrame, path: Path) -> None:
    """Write a frame without its index, with full precision."""
    safe = frame.map(_csv_cell)
    safe = safe.rename(columns=_inert)
    safe.to_csv(path, index=False, lineterminator="\n")


def _csv_cell(cell: object) -> object:
    if not isinstance(cell, str):
        return cell
    return _inert(_shown(cell))


def markdown_table(
    frame: pd.DataFrame, links: Mapping[str, Sequence[str]] | None = None
) -> str:
    """Return a frame as a table in Markdown.

    `links` has the address of each cell of a column, "" for a cell without one.
    """
    escaped = frame.apply(_printed).map(_markdown)
    for column, addresses in (links or {}).items():
        escaped[column] = list(map(_linked, escaped[column], addresses))
    escaped = escaped.rename(columns=_markdown)
    return escaped.to_markdown(index=False, disable_numparse=True)


def _linked(text: str, address: str) -> str:
    return f"[{text}]({address})" if address else text


def write_latex(
    frame: pd.DataFrame, path: Path, caption: str, note: str, label: str
) -> None:
    """Write a frame as a table of LaTeX's booktabs, with a note below it."""
    table = frame.apply(_printed).to_latex(
        index=False,
        escape=True,
        caption=_latex(caption),
        label=label,
        position="ht",
    )
    end = "\\end{table}"
    footnote = f"\\par\\smallskip{{\\footnotesize {_latex(note)}}}\n{end}"
    path.write_text(table.replace(end, footnote), "utf-8")


def _printed(column: pd.Series) -> pd.Series:
    """Return a column as text, its numbers with as many digits as the column needs."""
    if is_bool_dtype(column):
        words = {True: "yes", False: "no"}
        return column.map(words).astype(object)
    if not is_float_dtype(column):
        return column.map(_text_of_cell)
    form = _number_format(column)
    texts = [_text_of_number(cell, form) for cell in column]
    return pd.Series(texts, index=column.index, dtype=object)


def _text_of_cell(cell: object) -> str:
    if pd.isna(cell):
        return ""
    return _shown(str(cell))


def _text_of_number(number: float, form: str) -> str:
    if pd.isna(number):
        return ""
    return f"{number:{form}}"


def _number_format(column: pd.Series) -> str:
    is_integral = (column.dropna() % 1 == 0).all()
    if is_integral:
        return ".0f"
    is_sized = np.isfinite(column) & (column != 0)
    sizes = column[is_sized].abs()
    if len(sizes) and sizes.min() < 1e-3:
        return ".3g"
    return ".2f" if sizes.max() > 1 else ".3f"


def _shown(text: str) -> str:
    """Make control characters, line breaks and tabs visible."""
    return visible(text).replace("\n", r"\n").replace("\t", r"\t")


def _inert(text: str) -> str:
    """Quote text that a spreadsheet would evaluate."""
    return f"'{text}" if FORMULA.match(text) else text


def _markdown(text: str) -> str:
    escaped = text.replace("&", "&amp;")
    escaped = escaped.replace("<", "&lt;")
    escaped = escaped.replace(">", "&gt;")
    escaped = escaped.replace("\\", "\\\\")
    return MARKDOWN.sub(r"\\\g<0>", escaped)


def _latex(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text)
