"""Scores policies on held-out items: one row per item, exact verifiers.

Knows roles, set-ups and a world that grades, not which engine answers.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from coevolve import setups
from coevolve.driver import Engine, play
from coevolve.setups import Room
from coevolve.types import Outcome, Role
from coevolve.worlds import Item, World

FACTS = ("answer", "finished", "tokens_in", "tokens_out")  # of the set-up's episode that a row keeps


def score(
    engine: Engine,
    solver: Role,
    items: Sequence[Item],
    world: World,
    *,
    read: setups.Read = setups.read_answer,
    temperature: float | None = None,
    key: tuple[int, ...] = (),
    setup: str = "vanilla",
    policies: Sequence[str] = (),
    prompt: str = "compact",
    folder: str | None = None,
    play: Callable[..., list[Outcome]] = play,
) -> list[dict[str, object]]:
    """Answer every item under a set-up and have the world grade it; return one row per item (see record.SCORE_FIELDS).

    `temperature` None is the item's own, else the set-up's (vanilla: greedy). With `policies`, item i is answered by
    policy i modulo their number; the others follow it, in turn, in set-ups of several agents. `prompt` and `folder`
    choose the prompts of later rounds; `play` is what plays the episodes. What no verifier can say is None in
    `correct`. Raises ValueError for an unknown set-up and for a solver with other than one placeholder.
    """
    play_out, names = setups.find(setup), policies or (solver.policy,)
    episodes = []
    for number, item in enumerate(items):
        heats = (temperature, item.temperature, setups.TEMPERATURES[setup])
        heat = next(heat for heat in heats if heat is not None)
        first = number % len(names)
        agents = [replace(solver, policy=name, temperature=heat) for name in (*names[first:], *names[:first])]
        episodes.append(play_out(Room(agents, item.question, read, prompt, folder)))
    facts = [outcome.facts for outcome in play(episodes, engine, key)]
    verdicts = world.grade([(item, found["answer"]) for item, found in zip(items, facts, strict=True)])
    return [
        {
            "setup": setup,
            "family": item.family,
            "split": item.split,
            "level": item.level,
            "item": number,
            "question": item.question,
            "correct": None if correct is None else int(correct),
            "misconception": int(not correct and found["answer"] is not None and found["answer"] == item.misconception),
            **{name: found[name] for name in FACTS},
        }
        for number, (item, found, correct) in enumerate(zip(items, facts, verdicts, strict=True))
    ]


def tally(rows: Sequence[dict[str, object]]) -> dict[str, int]:
    """Count right answers: {"k": right, "n": all that were scored}."""
    verdicts = [row["correct"] for row in rows if row["correct"] is not None]
    return {"k": verdicts.count(1), "n": len(verdicts)}
