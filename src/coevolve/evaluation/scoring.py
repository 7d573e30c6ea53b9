"""Scores policies on held-out items: one row per item, exact verifiers.

Knows methods, set-ups and a world that grades, not which engine answers.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from coevolve.evaluation.conversation import Room
from coevolve.evaluation.strategies import SETUPS, TEMPERATURES
from coevolve.methods.base import Method
from coevolve.rollout.engine import Engine
from coevolve.rollout.scheduler import play
from coevolve.types import Outcome
from coevolve.validation import check_choice


def score(
    engine: Engine,
    method: Method,
    items: Sequence[Any],
    setup: str = "vanilla",
    *,
    temperature: float | None = None,
    policies: Sequence[str] = (),
    key: tuple[int, ...] = (),
    play: Callable[..., list[Outcome]] = play,
) -> list[dict[str, object]]:
    """Answer every item under a set-up and have the method's world grade it; return one row per item.

    A row has the fields of record.SCORE_FIELDS but the stage. The method's answering role solves. `temperature` None
    is the item's own, else the set-up's (vanilla: greedy). Item i is answered by policy i of `policies` (default:
    the method's `scored`) modulo their number; the others follow it, in turn, in set-ups of several agents. `play`
    is what plays the episodes. What no verifier can say is None in `correct`. Raises ValueError for an unknown
    set-up and for a solver with other than one placeholder.
    """
    check_choice("setup", setup, SETUPS)
    names = policies or method.scored
    episodes = []
    for number, item in enumerate(items):
        heat = next(heat for heat in (temperature, item.temperature, TEMPERATURES[setup]) if heat is not None)
        first = number % len(names)
        episodes.append(SETUPS[setup](Room(method, item.question, (*names[first:], *names[:first]), heat)))
    facts = [outcome.facts for outcome in play(episodes, engine, key)]
    verdicts = method.world.grade([(item, found["answer"]) for item, found in zip(items, facts, strict=True)])
    rows: list[dict[str, object]] = []
    for number, (item, found, correct) in enumerate(zip(items, facts, verdicts, strict=True)):
        kind = {name: getattr(item, name) for name in ("family", "split", "level")}
        said = {name: found[name] for name in ("answer", "finished", "tokens_in", "tokens_out")}
        lured = not correct and found["answer"] is not None and found["answer"] == item.misconception
        marks = {"correct": None if correct is None else int(correct), "misconception": int(lured)}
        rows.append({"setup": setup, **kind, "item": number, "question": item.question, **marks, **said})
    return rows


def tally(rows: Sequence[dict[str, object]]) -> dict[str, int]:
    """Count right answers: {"k": right, "n": all that were scored}."""
    verdicts = [row["correct"] for row in rows if row["correct"] is not None]
    return {"k": verdicts.count(1), "n": len(verdicts)}


def gain(scores: Any) -> tuple[float, float, float]:
    """Return how many points more of the same questions are right after training, with the limits of its 95 % interval.

    `scores` is what `record.read(run, "scores")` returns. The interval, a paired t interval over the questions, says
    nothing about another seed. The limits are nan where no question was scored, or the answers to all changed alike.
    """
    from scipy.stats import ttest_1samp  # only here, as below

    asked = scores[scores["setup"] == "vanilla"].pivot(index="item", columns="stage", values="correct")
    change = 100 * asked.reindex(columns=["before", "after"]).dropna().diff(axis=1)["after"]
    low, high = ttest_1samp(change, 0).confidence_interval() if change.nunique() > 1 else [float("nan")] * 2
    return float(change.sum() / max(len(change), 1)), float(low), float(high)


def in_words(counts: Mapping[str, int]) -> str:
    """Say how many answers are right of those scored, see `tally`, with the 95 % Wilson interval."""
    from scipy.stats import binomtest  # only here: it takes half a second to load

    k, n, share = counts["k"], counts["n"], ""
    if n:
        low, high = binomtest(k, n).proportion_ci(method="wilson")
        share = f" ({k / n:.1%}, 95 % {low:.1%} to {high:.1%})"
    return f"{k} of {n} right{share}"
