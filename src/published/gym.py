"""Questions that reasoning-gym generates, as a world: gym:FAMILY,FAMILY.

Settings follow a family's name, as in gym:chain_sum:max_terms=3,gcd. The package only generates
questions and golds: its scorers, some of which execute a reply, are never called.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from coevolve.text.verify.numbers import rational
from coevolve.training.config import parse_overrides
from coevolve.validation import check_choice
from published.data import Paper
from published.rows import Item, digest
from published.world import ItemWorld, Parts

# Items of a family before repeated questions are dropped, unless the setting `size` differs.
SIZE = 1000
TEST_BUCKET = 0  # of ten, by the hash of the question's text
VALIDATION_BUCKET = 1
_TABLES = tomllib.loads(
    Path(__file__).with_name("gym.toml").read_text(encoding="utf-8")
)
ADMITTED: dict[str, dict[str, Any]] = _TABLES["admitted"]  # family: settings
REFUSED: dict[str, str] = {}  # family: reason
for _reason, _families in _TABLES["refused"].items():
    REFUSED |= dict.fromkeys(_families, _reason)


class GymWorld(ItemWorld):
    """Families of reasoning-gym with their settings, all of them trained on and tested.

    A question is in the same split whatever the seed, the settings and the other families are.
    `name` is the world's name in a configuration.
    """

    name = ""
    paper: ClassVar[str] = "gym"
    # Accepting equal formulas would let a question such as 3 + 4 be its own answer.
    grading: ClassVar[str] = "exact"

    def __init__(self, name: str, families: Mapping[str, Mapping[str, Any]]):
        self.name = name
        self.families = families
        all_of_each = dict.fromkeys(families, 0)
        self.lists = Paper(tests=all_of_each, seeds=all_of_each)

    def check(self) -> None:
        """Raise ValueError when reasoning-gym is missing or rejects the settings."""
        for family, settings in self.families.items():
            dataset(family, settings)

    @cached_property
    def _parts(self) -> Parts:
        seeds: list[Item] = []
        validation: list[Item] = []
        test: list[Item] = []
        for family, settings in self.families.items():
            for question in _distinct_items(family, settings):
                bucket = int(question.id, 16) % 10
                if bucket == TEST_BUCKET:
                    test.append(question)
                elif bucket == VALIDATION_BUCKET:
                    validation.append(question)
                else:
                    seeds.append(question)
        if not seeds:
            raise ValueError(
                f"world: gym:{','.join(self.families)} leaves no question to train on; "
                "choose a larger size"
            )
        return Parts(seeds=seeds, validation=validation, test=test, evaluated=test)


def _distinct_items(family: str, settings: Mapping[str, Any]) -> list[Item]:
    """Return the items of a family, each question once."""
    by_id = {}
    for row in dataset(family, settings):
        generated = item(family, row)
        by_id[generated.id] = generated
    return list(by_id.values())


def dataset(family: str, settings: Mapping[str, Any]) -> Any:
    """Return reasoning-gym's data set of a family.

    Raises ValueError when the package is missing or rejects the settings.
    """
    try:
        from reasoning_gym.factory import DATASETS, create_dataset
    except ImportError:
        raise ValueError(
            "world=gym:... needs the package reasoning-gym: pip install -e '.[real]'"
        ) from None
    _, config_class = DATASETS[family]
    allowed = [field.name for field in fields(config_class)]
    for key in settings:
        check_choice(f"setting of gym:{family}", key, allowed)
    options = {"seed": 0, "size": SIZE, **ADMITTED[family], **settings}
    try:
        generated = create_dataset(family, **options)
        next(iter(generated))  # fails for a seed or a size of the wrong type
    except (AssertionError, TypeError, ValueError) as error:
        raise ValueError(
            f"world: gym:{family} rejects {dict(settings)}: {error}"
        ) from None
    return generated


def item(family: str, row: Mapping[str, Any]) -> Item:
    """Return the item of a generated row; numeric golds are compared as numbers, others as text."""
    question = row["question"].strip()
    gold = row["answer"].strip()
    scorer = "exact" if rational(gold) is None else "number"
    return Item(family, digest(question), question, gold, scorer, stem=question)


def named(name: str, paper: str = "", seeds: bool = True) -> GymWorld:
    """Return the world gym:FAMILY,FAMILY without generating anything.

    `paper` and `seeds` are those of every factory of worlds and have no effect. Raises ValueError
    for an unknown or refused family.
    """
    families = {}
    for part in name.removeprefix("gym:").split(","):
        family, *settings = part.strip().split(":")
        if family in REFUSED:
            raise ValueError(f"world: gym:{family} is refused: {REFUSED[family]}")
        check_choice("FAMILY of world=gym:FAMILY,FAMILY", family, ADMITTED)
        families[family] = parse_overrides(settings)
    return GymWorld(name, families)
