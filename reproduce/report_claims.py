"""The rows of the ledger as the report shows them: words, places of evidence, one scale a paper."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reproduce.places import artefact_of
from reproduce.plan import Plan
from reproduce.registry import read_toml

HERE = Path(__file__)
EVIDENCE_PRESET = "standard"  # whose ledger stands beside that of a shorter preset
Row = dict[str, Any]
# The unit of an effect, by the column of the metrics; ratios of sums are in percent.
UNITS = {
    "validation": "points",
    "pass_rate": "points",
    "pool/questions": "questions",
    "added_ill_formed": "share",
    "parsed": "share",
    "difficulty": "difficulty",
    "true_difficulty": "difficulty",
    "level": "level",
    "normalised": "reward",
    "Rank-rho": "rho",
    "surprisal": "nats",
}
PERCENT_RATIOS = ("Correction", "Harm", "accepted")
NUMBERS = ("effect", "low", "high", "paper_effect")
POINTS = "points"
LONGEST = 0.9  # of the numbers lie inside the scale of a paper's pictures
WIDTH = 240  # of a picture, in its own units


@dataclass(frozen=True)
class Look:
    """How a verdict is shown: a class of the style sheet and a symbol."""

    css: str
    symbol: str


LOOKS = {  # by group of verdicts, see `verdicts.GROUPS`
    "found": Look("found", "✓"),
    "opposite": Look("opposite", "✗"),
    "no effect, or another size": Look("size", "≈"),
    "as small as printed": Look("small", "~"),
    "undecided": Look("undecided", "?"),
    "not decidable here": Look("untested", "–"),
}
SYMBOLS = {  # of verdicts whose symbol is not that of their group
    "smaller than printed": "<",
    "other size": "≠",
}


def look_of(verdict: str) -> Look:
    """Return the look of a verdict: the class of its group, and its own symbol if it has one."""
    from reproduce.analysis.verdicts import group_of

    look = LOOKS[group_of(verdict)]
    return replace(look, symbol=SYMBOLS.get(verdict, look.symbol))


def read(plan: Plan) -> list[Row]:
    """Return the claims of a preset's ledger, ready to be shown; none without a ledger."""
    rows = _read_ledger(plan.folder / "claims")
    fields_of = read_toml(HERE.with_name("claims.toml"))["claims"]
    beside = _beside(plan)
    for row in rows:
        fields = fields_of.get(row["claim"], {})
        row["unit"] = unit_of(fields | row)
        row["look"] = look_of(row["verdict"])
        row["evidence"] = artefact_of(row["paper"], row["where"], plan.items)
        row["beside"] = beside.get(row["claim"])
        row["has_no_limits"] = row["low"] == "-inf"
        for name in NUMBERS:
            row[name] = number_of(row.get(name, ""))
    _add_pictures(rows)
    return rows


def _read_ledger(folder: Path) -> list[Row]:
    import pandas as pd

    path = folder / "ledger.csv"
    if not path.is_file():
        return []
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    remarks = folder / "remarks.csv"
    if remarks.is_file():
        beside = pd.read_csv(remarks, dtype=str, keep_default_na=False)
        table = table.merge(beside, on="claim", how="left").fillna("")
    rows: list[Row] = table.to_dict("records")
    return rows


def _beside(plan: Plan) -> dict[str, Row]:
    """Return the numbers of the evidence by claim; nothing for the evidence itself."""
    if plan.name == EVIDENCE_PRESET:
        return {}
    rows = _read_ledger(plan.root / "results" / EVIDENCE_PRESET / "claims")
    numbers = {}
    for row in rows:
        known = {name: number_of(row.get(name, "")) for name in NUMBERS}
        if known["effect"] is not None:
            numbers[row["claim"]] = known | {"verdict": row["verdict"]}
    return numbers


def number_of(text: str) -> float | None:
    """Return a cell of the ledger as a number; None where it is empty or has no limits."""
    if text in ("", "inf", "-inf", "nan"):
        return None
    return float(text)


def unit_of(row: Mapping[str, Any]) -> str:
    """Return the unit of a claim's effect."""
    column = row.get("column", "validation")
    is_ratio_of_sums = " / " in column
    if row.get("kind") == "ratio":
        return "%" if is_ratio_of_sums or column in PERCENT_RATIOS else "times"
    unit = POINTS if is_ratio_of_sums else UNITS[column]
    return f"{unit} a step" if row.get("per_step") else unit


def counts(rows: Sequence[Row]) -> list[Row]:
    """Return how many claims are in each group of verdicts, in their order, without empty ones."""
    from reproduce.analysis.verdicts import counts_of

    parts = []
    for group, count in counts_of(row["verdict"] for row in rows).items():
        if count:
            parts.append({"group": group, "count": count, "look": LOOKS[group]})
    return parts


def _add_pictures(rows: Sequence[Row]) -> None:
    """Give each row its picture; the claims of a paper in points share one scale."""
    for row in rows:
        group = [row]
        if row["unit"] == POINTS:
            group = [
                other
                for other in rows
                if (other["paper"], other["unit"]) == (row["paper"], POINTS)
            ]
        row["picture"] = picture(row, _span(group))


def _span(rows: Sequence[Row]) -> float:
    """Return how far a scale reaches from zero: over most of the numbers of some rows.

    It covers all numbers of headline claims, and of a row that stands alone.
    """
    sizes = sorted(_sizes(rows))
    if not sizes:
        return 0.0
    last = len(sizes) - 1
    index = last if len(rows) == 1 else int(LONGEST * last)
    headline = [row for row in rows if row["tests"] == "headline"]
    return max([sizes[index], *_sizes(headline)])


def _sizes(rows: Sequence[Row]) -> list[float]:
    """Return how far the numbers of some rows are from zero."""
    sizes = []
    for row in rows:
        for name in NUMBERS:
            if row[name] is not None:
                sizes.append(abs(float(row[name])))
    return sizes


def picture(row: Row, span: float) -> Row | None:
    """Return the places of a row's numbers from 0 to WIDTH; None without an effect.

    Numbers beyond the scale stand at its end.
    """
    if row["effect"] is None or not span:
        return None
    numbers = {name: row[name] for name in NUMBERS}
    if row["beside"]:
        numbers["evidence_effect"] = row["beside"]["effect"]
        numbers["evidence_low"] = row["beside"]["low"]
        numbers["evidence_high"] = row["beside"]["high"]
    places: Row = {"span": span}
    for name, number in numbers.items():
        if number is not None:
            inside = max(-span, min(span, number))
            place = WIDTH / 2 * (1 + 0.96 * inside / span)
            places[name] = round(place, 1)
    return places


def inside(rows: Sequence[Row]) -> tuple[int, int]:
    """Return how many effects lie in the interval of the evidence, and of how many."""
    compared = 0
    contained = 0
    for row in rows:
        beside = row["beside"]
        if row["effect"] is None or not beside or beside["low"] is None:
            continue
        compared += 1
        contained += beside["low"] <= row["effect"] <= beside["high"]
    return contained, compared
