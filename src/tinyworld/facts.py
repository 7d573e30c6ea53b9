"""An invented world of facts: 60 names with four attributes each.

Only documents state the facts of level 3: the warm start never asks for them plainly, but the
options of a multiple choice may hold them.
"""

import re
from random import Random

from tinyworld.family import Family

CONSONANTS = "BDFGKLMNPRTV"
ENTITIES = tuple(consonant + vowel for consonant in CONSONANTS for vowel in "aeiou")
VALUES = {
    "color": ("red", "blue", "green", "pink", "gray", "gold"),
    "home": ("hill", "lake", "cave", "tree", "sand", "city"),
    "pet": ("cat", "dog", "fox", "owl", "bee", "cow"),
    "food": ("corn", "rice", "fish", "nuts", "figs", "eggs"),
}
ATTRIBUTES = tuple(VALUES)
ATTRIBUTE_OF = {
    value: attribute for attribute, values in VALUES.items() for value in values
}
LEVELS = [1] * 100 + [2] * 80 + [3] * 60  # of the 240 facts

Key = tuple[str, str]  # entity, attribute


def _draw_truth(rng: Random) -> dict[Key, str]:
    truth = {}
    for entity in ENTITIES:
        for attribute in ATTRIBUTES:
            truth[entity, attribute] = rng.choice(VALUES[attribute])
    return truth


def _draw_levels(rng: Random) -> dict[Key, int]:
    keys = sorted(TRUTH)
    rng.shuffle(keys)
    return dict(zip(keys, LEVELS, strict=True))


_RNG = Random("coevolve facts")
TRUTH = _draw_truth(_RNG)
LEVEL = _draw_levels(_RNG)
KEYS_OF_LEVEL: dict[int, list[Key]] = {1: [], 2: [], 3: []}
for _key in sorted(TRUTH):
    KEYS_OF_LEVEL[LEVEL[_key]].append(_key)


def stereotype(entity: str, attribute: str) -> str:
    """Return the misconception: a false value, suggested by the name's first letter."""
    values = VALUES[attribute]
    i = CONSONANTS.index(entity[0]) + ATTRIBUTES.index(attribute)
    guess = values[i % 6]
    if guess == TRUTH[entity, attribute]:
        return values[(i + 1) % 6]
    return guess


def _draw_key(rng: Random, level: int) -> Key:
    return rng.choice(KEYS_OF_LEVEL[level])


# Questions for a value


def _draw_question(rng: Random, level: int) -> str:
    """Ask in one of two wordings: a fact that is taught in one may be tested in the other."""
    entity, attribute = _draw_key(rng, level)
    return rng.choice([f"{entity} {attribute}?", f"{attribute} of {entity}?"])


class WordedFamily(Family):
    """The family of facts; its values are an entity and an attribute, whatever the wording."""

    def values(self, match: re.Match[str]) -> tuple[str, str]:
        """Return entity and attribute; the latter is empty if it is absent or there twice."""
        before, entity, after = match.groups()
        if before and after:
            return entity, ""
        return entity, before or after or ""


def _true_value(entity: str, attribute: str) -> str | None:
    return TRUTH.get((entity, attribute))


def _question_level(entity: str, attribute: str) -> int:
    return LEVEL[entity, attribute]


FACT = WordedFamily(
    name="fact",
    pattern=r"(?:([a-z]+) of )?([A-Z][a-z])(?: ([a-z]+))?\?",
    draw=_draw_question,
    answer=_true_value,
    level=_question_level,
    misconception=stereotype,
    plan="recall",
    answer_type="String",
)


# Yes-no questions


def _draw_claim(rng: Random, level: int) -> str:
    """Claim the truth in half of the questions, else mostly the stereotype."""
    entity, attribute = _draw_key(rng, level)
    share = rng.random()
    if share < 0.5:
        value = TRUTH[entity, attribute]
    elif share < 0.85:
        value = stereotype(entity, attribute)
    else:
        value = rng.choice(VALUES[attribute])
    return f"{entity} {value}?"


def _yes_or_no(truth: bool) -> str:
    return "yes" if truth else "no"


def _is_true(entity: str, value: str) -> str | None:
    attribute = ATTRIBUTE_OF.get(value, "")
    truth = TRUTH.get((entity, attribute))
    return None if truth is None else _yes_or_no(truth == value)


def _claim_level(entity: str, value: str) -> int:
    return LEVEL[entity, ATTRIBUTE_OF[value]]


def _sounds_true(entity: str, value: str) -> str:
    return _yes_or_no(stereotype(entity, ATTRIBUTE_OF[value]) == value)


CLAIM = Family(
    name="yn",
    pattern=r"([A-Z][a-z]) ([a-z]+)\?",
    draw=_draw_claim,
    answer=_is_true,
    level=_claim_level,
    misconception=_sounds_true,
    plan="recall",
    answer_type="Boolean",
)


FAMILIES = (FACT, CLAIM)
