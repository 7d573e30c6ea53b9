"""A row of the ledger of claims, made up."""

from typing import Any


def ledger_row(**changed: Any) -> dict[str, Any]:
    """Return the row of a claim that is found, with some columns changed."""
    row = {
        "claim": "x",
        "paper": "mae",
        "where": "Table 1",
        "says": "better | or not",
        "kind": "greater",
        "paper_effect": 3.0,
        "seeds": "3 / 1",
        "units": "3 / 1",
        "tests": "other",
        "effect": 2.0,
        "low": 1.0,
        "high": 3.0,
        "p_corrected": 0.01,
        "smallest": 1.5,
        "verdict": "found",
        "why": "",
        "over_control": 1.0,
        "over_control_low": -1.0,
        "over_control_high": 3.0,
    }
    return {**row, **changed}
