"""What a tiny backbone can do before any training: the figures on its card, and the gates it has to pass.

Every role of every paper is played on demonstrations it has not seen; the oracle says what is right.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas

from coevolve.evaluation.scoring import score
from coevolve.methods.conl import parsing
from coevolve.methods.facts import mean_known
from coevolve.methods.mae.method import MAE
from coevolve.methods.spice.parsing import MCQ, Question, json_object, read_format, read_mcq
from coevolve.rollout.engine import BatchedEngine
from coevolve.text.parse import boxed, score_value, tag
from coevolve.types import Reply, Turn
from tinyworld import conversations, tasks
from tinyworld.demonstrations import ROLES, prompt_of, well_formed
from tinyworld.demonstrator import MISPLANS, Demonstrator, claim, pick
from tinyworld.documents import document

Generate = Callable[[list[Turn]], list[Reply]]
Fields = Mapping[str, Any]  # of a prompt
Ask = Callable[..., list[Reply]]  # `put` for one model and one variant of the prompts
SEED = 0  # of all that is asked and drawn
FORMAT_GATE = (0.88, 0.95)
ALWAYS_FORMED = ("conl/compress_critique",)  # any text is one
GATES = tomllib.loads(Path(__file__).with_name("gates.toml").read_text(encoding="utf-8"))  # figure: [lowest, highest]


def put(generate: Generate, variant: str, role: str, fields: Sequence[Fields], temperature: float = 1.0) -> list[Reply]:
    """Put prompts of a role to the model and return its replies."""
    prompt = replace(prompt_of(role, variant), temperature=temperature, max_tokens=200)
    return generate([replace(prompt(**given), key=(SEED, i)) for i, given in enumerate(fields)])


def formats(ask: Ask, count: int) -> dict[str, dict[str, float]]:
    """By role at temperature 1: the share of well-formed replies, and the entropy in nats a token.

    The entropy is estimated by the mean surprise at the sampled tokens.
    """
    shares, entropies = {}, {}
    for role, (*_, show) in ROLES.items():
        rng = Demonstrator(f"format {role} {SEED}")
        replies = ask(role, [show(rng)[0] for _ in range(count)])
        shares[role] = _share(well_formed(role, reply.text) for reply in replies)
        entropies[role] = _share(-logprob for reply in replies for logprob in reply.logprobs)
    return {"format": shares, "entropy": entropies}


def proposing(ask: Ask, count: int) -> dict[str, float]:
    """Share of a free Proposer's replies that ask a question of this world, and of the level it asks least."""
    asked = [tag(reply.text, "question") for reply in ask("mae/proposer", [{}] * count)]
    levels = [task.level for task in (tasks.read(text) for text in asked if text) if task]
    scarcest = min(levels.count(level) for level in tasks.LEVELS) / max(1, len(levels))
    return {"proposals_valid": len(levels) / count, "proposals_scarcest_level": scarcest}


def planning(ask: Ask, count: int) -> dict[str, float]:
    """Share of right ones among readable plans; how a right and a wrong plan change the share of right solutions."""
    rng = Demonstrator(f"planning {SEED}")
    asked = [pick(rng) for _ in range(count)]
    plain = [{"question": task.question} for task in asked]

    def solved(role: str, fields: Sequence[Fields]) -> float:
        replies = ask(role, fields)
        pairs = zip(asked, replies, strict=True)
        return _share(tasks.is_correct(task.question, tag(reply.text, "answer")) for task, reply in pairs)

    right = [{"question": task.question, "plan": task.plan} for task in asked]
    wrong = [{"question": task.question, "plan": MISPLANS[task.family]} for task in asked]
    plans = [tag(reply.text, "plan") for reply in ask("sage/planner", plain)]
    fits = [None if text is None else text == task.plan for text, task in zip(plans, asked, strict=True)]
    alone = solved("mae/solver", plain)
    gains = [solved("sage/solver", fields) - alone for fields in (right, wrong)]
    return {"plans_right": _share(fits), "right_plan_gain": gains[0], "wrong_plan_gain": gains[1]}


def discussing(ask: Ask, count: int) -> float:
    """Share of multiple-choice problems that are solved in a discussion (CoMAS)."""
    rng = Demonstrator(f"discussing {SEED}")
    asked = [tasks.draw(rng, tasks.CHOICE) for _ in range(count)]
    fields = [{"problem": task.question, "discussion": conversations.history(rng, task)} for task in asked]
    answers = [boxed(reply.text) for reply in ask("comas/solution", fields)]
    return _share(task.answer == text for task, text in zip(asked, answers, strict=True))


def judging(ask: Ask, count: int, temperature: float) -> tuple[float, int]:
    """How often a judge's readable verdicts on answers, most of them wrong, are right; how many scores it gives."""
    rng = Demonstrator(f"judging {SEED}")
    asked = [pick(rng) for _ in range(count)]
    fields = [{"question": task.question, "answer": claim(rng, task)} for task in asked]
    replies = ask("mae/judge_answer", fields, temperature)
    given = {score_value(reply.text) for reply in replies} - {None}
    return _agreement(replies, [tasks.is_correct(**asked) for asked in fields]), len(given)


