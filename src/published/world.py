"""A paper's published tests and seed questions, as a world for the methods.

No oracle knows everything, so whatever one would say about an invented question is None. Seeds,
validation and test items never share a question. Where a benchmark has only one split, a question
drawn as a seed leaves the test and is counted.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from re import fullmatch
from typing import ClassVar

from coevolve.text import prompts
from coevolve.validation import check_choice
from coevolve.worlds import World
from published.data import BENCHMARKS, PAPERS, Paper, check, draw, in_hash_split, items
from published.grading import grade, program
from published.rows import Item, normal

VALIDATION_ONE_IN = 20  # rows of a train split, by the hash of the question


@dataclass(frozen=True)
class Parts:
    """All items of a world. `evaluated` has every test item, including those that are seeds."""

    seeds: list[Item]
    validation: list[Item]
    test: list[Item]
    evaluated: list[Item]

    def of_split(self, split: str) -> list[Item]:
        """Return the items of train (the seeds), validation or test."""
        splits = {
            "train": self.seeds,
            "validation": self.validation,
            "test": self.test,
        }
        return splits[split]


class ItemWorld(World):
    """A world of questions with golds, without an oracle.

    A subclass has a `name`, a `paper` (on which the draw of items depends), the `lists` of tests
    and seeds, and its items in `_parts`.
    """

    # How SAGE's verifier compares an answer with its gold.
    grading: ClassVar[str] = "math"

    @cached_property
    def _item_of(self) -> dict[str, Item]:
        """Items by question; for equal questions the seed counts, then the validation item."""
        parts = self._parts
        item_of = {}
        for item in [*parts.evaluated, *parts.validation, *parts.seeds]:
            item_of[item.question] = item
        return item_of

    @cached_property
    def _held_out(self) -> set[str]:
        """Normalised questions and stems of the test and validation items."""
        held_out = set()
        for item in [*self._parts.evaluated, *self._parts.validation]:
            held_out.add(normal(item.question))
            held_out.add(normal(item.stem))
        return held_out

    def items(
        self, split: str, per_family: int = 40, families: Sequence[str] | None = None
    ) -> list[Item]:
        """Return evaluation items, at most `per_family` of a benchmark and at most the paper's cap.

        A test item occurs as often as the paper samples it (SPICE: 32 times for AIME). `families`
        is ignored: it names families of the tiny world. Raises ValueError for a split other than
        validation and test, when the data cannot be loaded, and when no seed or no test is left.
        """
        check_choice("split", split, ("validation", "test"))
        chosen: list[Item] = []
        for key, cap in self.lists.tests.items():
            candidates = []
            for item in self._parts.of_split(split):
                if item.family == key:
                    candidates.append(item)
            count = min(cap or per_family, per_family)
            drawn = draw(candidates, count, f"{split} {self.paper} {key}")
            temperature = self.lists.temperatures.get(key, self.lists.temperature)
            prepared = []
            for item in drawn:
                prepared.append(replace(item, split=split, temperature=temperature))
            repeats = self.lists.repeats.get(key, 1) if split == "test" else 1
            chosen += prepared * repeats
        if split == "test" and not chosen:
            tests = ", ".join(self.lists.tests)
            raise ValueError(
                f"world: no test item of {tests} is left once the seeds are drawn"
            )
        return chosen

    def grade(self, pairs: Sequence[tuple[Item, str | None]]) -> list[bool | None]:
        """Return whether each answer to its item is correct; None where only a judge can say."""
        with ThreadPoolExecutor() as threads:
            verdicts = threads.map(lambda pair: grade(*pair), pairs)
            return [verdict.correct for verdict in verdicts]

    def seed_rows(self) -> list[tuple[str, Item]]:
        """Return (source, item) pairs of the seed set, with answers, for supervised baselines."""
        return [(item.family, item) for item in self._parts.seeds]

    def seed_questions(self) -> list[str]:
        """Return the questions of the seed set, without answers."""
        return self.questions("train")

    def zero_questions(self) -> list[str]:
        """Return our sixteen starting questions (prompts/mae/zero_questions.txt)."""
        path = prompts.folder_of("mae") / "zero_questions.txt"
        text = path.read_text(encoding="utf-8")
        questions = []
        for line in text.splitlines():
            if line.strip() and not line.startswith("%%"):
                questions.append(line.strip())
        return questions

    def training_questions(self) -> list[tuple[str, str]]:
        """Return (domain, question) pairs of the seed set, with the paper's names of domains."""
        pairs = []
        for key, item in self.seed_rows():
            domain = self.lists.domains.get(key, key)
            pairs.append((domain, item.question))
        return pairs

    def verifiable_tasks(self) -> list[tuple[str, str, str]]:
        """Return distinct (question, math or code, gold answer or tests) of the seeds, for SAGE."""
        tasks = [_verifiable_task(item) for item in self._parts.seeds]
        return list(dict.fromkeys(tasks))

    def program(self, question: str, answer: str) -> str:
        """Return an answer to a code question as Python source, without its fence.

        The code that the question starts from comes first.
        """
        item = self._item_of.get(question)
        before = ""
        if item and item.scorer == "code":
            before = item.gold.get("before", "")
        return f"{before}\n{program(answer)}"

    def questions(self, split: str, families: Sequence[str] = ()) -> list[str]:
        """Return distinct questions to train on.

        They are the seeds, or for "test" the test itself (CoNL at test time).
        """
        questions = [item.question for item in self._parts.of_split(split)]
        return list(dict.fromkeys(questions))

    def held_out(self, question: str) -> bool:
        """Whether a question is a test or validation item, regardless of case and spacing."""
        return normal(question) in self._held_out

    def is_correct(self, question: str, answer: str | None) -> bool | None:
        """Whether an answer to a published question is correct; None for any other question."""
        item = self._item_of.get(question)
        if item is None:
            return None
        (correct,) = self.grade([(item, answer)])
        return correct

    def right_answer(self, question: str) -> str | None:
        """Return the gold answer of a published question; None for any other question."""
        item = self._item_of.get(question)
        return (item.answer or None) if item else None


