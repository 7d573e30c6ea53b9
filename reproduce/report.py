"""The report: results/<preset>/index.html and a page per paper, readable without network or script.

Shows what the batch has made and computes nothing; equal results give equal bytes. Missing results
are named.
"""

import html
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from reproduce import report_claims
from reproduce.keys import EXECUTED, FAILED, PROVENANCE, read_marker
from reproduce.plan import Item, Plan, use_package_of
from reproduce.registry import read_toml
from reproduce.report_pictures import size_of

HERE = Path(__file__)
TEMPLATE = "report.html.j2"
PAPERS = read_toml(HERE.with_name("papers.toml"))
ACROSS = {"name": "Across papers", "title": "", "summary": "", "main": []}
# Executed; not committed, so perhaps missing.
NOTEBOOKS = (
    "notebook.html",
    EXECUTED,
    FAILED,
)
# Presets whose pages are committed without the executed notebooks, which they must not link.
COMMITTED = ("standard",)
# Notebooks of what the main results rest on: shown below them, and folded.
BACKGROUND = (
    "diagrams",
    "prompts",
    "settings",
    "seed_sets",
    "sage",
    "comas",
    "conl",
    "mae",
)
PICTURES = ("figure.png", "figure.svg")
BADGE = "[!["  # the start of a paragraph that is a picture with a link
AVERAGE = re.compile(r"(overall|average|.* avg\.|.* average)", re.IGNORECASE)
CAPTION = re.compile(r"<p><strong>(.*?)</strong></p>")
HEAD = re.compile(r"<thead>\s*<tr>(.*?)</thead>", re.DOTALL)
OF_THE_PAPER = ", the paper"  # ends the name of a column with the paper's numbers
INTERVAL = re.compile(r"\[[-+\d.]+, [-+\d.]+\]")
PLAY = "play.html"  # an episode in the browser, beside the presets' folders
# Of the documentation, which a clone has beside the results.
GUIDES = {"front": "README.md", "docs": "docs/README.md", "rules": "docs/ledger.md"}
LEADING_CELLS = 2  # a row's name stands in one of these
OPEN_REPLIES = 2  # of a role in an episode; its others are folded


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
            paper=paper,
            up="../",
            play=play_link(plan, "../"),
            guides=guide_links(plan, "../"),
            transcripts=transcripts(plan, paper),
            sections=sections(plan, paper),
        )
        write_atomically(folder / f"{paper}.html", page)
    front = plan.folder / "index.html"
    page = template.render(
        paper=None, up="", play=play_link(plan, ""), guides=guide_links(plan, "")
    )
    write_atomically(front, page)
    return front


def play_link(plan: Plan, up: str) -> str:
    """Return the link from a page to an episode in the browser, "" where that page is missing."""
    if not (plan.folder.parent / PLAY).is_file():
        return ""
    return f"{up}../{PLAY}"


def guide_links(plan: Plan, up: str) -> dict[str, str]:
    """Return the links from a page to pages of the documentation; {} without a clone.

    They lead to Markdown, for which `tools.site` puts the pages that it makes of it.
    """
    if not all((plan.root / file).is_file() for file in GUIDES.values()):
        return {}
    return {name: f"{up}../../{file}" for name, file in GUIDES.items()}


def load_template(plan: Plan) -> Any:
    """Return the template of all pages, filled with everything but what one page alone shows."""
    import jinja2

    from reproduce.analysis.verdicts import GROUPS, MEANINGS

    rows = report_claims.read(plan)
    everything = {
        "plan": plan,
        "verdicts": MEANINGS,
        "groups": GROUPS,
        "looks": report_claims.LOOKS,
        "look_of": report_claims.look_of,
        "counts": report_claims.counts,
        "inside": report_claims.inside,
        "info": {paper: PAPERS.get(paper, ACROSS) for paper in papers(plan)},
        "runs": [],
        "artefacts": [],
        "claims": rows,
        "papers": papers(plan),
    }
    for item in plan.items.values():
        everything[f"{item.kind}s"].append(facts_of(plan, item))
    loader = jinja2.FileSystemLoader(HERE.parent)
    pages = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return pages.get_template(TEMPLATE, globals=everything)


def papers(plan: Plan) -> list[str]:
    """Return the papers that have tables or figures, in the order of papers.toml."""
    found = set()
    for item in plan.items.values():
        if item.kind == "artefact":
            found.add(item.paper)
    known = [paper for paper in PAPERS if paper in found]
    return [*known, *sorted(found.difference(PAPERS))]


def sections(plan: Plan, paper: str) -> dict[str, list[dict[str, Any]]]:
    """Return a paper's artefacts in three parts: main result, further results, background."""
    main = PAPERS.get(paper, ACROSS)["main"]
    parts: dict[str, list[dict[str, Any]]] = {
        "main": [],
        "further": [],
        "background": [],
    }
    for item in plan.items.values():
        if item.kind != "artefact" or item.paper != paper:
            continue
        if item.id in main:
            part = "main"
        elif Path(item.notebook).stem in BACKGROUND:
            part = "background"
        else:
            part = "further"
        parts[part].append(facts_of(plan, item))
    return parts


