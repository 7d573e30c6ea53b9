"""Hostile text at the doors that users go through: what it comes to, in the words of the corpora.

data/hostile_strings.jsonl was written by others, data/reader_cases.jsonl by us; each entry is of one of KINDS.
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
CORPUS = [json.loads(line) for name in FILES for line in (DATA / name).open("rb")]
TAGS = set("div details summary table tr th td pre span sup b code p".split())
STYLES = set("background-color white-space overflow-wrap margin text-align vertical-align padding border".split())
STYLES |= {"border-bottom", "max-width"}
TYPES = {"Integer": int, "Float": float, "Boolean": "true".__eq__}  # of a gold answer, where it is no text


def outcome(kind: str, text: str) -> Any:
    """What a text of one of KINDS comes to, as the corpora write it under `expected`."""
    return KINDS[kind](text)


class Page(HTMLParser):
    """Collects tags, attributes and text of a page as a browser would; `foreign`: what may not be there."""

    def __init__(self, source: str):
        super().__init__(convert_charrefs=True)
        self.open, self.text, self.foreign = [], "", []
        self.feed(source)
        self.close()
        self.foreign += [*self.open, *(c for c in source if not (c.isprintable() or c in "\n\t"))]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        rules = [rule.split(":")[0] for name, value in attrs if name == "style" for rule in value.split(";")]
        self.foreign += {tag} - TAGS | {name for name, _ in attrs} - {"open", "style", "title"} | {*rules} - STYLES

    def handle_endtag(self, tag: str) -> None:
        self.foreign += [] if self.open.pop() == tag else [f"/{tag}"]

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        self.foreign.append(data)


def shown(text: str) -> dict[str, bool]:
    """Everything that a notebook and a terminal show of a reply, a role, a group, a fact and a title of this text."""
    turn = Turn(text or "solver", ({"role": "user", "content": text},), policy=text or "shared")
    reply = Reply(turn, text, completion_ids=tuple(range(10, 10 + len(text))), char_ends=tuple(range(1, len(text) + 1)))
    sample = reply.earns({text: 0.5, "b": None}, group_id=text)
    made = [show.turns([turn]), show.replies([reply], [sample])]
    made += [show.outcome(Outcome([sample], facts={text: text, "list": [text]}))]
    made += [show.credit(sample, [1.0] * len(text)), show.conversation([sample], [[0.5] * len(text)], title=text)]
    pages = [Page(one.html) for one in made]
    hidden = [c for one in made for c in one.text if not (c.isprintable() or c in "\n\t")]
    verbatim = all(show.visible(text) in page.text for page in pages)
    return {"executed": any(page.foreign for page in pages) or bool(hidden), "shown_verbatim": verbatim}


def normed(text: str) -> dict[str, float]:
    """Equation 2 of SAGE, and as it is printed where that differs."""
    score = parse.score_value(text)
    found = {"value": round(sage.norm(score), 4), "parsed": score is not None}
    literal = round(sage.norm(score, literal=True), 4)
    return found | ({"paper_literal": literal} if literal != found["value"] else {})


def scored(text: str) -> dict[str, float | None]:
    score = comas.extract_score(text)
    return {"tau": score, "scorer_reward": comas.scoring_reward(score)}


def voted(text: str) -> list[list[float]]:
    """The votes of agent 1 of four."""
    return [list(vote) for vote in conl.ranking(text, "final_ranking", 4, 1)]


def ranked(text: str) -> dict[str, Any]:
    """Votes, and how many lines add none to them."""
    votes, dropped = voted(text), 0
    left = list(votes)
    for line in filter(str.strip, parse.only(text, "final_ranking").split("\n")):
        mine = [vote for vote in voted(f"<final_ranking>{line}</final_ranking>") if vote in left]
        left, dropped = [vote for vote in left if vote not in mine], dropped + (not mine)
    return {"comparisons": votes, "dropped_lines": dropped}


def criticised(text: str) -> list[list[Any]]:
    return [[critique.target, critique.text] for critique in conl.critiques(text, 4, 1)]


def task(text: str, kind: str) -> spice.Question | str:
    return spice.read_mcq(text) if kind == spice.MCQ else spice.read_free(text, kind)


def read(text: str, kind: str) -> list[str] | str:
    """A task as question and gold answer, or the fault's name."""
    found = task(text, kind)
    return found if isinstance(found, str) else [found.text, found.gold]


def asked(text: str, kind: str = "") -> dict[str, Any]:
    """A task of the kind that was asked for, or that it names itself, as valid or as what the Challenger earns."""
    found = task(text, kind or str((spice.json_object(text) or {}).get("answer_type")))
    if isinstance(found, str):
        return {"valid": False, "challenger_reward": challenger_reward("variance", None)}
    return {"valid": True, "answer": TYPES.get(found.kind, str)(found.gold)}


def judged(text: str, kind: str) -> bool | None:
    pair = json.loads(text)
    return verify(kind, pair["pred"], pair["gold"]).correct


def accepted(text: str) -> dict[str, bool]:
    """Whether a notebook gets these parameters. Ours come from TOML, which has neither YAML's tags nor its aliases."""
    try:
        plain = not any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader))
        if plain:
            check_parameters(DATA / "parameters.ipynb", yaml.safe_load(text))
    except (yaml.YAMLError, UserError):
        plain = False
    return {"accepted": plain}


PLAIN = (parse.number, parse.judge_score, parse.boxed, parse.answer_line, parse.code_block)
KINDS = {reader.__name__: reader for reader in PLAIN}
KINDS |= {f"mae_format_{tag}": partial(format_reward, tag=tag) for tag in ("question", "answer", "score")}
KINDS |= {f"spice_task {kind}": partial(read, kind=kind) for kind in (*spice.ANSWER_TYPES, spice.MCQ)}
KINDS |= {
    "tag": partial(parse.tag, name="q"),
    "tag_pairs": partial(parse.tag_pairs, name="q"),
    "sage_norm": normed,
    "sage_format_plan": partial(sage.format_reward, tags=("plan",)),
    "comas_score": scored,
    "comas_verdict": comas.extract_verdict,
    "conl_ranking": ranked,
    "conl_votes": voted,
    "conl_critique": lambda text: {"targets": [target for target, _ in criticised(text)]},
    "conl_texts": criticised,
    "spice_freeform": asked,
    "spice_mcq": partial(asked, kind=spice.MCQ),
    "spice_format": spice.read_format,
    "judge_verdict": read_verdict,
    "math_equiv": partial(judged, kind="math"),
    "string_equiv": partial(judged, kind="exact"),
    "html_text": shown,
    "papermill_params": accepted,
}
