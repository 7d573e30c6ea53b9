"""Measures what a tiny backbone can do before any training, and compares it with its gates.

Plays every role of every paper on questions of the test split, which the warm start has not seen;
the oracle verifies the replies.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pandas

from coevolve.evaluation.scoring import score
from coevolve.methods.conl import parsing
from coevolve.methods.facts import mean_known
from coevolve.methods.mae.method import MAE
from coevolve.methods.spice.parsing import (
    MCQ,
    Question,
    json_object,
    read_format,
    read_mcq,
)
from coevolve.rollout.engine import BatchedEngine
from coevolve.text.parse import boxed, score_value, tag
from coevolve.types import Reply, Turn
from tinyworld import conversations, tasks
from tinyworld.demonstrations import ROLES, prompt_of, well_formed
from tinyworld.demonstrator import (
    MISCONCEPTION_PLANS,
    Demonstrator,
    draw_claim,
    draw_task,
    is_shown,
)
from tinyworld.documents import document
from tinyworld.tasks import Task

Generate = Callable[[list[Turn]], list[Reply]]
Fields = Mapping[str, Any]  # of a prompt
MAX_TOKENS = 200  # of a reply
SEED = 0  # default of all draws and replies
TOML = Path(__file__).with_name("gates.toml")


class Ask(Protocol):
    """`put` for one model and one variant of the prompts."""

    def __call__(
        self, role: str, fields: Sequence[Fields], seed: int, temperature: float = 1.0
    ) -> list[Reply]:
        """Return the model's replies to prompts of a role."""


@dataclass(frozen=True)
class Gate:
    """The range that a figure must lie in."""

    low: float
    high: float

    def passes(self, figure: float) -> bool:
        """Whether a figure lies in the range."""
        return self.low <= figure <= self.high


FORMAT_GATE = Gate(0.88, 0.95)
ALWAYS_FORMED = ("conl/compress_critique",)  # any text is well-formed
_BOUNDS = tomllib.loads(TOML.read_text(encoding="utf-8"))
GATES = {name: Gate(*bounds) for name, bounds in _BOUNDS.items()}


def put(
    generate: Generate,
    variant: str,
    role: str,
    fields: Sequence[Fields],
    seed: int,
    temperature: float = 1.0,
) -> list[Reply]:
    """Put prompts of a role to the model and return its replies."""
    prompt = replace(
        prompt_of(role, variant), temperature=temperature, max_tokens=MAX_TOKENS
    )
    turns = []
    for number, prompt_fields in enumerate(fields):
        turns.append(replace(prompt(**prompt_fields), key=(seed, number)))
    return generate(turns)


def _examiner(name: str) -> Demonstrator:
    """Return a demonstrator of questions that the warm start has not seen."""
    rng = Demonstrator(name)
    rng.split = "test"
    return rng


# One function per ability; replies are drawn at temperature 1 unless stated otherwise.


def formats(ask: Ask, count: int, seed: int = SEED) -> dict[str, dict[str, float]]:
    """Measure by role the share of well-formed replies, and the entropy in nats per token.

    The entropy is estimated by the mean surprise at the sampled tokens.
    """
    well_formed_shares = {}
    entropies = {}
    for role, demonstration in ROLES.items():
        rng = _examiner(f"format {role} {seed}")
        prompts = [demonstration.draw(rng).fields for _ in range(count)]
        replies = ask(role, prompts, seed)
        well_formed_shares[role] = _mean_or_zero(
            well_formed(role, reply.text) for reply in replies
        )
        entropies[role] = _mean_or_zero(
            -logprob for reply in replies for logprob in reply.logprobs
        )
    return {"format": well_formed_shares, "entropy": entropies}


def proposing(ask: Ask, count: int, seed: int = SEED) -> dict[str, float]:
    """Measure the share of a free Proposer's replies that ask a well-formed question.

    Also measures the share of its rarest level among them.
    """
    levels = []
    for reply in ask("mae/proposer", [{}] * count, seed):
        task = tasks.read(tag(reply.text, "question") or "")
        if task is not None:
            levels.append(task.level)
    rarest = min(levels.count(level) for level in tasks.LEVELS)
    return {
        "proposals_valid": len(levels) / count,
        "proposals_scarcest_level": rarest / max(1, len(levels)),
    }


