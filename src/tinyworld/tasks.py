"""The tiny world: 22 families of short questions with an exact oracle, split by hash.

The oracle sees only the text of a question, so what a Proposer invents is judged exactly too:
well-formed or not, which family, which level, which answer, which misconception.
"""

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from random import Random
from typing import ClassVar

from coevolve.validation import check_choice
from tinyworld import arithmetic, facts, symbols
from tinyworld.facts import ATTRIBUTE_OF

FAMILIES = {family.name: family for family in (*arithmetic.FAMILIES, *symbols.FAMILIES, *facts.FAMILIES)}
CHOICE = "mc"  # multiple choice over the other families
NAMES = (*FAMILIES, CHOICE)
CHOICE_PATTERN = re.compile(r"(.*?) A\)(.*?) B\)(.*?) C\)(.*?) D\)(.*)")
CHOICE_FAMILIES = ("add", "sub", "mul", "prec", "eq", "next", "word", "rate", "unit", "fact")
OUTSIDE = ("div", "mod", "cmp", "sort", "rev", "count", "swap")  # families of no seed question
LEVELS = (1, 2, 3)
SPLITS = ("train", "validation", "test")
LONGEST = 100  # characters of a question; longer text is none, and the pattern of choices is slow on it


@dataclass(frozen=True)
class Task:
    """A well-formed question as the oracle reads it."""

    question: str
    family: str
    answer: str
    level: int
    misconception: str
    answer_type: str
    plan: str  # what a good Planner says about the family
    temperature: ClassVar[None] = None  # no task asks for a temperature of its own

    @property
    def split(self) -> str:
        """The split that the question belongs to."""
        return split(self.question)


@lru_cache(maxsize=200_000)
def read(question: str) -> Task | None:
    """Read a question exactly, or return None for text that is not a well-formed question of this world."""
    if len(question) > LONGEST or not question.isascii():  # other scripts have digits too
        return None
    choice = CHOICE_PATTERN.fullmatch(question)
    if choice:
        return _read_choice(question, *choice.groups())
    for family in FAMILIES.values():
        values = family.read(question)
        if values is not None:
            answer, misconception = str(family.answer(*values)), str(family.misconception(*values))
            level = family.level(*values)
            return Task(question, family.name, answer, level, misconception, family.answer_type, family.plan)
    return None


def _read_choice(question: str, text: str, *options: str) -> Task | None:
    stem = read(text)
    if stem is None or len(set(options)) < 4:
        return None
    hits = [letter for letter, option in zip("ABCD", options, strict=True) if is_correct(text, option)]
    if len(hits) != 1:
        return None
    lure = "ABCD"[options.index(stem.misconception)] if stem.misconception in options else "A"
    return Task(question, CHOICE, hits[0], stem.level, lure, "String", "solve, then pick")


@lru_cache(maxsize=200_000)
def is_correct(question: str, answer: str | None) -> bool:
    """Verify an answer: by execution on hidden inputs for code and list programs, by equality otherwise."""
    task = read(question)
    if task is None or answer is None:
        return False
    equal = symbols.EQUAL.get(task.family)
    return answer == task.answer or equal is not None and equal(answer, *FAMILIES[task.family].read(question))


def split(question: str) -> str:
    """The split a question text belongs to: a fifth is test, a tenth validation, the rest train."""
    bucket = zlib.crc32(question.encode(errors="surrogatepass")) % 10
    return "test" if bucket < 2 else "validation" if bucket == 2 else "train"


def draw(rng: Random, family: str, level: int | None = None) -> Task:
    """Draw a question of a family at a level (default: uniform), over all splits."""
    level = level or rng.choice(LEVELS)
    if family == CHOICE:
        return read(choices(rng, draw(rng, rng.choice(CHOICE_FAMILIES), level)))
    return read(FAMILIES[family].draw(rng, level))


