"""The tiny world: 22 families of short questions with an exact oracle, split by hash.

The oracle reads only the text of a question, so a question that a Proposer invents is judged
exactly too: whether it is well-formed, its family, level, answer and misconception.
"""

import itertools
import re
import tomllib
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from random import Random
from typing import ClassVar

from coevolve.validation import check_choice
from tinyworld import arithmetic, facts, symbols

ALL_FAMILIES = (*arithmetic.FAMILIES, *symbols.FAMILIES, *facts.FAMILIES)
FAMILIES = {family.name: family for family in ALL_FAMILIES}
CHOICE = "mc"  # multiple choice over the other families
NAMES = (*FAMILIES, CHOICE)
CHOICE_PATTERN = re.compile(r"(.*?) A\)(.*?) B\)(.*?) C\)(.*?) D\)(.*)")
CHOICE_LETTERS = "ABCD"
CHOICE_FAMILIES = (
    "add",
    "sub",
    "mul",
    "prec",
    "eq",
    "next",
    "word",
    "rate",
    "unit",
    "fact",
)
MANY = 1000  # questions; larger populations are not counted
# Split -> family -> the number of questions of each level, see `count_questions`.
POPULATIONS: dict[str, dict[str, list[int]]] = tomllib.loads(
    Path(__file__).with_name("populations.toml").read_text(encoding="utf-8")
)
# Families of no seed question.
OUTSIDE = (
    "div",
    "mod",
    "cmp",
    "sort",
    "rev",
    "count",
    "swap",
)
LEVELS = (1, 2, 3)
SPLITS = ("train", "validation", "test")
LONGEST = 100  # characters of a question; CHOICE_PATTERN is slow on long text
MISCONCEPTION_RATE = 0.7  # of wrong answers
# Tasks of a family in the longest list of which shorter ones are a beginning.
FULL_LIST = 160


@dataclass(frozen=True)
class Task:
    """A well-formed question as the oracle reads it."""

    question: str
    family: str
    answer: str
    level: int
    misconception: str
    answer_type: str
    plan: str  # the family's correct plan
    temperature: ClassVar[None] = None  # no task sets its own

    @property
    def split(self) -> str:
        """The split of the question."""
        return split(self.question)


# Reading and verifying


@lru_cache(maxsize=200_000)
def read(question: str) -> Task | None:
    """Read a question exactly; None for text that is not a well-formed question of this world."""
    if (
        len(question) > LONGEST or not question.isascii()
    ):  # \d also matches non-ASCII digits
        return None
    choice = CHOICE_PATTERN.fullmatch(question)
    if choice:
        return _read_choice(question, *choice.groups())
    for family in FAMILIES.values():
        values = family.read(question)
        if values is not None:
            return Task(
                question=question,
                family=family.name,
                answer=str(family.answer(*values)),
                level=family.level(*values),
                misconception=str(family.misconception(*values)),
                answer_type=family.answer_type,
                plan=family.plan,
            )
    return None


def _read_choice(question: str, stem: str, *options: str) -> Task | None:
    """Read a multiple choice: four different options, exactly one of them correct."""
    stem_task = read(stem)
    if stem_task is None or len(set(options)) < 4:
        return None
    correct_letters = []
    for letter, option in zip(CHOICE_LETTERS, options, strict=True):
        if is_correct(stem, option):
            correct_letters.append(letter)
    if len(correct_letters) != 1:
        return None
    misconception = "A"
    if stem_task.misconception in options:
        misconception = CHOICE_LETTERS[options.index(stem_task.misconception)]
    return Task(
        question=question,
        family=CHOICE,
        answer=correct_letters[0],
        level=stem_task.level,
        misconception=misconception,
        answer_type="String",
        plan="solve, then pick",
    )


@lru_cache(maxsize=200_000)
def is_correct(question: str, answer: str | None) -> bool:
    """Verify an answer: code and list programs on hidden inputs, all others by equality."""
    task = read(question)
    if task is None or answer is None:
        return False
    if answer == task.answer:
        return True
    is_equal = symbols.EQUAL.get(task.family)
    if is_equal is None:
        return False
    values = FAMILIES[task.family].read(question)
    return is_equal(answer, *values)