def planning(ask: Ask, count: int, seed: int = SEED) -> dict[str, float]:
    """Measure the share of correct plans among the readable ones.

    Also measures how a correct and a wrong plan change the share of correct solutions.
    """
    rng = _examiner(f"planning {seed}")
    drawn = [draw_task(rng) for _ in range(count)]
    plain = []
    with_correct_plan = []
    with_wrong_plan = []
    for task in drawn:
        wrong_plan = MISCONCEPTION_PLANS[task.family]
        plain.append({"question": task.question})
        with_correct_plan.append({"question": task.question, "plan": task.plan})
        with_wrong_plan.append({"question": task.question, "plan": wrong_plan})
    plans_correct = []
    for reply, task in zip(ask("sage/planner", plain, seed), drawn, strict=True):
        plan = tag(reply.text, "plan")
        plans_correct.append(None if plan is None else plan == task.plan)
    alone = _share_solved(ask("mae/solver", plain, seed), drawn)
    planned = _share_solved(ask("sage/solver", with_correct_plan, seed), drawn)
    misled = _share_solved(ask("sage/solver", with_wrong_plan, seed), drawn)
    return {
        "plans_correct": _mean_or_zero(plans_correct),
        "correct_plan_gain": planned - alone,
        "wrong_plan_gain": misled - alone,
    }


def _share_solved(replies: Sequence[Reply], drawn: Sequence[Task]) -> float:
    verdicts = []
    for reply, task in zip(replies, drawn, strict=True):
        verdicts.append(tasks.is_correct(task.question, tag(reply.text, "answer")))
    return _mean_or_zero(verdicts)


def discussing(ask: Ask, count: int, seed: int = SEED) -> float:
    """Measure the share of multiple-choice problems that are solved in a discussion (CoMAS)."""
    rng = _examiner(f"discussing {seed}")
    drawn: list[Task] = []
    while len(drawn) < count:
        task = tasks.draw(rng, tasks.CHOICE)
        if is_shown(rng, task):
            drawn.append(task)
    fields = []
    for task in drawn:
        discussion = conversations.discussion(rng, task)
        fields.append({"problem": task.question, "discussion": discussion})
    replies = ask("comas/solution", fields, seed)
    return _mean_or_zero(
        boxed(reply.text) == task.answer
        for reply, task in zip(replies, drawn, strict=True)
    )


def judging(
    ask: Ask, count: int, temperature: float, seed: int = SEED
) -> tuple[float, int]:
    """Measure the share of a judge's readable verdicts on answers that are correct.

    Most of the answers are wrong. Returns the number of different scores, too.
    """
    rng = _examiner(f"judging {seed}")
    drawn = [draw_task(rng) for _ in range(count)]
    fields = []
    for task in drawn:
        fields.append({"question": task.question, "answer": draw_claim(rng, task)})
    replies = ask("mae/judge_answer", fields, seed, temperature)
    scores = {score_value(reply.text) for reply in replies} - {None}
    truths = [tasks.is_correct(shown["question"], shown["answer"]) for shown in fields]
    return _agreement(replies, truths), len(scores)


def rating(ask: Ask, count: int, seed: int = SEED) -> float:
    """Measure the share of readable verdicts on questions that are correct; half are ill-formed."""
    rng = _examiner(f"rating {seed}")
    questions = [draw_task(rng, choice=True).question for _ in range(count)]
    fields = []
    for question in questions:
        shown = question if rng.random() < 0.5 else tasks.spoil(rng, question)
        fields.append({"question": shown})
    replies = ask("mae/judge_question", fields, seed)
    truths = [tasks.read(shown["question"]) is not None for shown in fields]
    return _agreement(replies, truths)


def _agreement(replies: Sequence[Reply], truths: Sequence[bool]) -> float:
    """Return the share of readable scores of ten that are above five exactly where it is true."""
    agreements = []
    for reply, truth in zip(replies, truths, strict=True):
        value = score_value(reply.text)
        if value is not None:
            agreements.append((value > 5) == truth)
    return _mean_or_zero(agreements)


def ranking(ask: Ask, count: int, seed: int = SEED) -> float:
    """Measure the share of pairs that CoNL's verdicts rank correctly.

    Counts the compared pairs of a correct and a wrong solution. A pair called equal is missed;
    chance is below one half.
    """
    rng = _examiner(f"ranking {seed}")
    panels = [conversations.draw_panel(rng) for _ in range(count)]
    fields = [conversations.judge_fields(panel, "analyst") for panel in panels]
    correctly_ranked = 0.0
    compared = 0.0
    for reply, panel in zip(ask("conl/verdict", fields, seed), panels, strict=True):
        question = panel.task.question
        correct = [tasks.is_correct(question, answer) for answer in panel.answers]
        votes = parsing.ranking(reply.text, "final_ranking", len(correct))
        for vote in votes:
            if correct[vote.winner] == correct[vote.loser]:
                continue
            compared += vote.weight
            if correct[vote.winner] and not vote.is_tie:
                correctly_ranked += 1
    return correctly_ranked / compared if compared else 0.0


