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
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
HEAD = """\
# From paper to code

Where the equations, algorithms, sections and tables of the five papers are in the code. The page is
made from the docstrings by `python -m tools.paper_to_code`, and a test checks that it is current.
*Notebook* is the code cell of the paper's episode notebook in which the name occurs first. *Table*
is the reproduced one, where the place is a table of the paper.
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
        sentence, _, _ = text.partition(". ")
        return sentence.rstrip(".").replace("|", "\\|")

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


def notebook_cells(paper: str) -> list[str]:
    """Return the source of each code cell of the paper's episode notebook."""
    path = ROOT / "notebooks" / "episodes" / f"{paper}.ipynb"
    notebook = json.loads(path.read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return ["".join(cell["source"]) for cell in cells]


def cell_with(name: str, cells: list[str], paper: str) -> str:
    """Return a link to the first code cell with a name, "" if there is none."""
    _, _, last = name.rpartition(".")
    for number, source in enumerate(cells, start=1):
        if re.search(rf"\b{re.escape(last)}\b", source):
            return f"[cell {number}](../notebooks/episodes/{paper}.ipynb)"
    return ""


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
            columns = [
                ", ".join(found.places),
                found.summary,
                code,
                cell_with(found.name, cells, paper),
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
