"""Tables of `benchmarks/authors.json`: how many values are equal, and why others differ."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

Case = Mapping[str, Any]
Comparisons = Mapping[str, Case]
Rows = Sequence[Sequence[str]]
LONGEST_EXAMPLE = 90  # characters
COUNTS = (
    "comparison",
    "released function",
    "equal",
    "of its kind",
    "by the model",
)
DIFFERENCES = (
    "comparison",
    "class",
    "inputs",
    "what the two do",
    "example",
)


def counts(comparisons: Comparisons) -> str:
    """Return a Markdown table of the numbers of equal values."""
    rows = []
    for name, result in comparisons.items():
        _, _, function = result["function"].rpartition("/")
        row = [name, f"`{function}`", of(result)]
        for part in ("own_kind", "spoken"):
            is_counted = part in result
            row.append(of(result[part]) if is_counted else "")
        rows.append(row)
    return markdown(COUNTS, rows)


def differences(comparisons: Comparisons) -> str:
    """Return a Markdown table of the classes of differences, each with an example."""
    rows = []
    for name, result in comparisons.items():
        for cause, found in by_count(result["differences"]):
            row = [
                name,
                cause,
                f"{found['count']:,}",
                found["cause"],
                example(found["example"]),
            ]
            rows.append([cell.replace("|", "\\|") for cell in row])
    return markdown(DIFFERENCES, rows)


def by_count(classes: Comparisons) -> list[tuple[str, Case]]:
    """Return classes with their names, the largest first."""
    pairs = list(classes.items())
    pairs.sort(key=lambda pair: -pair[1]["count"])
    return pairs


def of(result: Case) -> str:
    """Return the number of equal values of all."""
    equal = result["equal"]
    inputs = result["inputs"]
    return f"{equal:,} of {inputs:,}"


def example(case: Case) -> str:
    """Return an input with both values; "" if it is too long for a cell."""
    given = case["input"]
    if not isinstance(given, str):
        given = json.dumps(given, ensure_ascii=False)
    if len(given) > LONGEST_EXAMPLE:
        return ""
    ours = value(case["ours"])
    theirs = value(case["theirs"])
    return f"{code(given)}: ours {ours}, theirs {theirs}"


def value(result: Any) -> str:
    """Return a value as text: numbers with three digits, texts as code."""
    if result is None:
        return "nothing"
    if isinstance(result, str):
        return code(result)
    if isinstance(result, list):
        return ", ".join(map(value, result))
    return f"{result:.3g}"


def code(text: str) -> str:
    """Return a text as Markdown's code, in one line."""
    line = text.replace("\n", "⏎")
    return f"`` {line} ``"


def markdown(head: Sequence[str], rows: Rows) -> str:
    """Return a Markdown table."""
    lines = [line(head)]
    lines.append("|---" * len(head) + "|")
    lines += map(line, rows)
    return "\n".join(lines)


def line(cells: Sequence[str]) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(cells)} |"
