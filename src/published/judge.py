"""Grading by a language model, as in MAE (appendix B): four kinds of prompts, TRUE or FALSE in the last answer tag.

A reply without a readable verdict is a failure of the judge: it is counted apart and never becomes "wrong". What a
finished run has written stays as it is; golds are read anew from the data sets, and never from the run.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pandas
from scipy.stats import binomtest

from coevolve import policies, preflight, prompts, record
from coevolve.checks import among
from coevolve.driver import Batched, Engine, play
from coevolve.engines.server import ServerError
from coevolve.types import Episode, Outcome, Reply, Role, Turn
from published.data import BENCHMARKS, check, items
from published.rows import Item

PROMPTS = {"math": "eval_math", "choice": "eval_choice", "truthfulness": "eval_truthfulness", "general": "eval_general"}
OPEN, CLOSE = "<answer>", "</answer>"
WORDS = {"TRUE": True, "FALSE": False}
TEMPERATURE = 1.0  # of the judge in the authors' evaluation
FIELDS = ["stage", "setup", "split", "family", "item", "question", "answer", "gold", "kind", "correct"]  # of grades.csv
BATCH = 64  # turns that a judge in this process answers at once


def summary(correct: Sequence[bool | None]) -> dict[str, float | int | None]:
    """Count right and scored answers, and failures (None) apart; accuracy with its 95 % Wilson interval."""
    k, failures = list(correct).count(True), list(correct).count(None)
    n = len(correct) - failures
    low, high = map(float, binomtest(k, n).proportion_ci(method="wilson")) if n else (None, None)
    return {"k": k, "n": n, "failures": failures, "accuracy": k / n if n else None, "low": low, "high": high}


def agreement(one: Sequence[bool | None], other: Sequence[bool | None]) -> float | None:
    """Return the share of answers on which two lists of verdicts agree; None where no answer has both."""
    both = [pair for pair in zip(one, other, strict=True) if None not in pair]
    return sum(first == second for first, second in both) / len(both) if both else None


def read_verdict(text: str) -> bool | None:
    """Read TRUE or FALSE from the last complete <answer> pair, case aside; None for anything else."""
    end = text.rfind(CLOSE)
    start = text.rfind(OPEN, 0, max(end, 0))
    return WORDS.get(text[start + len(OPEN) : end].strip().upper()) if start >= 0 else None


@lru_cache(maxsize=len(PROMPTS))
def _role(kind: str) -> Role:
    among("judge", kind, PROMPTS)
    return prompts.load("mae", PROMPTS[kind], "full", name="eval", policy="judge", temperature=TEMPERATURE)


def _asked(role: Role, question: str, gold: str, answer: str) -> Episode:
    reply = yield role(question=question, ground_truth=gold, model_answer=answer)
    return Outcome([], {"correct": read_verdict(reply.text)})


def verdicts(
    engine: Engine,
    items: Sequence[Item],
    answers: Sequence[str | None],
    *,
    kind: str | None = None,
    swap: bool = False,
    key: tuple[int, ...] = (),
) -> list[bool | None]:
    """Ask the engine's policy "judge" whether each answer is right; None where it gave no verdict.

    The prompt is the one of the item's benchmark, or of `kind` (math, choice, truthfulness, general). An answer of
    None (nothing inside the answer tags) is wrong without asking. With `swap` answer and gold change places, where a
    consistent judge says the same (see `agreement`). Raises ValueError for an item without a kind.
    """
    given = [i for i, answer in enumerate(answers) if answer is not None]
    episodes = []
    for i in given:
        gold, answer = (answers[i], items[i].answer) if swap else (items[i].answer, answers[i])
        episodes.append(_asked(_role(kind or items[i].judge), items[i].question, gold, answer))
    said = {i: outcome.facts["correct"] for i, outcome in zip(given, play(episodes, engine, key), strict=True)}
    return [said.get(i, False) for i in range(len(answers))]


def unscored(run: Path) -> pandas.DataFrame:
    """Return the scores of a finished run without a verdict, but not of programs: only tests can judge those.

    Raises ValueError, in one line, when the folder is no finished run or every answer has its verdict.
    """
    for name in ("config.json", "scores.csv", "summary.json"):
        if not (run / name).is_file():
            raise ValueError(f"{run} is no finished run: it has no {name}")
    scores = record.read(run, "scores")
    judged = [key for key, known in BENCHMARKS.items() if known.scorer != "code"]
    found = scores[scores["correct"].isna() & scores["family"].isin(judged)]
    if found.empty:
        raise ValueError(f"{run} has nothing for a judge: every answer in its scores.csv is scored")
    return found


def _published(scores: pandas.DataFrame, kind: str | None) -> list[Item]:
    """The published item of every score; ValueError when a data set does not have its question, or names no judge."""
    known = {}
    for key in scores["family"].unique():
        if not (kind or BENCHMARKS[key].judge):
            raise ValueError(f"{key} names no kind of judge: choose one of {', '.join(PROMPTS)} with --kind")
        check(key)
        for item in reversed(items(key)):  # of equal questions the first
            known[key, item.question.encode("utf-8", record.LONE).decode()] = item
    found = [known.get(pair) for pair in zip(scores["family"], scores["question"], strict=True)]
    if None in found:
        raise ValueError(f"{found.count(None)} questions of the run are not in the data sets as they are now")
    return found


def _load(name: str, max_tokens: int) -> Engine:
    """Load a judge and return what answers for it; ValueError in one line when it cannot be had."""
    preflight.model(name)
    policy = policies.load(name, "judge")
    if hasattr(policy, "serve"):
        return policy.serve(TEMPERATURE, max_tokens)
    return Batched(partial(_in_batches, partial(policy.generate, max_tokens=max_tokens)))


def _in_batches(generate: Callable[[Sequence[Turn]], list[Reply]], turns: Sequence[Turn]) -> list[Reply]:
    return [reply for start in range(0, len(turns), BATCH) for reply in generate(turns[start : start + BATCH])]


def grade_run(run: str | Path, name: str, kind: str | None = None, max_tokens: int = 2048) -> list[str]:
    """Ask a judge about every unscored answer of a run, write the run's grades.csv, and return a line a data set.

    Stages and set-ups are told apart. `kind` (math, choice, truthfulness, general) is the data set's own unless it is
    given. An answer that the judge gave no verdict on is a failure: blank in `correct`, and counted apart.
    Raises ValueError before the judge is loaded when there is nothing to grade or a gold cannot be had.
    """
    if max_tokens < 1:
        raise ValueError(f"max_tokens must be at least 1, got {max_tokens}")
    if kind:
        among("kind", kind, PROMPTS)
    run = Path(run)
    scores = unscored(run)
    asked = _published(scores, kind)
    seed = json.loads((run / "config.json").read_text(encoding="utf-8"))["seed"]
    try:
        engine = _load(name, max_tokens)
        correct = verdicts(engine, asked, list(scores["answer"]), kind=kind, key=(seed,))
    except ServerError as error:
        raise ValueError(f"{error}; nothing was written") from None
    scores = scores.assign(
        gold=[item.answer for item in asked],
        kind=[kind or item.judge for item in asked],
        correct=pandas.array([None if right is None else int(right) for right in correct], "Int64"),
    )
    temporary = run / ".grades.csv.tmp"
    scores.to_csv(temporary, columns=FIELDS, index=False, lineterminator="\n", errors=record.LONE)
    os.replace(temporary, run / "grades.csv")
    groups: dict[tuple[str, ...], list[bool | None]] = {}
    for group, right in zip(zip(scores["family"], scores["stage"], scores["setup"], strict=True), correct, strict=True):
        groups.setdefault(group, []).append(right)
    used = ", ".join(f"{count:,} {what}" for what, count in getattr(engine, "costs", {}).items())
    return [*(_line(" ".join(group), summary(found)) for group, found in groups.items()), *filter(None, [used])]


def _line(name: str, found: Mapping[str, Any]) -> str:
    share = " ({accuracy:.1%}, 95 % {low:.1%} to {high:.1%})".format(**found) if found["n"] else ""
    return f"{name}: {found['k']} of {found['n']} right{share}, {found['failures']} without a verdict"