def split(question: str) -> str:
    """Return the split of a text by hash: a fifth is test, a tenth validation, the rest train.

    A multiple choice is in the split of the question that it asks: its options would give the
    answer away.
    """
    choice = None
    if len(question) <= LONGEST:
        choice = CHOICE_PATTERN.fullmatch(question)
    asked = choice[1] if choice else question
    bucket = zlib.crc32(asked.encode(errors="surrogatepass")) % 10
    if bucket < 2:
        return "test"
    return "validation" if bucket == 2 else "train"


def closed(task: Task) -> bool:
    """Whether the warm start teaches the answer: not of facts that only documents state."""
    return task.family not in ("fact", "yn") or task.level < 3


# Drawing


def draw(rng: Random, family: str, level: int | None = None) -> Task:
    """Draw a question of a family, of any split; the level is uniform by default.

    Small numbers may make a question easier than the level asked for.
    """
    level = level or rng.choice(LEVELS)
    return read(_draw_question(rng, family, level))


def _draw_question(rng: Random, family: str, level: int) -> str:
    if family == CHOICE:
        stem_task = draw(rng, rng.choice(CHOICE_FAMILIES), level)
        return choices(rng, stem_task)
    return FAMILIES[family].draw(rng, level)


def choices(rng: Random, task: Task) -> str:
    """Turn a task into a question with four options, the misconception among them."""
    options = [task.answer]
    while len(options) < 4:
        option = task.misconception if len(options) == 1 else wrong(rng, task)
        if is_correct(task.question, option):
            option = wrong(rng, task)
        if option not in options:
            options.append(option)
    rng.shuffle(options)
    labelled = [
        f" {letter}){option}"
        for letter, option in zip(CHOICE_LETTERS, options, strict=True)
    ]
    return task.question + "".join(labelled)


# Wrong answers and ill-formed questions


def wrong(rng: Random, task: Task) -> str:
    """Draw a plausible wrong answer: mostly the misconception, else a slip of the same shape."""
    misconception_is_drawn = rng.random() < MISCONCEPTION_RATE
    if misconception_is_drawn and not is_correct(task.question, task.misconception):
        return task.misconception
    draw_slip = SLIPS.get(task.family, _miscalculate)
    while True:
        guess = draw_slip(rng, task.answer)
        if not is_correct(task.question, guess):
            return guess


# (rng, correct answer) -> an answer, mostly a wrong one.
Slip = Callable[[Random, str], str]


def _miscalculate(rng: Random, answer: str) -> str:
    difference = rng.choice([1, -1, 10, -10, 2, -2, rng.randint(3, 9)])
    return str(abs(int(answer) + difference))


def _miscalculate_decimal(rng: Random, answer: str) -> str:
    difference = rng.choice([-1, -0.5, 0.5, 1, 2])
    return f"{float(answer) + difference:g}"


def _shuffle_symbols(rng: Random, answer: str) -> str:
    """Swap two symbols; sometimes, or where they are the same place, replace one."""
    separator = " " if " " in answer else ""
    parts = answer.split(" ") if separator else list(answer)
    i = rng.randrange(len(parts))
    j = rng.randrange(len(parts))
    parts[i], parts[j] = parts[j], parts[i]
    if rng.random() < 0.3 or i == j:
        alphabet = symbols.DIGITS if answer[0].isdigit() else symbols.LETTERS
        parts[i] = rng.choice(alphabet)
    return separator.join(parts)


def _negate(rng: Random, answer: str) -> str:
    return "no" if answer == "yes" else "yes"


def _other_value(rng: Random, answer: str) -> str:
    return rng.choice(facts.VALUES[facts.ATTRIBUTE_OF[answer]])


def _other_letter(rng: Random, answer: str) -> str:
    return rng.choice(CHOICE_LETTERS)


def _other_program(rng: Random, answer: str) -> str:
    return rng.choice(list(symbols.PROGRAMS))


def _other_line(rng: Random, answer: str) -> str:
    slope = rng.randint(1, 5)
    return symbols.linear(slope, rng.randint(-2, 5))


SLIPS: dict[str, Slip] = {  # of families whose answers are not whole numbers
    "yn": _negate,
    "fact": _other_value,
    CHOICE: _other_letter,
    "ops": _other_program,
    "code": _other_line,
    "div": _miscalculate_decimal,
    "sort": _shuffle_symbols,
    "rev": _shuffle_symbols,
    "swap": _shuffle_symbols,
}


