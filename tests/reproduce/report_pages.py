"""A preset's results, made up, and the pages of its report."""

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
from bs4 import BeautifulSoup
from toy_repository import ROOT

from reproduce import plan, report
from reproduce.analysis import tables
from reproduce.plan import Plan

EVIL = "<script>alert('&lt;')</script>"
FORBIDDEN_TAGS = {"script", "iframe", "object", "form"}


class Page:
    """A page's text, ids and tags, and the addresses of its links and pictures."""

    def __init__(self, html: str) -> None:
        page = BeautifulSoup(html, "html.parser")
        self.text = page.get_text()
        self.ids = {tag["id"] for tag in page.find_all(id=True)}
        self.tags: set[str] = set()
        self.links: list[str] = []
        for tag in page.find_all():
            self.tags.add(tag.name)
            self.links += [tag[name] for name in ("href", "src") if name in tag.attrs]


def episode(step: int, reward: Any, text: str) -> str:
    """Return a line of episodes.jsonl: an episode with three equal samples."""
    sample = {
        "role": "solver",
        "policy": "shared",
        "prompt": EVIL,
        "text": text,
        "tokens": 3,
        "reward": reward,
    }
    row = {"step": step, "episode": 0, "facts": {}, "samples": [sample] * 3}
    return json.dumps(row) + "\n"


ASKED = "solve<question>3*4</question>"
DIALOGUE = [
    {"role": "user", "content": ASKED},
    {"role": "assistant", "content": "<answer>11</answer>"},
]
EPISODES = [
    episode(1, 0.25, "worst!"),
    episode(1, 0.75, "best!"),
    episode(1, 0.5, "so-so!"),
    episode(2, 0.1, "later!"),
    episode(3, {"a": None, "b": 0.5}, EVIL),
    "{",  # a kill cuts the last line
]
ORIGIN = {
    "source": {"commit": "c0ffee" * 6, "dirty": True},
    "versions": {"torch": "2"},
    "machine": {"cpu": None},
    "wall_seconds": 120.0,
    "configuration": {"runs": {"base": [0], "mae_half": [0, 1]}},
}
LEDGER = f"""\
claim,tests,paper,where,says,kind,paper_effect,why,seeds,units,effect,low,high,verdict
mae_half_over_base,headline,mae,here,"{EVIL}",greater,4.5,,10 / 1,5 / 1,19.83,7.175,32.49,found
sage_dataset_grows,other,sage,there,It grows.,ratio,,needs sage_large,,,,,,not run
mae_pool_grows,other,mae,there,It grows.,trend,,,5,5,562.7,,,one seed
conl_matches_ground_truth,other,conl,there,It is as good.,ratio,0.9,,5,5,0.8,-inf,inf,undecided
"""


def made_up(root: Path) -> Plan:
    """Return a plan with results: a table, a figure, four claims, and the episodes of a run."""
    for name in ("reproduce", "notebooks", "src"):
        (root / name).symlink_to(ROOT / name)
    quick = plan.load(root, "quick")
    write_table(quick.folder / "mae_table1")
    write_figure(quick.folder / "mae_fig1")
    claims = quick.folder / "claims"
    claims.mkdir()
    (claims / "ledger.csv").write_text(LEDGER)
    run = quick.folder / "runs/mae_half-s0"
    run.mkdir(parents=True)
    (run / "episodes.jsonl").write_text("".join(EPISODES))
    return quick


def write_table(folder: Path) -> None:
    table = pd.DataFrame({"says": [EVIL, "a|b"], "earns": [0.5, 1.0]})
    tables.save_table(table, folder, "MAE, Table 1", "A note.")
    (folder / "provenance.json").write_text(json.dumps(ORIGIN))
    (folder / "notebook.html").write_text("executed")


def write_figure(folder: Path) -> None:
    folder.mkdir()
    for name in ("figure.png", "figure.svg"):
        (folder / name).write_text("drawn")


def build(results: Plan) -> dict[Path, Page]:
    """Build the report; return its pages, the front page first."""
    front = report.build(results)
    assert front == results.folder / "index.html"
    papers = sorted((results.folder / "report").glob("*.html"))
    return {path: Page(path.read_text()) for path in (front, *papers)}


def build_front(results: Plan) -> Page:
    """Build the report; return its front page."""
    return build(results)[results.folder / "index.html"]


def build_mae(results: Plan) -> Page:
    """Build the report; return the page of MAE."""
    return build(results)[results.folder / "report/mae.html"]


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def dialogue() -> str:
    """A line of episodes.jsonl: an unpaid reply in a dialogue, then a paid one."""
    row = json.loads(episode(1, 0.25, "paid"))
    sample = row["samples"][0]
    row["samples"] = [{**sample, "turn": 1}]
    unpaid = {name: sample[name] for name in ("role", "policy", "tokens")}
    second = {
        "prompt": "try again",
        "before": DIALOGUE,
        "text": "<answer>12</answer>",
        "turn": 0,
    }
    row["unpaid"] = [unpaid | second]
    return json.dumps(row) + "\n"
