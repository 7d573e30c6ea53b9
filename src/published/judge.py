"""Grading by a language model, as in MAE (appendix B): four kinds of prompts, TRUE or FALSE in the last answer tag.

A reply without a readable verdict is a failure of the judge: it is counted apart and never becomes "wrong". What a
finished run has written stays as it is; golds are read anew from the data sets, and never from the run.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pandas

from coevolve.engines.loading import load_policy
from coevolve.engines.openai_server import ServerError
from coevolve.evaluation.scoring import in_words
from coevolve.rollout.engine import Engine
from coevolve.runs import record
from coevolve.text import prompts
from coevolve.training import preflight
from coevolve.training.loop import waiting
from coevolve.types import Role
from coevolve.validation import check_choice
from published.data import BENCHMARKS, items
from published.rows import Item

KINDS = ("math", "choice", "truthfulness", "general")  # of prompts: prompts/mae/eval_KIND.full.txt
WORDS = {"TRUE": True, "FALSE": False}
TEMPERATURE = 1.0  # of the judge in the authors' evaluation
FIELDS = "stage setup split family item question answer gold kind judge correct".split()  # of grades.csv


def summary(correct: Sequence[bool | None]) -> str:
    """Say how many answers are right of those scored, with an interval, and failures (None) apart."""
    k, failures = list(correct).count(True), list(correct).count(None)
    return f"{in_words({'k': k, 'n': len(correct) - failures})}, {failures} without a verdict"


def read_verdict(text: str) -> bool | None:
    """Read TRUE or FALSE from the last complete <answer> pair, case aside; None for anything else."""
    _, opened, said = text.rpartition("</answer>")[0].rpartition("<answer>")
    return WORDS.get(said.strip().upper()) if opened else None


@cache
def _role(kind: str) -> Role:
    check_choice("judge", kind, KINDS)
    return prompts.load_role("mae", f"eval_{kind}", "full", name="eval", policy="judge", temperature=TEMPERATURE)


def verdicts(
    engine: Engine, items: Sequence[Item], answers: Sequence[str | None], key: tuple[int, ...] = ()
) -> list[bool | None]:
    """Ask the engine's policy "judge" whether each answer is right; None where it gave no verdict.

    The prompt is the one that the item's `judge` names. An answer of None (nothing inside the answer tags) is wrong
    without asking. Raises ValueError for an item that names no prompt.
    """
    asked = [(item, answer) for item, answer in zip(items, answers, strict=True) if answer is not None]
    turns = [_role(one.judge)(question=one.question, ground_truth=one.answer, model_answer=a) for one, a in asked]
    replies = iter(engine.answer([replace(turn, key=(*key, i, 0)) for i, turn in enumerate(turns)]))
    return [False if answer is None else read_verdict(next(replies).text) for answer in answers]


def unscored(run: Path) -> pandas.DataFrame:
    """Return the scores of a finished run without a verdict, but not of programs: only tests can judge those.

    Raises ValueError, in one line, when the folder has no scores or every answer has its verdict.
    """
    scores = record.read(run, "scores")
    judged = [key for key, known in BENCHMARKS.items() if known.scorer != "code"]
    found = scores[scores["correct"].isna() & scores["family"].isin(judged)]
    if found.empty:
        raise ValueError(f"{run} has nothing for a judge: every answer in its scores.csv is scored")
    return found


def _published(scores: pandas.DataFrame) -> list[Item]:
    """The published item of every score; ValueError when a data set cannot be had or does not have its question."""
    known = {}
    for key in scores["family"].unique():
        for item in reversed(items(key)):  # of equal questions the first
            known[key, item.question.encode("utf-8", record.SURROGATE_ERRORS).decode()] = item
    found = [known.get(pair) for pair in zip(scores["family"], scores["question"], strict=True)]
    if None in found:
        raise ValueError(f"{found.count(None)} questions of the run are not in the data sets as they are now")
    return found


def grade_run(run: Path, name: str, kind: str | None = None, max_tokens: int = 2048) -> list[str]:
    """Ask a judge about every unscored answer of a run, write the run's grades.csv, and return a line a data set.

    Stages and set-ups are told apart. `kind` (math, choice, truthfulness, general) is the data set's own unless it is
    given. An answer that the judge gave no verdict on is a failure: blank in `correct`, and counted apart.
    Raises ValueError before the judge is loaded when there is nothing to grade or a gold cannot be had.
    """
    check_choice("kind", kind, (None, *KINDS))
    scores = unscored(run)
    asked = [replace(item, judge=kind or item.judge) for item in _published(scores)]
    seed = json.loads((run / "config.json").read_text(encoding="utf-8"))["seed"]
    preflight.model(name)
    engine = load_policy(name, "judge").serve(TEMPERATURE, max_tokens)
    try:
        with waiting("judging"):
            correct = verdicts(engine, asked, list(scores["answer"]), (seed,))
    except ServerError as error:
        raise ValueError(f"{error}; nothing was written") from None
    scores = scores.assign(gold=[item.answer for item in asked], kind=[item.judge for item in asked], judge=name)
    scores["correct"] = pandas.array(correct, "boolean").astype("Int64")
    record.write_atomically(run / "grades.csv", scores.to_csv(columns=FIELDS, index=False, lineterminator="\n"))
    used = ", ".join(f"{count:,} {what.partition('/')[0]}" for what, count in engine.costs().items())
    said = scores.assign(correct=correct).groupby(["family", "stage", "setup"], sort=False)["correct"]
    return [*(f"{' '.join(group)}: {summary(list(found))}" for group, found in said), *filter(None, [used])]