def rating(ask: Ask, count: int) -> float:
    """Share of readable verdicts on questions, half of them spoilt, in which the question judge is right."""
    rng = Demonstrator(f"rating {SEED}")
    asked = [pick(rng, choice=True).question for _ in range(count)]
    fields = [{"question": text if rng.random() < 0.5 else tasks.spoil(rng, text)} for text in asked]
    replies = ask("mae/judge_question", fields)
    return _agreement(replies, [tasks.read(**given) is not None for given in fields])


def _agreement(replies: Sequence[Reply], truths: Sequence[bool]) -> float:
    scores = [score_value(reply.text) for reply in replies]
    pairs = zip(scores, truths, strict=True)
    return _share((score > 5) == truth for score, truth in pairs if score is not None)


def ranking(ask: Ask, count: int) -> float:
    """Share of stated pairs of a right and a wrong solution that CoNL's verdicts at temperature 1 put the right way.

    A pair called equal counts as missed; chance is below one half.
    """
    rng = Demonstrator(f"ranking {SEED}")
    tables = [conversations.table(rng) for _ in range(count)]
    fields = [conversations.shown(seen, "analyst") for seen in tables]
    won = stated = 0.0
    for reply, seen in zip(ask("conl/verdict", fields), tables, strict=True):
        right = [tasks.is_correct(seen.task.question, answer) for answer in seen.answers]
        for winner, loser, weight in parsing.ranking(reply.text, "final_ranking", len(seen.answers)):
            if right[winner] != right[loser]:
                stated += weight
                won += right[winner] * (weight == 1)
    return won / stated if stated else 0.0


def challenging(ask: Ask, count: int) -> dict[str, float]:
    """The document reader at temperature 1.

    How often it wants multiple choice; shares of right gold answers in both forms, and of free questions that stand
    literally in the document.
    """
    rng = Demonstrator(f"challenging {SEED}")
    documents = [document(rng) for _ in range(count)]
    texts = [{"document": text} for text, _ in documents]
    fields = [{"document": text, "answer_type": rng.choice(stated).answer_type} for text, stated in documents]
    forms = [read_format(reply.text) for reply in ask("spice/format", texts)]
    choices = [read_mcq(reply.text) for reply in ask("spice/challenger_mcq", texts)]
    gold = grounded = 0
    for reply, given in zip(ask("spice/challenger_free", fields), fields, strict=True):
        made = json_object(reply.text) or {}
        asked, said = made.get("question"), made.get("answer")
        if isinstance(asked, str) and isinstance(said, str) and asked:
            gold += tasks.is_correct(asked, said)
            grounded += asked in given["document"]
    return {
        "multiple_choice": _share(form == MCQ for form in forms if form is not None),
        "multiple_choice_gold": _share(tasks.is_correct(one.text, one.gold) for one in choices if isinstance(one, Question)),
        "gold_with_document": gold / count,
        "grounded": grounded / count,
    }


def measure(generate: Generate, count: int = 400, per_family: int = 40, variant: str = "compact") -> dict[str, Any]:
    """All figures of the card; `generate` answers turns (each carries its own temperature)."""
    ask, engine, method = partial(put, generate, variant), BatchedEngine(generate), MAE(prompt=variant)
    test = tasks.items("test", per_family)
    sampled, scores = judging(ask, count, 1.0)
    greedy = pandas.DataFrame(score(engine, method, test, key=(SEED,)))
    warm = pandas.DataFrame(score(engine, method, test, temperature=1.0, key=(SEED,)))
    return {
        "solve_greedy": greedy["correct"].mean(),
        "solve_sampled": warm["correct"].mean(),
        "misconception_greedy": greedy["misconception"].mean(),
        "judge_answer_greedy": judging(ask, count, 0.0)[0],
        "judge_answer_sampled": sampled,
        "judge_scores": scores,
        "judge_question": rating(ask, count),
        "ranking": ranking(ask, count),
        **challenging(ask, count),
        **proposing(ask, count),
        **planning(ask, count),
        "discussed_choice": discussing(ask, count),
        "items": len(test),
        "solve_by_family": greedy.groupby("family", sort=False)["correct"].mean().to_dict(),
        "solve_by_level": greedy.groupby("level")["correct"].mean().rename(str).to_dict(),
        **formats(ask, count),
    }


def _share(verdicts: Iterable[float | None]) -> float:
    """Mean of the known verdicts; 0 where nothing is known."""
    return mean_known(verdicts) or 0.0


def failures(figures: dict[str, Any]) -> list[str]:
    """Which gates the figures miss, one line each."""
    formats = {f"format of {role}": share for role, share in figures["format"].items() if role not in ALWAYS_FORMED}
    found, gates = figures | formats, GATES | dict.fromkeys(formats, FORMAT_GATE)
    missed = {name: bounds for name, bounds in gates.items() if not bounds[0] <= found[name] <= bounds[1]}
    return [f"{name} is {found[name]:.3f}, wanted {low} to {high}" for name, (low, high) in missed.items()]
