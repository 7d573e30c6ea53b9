"""What the tests of SPICE share: one document, replies to its prompts, and expected rewards."""

import json
import math
from pathlib import Path

from coevolve.methods.spice.method import SPICE

DOCUMENT = "Mars has two small moons and a thin sky."
# Equation 1 at p = 1/4 and 3/4: (3/16 - 1/4)^2 / 0.02; and at p = 0 and 1: (1/4)^2 / 0.02.
REWARD_AT_A_QUARTER = math.exp(-0.1953125)
REWARD_AT_ZERO = math.exp(-3.125)
INVALID = -0.1  # the reward of an invalid task


def suitable(*, mcq: bool, answer_type: str | None) -> str:
    """Write a format selection as the Challenger does."""
    selection = {
        "suitable_for_mcq": mcq,
        "suitable_for_free_form": not mcq,
        "best_answer_type": answer_type,
        "reason": "x",
    }
    return json.dumps(selection)


FREE_FORM = suitable(mcq=False, answer_type="Integer")
MULTIPLE_CHOICE = suitable(mcq=True, answer_type=None)


def write_corpus(folder: Path) -> str:
    """Write a corpus of one document; return its folder."""
    (folder / "only.txt").write_text(DOCUMENT, "utf-8")
    return str(folder)


def make_spice(corpus: str = "both", **fields) -> SPICE:
    """Make a SPICE with G = 4, N = 8 and exact verification, unless the fields say otherwise."""
    small = {"verifier": "exact", "group": 4, "attempts": 8}
    return SPICE(corpus=corpus, **(small | fields))


def solver_prompt(question: str) -> str:
    """Return what the Reasoner reads of a question."""
    return f"solve box<question>{question}</question>"
