"""Questions with golds, a paper's published tests and seeds, as a world for the methods; no oracle knows everything.

Seeds, validation and test items never share a question; where a benchmark has one split only, what was drawn as a
seed leaves the test and is counted.
"""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from re import fullmatch
from typing import ClassVar

from coevolve.text import prompts
from coevolve.validation import check_choice
from coevolve.worlds import World
from published.data import BENCHMARKS, PAPERS, Paper, check, draw, items, share
from published.grading import grade, program
from published.rows import Item, normal

VALIDATION = 20  # one row in so many of a train split is for validation, by the hash of its question


class ItemWorld(World):
    """Questions with golds as a world, in which what an oracle would say of an invented question is None throughout.

    A subclass has a `name`, a `paper` (by which items are drawn), the `lists` of what is tested and what gives seeds,
    and `_parts`: all items as `seeds`, `validation`, `test` and `asked` (every test item, also one that is a seed).
    """

    grading: ClassVar[str] = "math"  # how SAGE's verifier compares a math answer with its gold

    @cached_property
    def _known(self) -> dict[str, Item]:
        return {item.question: item for name in ("asked", "validation", "seeds") for item in self._parts[name]}

    @cached_property
    def _held(self) -> set[str]:
        held = self._parts["asked"] + self._parts["validation"]
        return {normal(text) for item in held for text in (item.question, item.stem)}

    def items(self, split: str, per_family: int = 40, families: Sequence[str] | None = None) -> list[Item]:
        """Evaluation items, at most `per_family` a benchmark and at most the paper's own cap; AIME comes 32 times.

        The tiny world's families mean nothing here. Raises ValueError for a split other than validation and test,
        and in one line when the data cannot be had or nothing is left to start from or to test.
        """
        check_choice("split", split, ("validation", "test"))
        chosen: list[Item] = []
        for key, cap in self.lists.tests.items():
            found = [item for item in self._parts[split] if item.family == key]
            drawn = draw(found, min(cap or per_family, per_family), f"{split} {self.paper} {key}")
            temperature = self.lists.temperatures.get(key, self.lists.temperature)
            times = self.lists.repeats.get(key, 1) if split == "test" else 1
            chosen += [replace(item, split=split, temperature=temperature) for item in drawn] * times
        if split == "test" and not chosen:
            raise ValueError(f"world: no test item of {', '.join(self.lists.tests)} is left beside the seeds")
        return chosen

    def grade(self, pairs: Sequence[tuple[Item, str | None]]) -> list[bool | None]:
        """Say whether answers to published items are right, in their order; None where only a judge can say."""
        with ThreadPoolExecutor() as threads:
            return [verdict.correct for verdict in threads.map(lambda pair: grade(*pair), pairs)]

    def seed_rows(self) -> list[tuple[str, Item]]:
        """Return (source, item) pairs of the seed set, with their answers, for supervised baselines."""
        return [(item.family, item) for item in self._parts["seeds"]]

    def seed_questions(self) -> list[str]:
        """Return the questions of the seed set: no answer ever leaves this method."""
        return self.questions("train")

    def zero_questions(self) -> list[str]:
        """Return the sixteen starting questions, ours (prompts/mae/zero_questions.txt)."""
        text = (prompts.folder_of("mae") / "zero_questions.txt").read_text(encoding="utf-8")
        return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("%%")]

    def training_questions(self) -> list[tuple[str, str]]:
        """Return (domain, question) pairs of the seed set, without answers; a domain is the paper's for its source."""
        return [(self.lists.domains.get(key, key), item.question) for key, item in self.seed_rows()]

    def verifiable_tasks(self) -> list[tuple[str, str, str]]:
        """Return (question, math or code, gold answer or tests) of the seed set, for SAGE."""

        def verifier(item: Item) -> tuple[str, str]:
            return ("code", str(item.gold["tests"])) if item.scorer == "code" else ("math", item.answer)

        return list(dict.fromkeys((item.question, *verifier(item)) for item in self._parts["seeds"]))

    def program(self, question: str, answer: str) -> str:
        """Return an answer to a code question as Python source, without its fence, behind the start of the question."""
        known = self._known.get(question)
        before = known.gold.get("before", "") if known and known.scorer == "code" else ""
        return f"{before}\n{program(answer)}"

    def questions(self, split: str, families: Sequence[str] = ()) -> list[str]:
        """Return distinct questions to train on: the seeds, or with "test" the test itself (CoNL at test time)."""
        part = "seeds" if split == "train" else split
        return list(dict.fromkeys(item.question for item in self._parts[part]))

    def held_out(self, question: str) -> bool:
        """Return whether a question, case and spacing aside, is a test or validation item."""
        return normal(question) in self._held

    def is_correct(self, question: str, answer: str | None) -> bool | None:
        """Return the scorer's verdict on an answer to a published question; None for any other question."""
        known = self._known.get(question)
        return None if known is None else self.grade([(known, answer)])[0]


