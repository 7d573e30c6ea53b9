"""What is recorded about SPICE's episodes: faults, pass rates, and what the oracle says about the tasks."""

from typing import TYPE_CHECKING, Any

from coevolve.papers.spice.reading import FAULTS, MCQ, stem
from coevolve.shares import mean
from coevolve.worlds import World

if TYPE_CHECKING:
    from coevolve.papers.spice.method import Form, Played


def facts_of(played: "Played", world: World) -> dict[str, Any]:
    """Return the facts of one episode, see `Method.observe`."""
    tasks, attempts, document = played.tasks, played.attempts, played.document
    faults = [task for _, task in attempts if isinstance(task, str)]
    verdicts = [correct for group in played.answers for _, correct in group]
    facts: dict[str, Any] = {
        **_choice(document, played.form),
        "attempts": len(attempts),
        "valid": 1 - len(faults) / len(attempts),
        **{f"fault/{name}": faults.count(name) / len(attempts) for name in FAULTS},
        "pass_rate": mean(played.rates),
        "unscored": mean([correct is None for correct in verdicts]),
        "distinct": len({*tasks}) / len(tasks) if tasks else None,
        "gold_right": mean([world.right(task.text, task.gold) for task in tasks]),
        "level": mean([world.level(task.text) for task in tasks]),
        "grounded": mean([stem(task) in document for task in tasks]) if document else None,
        "document": document,
        "questions": [task.text for task in tasks],
        "golds": [task.gold for task in tasks],
    }
    if played.chosen is None:
        return facts
    chosen = tasks[played.chosen]
    return facts | {"question": chosen.text, "gold": chosen.gold, "right": played.rates[played.chosen]}


def _choice(document: str | None, form: "Form") -> dict[str, float]:
    if document is None:
        return {}
    unreadable = {} if form.readable is None else {"format_unreadable": float(not form.readable)}
    return {**unreadable, "mcq": float(form.form == MCQ)}
