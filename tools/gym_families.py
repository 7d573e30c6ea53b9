"""Measure which families of reasoning-gym meet the criteria of src/published/gym.toml.

`python -m tools.gym_families [FAMILY ...]` prints a line of JSON for each family (default: all): a
digest of its items, to be compared with that of another process, and its faults.
"""

import hashlib
import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from published import gym
from published.grading import grade
from published.rows import Item, normal

ITEMS = 30
MAX_QUESTION_CHARACTERS = 600
MAX_ANSWER_CHARACTERS = 20
MAX_MILLISECONDS = 30  # of an item
MAX_SECONDS = 8  # of a family
LEAST_DISTINCT = 0.5  # fraction of the questions
GENERATION_ERRORS = (
    AssertionError,
    ArithmeticError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)


def rows(family: str) -> list[dict[str, Any]]:
    """Return the first items at the settings of gym.toml, else at the package's defaults."""
    from reasoning_gym import create_dataset

    settings = gym.ADMITTED.get(family, {})
    return list(create_dataset(family, **settings, seed=0, size=ITEMS))


def has_gold(row: dict[str, Any]) -> bool:
    """Return whether a row has a gold answer."""
    return isinstance(row["answer"], str) and bool(row["answer"].strip())


def is_too_long(row: dict[str, Any]) -> bool:
    """Return whether the question or the answer exceeds its limit."""
    if len(row["question"]) > MAX_QUESTION_CHARACTERS:
        return True
    return len(row["answer"]) > MAX_ANSWER_CHARACTERS


def accepts_another_gold(item: Item, items: list[Item]) -> bool:
    """Return whether the gold answer of another item passes for this one."""
    others = (other.gold for other in items if other.gold != item.gold)
    return any(grade(item, gold).correct for gold in others)


def faults(family_rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the faults of a family's items, except slowness."""
    if not all(map(has_gold, family_rows)):
        yield "no gold answers"
        return
    if any(map(is_too_long, family_rows)):
        yield "too long"
        return
    items = [gym.item("family", row) for row in family_rows]
    if not all(grade(item, item.gold).correct for item in items):
        yield "a gold does not pass"
    if any(accepts_another_gold(item, items) for item in items):
        yield "another item's gold passes"
    if len({normal(item.question) for item in items}) < LEAST_DISTINCT * ITEMS:
        yield "questions repeat themselves"


def measure(family: str) -> dict[str, Any]:
    """Return a family's digest, its faults, and whether it is slow."""
    printed = StringIO()
    start = time.process_time()
    signal.alarm(MAX_SECONDS)
    try:
        with redirect_stdout(printed):
            family_rows = rows(family)
    except GENERATION_ERRORS as error:
        return {"family": family, "faults": [f"{type(error).__name__}: {error}"]}
    finally:
        signal.alarm(0)
    milliseconds = 1000 * (time.process_time() - start)
    texts = repr([(row["question"], row["answer"]) for row in family_rows])
    family_faults = list(faults(family_rows))
    if printed.getvalue():
        family_faults.append("prints")
    return {
        "family": family,
        "items": hashlib.sha256(texts.encode()).hexdigest()[:16],
        "faults": family_faults,
        "slow": milliseconds > ITEMS * MAX_MILLISECONDS,
    }


def stop(*_: object) -> None:
    """End a family that takes too long."""
    raise TimeoutError(f"over {MAX_SECONDS} s")


def main(families: list[str]) -> None:
    """Print the measurements of these families, or of all."""
    from reasoning_gym.factory import DATASETS

    signal.signal(signal.SIGALRM, stop)
    for family in families or sorted({*DATASETS} - {"composite"}):
        print(json.dumps(measure(family)))


if __name__ == "__main__":
    main(sys.argv[1:])
