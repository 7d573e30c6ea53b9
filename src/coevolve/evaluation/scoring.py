"""Scores policies on held-out items: one row per item, exact verifiers.

Knows methods, inference strategies and a world that grades, but not which engine answers.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from coevolve.evaluation.conversation import Conversation
from coevolve.evaluation.strategies import STRATEGIES, TEMPERATURES
from coevolve.methods.base import Method
from coevolve.rollout.engine import Engine
from coevolve.rollout.scheduler import play
from coevolve.runs.compare import gain as gain
from coevolve.types import Outcome
from coevolve.validation import check_choice

Row = dict[str, object]


def score(
    engine: Engine,
    method: Method,
    items: Sequence[Any],
    strategy: str = "vanilla",
    *,
    temperature: float | None = None,
    max_tokens: int | None = None,
    policies: Sequence[str] = (),
    key: tuple[int, ...] = (),
    play: Callable[..., list[Outcome]] = play,
) -> list[Row]:
    """Answer every item under an inference strategy and have the method's world grade the answers.

    Returns one row per item, with the fields of record.SCORE_FIELDS but the stage; `correct` is
    None where no verifier can tell. The method's answering role solves.

    `temperature`: None is the item's own, or else the strategy's (vanilla: greedy).
    `max_tokens`: of a reply; None is the solver's own limit, or else the engine's.
    `policies`: default the method's `scored`. Item i is answered by policy i modulo their number;
    the policies after it speak for the other agents of the strategy, in turn.
    `play`: plays the episodes.

    Raises ValueError for an unknown strategy and for a solver with other than one placeholder.
    """
    check_choice("strategy", strategy, STRATEGIES)
    names = policies or method.scored
    episodes = []
    for number, item in enumerate(items):
        first = number % len(names)
        conversation = Conversation(
            method,
            item.question,
            policies=(*names[first:], *names[:first]),
            temperature=_temperature(temperature, item, strategy),
            max_tokens=max_tokens,
        )
        episodes.append(STRATEGIES[strategy](conversation))
    outcomes = play(episodes, engine, key)
    answers = [outcome.facts["answer"] for outcome in outcomes]
    verdicts = method.world.grade(list(zip(items, answers, strict=True)))
    rows = []
    graded = zip(items, outcomes, verdicts, strict=True)
    for number, (item, outcome, is_correct) in enumerate(graded):
        row = {"strategy": strategy, **_row(number, item, outcome.facts, is_correct)}
        rows.append(row)
    return rows


def _temperature(temperature: float | None, item: Any, strategy: str) -> float:
    """Return the caller's temperature, or else the item's, or else the strategy's."""
    if temperature is not None:
        return temperature
    if item.temperature is not None:
        return float(item.temperature)
    return TEMPERATURES[strategy]


def _row(
    number: int, item: Any, facts: Mapping[str, Any], is_correct: bool | None
) -> Row:
    answer = facts["answer"]
    has_answer = answer is not None
    is_misconception = not is_correct and has_answer and answer == item.misconception
    return {
        "family": item.family,
        "split": item.split,
        "level": item.level,
        "item": number,
        "question": item.question,
        "correct": None if is_correct is None else int(is_correct),
        "misconception": int(is_misconception),
        "answer": answer,
        "finished": facts["finished"],
        "tokens_in": facts["tokens_in"],
        "tokens_out": facts["tokens_out"],
    }


def count_correct(rows: Sequence[Mapping[str, object]]) -> dict[str, int]:
    """Count correct answers: {"k": how many are correct, "n": how many were graded}."""
    verdicts = [row["correct"] for row in rows if row["correct"] is not None]
    return {"k": verdicts.count(1), "n": len(verdicts)}


def format_accuracy(counts: Mapping[str, int]) -> str:
    """Write the counts of `count_correct` as a sentence, with the 95 % Wilson interval."""
    # scipy.stats takes half a second to load.
    from scipy.stats import binomtest

    k = counts["k"]
    n = counts["n"]
    if not n:
        return f"{k} of {n} correct"
    low, high = binomtest(k, n).proportion_ci(method="wilson")
    return f"{k} of {n} correct ({k / n:.1%}, 95 % {low:.1%} to {high:.1%})"
