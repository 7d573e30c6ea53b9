"""The page about one's own method does what it says: its file is trained, listed and read by its own commands."""

import re
import runpy
import shlex
from dataclasses import fields
from inspect import formatannotation
from pathlib import Path

from core.conftest import by_hand, earned

from coevolve.cli import main
from coevolve.methods.registry import get_method
from coevolve.runs import record
from coevolve.types import Outcome, Reply, Turn

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "your-own-method.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The page's code blocks in a language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_s_file_is_trained_listed_and_read(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    for name, text in zip(
        ("duel.py", "jury.py", "reading.py"), blocks("python"), strict=True
    ):
        Path(name).write_text(text, encoding="utf-8")
        assert len(text.splitlines()) <= 45
    for line in blocks("sh")[0].splitlines():
        arguments = shlex.split(line.removeprefix("python -m coevolve "))
        small = [
            "steps=2",
            "batch_size=8",
            "eval_items=2",
        ]  # the later of two values counts
        capsys.readouterr()
        assert main(arguments + (small if arguments[0] == "train" else [])) == 0, line
    rows = {
        row.split(" | ")[0]: row.split(" | ")[1:4]
        for row in capsys.readouterr().out.splitlines()[2:]
    }
    files = {
        f"| {name}": [f"./{name}.py:{name.title()}", "0", "2"]
        for name in ("duel", "jury")
    }
    assert rows == {**files, "| mae20": ["mae", "0", "2"]}
    runpy.run_path("reading.py")
    metrics = record.read("runs/duel")
    assert {"reward/solver", "reward/proposer", "majority_right"} <= {
        *metrics.columns
    } and metrics["step"].max() == 2
    jury = get_method("./jury.py:Jury")()
    votes = [
        ["<score>10</score>", "ten", "<score>1</score>"],
        ["?"] * 3,
    ]  # worth 1 and 0, and None
    paid = [
        earned(by_hand(jury, ["<answer>3</answer>"], said).outcome) for said in votes
    ]
    assert paid == [
        [("juror", 1.0), ("juror", 0.0), ("juror", 1.0), ("solver", 0.5)],
        [("juror", 0.0)] * 3,
    ]


def test_the_page_s_table_has_every_field_with_its_type():
    told = re.findall(
        r"^\| `(\w+)\.(\w+)` \| `(.+?)` \|", PAGE.replace(r"\|", "|"), re.MULTILINE
    )
    kinds = [(kind, field) for kind in (Turn, Reply, Outcome) for field in fields(kind)]
    types = [
        re.sub(r"(coevolve\.types|typing)\.", "", formatannotation(field.type))
        for _, field in kinds
    ]
    assert told == [
        (kind.__name__, field.name, one)
        for (kind, field), one in zip(kinds, types, strict=True)
    ]