def closed(task: Task) -> bool:
    """Whether the warm start teaches the answer: False for facts that only documents state."""
    return not (task.family in ("fact", "yn") and task.level == 3)


def choices(rng: Random, task: Task) -> str:
    """Turn a task into a question with four options, the misconception among them."""
    options = [task.answer]
    while len(options) < 4:
        option = wrong(rng, task) if len(options) > 1 else task.misconception
        if is_correct(task.question, option):
            option = wrong(rng, task)
        if option not in options:
            options.append(option)
    rng.shuffle(options)
    return task.question + "".join(f" {letter}){text}" for letter, text in zip("ABCD", options, strict=True))


def wrong(rng: Random, task: Task) -> str:
    """A plausible wrong answer: usually the misconception, else a slip of the same shape."""
    if rng.random() < 0.7 and not is_correct(task.question, task.misconception):
        return task.misconception
    while True:
        guess = SLIPS.get(task.family, _near)(rng, task.answer)
        if not is_correct(task.question, guess):
            return guess


def _near(rng: Random, answer: str) -> str:
    return str(abs(int(answer) + rng.choice([1, -1, 10, -10, 2, -2, rng.randint(3, 9)])))


def _shuffled(rng: Random, answer: str) -> str:
    separator = " " if " " in answer else ""
    parts = answer.split(" ") if separator else list(answer)
    i, j = rng.randrange(len(parts)), rng.randrange(len(parts))
    parts[i], parts[j] = parts[j], parts[i]
    if rng.random() < 0.3 or i == j:
        parts[i] = rng.choice(symbols.DIGITS if answer[0].isdigit() else symbols.LETTERS)
    return separator.join(parts)


SLIPS: dict[str, Callable[[Random, str], str]] = {  # of the families whose answers are no whole numbers
    "yn": lambda rng, answer: "no" if answer == "yes" else "yes",
    "fact": lambda rng, answer: rng.choice(facts.VALUES[ATTRIBUTE_OF[answer]]),
    "mc": lambda rng, answer: rng.choice("ABCD"),
    "ops": lambda rng, answer: rng.choice(list(symbols.PROGRAMS)),
    "code": lambda rng, answer: symbols.linear(rng.randint(1, 5), rng.randint(-2, 5)),
    "div": lambda rng, answer: f"{float(answer) + rng.choice([-1, -0.5, 0.5, 1, 2]):g}",
    **dict.fromkeys(("sort", "rev", "swap"), _shuffled),
}


def spoil(rng: Random, question: str) -> str:
    """Make an ill-formed question: cut short, one character too many, or no task at all."""
    while True:
        match rng.randrange(3):
            case 0:
                text = question[: max(1, len(question) // 2)]
            case 1:
                i = rng.randrange(len(question))
                text = question[:i] + rng.choice("?xz+*") + question[i:]
            case _:
                text = rng.choice(["what is it", "tell me more", "is it so?", "how many"])
        if read(text.strip()) is None:
            return text.strip()


def items(splits: str, per_family: int = 40, families: tuple[str, ...] = NAMES) -> list[Task]:
    """Distinct evaluation tasks of one split, up to `per_family` each; small families have fewer.

    The list depends on nothing but the arguments. Raises ValueError for an unknown split.
    """
    check_choice("split", splits, SPLITS)
    return [task for name in families for task in _drawn(name, splits, per_family)]


@cache
def _drawn(family: str, part: str, count: int) -> tuple[Task, ...]:
    """Distinct tasks of one split, up to `count`, among the first 200 `count` that a family draws.

    A small family has given everything sooner: 50 `count` draws in a row without a new question end it.
    """
    rng, known, found, last = Random(f"items {family}"), set(), [], 0
    for number in range(200 * count):
        task = draw(rng, family)
        if task.question not in known:
            known.add(task.question)
            last = number
            if closed(task) and task.split == part:
                found.append(task)
        if len(found) == count or number - last == 50 * count:
            break
    return tuple(found)