@dataclass
class DataWorld(ItemWorld):
    """A paper's tests and seeds for the methods. Nothing is loaded before it is asked for.

    `only` limits both to these benchmarks; one that the paper does not use is tested whole and, where it has a train
    split, gives seeds out of it. When the paper's use leaves no seeds, or no tests, these benchmarks give them too.
    """

    paper: str
    only: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_choice("paper", self.paper, PAPERS)
        for key in self.only:
            check_choice("KEY of world=data:KEY,KEY", key, BENCHMARKS)

    @property
    def name(self) -> str:
        """How a configuration names this world."""
        return ":".join(["data", *filter(None, [",".join(self.only)])])

    @cached_property
    def lists(self) -> Paper:
        """The paper's lists of tests and seeds, limited to `only`."""
        whole = PAPERS[self.paper]
        if not self.only:
            return whole
        divided = {key: 0 for key in self.only if BENCHMARKS[key].trains}
        new = {key: 0 for key in self.only if key not in (*whole.tests, *whole.seeds)}
        tests = {key: cap for key, cap in whole.tests.items() if key in self.only} | new
        seeds = {key: count for key, count in whole.seeds.items() if key in self.only}
        seeds |= {key: 0 for key in new if key in divided}
        return replace(whole, tests=tests or dict.fromkeys(self.only, 0), seeds=seeds or divided)

    def check(self) -> None:
        """Raise ValueError, in one line, when a data set can be had neither here nor from the hub; loads none."""
        for key in dict.fromkeys([*self.lists.tests, *self.lists.seeds]):
            check(key)

    @cached_property
    def _parts(self) -> dict[str, list[Item]]:
        """All items: `asked` (every test item, also one that is a seed), `seeds`, `test` and `validation`."""
        asked = [item for key in self.lists.tests for item in items(key)]
        evaluated = _marks(asked)
        seeds = [item for key, count in self.lists.seeds.items() for item in self._draw(key, count, evaluated)]
        if self.lists.seeds and not seeds:
            raise ValueError(f"world: no row of {', '.join(self.lists.seeds)} is left to start from (docs/data.md)")
        started = _marks(seeds)
        trained = [item for key in self.lists.tests if BENCHMARKS[key].trains for item in items(key, "train")]
        return {
            "asked": asked,
            "seeds": seeds,
            "test": [item for item in asked if started.isdisjoint(item.marks)],
            "validation": [item for item in trained if share(item, VALIDATION) and evaluated.isdisjoint(item.marks)],
        }

    def _draw(self, key: str, count: int, evaluated: set[str]) -> list[Item]:
        """Seeds out of a benchmark: none of validation, and none that is evaluated unless it is forced."""
        where = self.lists.where.get(key, {}).items()
        rows = items(key, "train" if BENCHMARKS[key].trains else "test")
        fits = (item for item in rows if all(fullmatch(wanted, str(item.meta.get(name))) for name, wanted in where))
        found = list({item.question: item for item in fits}.values())
        if key not in self.lists.forced:
            found = [one for one in found if not share(one, VALIDATION) and evaluated.isdisjoint(one.marks)]
        return draw(found, count, f"seeds {self.paper} {key}")

    def composition(self) -> list[dict[str, object]]:
        """Return for each benchmark the seeds asked for and drawn, test items, and how many left the test as seeds."""
        counts = {name: Counter(item.family for item in found) for name, found in self._parts.items()}
        rows: list[dict[str, object]] = []
        for key in {**self.lists.seeds, **self.lists.tests}:
            wanted = {"licence": BENCHMARKS[key].licence, "seeds wanted": self.lists.seeds.get(key, 0)}
            seeds, test, asked = (counts[part][key] for part in ("seeds", "test", "asked"))
            rows.append({"benchmark": key, **wanted, "seeds": seeds, "test": test, "overlap": asked - test})
        return rows


def _marks(found: Sequence[Item]) -> set[str]:
    return {mark for item in found for mark in item.marks}


def named(name: str, paper: str, seeds: bool = True) -> DataWorld:
    """Return the world "data" (all that the paper uses) or "data:KEY,KEY" (these benchmarks); loads nothing.

    `seeds` says that the method starts from published questions: benchmarks without a train split are refused then.
    Raises ValueError, in one line, for an unknown paper or benchmark.
    """
    _, colon, keys = name.partition(":")
    if not (paper or colon):
        raise ValueError("world=data is a paper's data, and this method has no paper: name some, world=data:KEY,KEY")
    made = DataWorld(paper or "mae", tuple(key.strip() for key in keys.split(",")) if colon else ())
    if seeds and not made.lists.seeds:
        raise ValueError(f"world: the method starts from questions of a train split, and {keys or paper} has none")
    return made
