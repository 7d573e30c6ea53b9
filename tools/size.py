"""Print how many code lines each room has, and how many it had at an older revision: `python -m tools.size [REVISION]`.

A code line holds at least one token that is neither a comment nor part of a docstring.
"""

import ast
import io
import subprocess
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("src/coevolve", "src/tinyworld", "src/codesandbox", "src/published", "src", "reproduce", "tests")
SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(text: str) -> int:
    """Count the lines of a Python source that hold code: no blanks, no comments, no docstrings."""
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SILENT:
            found |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            found -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(found)


def counted(path: str) -> bool:
    """Whether a file counts: Python, and not among the tests' hostile data."""
    return path.endswith(".py") and not path.startswith("tests/data/")


def here() -> dict[str, int]:
    """Code lines of every file of the working tree, by path."""
    files = [path for room in ("src", "reproduce", "tests") for path in (ROOT / room).rglob("*.py")]
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in files}
    return {path: code_lines(text) for path, text in texts.items() if counted(path)}


def then(revision: str) -> dict[str, int]:
    """Code lines of every file of a revision, by path."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout

    paths = git("ls-tree", "-r", "--name-only", revision, "src", "reproduce", "tests").splitlines()
    return {path: code_lines(git("show", f"{revision}:{path}")) for path in paths if counted(path)}


def total(lines: dict[str, int], room: str) -> int:
    """Code lines of a folder or file."""
    return sum(count for path, count in lines.items() if path == room or path.startswith(f"{room}/"))


def inner_rooms() -> list[str]:
    """The folders and files of the core."""
    core = ROOT / "src" / "coevolve"
    rooms = sorted(path for path in core.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file())
    return [str(path.relative_to(ROOT)) for path in rooms]


def main(arguments: list[str]) -> None:
    """Print the table."""
    now, before = here(), then(arguments[0]) if arguments else {}
    print("| room | before | now |\n|---|---|---|" if before else "| room | now |\n|---|---|")
    for room in (*ROOMS, *inner_rooms()):
        cells = [room, *([f"{total(before, room):,}"] if before else []), f"{total(now, room):,}"]
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main(sys.argv[1:])
