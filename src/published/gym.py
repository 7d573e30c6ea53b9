"""Questions that reasoning-gym makes, as a world: gym:FAMILY,FAMILY, with settings as gym:chain_sum:max_terms=3,gcd.

The package makes questions and golds and nothing else: its scorers, some of which execute a reply, are never called.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from coevolve.text.verify.exact import rational
from coevolve.training.config import parse_overrides
from coevolve.validation import check_choice
from published.data import Paper
from published.rows import Item, digest
from published.world import ItemWorld

SIZE = 1000  # items of a family before repeated questions are dropped; a setting `size` is another number
PARTS = {0: "test", 1: "validation"}  # of ten: where a question belongs, by the hash of its text
_TABLES = tomllib.loads(Path(__file__).with_name("gym.toml").read_text(encoding="utf-8"))
ADMITTED: dict[str, dict[str, Any]] = _TABLES["admitted"]  # {family: settings}
REFUSED = {family: reason for reason, families in _TABLES["refused"].items() for family in families}


class GymWorld(ItemWorld):
    """Families with their settings. A question is in the same split whatever the seed, the settings and the company.

    `name` is how a configuration names this world. Every family is trained on and tested.
    """

    name = ""
    paper: ClassVar[str] = "gym"
    grading: ClassVar[str] = "exact"  # equal formulas would let a question like 3 + 4 be its own answer

    def __init__(self, name: str, families: Mapping[str, Mapping[str, Any]]):
        self.name, self.families = name, families
        self.lists = Paper(tests=dict.fromkeys(families, 0), seeds=dict.fromkeys(families, 0))

    def check(self) -> None:
        """Raise ValueError, in one line, when reasoning-gym is missing or does not take the settings."""
        for family, settings in self.families.items():
            dataset(family, settings)

    @cached_property
    def _parts(self) -> dict[str, list[Item]]:
        parts: dict[str, list[Item]] = {"seeds": [], "validation": [], "test": []}
        for family, settings in self.families.items():
            found = {made.id: made for made in (item(family, row) for row in dataset(family, settings))}
            for made in found.values():
                parts[PARTS.get(int(made.id, 16) % 10, "seeds")].append(made)
        if not parts["seeds"]:
            raise ValueError(f"world: gym:{','.join(self.families)} leaves no question to train on; take a larger size")
        return parts | {"asked": parts["test"]}


def dataset(family: str, settings: Mapping[str, Any]) -> Any:
    """Return reasoning-gym's own object; ValueError in one line when it is missing or does not take the settings."""
    try:
        from reasoning_gym.factory import DATASETS, create_dataset
    except ImportError:
        raise ValueError("world=gym:... needs the package reasoning-gym: pip install -e '.[real]'") from None
    for key in settings:
        check_choice(f"setting of gym:{family}", key, [field.name for field in fields(DATASETS[family][1])])
    try:
        made = create_dataset(family, **{"seed": 0, "size": SIZE, **ADMITTED[family], **settings})
        next(iter(made))  # which a seed or a size of the wrong type does not survive
        return made
    except (AssertionError, TypeError, ValueError) as error:
        raise ValueError(f"world: gym:{family} does not take {dict(settings)}: {error}") from None


def item(family: str, row: Mapping[str, Any]) -> Item:
    """Return the item of a row that reasoning-gym made; a gold that is a number is compared as one, others as text."""
    question, gold = row["question"].strip(), row["answer"].strip()
    scorer = "exact" if rational(gold) is None else "number"
    return Item(family, digest(question), question, gold, scorer, stem=question)


def named(name: str, paper: str = "", seeds: bool = True) -> GymWorld:
    """Return the world gym:FAMILY,FAMILY; ValueError in one line for an unknown or refused family. Makes nothing."""
    families = {}
    for part in name.removeprefix("gym:").split(","):
        family, *settings = part.strip().split(":")
        if family in REFUSED:
            raise ValueError(f"world: gym:{family} is refused: {REFUSED[family]}")
        check_choice("FAMILY of world=gym:FAMILY,FAMILY", family, ADMITTED)
        families[family] = parse_overrides(settings)
    return GymWorld(name, families)
