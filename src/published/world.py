"""A paper's published tests and seeds as a world for the protocols, in which no oracle knows everything.

Seeds, validation and test items never share a question; where a benchmark has one split only, what was drawn as a
seed leaves the test and is counted.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from typing import Any, ClassVar

from coevolve import prompts
from coevolve.checks import among
from coevolve.worlds import World
from published.data import Paper, benchmark, draw, items, papers, registry, share
from published.grading import grade
from published.rows import Item, normal, program
from tinyworld.oracle import TinyWorld
from tinyworld.tasks import NAMES

METHODS = {  # whose tests and seeds a baseline shares
    "mae": "mae",
    "base": "mae",
    "sft": "mae",
    "azr": "mae",
    "sage": "sage",
    "comas": "comas",
    "srlm": "comas",
    "maporl": "comas",
    "ttrl": "comas",
    "conl": "conl",
    "srt": "conl",
    "ground_truth": "conl",
    "spice": "spice",
    "strong_challenger": "spice",
    "rzero": "spice",
}
SEEDLESS = ("base", "azr", "spice", "strong_challenger", "rzero")  # start from no published question
VALIDATION = 20  # one row in so many of a train split is for validation, by the hash of its question


@dataclass
class DataWorld:
    """A paper's tests and seeds for the protocols. Nothing is loaded before it is asked for.

    `only` limits both to these benchmarks; one that the paper does not use is tested whole and, where it has a train
    split, gives seeds out of it. When the paper's use leaves no seeds, or no tests, these benchmarks give them too.
    What an oracle would say of an invented question is None throughout.
    """

    paper: str
    only: tuple[str, ...] = ()

    grading: ClassVar[str] = "math"  # how SAGE's verifier compares a math answer with its gold

    def __post_init__(self) -> None:
        among("paper", self.paper, papers())
        for key in self.only:
            if key not in registry():
                near = "".join(f"; did you mean {name!r}?" for name in get_close_matches(key, registry(), 1))
                raise ValueError(f"world must be data:KEY,KEY with keys of {', '.join(registry())}, got {key!r}{near}")

    @property
    def name(self) -> str:
        """How a configuration names this world."""
        return ":".join(["data", *filter(None, [",".join(self.only)])])

    @property
    def domains(self) -> tuple[str, ...]:
        """What the paper calls its sources."""
        return tuple(self.its.domains.get(key, key) for key in self.its.seeds)

    @property
    def its(self) -> Paper:
        """The paper's lists, limited to `only`."""
        whole = papers()[self.paper]
        if not self.only:
            return whole
        new = dict.fromkeys((key for key in self.only if key not in (*whole.tests, *whole.seeds)), 0)
        divided = dict.fromkeys((key for key in self.only if benchmark(key).train or benchmark(key).ours), 0)
        tests = {key: cap for key, cap in whole.tests.items() if key in self.only} | new
        seeds = {key: count for key, count in whole.seeds.items() if key in self.only}
        seeds |= {key: 0 for key in new if key in divided}
        return replace(whole, tests=tests or dict.fromkeys(self.only, 0), seeds=seeds or divided)

    @cached_property
    def _tests(self) -> dict[str, list[Item]]:
        """All test items, before caps; a question that two benchmarks share stays in both."""
        return {key: items(key) for key in self.its.tests}

    @cached_property
    def _drawn(self) -> dict[str, list[Item]]:
        """Seed items by source: none of validation, and none of the tests unless it is forced."""
        tests, drawn = _marks(self._tests.values()), {}
        for key, count in self.its.seeds.items():
            its, where = benchmark(key), self.its.where.get(key, {})
            found = {
                item.question: item
                for item in items(key, "train" if its.train or its.ours else "test")
                if all(_fits(item.meta.get(name), wanted) for name, wanted in where.items())
            }
            free = [
                item
                for item in found.values()
                if key in self.its.forced or not share(item, VALIDATION) and tests.isdisjoint(item.marks)
            ]
            drawn[key] = draw(free, count, f"seeds {self.paper} {key}")
        if drawn and not any(drawn.values()):
            raise ValueError(f"world: no row of {', '.join(drawn)} is left to start from (docs/data.md)")
        return drawn

    @cached_property
    def _splits(self) -> dict[str, dict[str, list[Item]]]:
        """Test items that are no seeds, and validation items out of the train splits, by benchmark."""
        tests, seeds = _marks(self._tests.values()), _marks(self._drawn.values())
        halves = [key for key in self._tests if benchmark(key).train or benchmark(key).ours]
        return {
            "test": {
                key: [item for item in found if seeds.isdisjoint(item.marks)] for key, found in self._tests.items()
            },
            "validation": {
                key: [item for item in items(key, "train") if share(item, VALIDATION) and tests.isdisjoint(item.marks)]
                for key in halves
            },
        }

    @cached_property
    def _known(self) -> dict[str, Item]:
        every = [*self._tests.values(), *self._splits["validation"].values(), *self._drawn.values()]
        return {item.question: item for found in every for item in found}

    @cached_property
    def _held(self) -> set[str]:
        held = [item for split in (self._tests, self._splits["validation"]) for its in split.values() for item in its]
        return {normal(text) for item in held for text in (item.question, item.stem)}

    def composition(self) -> list[dict[str, object]]:
        """A row per benchmark: seeds asked for and drawn, test items, and how many left the test for being seeds."""
        table = []
        for key in dict.fromkeys([*self.its.seeds, *self.its.tests]):
            tests, left = self._tests.get(key, []), self._splits["test"].get(key, [])
            table.append(
                {
                    "benchmark": key,
                    "licence": benchmark(key).licence,
                    "seeds wanted": self.its.seeds.get(key, 0),
                    "seeds": len(self._drawn.get(key, [])),
                    "test": len(left),
                    "overlap": len(tests) - len(left),
                }
            )
        return table

    def items(self, split: str, per_family: int = 40, families: tuple[str, ...] = NAMES) -> list[Item]:
        """Evaluation items, at most `per_family` a benchmark and at most the paper's own cap; AIME comes 32 times.

        The tiny world's families mean nothing here. Raises ValueError for a split other than validation and test,
        and in one line when the data cannot be had or nothing is left to start from or to test.
        """
        among("split", split, ("validation", "test"))
        chosen = []
        for key, found in self._splits[split].items():
            cap = min(self.its.tests[key] or per_family, per_family)
            times = self.its.repeats.get(key, 1) if split == "test" else 1
            how = {"split": split, "temperature": self.its.temperatures.get(key, self.its.temperature)}
            chosen += [
                replace(item, meta=item.meta | how) for item in draw(found, cap, f"{split} {self.paper} {key}")
            ] * times
        if split == "test" and not chosen:
            raise ValueError(f"world: no test item of {', '.join(self.its.tests)} is left beside the seeds")
        return chosen

    def seed_rows(self) -> list[tuple[str, Item]]:
        """(source, item) rows of the seed set, with their answers, for supervised baselines."""
        return [(key, item) for key, found in self._drawn.items() for item in found]

    def seeds(self) -> list[str]:
        """The questions of the seed set: no answer ever leaves this method."""
        return list(dict.fromkeys(item.question for _, item in self.seed_rows()))

    def zero(self) -> list[str]:
        """The sixteen starting questions, ours (prompts/mae/zero_questions.txt)."""
        text = (prompts.HERE / "mae" / "zero_questions.txt").read_text(encoding="utf-8")
        return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("%%")]

    def training(self) -> list[tuple[str, str]]:
        """(domain, question) rows of the seed set, without answers; a domain has the paper's name for its source."""
        return [(self.its.domains.get(key, key), item.question) for key, item in self.seed_rows()]

    def tasks(self) -> list[tuple[str, str, str]]:
        """(question, math or code, gold answer or tests) rows of the seed set, for SAGE."""
        found = [
            (
                item.question,
                "code" if item.scorer == "code" else "math",
                str(item.gold["tests"]) if item.scorer == "code" else item.answer,
            )
            for _, item in self.seed_rows()
            if item.scorer != "code" or "tests" in item.gold
        ]
        return list(dict.fromkeys(found))

    def program(self, question: str, answer: str) -> str:
        """An answer to a code question as Python source: out of its fence, behind the start the question gives."""
        known = self._known.get(question)
        before = known.gold.get("before", "") if known and known.scorer == "code" else ""
        return f"{before}\n{program(answer)}"

    def problems(self, split: str, families: tuple[str, ...] = ()) -> list[str]:
        """Distinct questions to train on: the seed set, or with "test" the test itself (CoNL's test-time training)."""
        if split == "train":
            return self.seeds()
        return list(dict.fromkeys(item.question for found in self._splits[split].values() for item in found))

    def held_out(self, question: str) -> bool:
        """Whether a question, case and spacing aside, is a test or validation item."""
        return normal(question) in self._held

    def valid(self, question: str) -> None:
        """Nobody knows whether an invented question is well formed."""

    def right(self, question: str, answer: str | None) -> bool | None:
        """The scorer's verdict on an answer to a published question; None for any other question."""
        known = self._known.get(question)
        return None if known is None else grade(known, answer).correct

    def level(self, question: str) -> None:
        """Published questions have no common scale of difficulty."""

    def sound(self, question: str, kind: str, verifier: str) -> None:
        """Nobody knows whether an invented verifier is right."""

    def fits(self, question: str, plan: str) -> None:
        """Nobody knows which plan a published question wants."""


def _marks(found: Iterable[Iterable[Item]]) -> set[str]:
    return {mark for its in found for item in its for mark in item.marks}


def _fits(value: Any, wanted: Any) -> bool:
    """Whether a row's value is in a list, or between min and max."""
    if not isinstance(wanted, dict):
        return value in wanted
    return value is not None and wanted["min"] <= float(value) <= wanted["max"]


def world(name: str, method: str = "mae", paper: str | None = None) -> World:
    """The world that a configuration names: "tiny", "data" (all that the paper uses), or "data:KEY,KEY".

    `paper` is whose tests and seeds those are (None: the method's own). Raises ValueError, in one line, for anything
    else, and for benchmarks without a train split where the method starts from published questions. Loads nothing.
    """
    kind, colon, keys = name.partition(":")
    only = tuple(key.strip() for key in keys.split(",")) if colon else ()
    if name == "tiny":
        return TinyWorld()
    if kind != "data" or not all(only):
        raise ValueError(f"world must be one of tiny, data, data:KEY,KEY, got {name!r}")
    made = DataWorld(paper or METHODS[method], only)
    if method not in SEEDLESS and not made.its.seeds:
        raise ValueError(f"world: {method} starts from questions of a train split, and {', '.join(only)} has none")
    return made
