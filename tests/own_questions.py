"""Files of a user's own questions for the tests."""

import json
from pathlib import Path
from typing import Any

Row = dict[str, Any]
COLOURS = ["red", "green", "blue", "grey"]


def sums(count: int = 30) -> list[Row]:
    """Return questions that the embedded backbone can partly solve."""
    return [{"question": f"{n}+5", "answer": n + 5} for n in range(count)]


def write_jsonl(file: Path, rows: list[Row]) -> None:
    """Write a byte-order mark and an object on every other line."""
    lines = [json.dumps(row) + "\n" for row in rows]
    file.write_text("\ufeff" + "\n".join(lines), encoding="utf-8")
