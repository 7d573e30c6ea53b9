"""The page about one's own method does what it says: its file is trained, listed and read by its own commands."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from coevolve import record

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "your-own-method.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The page's code blocks in a language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_s_file_is_trained_listed_and_read(tmp_path):
    code, reading = blocks("python")
    assert len(code.splitlines()) <= 45
    (tmp_path / "duel.py").write_text(code, encoding="utf-8")
    said = []
    commands = [[sys.executable, *shlex.split(line)[1:]] for line in blocks("sh")[0].splitlines()]
    for command in [*commands, [sys.executable, "-c", reading]]:
        if "train" in command:
            command += ["steps=2", "batch_size=8", "eval_items=2"]  # the later of two values counts
        environment = os.environ | {"MPLBACKEND": "Agg"}
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    rows = {row.split(" | ")[0]: row.split(" | ")[1:4] for row in said[2].splitlines()[2:]}
    assert rows == {"| duel": ["./duel.py:Duel", "0", "2"], "| mae": ["mae", "0", "2"]}
    metrics = record.read(tmp_path / "runs" / "duel")
    assert {"reward/solver", "reward/proposer", "majority_right"} <= {*metrics.columns} and metrics["step"].max() == 2
