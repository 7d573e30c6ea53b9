"""Rows of files, each with its number: JSON lines, parquet, CSV and arrays of JSON.

A row's number is its line in a text file (the first is 1) and its place in a parquet file or an
array. Byte-order marks and blank lines are skipped. `datasets` is not used, because it would guess
types and fill columns that a row lacks.
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BYTE_ORDER_MARK = "\ufeff"
EXTRA_CELLS = ""  # the name under which `csv` keeps cells that have no column


@dataclass(frozen=True)
class NumberedRow:
    """A row and its number; the content is a mapping, or a line of JSON that is not parsed yet."""

    number: int
    content: Any


def numbered(rows: Iterable[Any]) -> Iterator[NumberedRow]:
    """Yield rows with their places, from 1."""
    for number, row in enumerate(rows, 1):
        yield NumberedRow(number, row)


def read_parquet(file: Path) -> list[NumberedRow]:
    """Return the rows of a parquet file; raises OSError or ValueError if it is none."""
    import pyarrow.parquet

    return list(numbered(pyarrow.parquet.read_table(file).to_pylist()))


def read_lines(file: Path) -> list[NumberedRow]:
    """Return the lines of JSON of a file in UTF-8, without blank ones.

    Only line feeds end a line, because texts may hold other separators. Raises UnicodeDecodeError
    for other encodings.
    """
    rows = []
    text = file.read_bytes().decode()
    for number, line in enumerate(text.split("\n"), 1):
        content = line.strip(BYTE_ORDER_MARK).strip()
        if content:
            rows.append(NumberedRow(number, content))
    return rows


def read_array(file: Path) -> list[NumberedRow]:
    """Return the objects of an array of JSON; raises ValueError if the file holds none."""
    content = json.loads(file.read_bytes().decode("utf-8-sig"))
    if not isinstance(content, list):
        raise ValueError(
            f"a .json file must hold one array of objects, got {type(content).__name__}; "
            "a .jsonl file has an object on every line"
        )
    return list(numbered(content))


def read_csv(file: Path) -> list[NumberedRow]:
    """Return the rows of a comma-separated file whose first line names the columns.

    A quoted cell may hold line breaks; the row's number is then that of its first line. Raises
    ValueError for text that is not CSV.
    """
    text = file.read_bytes().decode("utf-8-sig")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    names: list[str] = []
    rows = []
    first_line = 1
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                pass  # a blank line
            elif names:
                rows.append(NumberedRow(first_line, _mapping(names, cells)))
            else:
                names = [name.strip() for name in cells]
            first_line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"row {first_line} is not CSV: {error}") from None
    return rows


def _mapping(names: list[str], cells: list[str]) -> dict[str, Any]:
    row: dict[str, Any] = dict(zip(names, cells, strict=False))
    if len(cells) > len(names):
        row[EXTRA_CELLS] = cells[len(names) :]
    return row
