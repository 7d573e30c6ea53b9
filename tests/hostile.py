"""Hostile text at every door that users' and models' texts enter by, and what it comes to.

data/hostile_strings.jsonl was written by others, data/reader_cases.jsonl for this repository. Each
entry has one of KINDS, an input and the expected outcome.
"""

import json
from functools import partial
from html.parser import HTMLParser
from typing import Any

import yaml
from data_files import DATA

from coevolve.methods.comas import rewards as comas
from coevolve.methods.conl import parsing as conl
from coevolve.methods.format_reward import format_reward
from coevolve.methods.sage import rewards as sage
from coevolve.methods.spice import parsing as spice
from coevolve.methods.spice.rewards import challenger_reward
from coevolve.runs import show
from coevolve.text import parse
from coevolve.text.verify import verify
from coevolve.types import Outcome, Reply, Turn
from published.judge import read_verdict
from reproduce import UserError
from reproduce.notebooks import check_parameters

FILES = ("hostile_strings.jsonl", "reader_cases.jsonl")
ALLOWED_TAGS = {
    "div",
    "details",
    "summary",
    "table",
    "tr",
    "th",
    "td",
    "pre",
    "span",
    "sup",
    "b",
    "code",
    "p",
}
ALLOWED_ATTRIBUTES = {"open", "style", "title"}
ALLOWED_STYLES = {
    "background-color",
    "white-space",
    "overflow-wrap",
    "margin",
    "text-align",
    "vertical-align",
    "padding",
    "border",
    "border-bottom",
    "max-width",
}


def _is_true(text: str) -> bool:
    return text == "true"


# How the corpora write gold answers that are not text.
GOLD_TYPES = {"Integer": int, "Float": float, "Boolean": _is_true}


def _load_corpus() -> list[dict[str, Any]]:
    entries = []
    for name in FILES:
        with (DATA / name).open("rb") as file:
            entries += map(json.loads, file)
    return entries


CORPUS = _load_corpus()


def outcome(kind: str, text: str) -> Any:
    """Return what a text of one of KINDS comes to, as the corpora write it under `expected`."""
    return KINDS[kind](text)


def hidden_characters(text: str) -> list[str]:
    """Return the characters that a reader cannot see, other than line breaks and tabs."""
    return [c for c in text if not (c.isprintable() or c in "\n\t")]


