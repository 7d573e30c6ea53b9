"""The page about one's own method does what it says: its file is trained, listed and read by its own commands."""

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
    for line in blocks("sh")[0].splitlines():
        command = [sys.executable, *shlex.split(line)[1:]]
        if "train" in command:
            command += ["steps=2", "batch_size=4", "eval_items=2"]  # the later of two values counts
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    listed = said[-1]
    assert "duel.py:Duel" in listed and "mae" in listed
    metrics = record.read(tmp_path / "runs" / "duel")
    assert {"reward/solver", "reward/proposer"} <= {*metrics.columns} and metrics["step"].max() == 2
    assert "record.read(" in reading and "majority_right" in reading
