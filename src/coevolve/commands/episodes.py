"""The episodes that are played for a reader: short enough for a screen or two.

The command `play` and the page in the browser play the same ones.
"""

from typing import Any

# Fields of each paper's method. CoMAS has two agents and four rounds, SPICE makes four attempts at
# a time; CoNL is set as its preset for a laptop.
FIELDS: dict[str, dict[str, Any]] = {
    "mae": {},
    "sage": {},
    "comas": {"agents": 2, "reuse": 1},
    "conl": {"own_votes": False, "leave_one_out": True, "judge_temperature": 0.4},
    "spice": {
        "documents": 200,
        "group": 4,
        "attempts": 8,
        "reuse": True,
        "verifier": "exact",
    },
}
TEMPERATURE = 1.0
MAX_TOKENS = {"conl": 128}  # of a reply, as in the preset `standard`
OTHER_MAX_TOKENS = 64


def max_tokens(method: str) -> int:
    """Return the largest number of tokens in a reply of a method's episode."""
    return MAX_TOKENS.get(method, OTHER_MAX_TOKENS)