class Page(HTMLParser):
    """The text of a page as a browser parses it, and all markup in it that is not allowed.

    `foreign` lists tags, attributes, styles, comments and hidden characters.
    """

    def __init__(self, source: str):
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.text = ""
        self.foreign: list[str] = []
        self.feed(source)
        self.close()
        self.foreign += self.open  # never closed
        self.foreign += hidden_characters(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        if tag not in ALLOWED_TAGS:
            self.foreign.append(tag)
        for name, value in attrs:
            if name not in ALLOWED_ATTRIBUTES:
                self.foreign.append(name)
            if name == "style":
                properties = {rule.split(":")[0] for rule in value.split(";")}
                self.foreign += properties - ALLOWED_STYLES

    def handle_endtag(self, tag: str) -> None:
        if self.open.pop() != tag:
            self.foreign.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        self.foreign.append(data)


def shown(text: str) -> dict[str, bool]:
    """Show a reply, role, group, fact and title of this text, as notebooks and terminals do.

    Returns whether any of it is executed or hidden, and whether every page has the text verbatim.
    """
    message = {"role": "user", "content": text}
    turn = Turn(text or "solver", (message,), policy=text or "shared")
    token_ids = tuple(range(10, 10 + len(text)))
    reply = Reply(
        turn, text, completion_ids=token_ids, char_ends=tuple(range(1, len(text) + 1))
    )
    sample = reply.earns({text: 0.5, "b": None}, group_id=text)
    views = [
        show.turns([turn]),
        show.replies([reply], [sample]),
        show.outcome(Outcome([sample], facts={text: text, "list": [text]})),
        show.credit(sample, [1.0] * len(text)),
        show.conversation([sample], [[0.5] * len(text)], title=text),
    ]
    pages = [Page(view.html) for view in views]
    has_foreign_markup = any(page.foreign for page in pages)
    has_hidden_text = any(hidden_characters(view.text) for view in views)
    visible = show.visible(text)
    return {
        "executed": has_foreign_markup or has_hidden_text,
        "shown_verbatim": all(visible in page.text for page in pages),
    }


def sage_norm(text: str) -> dict[str, float]:
    """Equation 2 of SAGE; also as the paper prints it, where that differs."""
    score = parse.score_value(text)
    value = round(sage.norm(score), 4)
    literal = round(sage.norm(score, literal=True), 4)
    result = {"value": value, "parsed": score is not None}
    if literal != value:
        result["paper_literal"] = literal
    return result


def comas_score(text: str) -> dict[str, float | None]:
    """The score that a text of CoMAS's Scorer gives, and what the Scorer earns for it."""
    score = comas.extract_score(text)
    return {"tau": score, "scorer_reward": comas.scoring_reward(score)}


def conl_votes(text: str) -> list[list[float]]:
    """The votes of agent 1 of four."""
    votes = conl.ranking(text, "final_ranking", 4, 1)
    return [[vote.winner, vote.loser, vote.weight] for vote in votes]


def conl_ranking(text: str) -> dict[str, Any]:
    """The votes, and how many lines of the ranking add none to them."""
    votes = conl_votes(text)
    remaining = list(votes)
    dropped = 0
    ranking = parse.only(text, "final_ranking")
    for line in filter(str.strip, ranking.split("\n")):
        line_votes = conl_votes(f"<final_ranking>{line}</final_ranking>")
        adds_none = not any(vote in remaining for vote in line_votes)
        dropped += int(adds_none)
        remaining = [vote for vote in remaining if vote not in line_votes]
    return {"comparisons": votes, "dropped_lines": dropped}


def conl_critiques(text: str) -> list[list[Any]]:
    """The critiques of agent 1 of four, each as its target and its text."""
    return [[critique.target, critique.text] for critique in conl.critiques(text, 4, 1)]


def conl_targets(text: str) -> dict[str, list[Any]]:
    """The agents that agent 1 of four criticises."""
    return {"targets": [target for target, _ in conl_critiques(text)]}


def spice_question(text: str, kind: str) -> spice.Question | str:
    """The question of a Challenger's text, or the name of the fault in it."""
    if kind == spice.MCQ:
        return spice.read_mcq(text)
    return spice.read_free(text, kind)


def spice_task(text: str, kind: str) -> list[str] | str:
    """A task as question and gold answer, or the fault's name."""
    question = spice_question(text, kind)
    if isinstance(question, str):
        return question
    return [question.text, question.gold]


def spice_validity(text: str, kind: str = "") -> dict[str, Any]:
    """Whether a task is valid, with its answer or what the Challenger earns for it.

    Without `kind` the task is of the kind that it names itself.
    """
    if not kind:
        fields = spice.json_object(text) or {}
        kind = str(fields.get("answer_type"))
    question = spice_question(text, kind)
    if isinstance(question, str):
        return {
            "valid": False,
            "challenger_reward": challenger_reward("variance", None),
        }
    as_gold = GOLD_TYPES.get(question.kind, str)
    return {"valid": True, "answer": as_gold(question.gold)}


def is_equivalent(text: str, kind: str) -> bool | None:
    """Whether the verifier of a kind accepts the answer of a pair against its gold."""
    pair = json.loads(text)
    return verify(kind, pair["pred"], pair["gold"]).correct


def papermill_parameters(text: str) -> dict[str, bool]:
    """Whether a notebook accepts these parameters.

    The repository's own come from TOML, which has neither YAML's tags nor its aliases.
    """
    try:
        events = yaml.parse(text, yaml.SafeLoader)
        accepted = not any(isinstance(event, yaml.AliasEvent) for event in events)
        if accepted:
            check_parameters(DATA / "parameters.ipynb", yaml.safe_load(text))
    except (yaml.YAMLError, UserError):
        accepted = False
    return {"accepted": accepted}


KINDS = {
    "number": parse.number,
    "judge_score": parse.judge_score,
    "boxed": parse.boxed,
    "answer_line": parse.answer_line,
    "code_block": parse.code_block,
    "tag": partial(parse.tag, name="q"),
    "tag_pairs": partial(parse.tag_pairs, name="q"),
    "mae_format_question": partial(format_reward, tag="question"),
    "mae_format_answer": partial(format_reward, tag="answer"),
    "mae_format_score": partial(format_reward, tag="score"),
    "sage_norm": sage_norm,
    "sage_format_plan": partial(sage.format_reward, tags=("plan",)),
    "comas_score": comas_score,
    "comas_verdict": comas.extract_verdict,
    "conl_ranking": conl_ranking,
    "conl_votes": conl_votes,
    "conl_critique": conl_targets,
    "conl_texts": conl_critiques,
    "spice_freeform": spice_validity,
    "spice_mcq": partial(spice_validity, kind=spice.MCQ),
    "spice_format": spice.read_format,
    "judge_verdict": read_verdict,
    "math_equiv": partial(is_equivalent, kind="math"),
    "string_equiv": partial(is_equivalent, kind="exact"),
    "html_text": shown,
    "papermill_params": papermill_parameters,
}
for answer_kind in (*spice.ANSWER_TYPES, spice.MCQ):
    KINDS[f"spice_task {answer_kind}"] = partial(spice_task, kind=answer_kind)
