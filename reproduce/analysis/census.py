"""How much of the tiny world a test asks: what was not asked is what could have come out else.

Some levels of some families have so few test questions that all of them are asked. Then their
choice adds no noise, which statisticians call the finite population correction.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pandas as pd

from tinyworld import tasks


def asked_share(items: pd.DataFrame) -> float:
    """Return the share of the test questions that were asked, the mean over the items.

    `items` has a row per question with its family and level; without these columns, and for
    families of other worlds, the share is 0. A level with very many questions also counts as 0.
    """
    if not {"family", "level"} <= set(items.columns):
        return 0.0
    asked_of_level = Counter(zip(items["family"], items["level"], strict=True))
    total = 0.0
    for (family, level), asked in asked_of_level.items():
        total += asked * _share_of_level(family, level, asked)
    return total / len(items)


def _share_of_level(family: str, level: Any, asked: int) -> float:
    if family not in tasks.NAMES or level not in tasks.LEVELS:
        return 0.0
    size = tasks.population("test", family, int(level))
    return min(1.0, asked / size) if size else 0.0


def asked_shares(scores: pd.DataFrame) -> Mapping[str, float]:
    """Return the share of each benchmark in a frame with columns benchmark and item."""
    items = scores.drop_duplicates(["benchmark", "item"])
    shares = {}
    for benchmark, part in items.groupby("benchmark"):
        shares[str(benchmark)] = asked_share(part)
    return shares