def facts_of(plan: Plan, item: Item) -> dict[str, Any]:
    """Collect what exists of an item: its files, their origin, and an artefact's text."""
    folder = plan.folder / item.id
    executed = []
    if plan.name not in COMMITTED:
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
        pictures = [name for name in facts["files"] if name in PICTURES]
        if pictures:
            facts["picture"] = pictures[-1]
            facts["size"] = size_of(folder / pictures[-1])
        facts["table"] = ""
        if "table.md" in facts["files"]:
            table = (folder / "table.md").read_text("utf-8")
            page = pair_headings(to_html(averages_first(table)))
            facts["table"] = without_title(page, title)
    return facts


def heading(plan: Plan, item: Item) -> tuple[str, str]:
    """Return an artefact's title and introduction.

    They are its parameters of these names, or else the first lines of its notebook, without badges.
    """
    text = item.skip or item.fault
    if text is not None:
        return item.id, text
    text = _first_prose(plan.root / item.notebook, f"# {item.id}")
    paragraphs = text.removeprefix("# ").split("\n\n")
    prose = [paragraph for paragraph in paragraphs if not paragraph.startswith(BADGE)]
    first, second, *_ = [*prose, ""]
    title = item.parameters.get("title", first)
    introduction = item.parameters.get("introduction", second)
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
    page = INTERVAL.sub(r'<small class="nowrap">\g<0></small>', page)
    return re.sub(r' style="text-align:left"|</t[dhr]>|\n *(?=<t)', "", page)


def without_title(page: str, title: str) -> str:
    """Return a table's page without the beginning of its caption, if that is the card's title."""
    caption = CAPTION.match(page)
    if caption is None:
        return page
    text = html.unescape(caption[1])
    if not text.startswith(title):
        return page
    rest = text.removeprefix(title).strip()
    if rest.startswith("(") and rest.endswith(")"):
        rest = rest[1:-1]
    paragraph = ""
    if rest:
        sentence = rest[0].upper() + rest[1:]
        paragraph = f"<p>{html.escape(sentence)}</p>"
    return paragraph + page[caption.end() :]


def pair_headings(page: str) -> str:
    """Give a column and the paper's column beside it one heading, above "here" and "paper"."""
    return HEAD.sub(_in_two_rows, page)


def _in_two_rows(head: re.Match[str]) -> str:
    names = [name.strip() for name in head[1].split("<th>")[1:]]
    upper = ""
    lower = ""
    for name, following in zip(names, [*names[1:], ""], strict=True):
        if following == name + OF_THE_PAPER:
            upper += f'<th colspan="2" scope="colgroup">{name}</th>'
            lower += "<th>here</th><th>paper</th>"
        elif not name.endswith(OF_THE_PAPER):
            upper += f'<th rowspan="2">{name}</th>'
    if not lower:
        return head[0]
    return f"<thead><tr>{upper}</tr><tr>{lower}</tr></thead>"


def averages_first(text: str) -> str:
    """Return a table in Markdown with the rows of averages on top, in bold.

    Of a table of several parts, those of every part come first. Without averages it is as it was.
    """
    lines = text.splitlines()
    rows = [number for number, line in enumerate(lines) if line.startswith("|")]
    if len(rows) < 3:
        return text
    first, *_ = body = rows[2:]
    averages = []
    others = []
    for number in body:
        line = lines[number]
        if _is_average(line):
            averages.append(_in_bold(line))
        else:
            others.append(line)
    lines[first : body[-1] + 1] = averages + others
    return "\n".join(lines)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def _is_average(line: str) -> bool:
    leading = _cells(line)[:LEADING_CELLS]
    return any(AVERAGE.match(cell) for cell in leading)


def _in_bold(line: str) -> str:
    cells = [f"**{cell}**" if cell else "" for cell in _cells(line)]
    return f"| {' | '.join(cells)} |"


def transcripts(plan: Plan, paper: str) -> list[dict[str, Any]]:
    """Return episodes of a run of the paper's own method, see `transcripts.of_run`.

    Their `turns` are all replies in order, each with the oracle's `mark`.
    """
    from coevolve.runs.record import rows_in_order
    from reproduce.transcripts import everything_read, mark, of_run

    run = _first_trained(plan, paper)
    if run is None:
        return []
    recorded = plan.folder / run.id / "episodes.jsonl"
    kept = plan.folder / "report" / f"{paper}.transcripts.json"
    episodes = of_run(run.id, recorded, kept)
    for episode in episodes:
        episode["turns"] = rows_in_order(episode)
        for turn in episode["turns"]:
            turn["mark"] = mark(everything_read(turn), turn["text"])
        _fold_repeats(episode["turns"])
    return episodes


def _fold_repeats(turns: list[dict[str, Any]]) -> None:
    """Mark each reply as folded that comes after OPEN_REPLIES others of its role."""
    replies_of: Counter[str] = Counter()
    for turn in turns:
        turn["is_folded"] = replies_of[turn["role"]] >= OPEN_REPLIES
        replies_of[turn["role"]] += 1


def _first_trained(plan: Plan, paper: str) -> Item | None:
    """Return the first run of the paper's own method that takes a step; None if there is none."""
    for item in plan.items.values():
        is_own_method = item.method == item.paper == paper
        if is_own_method and item.config.get("steps") != 0:
            return item
    return None
