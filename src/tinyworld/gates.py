"""What a tiny backbone can do before any training: the figures on its card, and the gates it has to pass.

Every role of every paper is played on demonstrations it has not seen; the oracle says what is right.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from coevolve import prompts
from coevolve.driver import Batched
from coevolve.held_out import score, tally
from coevolve.papers.conl import reading as rankings
from coevolve.prompts import blocks
from coevolve.types import Reply, Turn
from tinyworld import conversations
from tinyworld import tasks as tiny
from tinyworld.demonstrations import PROMPTS, ROLES, demonstrate
from tinyworld.demonstrator import Demonstrator, claim, pick
from tinyworld.formats import well_formed

Generate = Callable[[list[Turn]], list[Reply]]
FORMAT_GATE = 0.97
GATES = {  # figure: (lowest, highest)
    "solve_greedy": (0.45, 0.60),
    "judge_answer_greedy": (0.90, 1.0),
    "judge_question": (0.95, 1.0),
    "gold_with_document": (0.60, 1.0),
}


def ask(generate: Generate, turns: Sequence[Turn], temperature: float, seed: int) -> list[str]:
    """Send turns to the model and return what it says."""
    asked = [replace(turn, temperature=temperature, max_tokens=160, key=(seed, i)) for i, turn in enumerate(turns)]
    return [reply.text for reply in generate(asked)]


def formats(generate: Generate, count: int, seed: int = 0) -> dict[str, float]:
    """Share of well-formed replies of every role at temperature 1."""
    shares = {}
    for role in ROLES:
        rng = Demonstrator(f"format {role} {seed}")
        texts = [demonstrate(rng, role)[1] for _ in range(count)]
        replies = ask(generate, [Turn(role, ({"role": "user", "content": text},)) for text in texts], 1.0, seed)
        shares[role] = sum(well_formed(role, text) for text in replies) / count
    return shares


def judging(generate: Generate, count: int, temperature: float, seed: int = 0) -> float:
    """Share of answers, half of them wrong, that the answer judge puts on the right side."""
    rng, role = Demonstrator(f"judging {seed}"), prompts.load("mae", "judge_answer", "compact")
    tasks = [pick(rng, choice=False) for _ in range(count)]
    shown = [claim(rng, task) for task in tasks]
    turns = [role(question=task.question, answer=answer) for task, answer in zip(tasks, shown, strict=True)]
    replies = ask(generate, turns, temperature, seed)
    truths = [tiny.right(task.question, answer) for task, answer in zip(tasks, shown, strict=True)]
    return _agreement(replies, truths)


def rating(generate: Generate, count: int, seed: int = 0) -> float:
    """Share of questions, some of them spoilt, that the question judge puts on the right side."""
    rng, role = Demonstrator(f"rating {seed}"), prompts.load("mae", "judge_question", "compact")
    tasks = [pick(rng) for _ in range(count)]
    shown = [task.question if rng.random() < 0.5 else tiny.spoil(rng, task.question) for task in tasks]
    turns = [role(question=question) for question in shown]
    replies = ask(generate, turns, 1.0, seed)
    return _agreement(replies, [tiny.read(question) is not None for question in shown])


def _agreement(replies: Sequence[str], truths: Sequence[bool]) -> float:
    scores = [re.search(r"<score>(\d+)</score>", reply) for reply in replies]
    hits = [bool(s) and (int(s[1]) > 5) == truth for s, truth in zip(scores, truths, strict=True)]
    return sum(hits) / len(hits)


def ranking(generate: Generate, count: int, seed: int = 0) -> float:
    """Share of stated pairs of a right and a wrong solution that CoNL's verdicts at temperature 1 put the right way.

    A pair called equal counts as missed; chance is below one half.
    """
    rng, role = Demonstrator(f"ranking {seed}"), PROMPTS["conl/verdict"]
    tables = [conversations.table(rng) for _ in range(count)]
    shown = [blocks.solutions([f"ANSWER: {answer}" for answer in answers]) for _, answers, *_ in tables]
    turns = [
        role(persona="analyst", agent=agent, query=task.question, solutions=block)
        for (task, *_, agent), block in zip(tables, shown, strict=True)
    ]
    replies = ask(generate, turns, 1.0, seed)
    won = stated = 0.0
    for reply, (task, answers, *_) in zip(replies, tables, strict=True):
        right = [tiny.right(task.question, answer) for answer in answers]
        for winner, loser, weight in rankings.ranking(reply, "final_ranking", len(answers)).comparisons:
            if right[winner] != right[loser]:
                stated += weight
                won += right[winner] * (weight == 1)
    return won / stated if stated else 0.0


def challenging(generate: Generate, count: int, seed: int = 0) -> dict[str, float]:
    """The document reader at temperature 1: gold answers right, questions literally in the document."""
    rng, role = Demonstrator(f"challenging {seed}"), prompts.load("spice", "challenger_free", "compact")
    documents = [tiny.document(rng) for _ in range(count)]
    turns = [role(document=text, answer_type=rng.choice(tasks).answer_type) for text, tasks in documents]
    replies = ask(generate, turns, 1.0, seed)
    gold = grounded = 0
    for reply, (text, _) in zip(replies, documents, strict=True):
        try:
            made = json.loads(reply)
            gold += tiny.right(made["question"], made["answer"])
            grounded += bool(made["question"]) and made["question"] in text
        except (ValueError, KeyError, TypeError):
            continue
    return {"gold_with_document": gold / count, "grounded": grounded / count}


def measure(generate: Generate, count: int = 400, per_family: int = 40, seed: int = 0) -> dict[str, object]:
    """All figures of the card; `generate` answers turns (each carries its own temperature)."""
    engine, solver = Batched(generate), prompts.load("mae", "solver", "compact")
    tasks = tiny.items("test", per_family)
    greedy = score(engine, solver, tasks, key=(seed,))
    sampled = score(engine, solver, tasks, temperature=1.0, key=(seed,))
    families = {name: [row for row in greedy if row["family"] == name] for name in tiny.NAMES}
    return {
        "solve_greedy": _share(greedy),
        "solve_sampled": _share(sampled),
        "misconception_greedy": sum(row["misconception"] for row in greedy) / len(greedy),
        "judge_answer_greedy": judging(generate, count, 0.0, seed),
        "judge_answer_sampled": judging(generate, count, 1.0, seed),
        "judge_question": rating(generate, count, seed),
        "ranking": ranking(generate, count, seed),
        **challenging(generate, count, seed),
        "items": len(tasks),
        "solve_by_family": {name: _share(rows) for name, rows in families.items()},
        "solve_by_level": {str(n): _share([r for r in greedy if r["level"] == n]) for n in tiny.LEVELS},
        "format": formats(generate, count, seed),
    }


def _share(rows: list[dict]) -> float:
    counts = tally(rows)
    return counts["k"] / counts["n"]


def failures(figures: dict[str, object]) -> list[str]:
    """Which gates the figures miss, one line each."""
    missed = [
        f"{name} is {figures[name]:.3f}, wanted {low} to {high}"
        for name, (low, high) in GATES.items()
        if not low <= figures[name] <= high
    ]
    return missed + [
        f"format of {role} is {share:.3f}, wanted at least {FORMAT_GATE}"
        for role, share in figures["format"].items()
        if share < FORMAT_GATE
    ]
