"""Writes a frame as CSV, Markdown and LaTeX in such a way that no format interprets the text in it.

Does not know what the table says.
"""

import re
from pathlib import Path

import numpy as np
import pandas as pd

from coevolve.runs.show import visible

LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
# A cell that a spreadsheet would run; signed numbers, alone or with an interval and a verdict, are none.
FORMULA = re.compile(r"[=@\t\r]|[+-](?!([\d.]+( \[[-+\d., ]*\])?( \([a-z ]+\))?)?$)")


def save_table(frame: pd.DataFrame, out: Path, caption: str, note: str) -> None:
    """Write `frame` to the folder `out` as table.csv (full precision), table.md and table.tex (booktabs).

    An index that means something becomes a column. Text is written so that no format interprets it.
    """
    out.mkdir(parents=True, exist_ok=True)
    flat = frame if isinstance(frame.index, pd.RangeIndex) else frame.reset_index()
    names = [" / ".join(filter(None, map(str, name))) if isinstance(name, tuple) else str(name) for name in flat]
    flat = flat.set_axis([_shown(name) for name in names], axis=1)
    safe = flat.map(lambda cell: _inert(_shown(cell)) if isinstance(cell, str) else cell)
    safe.rename(columns=_inert).to_csv(out / "table.csv", index=False, lineterminator="\n")
    printed = flat.apply(_printed)
    marked = printed.map(_markdown).rename(columns=_markdown)
    body = marked.to_markdown(index=False, disable_numparse=True)
    (out / "table.md").write_text(f"**{_markdown(_shown(caption))}**\n\n{body}\n\n{_markdown(_shown(note))}\n", "utf-8")
    label = f"tab:{out.resolve().name.removeprefix('.').removesuffix('.part')}"  # the batch writes into .NAME.part
    tex = printed.to_latex(index=False, escape=True, caption=_latex(_shown(caption)), label=label, position="ht")
    footnote = f"\\par\\smallskip{{\\footnotesize {_latex(_shown(note))}}}\n\\end{{table}}"
    (out / "table.tex").write_text(tex.replace("\\end{table}", footnote), "utf-8")


def _printed(column: pd.Series) -> pd.Series:
    """A column as text, its numbers with as many digits as the column needs."""
    if pd.api.types.is_bool_dtype(column):
        return column.map({True: "yes", False: "no"}).astype(object)
    if not pd.api.types.is_float_dtype(column):
        return column.map(lambda cell: "" if pd.isna(cell) else _shown(str(cell)))
    sizes = column[np.isfinite(column) & (column != 0)].abs()
    if (column.dropna() % 1 == 0).all():
        form = ".0f"
    elif len(sizes) and sizes.min() < 1e-3:
        form = ".3g"
    else:
        form = ".2f" if sizes.max() > 1 else ".3f"
    return column.map(lambda cell: "" if pd.isna(cell) else f"{cell:{form}}").astype(object)


def _shown(text: str) -> str:
    return visible(text).replace("\n", r"\n").replace("\t", r"\t")


def _inert(text: str) -> str:
    return f"'{text}" if FORMULA.match(text) else text


def _markdown(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\\", "\\\\")
    return re.sub(r"[|*`!$~]|\](?=[(\[:])|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\\g<0>", text)


def _latex(text: str) -> str:
    return "".join(LATEX.get(c, c) for c in text)
