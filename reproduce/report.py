"""The report: results/<preset>/index.html and a page per paper, readable without network or script.

Shows what the batch has made and computes nothing; equal results give equal bytes. Missing results
are named.
"""

import json
import os
import re
import shutil
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any

from reproduce.keys import EXECUTED, FAILED, PROVENANCE, read_marker
from reproduce.plan import Item, Plan, use_package_of
from reproduce.registry import read_toml

HERE = Path(__file__)
TEMPLATE = "report.html.j2"
# Executed; not committed, so perhaps missing.
NOTEBOOKS = (
    "notebook.html",
    EXECUTED,
    FAILED,
)


def build(plan: Plan) -> Path:
    """Write the pages of one preset and return the first one."""
    use_package_of(plan.root)
    from coevolve.runs.record import write_atomically

    template = load_template(plan)
    folder = plan.folder / "report"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(HERE.with_suffix(".css"), folder / "style.css")
    for paper in papers(plan):
        page = template.render(
            paper=paper, up="../", transcripts=transcripts(plan, paper)
        )
        write_atomically(folder / f"{paper}.html", page)
    front = plan.folder / "index.html"
    write_atomically(front, template.render(paper=None, up=""))
    return front


def load_template(plan: Plan) -> Any:
    """Return the template of all pages, filled with everything but what one page alone shows."""
    import jinja2

    from reproduce.analysis.verdicts import MEANINGS

    everything = {
        "plan": plan,
        "verdicts": MEANINGS,
        "runs": [],
        "artefacts": [],
        "claims": claims(plan),
        "papers": papers(plan),
    }
    for item in plan.items.values():
        everything[f"{item.kind}s"].append(facts_of(plan, item))
    loader = jinja2.FileSystemLoader(HERE.parent)
    pages = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True)
    return pages.get_template(TEMPLATE, globals=everything)


def papers(plan: Plan) -> list[str]:
    """Return the papers that have tables or figures, in the order of the plan."""
    names: list[str] = []
    for item in plan.items.values():
        if item.kind == "artefact" and item.paper not in names:
            names.append(item.paper)
    return names


def claims(plan: Plan) -> list[dict[str, str]]:
    """Return the rows of the ledger of claims with the fields of claims.toml; none without it."""
    import pandas as pd

    ledger = plan.folder / "claims" / "ledger.csv"
    if not ledger.is_file():
        return []
    registry = read_toml(HERE.with_name("claims.toml"))
    fields_of = registry["claims"]
    table = pd.read_csv(ledger, dtype=str, keep_default_na=False)
    remarks = ledger.with_name("remarks.csv")
    if remarks.is_file():
        beside = pd.read_csv(remarks, dtype=str, keep_default_na=False)
        table = table.merge(beside, on="claim", how="left").fillna("")
    rows = []
    for row in table.to_dict("records"):
        fields = fields_of.get(row["claim"], {})
        rows.append(fields | row)
    return rows


def facts_of(plan: Plan, item: Item) -> dict[str, Any]:
    """Collect what exists of an item: its files, their origin, and an artefact's text."""
    folder = plan.folder / item.id
    executed = [name for name in NOTEBOOKS if (folder / name).is_file()]
    facts: dict[str, Any] = {
        "item": item,
        "origin": read_marker(folder, PROVENANCE),
        "files": [name for name in item.outputs if (folder / name).is_file()],
        "executed": executed[0] if executed else None,
    }
    if item.kind == "artefact":
        title, introduction = heading(plan, item)
        facts["title"] = title
        facts["about"] = to_html(introduction)
        notebook = plan.root / item.notebook
        facts["notebook"] = os.path.relpath(notebook, plan.folder / "report")
        facts["table"] = ""
        if "table.md" in facts["files"]:
            table = (folder / "table.md").read_text("utf-8")
            facts["table"] = to_html(table)
    return facts


def heading(plan: Plan, item: Item) -> tuple[str, str]:
    """Return an artefact's title and introduction.

    They are its parameters of these names, or else the first lines of its notebook.
    """
    text = item.skip or item.fault
    if text is not None:
        return item.id, text
    text = _first_prose(plan.root / item.notebook, f"# {item.id}")
    title, _, rest = text.removeprefix("# ").partition("\n\n")
    introduction, _, _ = rest.partition("\n\n")
    title = item.parameters.get("title", title)
    introduction = item.parameters.get("introduction", introduction)
    return title, introduction


def _first_prose(notebook: Path, default: str) -> str:
    """Return the text of a notebook's first Markdown cell, or the default if there is none."""
    content = read_marker(notebook.parent, notebook.name)
    for cell in content.get("cells", []):
        if cell["cell_type"] == "markdown":
            return "".join(cell["source"])
    return default


def to_html(text: str) -> str:
    """Turn Markdown into HTML, in which tags of the text stay text.

    Closing tags that HTML lets a table omit are left out.
    """
    import mistune

    markdown = mistune.create_markdown(escape=False, plugins=["table"])
    page = markdown(text.replace("<", "&lt;"))
    return re.sub(r' style="text-align:left"|</t[dhr]>|\n *(?=<t)', "", page)


def transcripts(plan: Plan, paper: str) -> list[dict[str, Any]]:
    """Return episodes of a run of the paper's own method, see `best_and_worst`."""
    run = _first_trained(plan, paper)
    if run is None:
        return []
    path = plan.folder / run.id / "episodes.jsonl"
    if not path.is_file():
        return []
    episodes = []
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):  # a kill cuts the last line
            episode = json.loads(line)
            episodes.append({"run": run.id, **episode})
    return best_and_worst(episodes)


def _first_trained(plan: Plan, paper: str) -> Item | None:
    """Return the first run of the paper's own method that takes a step; None if there is none."""
    for item in plan.items.values():
        is_own_method = item.method == item.paper == paper
        if is_own_method and item.config.get("steps") != 0:
            return item
    return None


def best_and_worst(episodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the episodes with the highest and the lowest reward of the first and last steps.

    Each comes with its `mean_reward`.
    """
    if not episodes:
        return []
    first_step = episodes[0]["step"]
    last_step = episodes[-1]["step"]
    chosen = []
    for step in sorted({first_step, last_step}):
        of_step = []
        for episode in episodes:
            if episode["step"] == step:
                reward = mean_reward(episode["samples"])
                of_step.append({**episode, "mean_reward": reward})
        of_step.sort(key=itemgetter("mean_reward"), reverse=True)
        chosen.append(of_step[0])
        if len(of_step) > 1:
            chosen.append(of_step[-1])
    return chosen


def mean_reward(samples: list[dict[str, Any]]) -> float:
    """Return the mean reward of completions, or of their segments where these have rewards.

    0.0 if there is none.
    """
    rewards: list[float] = []
    for sample in samples:
        reward = sample["reward"]
        parts = reward.values() if isinstance(reward, dict) else [reward]
        rewards += [part for part in parts if part is not None]
    return fmean(rewards) if rewards else 0.0
