"""Files of a user's own questions for the tests."""

import json
from pathlib import Path
from typing import Any

Row = dict[str, Any]
COLOURS = ["red", "green", "blue", "grey"]


def sums(count: int = 30) -> list[Row]:
    """Return questions that the embedded backbone can partly solve."""
    rows: list[Row] = []
    for n in range(count):
        question = f"{n}+5"
        answer = n + 5
        rows.append({"question": question, "answer": answer})
    return rows


def write_jsonl(file: Path, rows: list[Row]) -> None:
    """Write a byte-order mark and an object on every other line."""
    lines = ["\ufeff"]
    for row in rows:
        lines.append(json.dumps(row))
        lines.append("\n\n")
    text = "".join(lines)
    file.write_text(text, encoding="utf-8")
