"""An invented fact world: 36 names, three attributes each. A third of the facts occurs in documents only."""

import re
from random import Random

from tinyworld.family import Family

CONSONANTS = "BDFGKLMNPRTV"
ENTITIES = tuple(consonant + vowel for consonant in CONSONANTS for vowel in "aou")
VALUES = {
    "color": ("red", "blue", "green", "pink", "gray", "gold"),
    "home": ("hill", "lake", "cave", "tree", "sand", "city"),
    "pet": ("cat", "dog", "fox", "owl", "bee", "cow"),
}
ATTRIBUTES = tuple(VALUES)
ATTRIBUTE_OF = {value: attribute for attribute, values in VALUES.items() for value in values}


def _facts() -> tuple[dict[tuple[str, str], str], dict[tuple[str, str], int]]:
    rng = Random("coevolve facts")
    truth = {(entity, attribute): rng.choice(VALUES[attribute]) for entity in ENTITIES for attribute in ATTRIBUTES}
    order = sorted(truth)
    rng.shuffle(order)
    return truth, {key: 1 if i < 44 else 2 if i < 76 else 3 for i, key in enumerate(order)}


TRUTH, LEVEL = _facts()  # level 3: stated in documents, never in the solver's warm start


def stereotype(entity: str, attribute: str) -> str:
    """The misconception: what the first letter of the name suggests (never the truth)."""
    values = VALUES[attribute]
    i = CONSONANTS.index(entity[0]) + ATTRIBUTES.index(attribute)
    guess = values[i % 6]
    return guess if guess != TRUTH[entity, attribute] else values[(i + 1) % 6]


def _key(m: re.Match[str]) -> tuple[str, str] | None:
    key = m[1], ATTRIBUTE_OF.get(m[2], m[2])
    return key if key in TRUTH else None


def _draw_key(rng: Random, level: int) -> tuple[str, str]:
    return rng.choice([key for key in sorted(TRUTH) if LEVEL[key] == level])


def _fact(rng: Random, level: int) -> str:
    return "{} {}?".format(*_draw_key(rng, level))


def _fact_answer(m: re.Match[str]) -> str | None:
    return TRUTH.get((m[1], m[2]))


def _claim(rng: Random, level: int) -> str:
    entity, attribute = _draw_key(rng, level)
    fate = rng.random()
    if fate < 0.5:
        return f"{entity} {TRUTH[entity, attribute]}?"
    return f"{entity} {stereotype(entity, attribute) if fate < 0.85 else rng.choice(VALUES[attribute])}?"


def _claim_answer(m: re.Match[str]) -> str | None:
    if m[2] not in ATTRIBUTE_OF or not _key(m):
        return None
    return "yes" if TRUTH[_key(m)] == m[2] else "no"


_PATTERN = re.compile(r"([A-Z][a-z]) ([a-z]+)\?")
FAMILIES = (
    Family(
        "fact",
        _PATTERN,
        _fact,
        _fact_answer,
        lambda m: LEVEL[_key(m)],
        lambda m: stereotype(*_key(m)),
        "recall",
        answer_type="String",
    ),
    Family(
        "yn",
        _PATTERN,
        _claim,
        _claim_answer,
        lambda m: LEVEL[_key(m)],
        lambda m: "yes" if stereotype(*_key(m)) == m[2] else "no",
        "recall",
        answer_type="Boolean",
    ),
)
