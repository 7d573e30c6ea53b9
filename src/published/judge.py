"""Grading by a language model, as in MAE (appendix B): four kinds of prompts, TRUE or FALSE in the last answer tag.

A reply without a readable verdict is a failure of the judge: it is counted apart and never becomes "wrong".
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from coevolve import prompts
from coevolve.checks import among
from coevolve.driver import Engine, play
from coevolve.types import Episode, Outcome, Role
from published.rows import Item
from reproduce.analysis.stats import wilson

PROMPTS = {"math": "eval_math", "choice": "eval_choice", "truthfulness": "eval_truthfulness", "general": "eval_general"}
OPEN, CLOSE = "<answer>", "</answer>"
WORDS = {"TRUE": True, "FALSE": False}
TEMPERATURE = 1.0  # of the judge in the authors' evaluation


@dataclass(frozen=True)
class Judged:
    """Verdicts in the order of the answers: True, False, or None where the judge failed."""

    correct: list[bool | None]
    swapped: float | None = None  # share of verdicts that stay when answer and gold change places

    @property
    def failures(self) -> int:
        """How many verdicts could not be read."""
        return self.correct.count(None)

    def summary(self) -> dict[str, float | int | None]:
        """Right and scored answers, failures apart, accuracy with its 95 % Wilson interval."""
        k, n = self.correct.count(True), len(self.correct) - self.failures
        low, high = wilson(k, n) if n else (None, None)
        return {"k": k, "n": n, "failures": self.failures, "accuracy": k / n if n else None, "low": low, "high": high}


def verdict(text: str) -> bool | None:
    """Read TRUE or FALSE from the last complete <answer> pair, case aside; None for anything else."""
    end = text.rfind(CLOSE)
    start = text.rfind(OPEN, 0, max(end, 0))
    return WORDS.get(text[start + len(OPEN) : end].strip().upper()) if start >= 0 else None


@lru_cache(maxsize=8)
def _role(kind: str, folder: str | None) -> Role:
    among("judge", kind, PROMPTS)
    return prompts.load("mae", PROMPTS[kind], "full", name="eval", folder=folder, policy="judge")


def _asked(role: Role, question: str, gold: str, answer: str) -> Episode:
    reply = yield role(question=question, ground_truth=gold, model_answer=answer)
    return Outcome([], {"correct": verdict(reply.text)})


def judge(
    engine: Engine,
    items: Sequence[Item],
    answers: Sequence[str | None],
    *,
    kind: str | None = None,
    swap: bool = False,
    temperature: float = TEMPERATURE,
    key: tuple[int, ...] = (),
    folder: str | None = None,
) -> Judged:
    """Ask the engine's policy "judge" whether each answer is right.

    The prompt is the one of the item's benchmark, or of `kind` (math, choice, truthfulness, general). An answer of
    None (nothing inside the answer tags) is wrong without asking. `swap` asks a second time with answer and gold
    exchanged, where a consistent judge says the same. Raises ValueError for an item without a kind.
    """
    given = [i for i, answer in enumerate(answers) if answer is not None]
    roles = [replace(_role(kind or items[i].judge, folder), temperature=temperature) for i in given]
    pairs = [(items[i].answer, answers[i]) for i in given]
    episodes = [_asked(role, items[i].question, *pair) for role, i, pair in zip(roles, given, pairs, strict=True)]
    if swap:
        episodes += [
            _asked(role, items[i].question, *pair[::-1]) for role, i, pair in zip(roles, given, pairs, strict=True)
        ]
    said = [outcome.facts["correct"] for outcome in play(episodes, engine, key)]
    correct: list[bool | None] = [False] * len(answers)
    for i, value in zip(given, said, strict=False):
        correct[i] = value
    both = [(a, b) for a, b in zip(said[: len(given)], said[len(given) :], strict=swap) if None not in (a, b)]
    return Judged(correct, sum(a == b for a, b in both) / len(both) if both else None)
