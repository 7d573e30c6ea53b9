"""Grading by a language model, as in MAE (appendix B): TRUE or FALSE in the last answer tag.

There are four kinds of prompts. A reply without a readable verdict is a failure of the judge: it is
counted separately and never becomes "wrong". Grading does not change what a run has written, and
reads gold answers from the data sets, never from the run.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pandas

from coevolve.engines.loading import load_policy
from coevolve.engines.openai_server import ServerError
from coevolve.evaluation.scoring import format_accuracy
from coevolve.rollout.engine import Engine
from coevolve.runs import record
from coevolve.text import prompts
from coevolve.text.verify.normal import unwrapped
from coevolve.training import preflight
from coevolve.training.progress import show_elapsed
from coevolve.types import Role, Turn
from coevolve.validation import check_choice
from published.data import BENCHMARKS, items
from published.rows import Item

KINDS = ("math", "choice", "truthfulness", "general")  # prompts/mae/eval_KIND.full.txt
VERDICTS = {"TRUE": True, "FALSE": False}
TEMPERATURE = 1.0  # of the judge in the authors' evaluation
GRADE_COLUMNS = [
    "stage",
    "strategy",
    "split",
    "family",
    "item",
    "question",
    "answer",
    "gold",
    "kind",
    "judge",
    "correct",
]


def summary(correct: Sequence[bool | None]) -> str:
    """State the accuracy of the scored answers with its interval, and the number of failures."""
    counts = {"k": 0, "n": 0}
    failures = 0
    for verdict in correct:
        if verdict is None:
            failures += 1
            continue
        counts["n"] += 1
        if verdict:
            counts["k"] += 1
    return f"{format_accuracy(counts)}, {failures} without a verdict"


def read_verdict(text: str) -> bool | None:
    """Read TRUE or FALSE, in any case, from the last complete <answer> pair; else return None."""
    before_end, _, _ = text.rpartition("</answer>")
    _, opening_tag, verdict = before_end.rpartition("<answer>")
    return VERDICTS.get(unwrapped(verdict).upper()) if opening_tag else None


@cache
def _role(kind: str) -> Role:
    """Return the judge's role with the prompt of a kind."""
    check_choice("judge", kind, KINDS)
    name = f"eval_{kind}"
    return prompts.load_role(
        "mae", name, "full", name="eval", policy="judge", temperature=TEMPERATURE
    )


def verdicts(
    engine: Engine,
    items: Sequence[Item],
    answers: Sequence[str | None],
    key: tuple[int, ...] = (),
) -> list[bool | None]:
    """Ask the engine's policy "judge" whether each answer is correct.

    The result is None where the judge gave no verdict. Each item's `judge` names its prompt. An
    answer of None (no answer tags) is wrong and is not sent to the judge. `key` is the beginning of
    the turns' noise keys. Raises ValueError for an item that names no prompt.
    """
    turns: list[Turn] = []
    for item, answer in zip(items, answers, strict=True):
        if answer is None:
            continue
        prompt = _role(item.judge)
        turn = prompt(
            question=item.question, ground_truth=item.answer, model_answer=answer
        )
        turns.append(replace(turn, key=(*key, len(turns), 0)))
    replies = iter(engine.answer(turns))
    correct: list[bool | None] = []
    for answer in answers:
        if answer is None:
            correct.append(False)
        else:
            correct.append(read_verdict(next(replies).text))
    return correct


def unscored(run: Path) -> pandas.DataFrame:
    """Return the scores of a finished run that have no verdict, except those of programs.

    Only tests can judge a program. Raises ValueError when the folder has no scores, or when every
    answer has a verdict.
    """
    scores = record.read(run, "scores")
    judged = [
        key for key, benchmark in BENCHMARKS.items() if benchmark.scorer != "code"
    ]
    has_no_verdict = scores["correct"].isna()
    unjudged = scores[has_no_verdict & scores["family"].isin(judged)]
    if unjudged.empty:
        raise ValueError(
            f"{run} has nothing for a judge: every answer in its scores.csv is scored"
        )
    return unjudged


def _published_items(scores: pandas.DataFrame) -> list[Item]:
    """Return the published item of every score.

    Raises ValueError when a data set cannot be loaded or does not contain the question.
    """
    item_of = {}
    for family in scores["family"].unique():
        for item in reversed(items(family)):  # the first of equal questions is kept
            question = item.question.encode("utf-8", record.SURROGATE_ERRORS).decode()
            item_of[family, question] = item
    pairs = zip(scores["family"], scores["question"], strict=True)
    published = [item_of.get(pair) for pair in pairs]
    missing = published.count(None)
    if missing:
        raise ValueError(
            f"{missing} questions of the run are not in the current data sets"
        )
    return published


def grade_run(
    run: Path, name: str, kind: str | None = None, max_tokens: int = 2048
) -> list[str]:
    """Have a judge grade every unscored answer of a run, and write the run's grades.csv.

    Return one line for each data set, stage and strategy, then the costs. `name` is the judge's
    model. `kind` (math, choice, truthfulness, general) overrides the prompt of the data sets. An
    answer that got no verdict is a failure: blank in `correct`, and counted separately. Raises
    ValueError before the judge is loaded when there is nothing to grade or a gold is missing.
    """
    check_choice("kind", kind, (None, *KINDS))
    scores = unscored(run)
    asked_items = []
    for item in _published_items(scores):
        asked_items.append(replace(item, judge=kind or item.judge))
    seed = json.loads((run / "config.json").read_text(encoding="utf-8"))["seed"]
    preflight.check_model(name)
    engine = load_policy(name, "judge").serve(TEMPERATURE, max_tokens)
    try:
        with show_elapsed("judging"):
            correct = verdicts(engine, asked_items, list(scores["answer"]), (seed,))
    except ServerError as error:
        raise ValueError(f"{error}; nothing was written") from None
    grades = scores.assign(
        gold=[item.answer for item in asked_items],
        kind=[item.judge for item in asked_items],
        judge=name,
        correct=pandas.array(correct, "boolean").astype("Int64"),
    )
    table = grades.to_csv(columns=GRADE_COLUMNS, index=False, lineterminator="\n")
    record.write_atomically(run / "grades.csv", table)
    lines = _summary_lines(scores, correct)
    costs = _costs_line(engine)
    return [*lines, costs] if costs else lines


def _summary_lines(
    scores: pandas.DataFrame, correct: Sequence[bool | None]
) -> list[str]:
    """Return the accuracy of each data set, stage and strategy, in the order of the scores."""
    groups = scores.assign(correct=correct).groupby(
        ["family", "stage", "strategy"], sort=False
    )
    lines = []
    for names, group in groups["correct"]:
        lines.append(f"{' '.join(names)}: {summary(list(group))}")
    return lines


def _costs_line(engine: Engine) -> str:
    """Return the requests and tokens of the judge, or "" if its engine counts none."""
    costs = []
    for name, count in engine.costs().items():
        unit = name.partition("/")[0]
        costs.append(f"{count:,} {unit}")
    return ", ".join(costs)
