"""What the page knows from Python: prompts, questions, documents, oracle, tokenizer.

Everything is plain data for JSON, so that nothing has to be written twice.
"""

import json
from collections.abc import Sequence
from typing import Any

from coevolve.commands.episodes import FIELDS, max_tokens
from coevolve.methods.base import Method
from coevolve.methods.comas import CoMAS
from coevolve.methods.conl import CoNL
from coevolve.methods.mae import MAE
from coevolve.methods.sage import SAGE
from coevolve.methods.spice import SPICE
from coevolve.methods.spice.parsing import DOCUMENT_REFERENCE
from coevolve.types import Role
from reproduce import HOME
from reproduce.registry import read_toml
from tinyworld import BACKBONES, arithmetic, facts, symbols, tasks

MODEL = "tiny"

CLASSES: dict[str, type[Method]] = {
    "mae": MAE,
    "sage": SAGE,
    "spice": SPICE,
    "comas": CoMAS,
    "conl": CoNL,
}
# SEED and TEMPERATURE are filled in by the page.
SNIPPET = """import random

from coevolve import EpisodeStepper
from coevolve.engines.loading import load_policy
from coevolve.methods.{module} import {name}
from coevolve.runs import show

policy = load_policy("tiny")
engine = policy.serve(temperature=TEMPERATURE, max_tokens={limit})
method = {name}({fields})
episode = EpisodeStepper(method.observed(random.Random(SEED)), engine, key=(SEED, 0))
while episode.pending_turns:
    print(show.replies(next(episode)))
print(show.outcome(episode.outcome))"""


def methods() -> dict[str, Method]:
    """Return the methods with the fields that the page plays, in the page's order."""
    return {name: CLASSES[name](**fields) for name, fields in FIELDS.items()}


def snippet(method: str) -> str:
    """Return Python code that plays the page's episode of a method."""
    fields = [f"{name}={value!r}" for name, value in FIELDS[method].items()]
    return SNIPPET.format(
        module=method,
        name=CLASSES[method].__name__,
        limit=max_tokens(method),
        fields=", ".join(fields),
    )


def all_tables() -> dict[str, Any]:
    """Return the tables of the page by name; equal code gives equal tables."""
    papers = read_toml(HOME / "reproduce" / "papers.toml")
    settings = {}
    for name, method in methods().items():
        roles = {key: _role(role) for key, role in method.roles.items()}
        settings[name] = {
            "limit": max_tokens(name),
            "python": snippet(name),
            "paper": papers[name]["paper"],
            "roles": roles,
            **_settings(method),
        }
    return {"tokenizer": tokenizer(), "world": world(), "methods": settings}


def _role(role: Role) -> dict[str, Any]:
    return {
        "name": role.name,
        "prompt": role.prompt,
        "temperature": role.temperature,
    }


def _settings(method: Method) -> dict[str, Any]:
    """Return what an episode of a method draws from, and its numbers."""
    if isinstance(method, MAE):
        return {
            "attempts": method.attempts,
            "questions": method.pools["questions"].items,
        }
    if isinstance(method, SAGE):
        rows = method.pools["tasks"].items
        named = [
            dict(zip(("question", "kind", "verifier"), row, strict=True))
            for row in rows
        ]
        return {"attempts": method.attempts, "tasks": named}
    if isinstance(method, CoMAS):
        return {
            "policies": method.policies,
            "rounds": method.m,
            "horizon": method.horizon,
            "questions": [question for _, question in method.training_questions],
        }
    if isinstance(method, CoNL):
        return {"personas": method.personas, "questions": method.questions}
    assert isinstance(method, SPICE)
    return {
        "group": method.group,
        "attempts": method.attempts,
        "corpora": [_documents(corpus) for corpus in method.source.parts],
        "documentReference": DOCUMENT_REFERENCE.pattern,
    }


def _documents(corpus: Any) -> list[str]:
    return [corpus.document(number) for number in range(len(corpus))]


def world() -> dict[str, Any]:
    """Return the oracle's tables: the families in the order in which they are tried, and facts."""
    families = []
    for family in tasks.FAMILIES.values():
        families.append(
            {"name": family.name, "pattern": family.pattern, "plan": family.plan}
        )
    truths: dict[str, dict[str, str]] = {}
    for (entity, attribute), value in facts.TRUTH.items():
        truths.setdefault(entity, {})[attribute] = value
    return {
        "families": families,
        "choicePlan": _choice_plan(),
        "factors": arithmetic.FACTORS,
        "facts": truths,
        "attributeOf": facts.ATTRIBUTE_OF,
        "programs": list(symbols.PROGRAMS),
        "hiddenNumbers": symbols.HIDDEN_NUMBERS,
        "hiddenStrings": symbols.HIDDEN_STRINGS,
    }


def _choice_plan() -> str:
    """Return the plan of multiple choices, which is in no table of its own."""
    task = tasks.read("1+1 A)2 B)3 C)4 D)5")
    assert task is not None
    return task.plan


def tokenizer() -> dict[str, Any]:
    """Return the tokenizer's vocabulary, merges and added tokens."""
    file = BACKBONES / MODEL / "tokenizer.json"
    stored = json.loads(file.read_text(encoding="utf-8"))
    vocabulary = stored["model"]["vocab"]
    added = []
    for token in stored["added_tokens"]:
        added.append({key: token[key] for key in ("id", "content", "special")})
    merges: Sequence[Sequence[str]] = stored["model"]["merges"]
    return {"vocabulary": vocabulary, "merges": merges, "added": added}