def spoil(rng: Random, question: str) -> str:
    """Draw an ill-formed question: cut short, with one more character, or no task at all."""
    while True:
        match rng.randrange(3):
            case 0:
                text = question[: max(1, len(question) // 2)]
            case 1:
                i = rng.randrange(len(question))
                text = question[:i] + rng.choice("?xz+*") + question[i:]
            case _:
                text = rng.choice(
                    ["what is it", "tell me more", "is it so?", "how many"]
                )
        text = text.strip()
        if read(text) is None:
            return text


# Evaluation items


def items(
    split_name: str, per_family: int = 40, families: tuple[str, ...] = NAMES
) -> list[Task]:
    """Return distinct tasks of one split, up to `per_family` each; small families have fewer.

    The same arguments give the same list, and a shorter list is the beginning of a longer one up
    to FULL_LIST. The shares of the levels are the same in all of them: a third each, unless a
    level has too few questions. Raises ValueError for an unknown split.
    """
    check_choice("split", split_name, SPLITS)
    tasks = []
    for family in families:
        tasks += _items_of_family(family, split_name, per_family)
    return tasks


@cache
def _items_of_family(family: str, split_name: str, count: int) -> tuple[Task, ...]:
    """Return `count` tasks in an order in which every beginning has the shares of the whole."""
    length = max(count, FULL_LIST)
    levels = [_level_items(family, split_name, level, length) for level in LEVELS]
    quotas = _quotas([len(tasks) for tasks in levels], length)
    placed = []
    for tasks, quota in zip(levels, quotas, strict=True):
        for i, task in enumerate(tasks[:quota]):
            placed.append(((i + 0.5) / quota, task))
    placed.sort(key=lambda pair: pair[0])
    return tuple(task for _, task in placed[:count])


def _quotas(available: Sequence[int], total: int) -> list[int]:
    """Share `total` equally between levels; what a level lacks, the others give."""
    quotas = [0] * len(available)
    by_size = sorted(range(len(available)), key=available.__getitem__)
    for position, level in enumerate(by_size):
        equal_share = (total - sum(quotas)) // (len(available) - position)
        quotas[level] = min(available[level], equal_share)
    return quotas


@cache
def _level_items(
    family: str, split_name: str, level: int, count: int
) -> tuple[Task, ...]:
    """Return distinct tasks of a family, split and level: `count`, or all if there are fewer."""
    # Where all are wanted, this saves the many draws that would show that no more come.
    if split_name in POPULATIONS:
        count = min(count, POPULATIONS[split_name][family][level - 1])
    return _first_of_split(family, split_name, level, count)


def _first_of_split(
    family: str, split_name: str, level: int, count: int
) -> tuple[Task, ...]:
    tasks: list[Task] = []
    for task in _distinct_tasks(family, level):
        if closed(task) and task.split == split_name:
            tasks.append(task)
        if len(tasks) == count:
            break
    return tuple(tasks)


@cache
def _distinct_tasks(family: str, level: int) -> "DistinctTasks":
    """Return the same tasks for all splits."""
    return DistinctTasks(family, level)


class DistinctTasks:
    """The distinct tasks of a family and level, of all splits, in the order of their drawing."""

    def __init__(self, family: str, level: int) -> None:
        self.family = family
        self.level = level
        self.rng = Random(f"items {family} {level}")
        self.tasks: list[Task] = []
        self.questions_read: set[str] = set()
        self.is_complete = False

    def __iter__(self) -> Iterator[Task]:
        """Yield the tasks that are there, then draw on; every iteration yields the same ones."""
        for position in itertools.count():
            if position == len(self.tasks):
                self._draw_another()
            if position == len(self.tasks):
                return
            yield self.tasks[position]

    def _draw_another(self) -> None:
        """Draw until there is a new task; give up when so many draws brought none."""
        if self.is_complete:
            return
        for _ in range(300 + 12 * len(self.tasks)):
            question = _draw_question(self.rng, self.family, self.level)
            # Reading a question takes longer than drawing it, and most draws are not new.
            if question in self.questions_read:
                continue
            self.questions_read.add(question)
            task = read(question)
            if task.level == self.level:
                self.tasks.append(task)
                return
        self.is_complete = True


def population(split_name: str, family: str, level: int) -> int | None:
    """Return how many questions a level of a family has in the validation or test split.

    None stands for MANY or more.
    """
    size = POPULATIONS[split_name][family][level - 1]
    return size if size < MANY else None


def count_questions(split_name: str, family: str, level: int) -> int:
    """Count what populations.toml lists: up to MANY questions, by drawing until none are new."""
    return len(_first_of_split(family, split_name, level, MANY))
