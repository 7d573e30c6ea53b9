"""An invented fact world: 36 names, three attributes each. A third of the facts is asked for with documents only."""

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


TRUTH, LEVEL = (
    _facts()
)  # level 3: stated in documents, never asked plainly in the solver's warm start (options of a choice may hold them)


def stereotype(entity: str, attribute: str) -> str:
    """The misconception: what the first letter of the name suggests (never the truth)."""
    values = VALUES[attribute]
    i = CONSONANTS.index(entity[0]) + ATTRIBUTES.index(attribute)
    guess = values[i % 6]
    return guess if guess != TRUTH[entity, attribute] else values[(i + 1) % 6]


def _key(rng: Random, level: int) -> tuple[str, str]:
    return rng.choice([key for key in sorted(TRUTH) if LEVEL[key] == level])


def _question(rng: Random, level: int) -> str:
    return "{} {}?".format(*_key(rng, level))


def _truth(entity: str, attribute: str) -> str | None:
    return TRUTH.get((entity, attribute))


def _level(entity: str, word: str) -> int:
    return LEVEL[entity, ATTRIBUTE_OF.get(word, word)]


def _claim(rng: Random, level: int) -> str:
    entity, attribute = _key(rng, level)
    fate = rng.random()
    if fate < 0.5:
        return f"{entity} {TRUTH[entity, attribute]}?"
    return f"{entity} {stereotype(entity, attribute) if fate < 0.85 else rng.choice(VALUES[attribute])}?"


def _holds(entity: str, value: str) -> str | None:
    truth = TRUTH.get((entity, ATTRIBUTE_OF.get(value, "")))
    return None if truth is None else "yes" if truth == value else "no"


def _sounds_true(entity: str, value: str) -> str:
    return "yes" if stereotype(entity, ATTRIBUTE_OF[value]) == value else "no"


PATTERN = r"([A-Z][a-z]) ([a-z]+)\?"
FAMILIES = (  # name, pattern, draw, answer, level, misconception, plan, answer type
    Family("fact", PATTERN, _question, _truth, _level, stereotype, "recall", "String"),
    Family("yn", PATTERN, _claim, _holds, _level, _sounds_true, "recall", "Boolean"),
)
