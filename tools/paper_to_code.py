"""Writes docs/paper-to-code.md: where equations, sections and tables of the papers are in the code.

`python -m tools.paper_to_code` makes the page from docstrings; a test checks that it is current.
"""

import ast
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from coevolve.runs import algorithm

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "paper-to-code.md"
PAPERS = {
    "mae": ("MAE", "2510.23595"),
    "sage": ("SAGE", "2603.15255"),
    "spice": ("SPICE", "2510.24684"),
    "comas": ("CoMAS", "2510.08529"),
    "conl": ("CoNL", "2601.21464"),
}
# Places in a paper, as docstrings name them.
PLACE = re.compile(
    r"\b(?:Eqs?\. \d+(?:(?:, | and )\d+)*|[Ee]quations? \d+(?:(?:, | and )\d+)*"
    r"|[Ss]ections? \d+(?:\.\d+)*(?:(?:, | and | to )\d+(?:\.\d+)*)*"
    r"|Tables? \d+(?: and \d+)?|Algorithm \d+|Figures? \d+|Listings? \d+"
    r"|[Ll]ines? \d+(?:(?:-|, | and | to )\d+)*|[Aa]ppendix (?:[A-Z]|\d+)(?:\.\d+)?)"
)
# What a step of an algorithm, as algorithm.txt names its place, has in common with a docstring.
KINDS = {"line": "line", "eq": "equation", "section": "section"}
# "Eq. 3" does not end a sentence.
END_OF_SENTENCE = re.compile(r"(?<!Eq)(?<!Eqs)\. ")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
HEAD = """\
# From paper to code

Where the equations, algorithms, sections and tables of the five papers are in the code. The page is
made from the docstrings by `python -m tools.paper_to_code`, and a test checks that it is current.
*Notebook* is the code cell of the paper's episode notebook in which the name occurs first, or else
the one that marks the place in the paper's algorithm. *Table* is the reproduced one, where the
place is a table of the paper.
"""


@dataclass(frozen=True)
class Definition:
    """A documented class, function or field."""

    name: str
    line: int
    text: str  # of its docstring

    @property
    def summary(self) -> str:
        """The first sentence of the docstring."""
        text = " ".join(self.text.split())
        sentence = END_OF_SENTENCE.split(text)[0]
        escaped = sentence.replace("|", "\\|").replace("<", "&lt;")
        return escaped.rstrip(".")

    @property
    def places(self) -> list[str]:
        """The places in a paper that the docstring names, each once."""
        return list(dict.fromkeys(PLACE.findall(" ".join(self.text.split()))))


def definitions(body: list[ast.stmt], prefix: str = "") -> Iterator[Definition]:
    """Yield the documented definitions of a module or class, in the order of the file."""
    for i, node in enumerate(body):
        if isinstance(node, (ast.ClassDef, *FUNCTIONS)):
            name = prefix + node.name
            yield Definition(name, node.lineno, ast.get_docstring(node) or "")
        if isinstance(node, ast.ClassDef):
            yield from definitions(node.body, f"{node.name}.")
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield Definition(prefix + node.target.id, node.lineno, text_at(body, i + 1))


def text_at(body: list[ast.stmt], index: int) -> str:
    """Return the text that stands alone at a place of a body, "" for any other statement."""
    match body[index : index + 1]:
        case [ast.Expr(ast.Constant(str() as text))]:
            return text
    return ""


@dataclass(frozen=True)
class Cell:
    """A code cell of an episode notebook."""

    number: int  # among the code cells, from 1
    source: str
    link: str  # to the last heading above it
    is_setting: bool  # of the batch, which no reader follows


def notebook_cells(paper: str) -> list[Cell]:
    """Return the code cells of the paper's episode notebook."""
    file = f"notebooks/episodes/{paper}.ipynb"
    notebook = json.loads((ROOT / file).read_text(encoding="utf-8"))
    cells: list[Cell] = []
    anchor = ""
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            is_setting = "batch" in cell["metadata"].get("tags", [])
            link = f"../{file}{anchor}"
            cells.append(Cell(len(cells) + 1, source, link, is_setting))
        elif headings := HEADING.findall(source):
            # As Jupyter names headings.
            anchor = "#" + quote(headings[-1].strip().replace(" ", "-"))
    return cells


def cell_with(name: str, cells: list[Cell]) -> Cell | None:
    """Return the first code cell with a name."""
    _, _, last = name.rpartition(".")
    for cell in cells:
        is_named = re.search(rf"\b{re.escape(last)}\b", cell.source)
        if is_named and not cell.is_setting:
            return cell
    return None


def cell_at(places: list[str], cells: list[Cell], paper: str) -> Cell | None:
    """Return the first code cell that marks the step of the algorithm at some places."""
    wanted = parts_of(places)
    overlaps = [len(wanted & parts_of([step.place])) for step in algorithm.read(paper)]
    if not any(overlaps):
        return None
    step = overlaps.index(max(overlaps)) + 1
    for cell in cells:
        shown = re.search(rf'algorithm\.show\("{paper}"((?:, \d+)*)\)', cell.source)
        if shown and str(step) in re.findall(r"\d+", shown[1]):
            return cell
    return None


def parts_of(places: list[str]) -> set[tuple[str, str]]:
    """Return the single lines, equations and sections of places such as lines 10-11 and 19."""
    parts = set()
    for place in places:
        for prefix, kind in KINDS.items():
            if not place.lower().startswith(prefix):
                continue
            for first, last in re.findall(r"([\d.]*\d)(?:(?:-| to )(\d+)\b)?", place):
                parts.add((kind, first))
                if last and first.isdigit():
                    numbers = range(int(first), int(last) + 1)
                    parts |= {(kind, str(number)) for number in numbers}
    return parts


def reproduced(paper: str, places: list[str]) -> str:
    """Return links to the reproduced tables among some places."""
    links = []
    for place in places:
        for number in re.findall(r"\d+", place if place.startswith("Table") else ""):
            table = f"results/standard/{paper}_table{number}/table.md"
            if (ROOT / table).is_file():
                links.append(f"[Table {number}](../{table})")
    return ", ".join(links)


def rows_of(paper: str) -> Iterator[str]:
    """Yield the lines of a paper's table, file by file."""
    cells = notebook_cells(paper)
    folder = ROOT / "src" / "coevolve" / "methods" / paper
    for file in sorted(folder.rglob("*.py")):
        path = file.relative_to(ROOT).as_posix()
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for found in definitions(tree.body):
            if not found.places:
                continue
            code = f"[`{found.name}`](../{path}#L{found.line}) {file.name}:{found.line}"
            cell = cell_with(found.name, cells) or cell_at(found.places, cells, paper)
            columns = [
                ", ".join(found.places),
                found.summary,
                code,
                f"[cell {cell.number}]({cell.link})" if cell else "",
                reproduced(paper, found.places),
            ]
            yield "| " + " | ".join(columns) + " |"


def page() -> str:
    """Return the text of the page."""
    parts = [HEAD]
    for paper, (name, arxiv) in PAPERS.items():
        parts.append(f"## {name} ([arXiv:{arxiv}](https://arxiv.org/abs/{arxiv}))\n")
        parts.append(
            "| in the paper | what | code | notebook | table |\n|---|---|---|---|---|"
        )
        parts.append("\n".join(rows_of(paper)) + "\n")
    return "\n".join(parts)


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8", newline="\n")
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
