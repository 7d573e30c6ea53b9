"""The report: results/<preset>/index.html and a page per paper, which need no network and no script to read.

Shows what the batch has made and computes nothing; equal results give equal bytes. What is missing is named.
"""

import json
import os
import re
import shutil
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from reproduce import write_atomic
from reproduce.keys import FAILED, read_marker
from reproduce.plan import Item, Plan
from reproduce.registry import read_toml

EXECUTED = ("notebook.html", "notebook.ipynb", FAILED)  # not committed, so perhaps not here


def build(plan: Plan) -> Path:
    """Write the pages of one preset and return the first one."""
    import jinja2
    import pandas as pd

    here, ledger, found = Path(__file__), plan.folder / "claims" / "ledger.csv", [*plan.items.values()]
    found = {kind: [facts_of(plan, item) for item in found if item.kind == kind] for kind in ("run", "artefact")}
    claims = pd.read_csv(ledger, dtype=str, keep_default_na=False).to_dict("records") if ledger.is_file() else []
    claims = [read_toml(here.with_name("claims.toml"))["claims"].get(row["claim"], {}) | row for row in claims]
    papers = [*dict.fromkeys(artefact["item"].paper for artefact in found["artefact"])]
    pages = jinja2.Environment(loader=jinja2.FileSystemLoader(here.parent), autoescape=True, trim_blocks=True)
    template = pages.get_template("report.html.j2", globals={"plan": plan, **found, "claims": claims, "papers": papers})
    folder = plan.folder / "report"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(here.with_suffix(".css"), folder / "style.css")
    for paper in papers:
        said = transcripts(plan, paper)
        write_atomic(folder / f"{paper}.html", template.render(paper=paper, up="../", transcripts=said))
    write_atomic(plan.folder / "index.html", template.render(paper=None, up=""))
    return plan.folder / "index.html"


def facts_of(plan: Plan, item: Item) -> dict[str, Any]:
    """Collect what there is of an item: its files, where they come from, and of an artefact what is to be read."""
    folder = plan.folder / item.id
    found: dict[str, Any] = {"item": item, "origin": read_marker(folder, "provenance.json")}
    found["files"] = [name for name in item.outputs if (folder / name).is_file()]
    found["executed"] = next((name for name in EXECUTED if (folder / name).is_file()), None)
    if item.kind == "artefact":
        found["table"] = page_of((folder / "table.md").read_text("utf-8")) if "table.md" in found["files"] else ""
        found["notebook"] = os.path.relpath(plan.root / item.notebook, plan.folder / "report")
        found["title"], about = heading(plan, item)
        found["about"] = page_of(about)
    return found


def heading(plan: Plan, item: Item) -> tuple[str, str]:
    """Return an artefact's title and what it is about: its parameters, or else the first lines of its notebook."""
    if item.skip is not None:
        return item.id, item.skip
    path = plan.root / item.notebook
    cells = read_marker(path.parent, path.name).get("cells", [])
    prose = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"] or [f"# {item.id}"]
    title, _, text = prose[0].removeprefix("# ").partition("\n\n")
    return item.parameters.get("title", title), item.parameters.get("introduction", text.partition("\n\n")[0])


def page_of(text: str) -> str:
    """Turn Markdown into HTML in which no tag of the text is one, without what HTML leaves out of tables."""
    import mistune

    page = mistune.create_markdown(escape=False, plugins=["table"])(text.replace("<", "&lt;"))
    return re.sub(r' style="text-align:left"|</t[dhr]>|\n *(?=<t)', "", page)


def transcripts(plan: Plan, paper: str) -> list[dict[str, Any]]:
    """Pick episodes, see `ends`, of a run of the paper's own method."""
    trained = (item for item in plan.items.values() if item.protocol == item.paper == paper)
    run = next((item.id for item in trained if item.config.get("steps") != 0), "none")
    path = plan.folder / run / "episodes.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
    return ends([{"run": run, **json.loads(line)} for line in lines if line.endswith(b"\n")])  # a kill cuts the last


def ends(episodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Pick the best and the worst paid of the first and of the last recorded step, with what is `paid`."""
    rated = [{**episode, "paid": paid(episode["samples"])} for episode in episodes]
    found = []
    for step in sorted({episode["step"] for episode in rated[:1] + rated[-1:]}):
        best, *others = sorted((one for one in rated if one["step"] == step), key=lambda one: one["paid"], reverse=True)
        found += [best, *others[-1:]]
    return found


def paid(samples: list[dict[str, Any]]) -> float:
    """Return the mean reward of replies, or of their segments where these are paid."""
    rewards = (sample["reward"] for sample in samples)
    parts = chain.from_iterable(part.values() if isinstance(part, dict) else [part] for part in rewards)
    return fmean([part for part in parts if part is not None] or [0.0])
