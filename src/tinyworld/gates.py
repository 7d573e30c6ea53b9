"""What a tiny backbone can do before any training: the figures on its card, and the gates it has to pass.

Every role of every paper is played on demonstrations it has not seen; the oracle says what is right.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from coevolve.driver import Batched
from coevolve.held_out import score, tally
from coevolve.papers.conl import reading
from coevolve.papers.mae.method import MAE
from coevolve.types import Reply, Turn
from tinyworld import conversations, tasks
from tinyworld.demonstrations import PROMPTS, ROLES, well_formed
from tinyworld.demonstrator import Demonstrator, claim, pick
from tinyworld.documents import document

Generate = Callable[[list[Turn]], list[Reply]]
Fields = Mapping[str, Any]  # of a prompt
FORMAT_GATE = (0.97, 1.0)
GATES = {  # figure: (lowest, highest)
    "solve_greedy": (0.45, 0.60),
    "judge_answer_greedy": (0.90, 1.0),
    "judge_question": (0.95, 1.0),
    "gold_with_document": (0.60, 1.0),
}


def ask(generate: Generate, role: str, fields: Sequence[Fields], seed: int, temperature: float = 1.0) -> list[str]:
    """Put prompts of a role to the model and return what it says."""
    prompt = replace(PROMPTS[role], temperature=temperature, max_tokens=160)
    turns = [replace(prompt(**given), key=(seed, i)) for i, given in enumerate(fields)]
    return [reply.text for reply in generate(turns)]


def formats(generate: Generate, count: int, seed: int = 0) -> dict[str, float]:
    """Share of well-formed replies of every role at temperature 1."""
    shares = {}
    for role, (*_, show) in ROLES.items():
        rng = Demonstrator(f"format {role} {seed}")
        replies = ask(generate, role, [show(rng)[0] for _ in range(count)], seed)
        shares[role] = sum(well_formed(role, text) for text in replies) / count
    return shares


def judging(generate: Generate, count: int, temperature: float, seed: int = 0) -> float:
    """Share of answers, most of them wrong, that the answer judge puts on the right side."""
    rng = Demonstrator(f"judging {seed}")
    asked = [pick(rng) for _ in range(count)]
    fields = [{"question": task.question, "answer": claim(rng, task)} for task in asked]
    replies = ask(generate, "mae/judge_answer", fields, seed, temperature)
    return _agreement(replies, [tasks.right(**given) for given in fields])


def rating(generate: Generate, count: int, seed: int = 0) -> float:
    """Share of questions, half of them spoilt, that the question judge puts on the right side."""
    rng = Demonstrator(f"rating {seed}")
    asked = [pick(rng, choice=True).question for _ in range(count)]
    fields = [{"question": text if rng.random() < 0.5 else tasks.spoil(rng, text)} for text in asked]
    replies = ask(generate, "mae/judge_question", fields, seed)
    return _agreement(replies, [tasks.read(**given) is not None for given in fields])


def _agreement(replies: Sequence[str], truths: Sequence[bool]) -> float:
    scores = [re.search(r"<score>(\d+)</score>", reply) for reply in replies]
    hits = [bool(s) and (int(s[1]) > 5) == truth for s, truth in zip(scores, truths, strict=True)]
    return sum(hits) / len(hits)


def ranking(generate: Generate, count: int, seed: int = 0) -> float:
    """Share of stated pairs of a right and a wrong solution that CoNL's verdicts at temperature 1 put the right way.

    A pair called equal counts as missed; chance is below one half.
    """
    rng = Demonstrator(f"ranking {seed}")
    tables = [conversations.table(rng) for _ in range(count)]
    fields = [conversations.shown(seen, "analyst") for seen in tables]
    won = stated = 0.0
    for reply, seen in zip(ask(generate, "conl/verdict", fields, seed), tables, strict=True):
        right = [tasks.right(seen.task.question, answer) for answer in seen.answers]
        for winner, loser, weight in reading.ranking(reply, "final_ranking", len(seen.answers)):
            if right[winner] != right[loser]:
                stated += weight
                won += right[winner] * (weight == 1)
    return won / stated if stated else 0.0


def challenging(generate: Generate, count: int, seed: int = 0) -> dict[str, float]:
    """The document reader at temperature 1: gold answers right, questions literally in the document."""
    rng = Demonstrator(f"challenging {seed}")
    documents = [document(rng) for _ in range(count)]
    fields = [{"document": text, "answer_type": rng.choice(stated).answer_type} for text, stated in documents]
    gold = grounded = 0
    for reply, given in zip(ask(generate, "spice/challenger_free", fields, seed), fields, strict=True):
        try:
            made = json.loads(reply)
            gold += tasks.right(made["question"], made["answer"])
            grounded += bool(made["question"]) and made["question"] in given["document"]
        except (ValueError, KeyError, TypeError):
            continue
    return {"gold_with_document": gold / count, "grounded": grounded / count}


def measure(generate: Generate, count: int = 400, per_family: int = 40, seed: int = 0) -> dict[str, Any]:
    """All figures of the card; `generate` answers turns (each carries its own temperature)."""
    engine, method, test = Batched(generate), MAE(), tasks.items("test", per_family)
    greedy = score(engine, method, test, key=(seed,))

    def share(field: str, value: object) -> float:
        return _share([row for row in greedy if row[field] == value])

    return {
        "solve_greedy": _share(greedy),
        "solve_sampled": _share(score(engine, method, test, temperature=1.0, key=(seed,))),
        "misconception_greedy": sum(row["misconception"] for row in greedy) / len(greedy),
        "judge_answer_greedy": judging(generate, count, 0.0, seed),
        "judge_answer_sampled": judging(generate, count, 1.0, seed),
        "judge_question": rating(generate, count, seed),
        "ranking": ranking(generate, count, seed),
        **challenging(generate, count, seed),
        "items": len(test),
        "solve_by_family": {name: share("family", name) for name in tasks.NAMES},
        "solve_by_level": {str(level): share("level", level) for level in tasks.LEVELS},
        "format": formats(generate, count, seed),
    }


def _share(rows: Sequence[dict[str, Any]]) -> float:
    counts = tally(rows)
    return counts["k"] / counts["n"]


def failures(figures: dict[str, Any]) -> list[str]:
    """Which gates the figures miss, one line each."""
    formats = {f"format of {role}": share for role, share in figures["format"].items()}
    found, gates = figures | formats, GATES | dict.fromkeys(formats, FORMAT_GATE)
    bounds = ((name, found[name], low, high) for name, (low, high) in gates.items())
    return [
        f"{name} is {value:.3f}, wanted {low} to {high}"
        for name, value, low, high in bounds
        if not low <= value <= high
    ]
