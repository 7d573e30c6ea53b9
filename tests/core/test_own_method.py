"""The page about one's own method does what it says: its file is trained, listed and read by its own commands."""

import re
import runpy
import shlex
from pathlib import Path

from coevolve import record
from coevolve.__main__ import main

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "your-own-method.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The page's code blocks in a language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_s_file_is_trained_listed_and_read(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    code, reading = blocks("python")
    assert len(code.splitlines()) <= 45
    for name, text in (("duel.py", code), ("reading.py", reading)):
        Path(name).write_text(text, encoding="utf-8")
    for line in blocks("sh")[0].splitlines():
        arguments = shlex.split(line.removeprefix("python -m coevolve "))
        small = ["steps=2", "batch_size=8", "eval_items=2"]  # the later of two values counts
        capsys.readouterr()
        assert main(arguments + (small if arguments[0] == "train" else [])) == 0, line
    rows = {row.split(" | ")[0]: row.split(" | ")[1:4] for row in capsys.readouterr().out.splitlines()[2:]}
    assert rows == {"| duel": ["./duel.py:Duel", "0", "2"], "| mae20": ["mae", "0", "2"]}
    runpy.run_path("reading.py")
    metrics = record.read("runs/duel")
    assert {"reward/solver", "reward/proposer", "majority_right"} <= {*metrics.columns} and metrics["step"].max() == 2