def _verifiable_task(item: Item) -> tuple[str, str, str]:
    if item.scorer == "code":
        return item.question, "code", str(item.gold["tests"])
    return item.question, "math", item.answer


@dataclass
class DataWorld(ItemWorld):
    """A paper's tests and seeds, loaded on first use.

    `only` limits both to these benchmarks. If the paper does not use one of them, it is tested
    whole and, if it has a train split, its questions are seeds. If the paper uses none of them for
    seeds, or none for tests, they give these too.
    """

    paper: str
    only: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_choice("paper", self.paper, PAPERS)
        for key in self.only:
            check_choice("KEY of world=data:KEY,KEY", key, BENCHMARKS)

    @property
    def name(self) -> str:
        """The world's name in a configuration."""
        return f"data:{','.join(self.only)}" if self.only else "data"

    @cached_property
    def lists(self) -> Paper:
        """The paper's tests and seeds, limited to `only`."""
        paper = PAPERS[self.paper]
        if not self.only:
            return paper
        tests = {key: cap for key, cap in paper.tests.items() if key in self.only}
        seeds = {key: count for key, count in paper.seeds.items() if key in self.only}
        for key in self.only:
            if key in paper.tests or key in paper.seeds:
                continue
            tests[key] = 0
            if BENCHMARKS[key].has_training_part:
                seeds[key] = 0
        if not tests:
            tests = dict.fromkeys(self.only, 0)
        if not seeds:
            with_training = [
                key for key in self.only if BENCHMARKS[key].has_training_part
            ]
            seeds = dict.fromkeys(with_training, 0)
        return replace(paper, tests=tests, seeds=seeds)

    def check(self) -> None:
        """Raise ValueError when a data set is neither local nor on the hub, without loading any."""
        for key in dict.fromkeys([*self.lists.tests, *self.lists.seeds]):
            check(key)

    @cached_property
    def _parts(self) -> Parts:
        evaluated: list[Item] = []
        for key in self.lists.tests:
            evaluated += items(key)
        evaluated_keys = _identity_keys(evaluated)
        seeds: list[Item] = []
        for key, count in self.lists.seeds.items():
            seeds += self._draw_seeds(key, count, evaluated_keys)
        if self.lists.seeds and not seeds:
            sources = ", ".join(self.lists.seeds)
            raise ValueError(
                f"world: no row of {sources} is left to start from (docs/data.md)"
            )
        seed_keys = _identity_keys(seeds)
        return Parts(
            seeds=seeds,
            validation=self._validation(evaluated_keys),
            test=[
                item for item in evaluated if seed_keys.isdisjoint(item.identity_keys)
            ],
            evaluated=evaluated,
        )

    def _validation(self, evaluated_keys: set[str]) -> list[Item]:
        """Return 1 in VALIDATION_ONE_IN training questions of the tested benchmarks."""
        validation = []
        for key in self.lists.tests:
            if not BENCHMARKS[key].has_training_part:
                continue
            for item in items(key, "train"):
                is_validation = in_hash_split(item, VALIDATION_ONE_IN)
                if is_validation and evaluated_keys.isdisjoint(item.identity_keys):
                    validation.append(item)
        return validation

    def _draw_seeds(self, key: str, count: int, evaluated_keys: set[str]) -> list[Item]:
        """Draw seeds from a benchmark: no validation item, and no test item unless forced."""
        patterns = self.lists.where.get(key, {})
        part = "train" if BENCHMARKS[key].has_training_part else "test"
        matching = {}
        for item in items(key, part):
            if _matches(item, patterns):
                matching[item.question] = item
        candidates = list(matching.values())
        if key not in self.lists.forced:
            candidates = _trainable(candidates, evaluated_keys)
        return draw(candidates, count, f"seeds {self.paper} {key}")

    def composition(self) -> list[dict[str, object]]:
        """Return a row per benchmark: seeds requested and drawn, test items, and the overlap.

        The overlap is the number of items that left the test because they are seeds.
        """
        seeds = _count_families(self._parts.seeds)
        test = _count_families(self._parts.test)
        evaluated = _count_families(self._parts.evaluated)
        rows: list[dict[str, object]] = []
        for key in dict.fromkeys([*self.lists.seeds, *self.lists.tests]):
            row = {
                "benchmark": key,
                "licence": BENCHMARKS[key].licence,
                "seeds wanted": self.lists.seeds.get(key, 0),
                "seeds": seeds[key],
                "test": test[key],
                "overlap": evaluated[key] - test[key],
            }
            rows.append(row)
        return rows


