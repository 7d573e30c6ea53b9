"""Measure which families of reasoning-gym meet the criteria of src/published/gym.toml: `python -m tools.gym_families`.

Prints a line of JSON for each family: a digest of its items, to be compared with another process's, and its faults.
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
from published.rows import normal

ITEMS, QUESTION, ANSWER, MILLISECONDS, SECONDS = 30, 600, 20, 30, 8


def rows(family: str) -> list[dict[str, Any]]:
    """The first items at the settings of gym.toml, else at the package's own."""
    from reasoning_gym import create_dataset

    return list(create_dataset(family, **gym.ADMITTED.get(family, {}), seed=0, size=ITEMS))


def faults(found: list[dict[str, Any]]) -> Iterator[str]:
    """What is wrong with a family's items, apart from the time that they take."""
    if not all(isinstance(row["answer"], str) and row["answer"].strip() for row in found):
        yield "no gold answers"
        return
    if max(len(row["question"]) for row in found) > QUESTION or max(len(row["answer"]) for row in found) > ANSWER:
        yield "too long"
        return
    items = [gym.item("family", row) for row in found]
    if not all(grade(item, item.gold).correct for item in items):
        yield "a gold does not pass"
    if any(grade(item, other.gold).correct for item in items for other in items if other.gold != item.gold):
        yield "another item's gold passes"
    if len({normal(item.question) for item in items}) < 0.5 * ITEMS:
        yield "questions repeat themselves"


def measure(family: str) -> dict[str, Any]:
    """A family's digest, its faults, and whether it is slow."""
    printed, start = StringIO(), time.process_time()
    signal.alarm(SECONDS)
    try:
        with redirect_stdout(printed):
            found = rows(family)
    except (AssertionError, ArithmeticError, LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
        return {"family": family, "faults": [f"{type(error).__name__}: {error}"]}
    finally:
        signal.alarm(0)
    slow = 1000 * (time.process_time() - start) > ITEMS * MILLISECONDS
    said = repr([(row["question"], row["answer"]) for row in found]).encode()
    wrong = [*faults(found), *(["prints"] if printed.getvalue() else [])]
    return {"family": family, "items": hashlib.sha256(said).hexdigest()[:16], "faults": wrong, "slow": slow}


def late(*_: object) -> None:
    """End a family that takes too long."""
    raise TimeoutError(f"over {SECONDS} s")


def main(families: list[str]) -> None:
    """Print what was measured of these families; of none: of all."""
    from reasoning_gym.factory import DATASETS

    signal.signal(signal.SIGALRM, late)
    for family in families or sorted({*DATASETS} - {"composite"}):
        print(json.dumps(measure(family)))


if __name__ == "__main__":
    main(sys.argv[1:])