def challenging(ask: Ask, count: int, seed: int = SEED) -> dict[str, float]:
    """Measure SPICE's reader of documents: its choice of a form, and its questions.

    Measures the share of correct gold answers in both forms, and of free questions that the
    document states literally.
    """
    rng = _examiner(f"challenging {seed}")
    documents = [document(rng) for _ in range(count)]
    document_fields = []
    free_fields = []
    for text, stated in documents:
        answer_type = rng.choice(stated).answer_type
        document_fields.append({"document": text})
        free_fields.append({"document": text, "answer_type": answer_type})
    forms = [
        read_format(reply.text) for reply in ask("spice/format", document_fields, seed)
    ]
    choices = [
        read_mcq(reply.text)
        for reply in ask("spice/challenger_mcq", document_fields, seed)
    ]
    free_replies = ask("spice/challenger_free", free_fields, seed)
    gold_correct = 0
    grounded = 0
    for reply, fields in zip(free_replies, free_fields, strict=True):
        question, answer = _read_free_question(reply.text)
        if tasks.is_correct(question, answer):
            gold_correct += 1
        if question and question in fields["document"]:
            grounded += 1
    questions = [choice for choice in choices if isinstance(choice, Question)]
    return {
        "multiple_choice": _mean_or_zero(
            form == MCQ for form in forms if form is not None
        ),
        "multiple_choice_gold": _mean_or_zero(
            tasks.is_correct(question.text, question.gold) for question in questions
        ),
        "gold_with_document": gold_correct / count,
        "grounded": grounded / count,
    }


def _read_free_question(text: str) -> tuple[str, str]:
    """Return question and answer of a reply, both empty if either is not text."""
    fields = json_object(text) or {}
    question = fields.get("question")
    answer = fields.get("answer")
    if isinstance(question, str) and isinstance(answer, str):
        return question, answer
    return "", ""


# All figures


def measure(
    generate: Generate,
    count: int = 400,
    per_family: int = 40,
    seed: int = SEED,
    variant: str = "compact",
) -> dict[str, Any]:
    """Measure all figures of the card; `generate` answers turns, each at its own temperature."""
    ask = partial(put, generate, variant)
    engine = BatchedEngine(generate)
    method = MAE(prompt=variant)
    items = tasks.items("test", per_family)
    sampled_share, scores = judging(ask, count, 1.0, seed)
    greedy = pandas.DataFrame(score(engine, method, items, key=(seed,)))
    sampled = pandas.DataFrame(
        score(engine, method, items, temperature=1.0, key=(seed,))
    )
    greedy_share, _ = judging(ask, count, 0.0, seed)
    return {
        "solve_greedy": greedy["correct"].mean(),
        "solve_sampled": sampled["correct"].mean(),
        "misconception_greedy": greedy["misconception"].mean(),
        "judge_answer_greedy": greedy_share,
        "judge_answer_sampled": sampled_share,
        "judge_scores": scores,
        "judge_question": rating(ask, count, seed),
        "ranking": ranking(ask, count, seed),
        **challenging(ask, count, seed),
        **proposing(ask, count, seed),
        **planning(ask, count, seed),
        "discussed_choice": discussing(ask, count, seed),
        "items": len(items),
        "solve_by_family": greedy.groupby("family", sort=False)["correct"]
        .mean()
        .to_dict(),
        "solve_by_level": greedy.groupby("level")["correct"]
        .mean()
        .rename(str)
        .to_dict(),
        **formats(ask, count, seed),
    }


def _mean_or_zero(values: Iterable[float | None]) -> float:
    """Return the mean of the known values, or 0 if none is known."""
    return mean_known(values) or 0.0


def failures(figures: dict[str, Any]) -> list[str]:
    """Name the gates that the figures miss, one line each."""
    messages = []
    for name, gate in GATES.items():
        messages += _failure(name, figures[name], gate)
    for role, share in figures["format"].items():
        if role not in ALWAYS_FORMED:
            messages += _failure(f"format of {role}", share, FORMAT_GATE)
    return messages


def _failure(name: str, figure: float, gate: Gate) -> list[str]:
    if gate.passes(figure):
        return []
    return [f"{name} is {figure:.3f}, wanted {gate.low} to {gate.high}"]