def _identity_keys(items: Iterable[Item]) -> set[str]:
    keys: set[str] = set()
    for item in items:
        keys.update(item.identity_keys)
    return keys


def _matches(item: Item, patterns: Mapping[str, str]) -> bool:
    """Whether each of these columns of an item matches its pattern."""
    for column, pattern in patterns.items():
        if not fullmatch(pattern, str(item.meta.get(column))):
            return False
    return True


def _trainable(candidates: Iterable[Item], evaluated_keys: set[str]) -> list[Item]:
    """Return the items that are neither validation items nor evaluated."""
    trainable = []
    for item in candidates:
        is_validation = in_hash_split(item, VALIDATION_ONE_IN)
        if not is_validation and evaluated_keys.isdisjoint(item.identity_keys):
            trainable.append(item)
    return trainable


def _count_families(items: Iterable[Item]) -> Counter[str]:
    return Counter(item.family for item in items)


def named(name: str, paper: str, seeds: bool = True) -> DataWorld:
    """Return the world "data" (all that the paper uses) or "data:KEY,KEY" (these benchmarks).

    Nothing is loaded. `seeds` says that the method requires seed questions, so that benchmarks
    without a train split are refused. Raises ValueError for that and for an unknown paper or
    benchmark.
    """
    _, colon, keys = name.partition(":")
    if not (paper or colon):
        raise ValueError(
            "world=data is a paper's data, and this method has no paper: "
            "name benchmarks, world=data:KEY,KEY"
        )
    only = tuple(key.strip() for key in keys.split(",")) if colon else ()
    world = DataWorld(paper or "mae", only)
    if seeds and not world.lists.seeds:
        raise ValueError(
            "world: the method starts from questions of a train split, "
            f"and {keys or paper} has none"
        )
    return world
