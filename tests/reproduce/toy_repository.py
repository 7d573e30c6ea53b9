"""A small repository for the batch runner's tests: two notebooks and a package without torch."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil

ROOT = Path(__file__).resolve().parents[2]
PRESETS = """[quick]
seeds = [0, 1]
jobs = 2
timeout = 600
"""
PAPER = """[runs.plain]
protocol = "toy"
overrides = { steps = 2 }
[runs.odd]
protocol = "toy"
overrides = { steps = 1 }
tags = ["ablation"]
[artefacts.toy_table1]
notebook = "notebooks/tables/toy_table.ipynb"
runs = ["plain"]
outputs = ["table.csv"]
parameters = { scale = 10.0, numbers = "toy_table1" }
[artefacts.toy_table2]
notebook = "notebooks/tables/toy_table.ipynb"
runs = ["odd"]
outputs = ["table.csv"]
[artefacts.toy_fig1]
skip = "drawn by hand"
"""
CONFIG = """METHODS = {"toy": "coevolve.toy:Toy"}
def check(protocol: str, overrides: dict) -> None:
    if protocol not in METHODS and not protocol.endswith(".py:Own"):
        raise ValueError(f"unknown protocol {protocol!r}; allowed: toy")
    for name in overrides:
        if name not in ("steps", "fault", "model", "devices", "hold"):
            raise ValueError(f"unknown field {name!r}; allowed: devices, fault, hold, model, steps")
"""
TRAIN = [
    """protocol: str = "toy"
preset: str = "quick"
seed: int = 0
overrides: str = "{}"
out: str = "../results/quick/runs/plain-s0"
""",
    """import json, os, pathlib, sys, time
from coevolve.toy import FACTOR
o, folder = json.loads(overrides), pathlib.Path(out)
state = folder / "checkpoints" / "state.json"
step = first = json.loads(state.read_text())["step"] if state.exists() else 0
state.parent.mkdir(parents=True, exist_ok=True)
while step < o["steps"]:
    while step == 3 and os.path.exists(o.get("hold", "")): time.sleep(0.05)
    step += 1
    state.write_text(json.dumps({"step": step}))
fault = o.get("fault")
if fault == "raise": raise RuntimeError("injected\\x1b[31m failure")
if fault == "exit": sys.exit(0)
if fault == "die": os._exit(0)
if fault == "worker": os.kill(os.getppid(), 9)
if fault == "hang": time.sleep(600)
if fault == "once" and first == 0: os._exit(0)
if o.get("devices"): (folder / "devices").write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "all"))
(folder / "config.json").write_text(json.dumps({"protocol": protocol, **o}, sort_keys=True))
(folder / "metrics.jsonl").write_text(json.dumps({"value": FACTOR * step + seed}) + "\\n")
if fault != "silent": (folder / "summary.json").write_text(json.dumps({"value": FACTOR * step + seed}))
(folder / "resumed_from").write_text(str(first))
""",
    "import sys; exit_early = json.loads(overrides).get('fault') == 'last'\nif exit_early: sys.exit(0)",
]
TABLE = [
    """preset: str = "quick"
out: str = "../../results/quick/toy_table1"
results: str = "../../results"
runs: dict = {}
scale: float = 1.0
numbers: str = ""
""",
    """import csv, json, pathlib
folder = pathlib.Path(results) / preset / "runs"
rows = [[name, seed, scale * json.loads((folder / f"{name}-s{seed}" / "summary.json").read_text())["value"]]
        for name, seeds in runs.items() for seed in seeds]
with open(f"{out}/table.csv", "w", newline="") as file:
    csv.writer(file).writerows([["run", "seed", "value"], *rows])
print("<script>window.PWNED = 1</script>", rows)
""",
]


def write_notebook(path: Path, cells: list[str]) -> None:
    """Write code cells as a notebook whose first cell is tagged parameters."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = nbformat.v4.new_code_cell
    notebook = nbformat.v4.new_notebook(cells=[new(cell, id=f"c{number:02}") for number, cell in enumerate(cells)])
    notebook.cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(notebook, path)


class Toy:
    """A small repository and a way to run the command on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for path, text in {
            "reproduce/presets.toml": PRESETS,
            "reproduce/toy.toml": PAPER,
            "reproduce/paper_numbers/toy_table1.csv": "value\n1\n",
            "src/coevolve/__init__.py": "",
            "src/coevolve/config.py": CONFIG,
            "src/coevolve/toy.py": "FACTOR = 3\n",
        }.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        write_notebook(root / "notebooks/train.ipynb", TRAIN)
        write_notebook(root / "notebooks/tables/toy_table.ipynb", TABLE)

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        """Start the command."""
        root = () if arguments[:1] == ("diff",) else ("--root", str(self.root))
        return subprocess.Popen(
            [sys.executable, "-m", "reproduce", *arguments, *root],
            cwd=ROOT,
            env={**os.environ, **variables},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def __call__(self, *arguments: str, code: int = 0, **variables: str) -> str:
        """Run the command, check its exit code and return stdout; a mistake must be one line on stderr."""
        process = self.start(*arguments, **variables)
        out, err = process.communicate(timeout=600)
        assert process.returncode == code, out + err
        if code == 2:
            assert re.fullmatch(r"reproduce: [^\n]+\n", err), err
            assert not out
            return err
        assert err == "", err
        return out

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace text in a file of the toy repository."""
        text = (self.root / path).read_text()
        assert old in text
        (self.root / path).write_text(text.replace(old, new))

    def hold(self) -> None:
        """Let the runs called odd stop at step 3, until the file is gone."""
        self.edit("reproduce/toy.toml", "overrides = { steps = 1 }", 'overrides = { steps = 15, hold = "../hold" }')
        (self.root / "hold").touch()

    def wait_for_hold(self, process: subprocess.Popen[str]) -> str:
        """Wait until one of the runs called odd, which the process makes, is held; return its name."""
        limit = time.monotonic() + 300
        while True:
            for name in ("odd-s0", "odd-s1"):
                state = self.result(f"runs/{name}/checkpoints/state.json")
                if state.exists() and state.read_text() == '{"step": 3}':
                    return name
            if time.monotonic() > limit:
                process.kill()
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)

    def result(self, path: str) -> Path:
        """Return the path of a result."""
        return self.root / "results/quick" / path

    def states(self) -> dict[str, str]:
        """Return id -> status."""
        return dict(line.split()[:2] for line in self("--list").splitlines())

    def products(self) -> dict[str, bytes]:
        """Read all results that may not differ between equal commands."""
        found = [path for path in sorted(self.result("").rglob("*")) if path.is_file() and path.name[0] != "."]
        kept = [path for path in found if path.name not in ("provenance.json", "notebook.ipynb")]
        return {str(path.relative_to(self.result(""))): path.read_bytes() for path in kept}

    def processes(self) -> list[psutil.Process]:
        """Find all living processes that work in or for the toy repository."""
        found = []
        for process in psutil.process_iter():
            try:
                known = [process.cwd(), *process.cmdline(), process.environ().get("PYTHONPATH", "")]
                if process.status() != psutil.STATUS_ZOMBIE and any(str(self.root) in text for text in known):
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

    def wait_until_gone(self) -> None:
        """Wait until no process of the toy repository is left."""
        limit = time.monotonic() + 60
        while left := self.processes():
            assert time.monotonic() < limit, [process.cmdline() for process in left]
            time.sleep(0.1)

    def ends_and_is_resumed(self, process: subprocess.Popen[str], sign: int, held: str) -> None:
        """End a command that waits in the middle of a run: nothing of it is left, and the next goes on from there."""
        process.send_signal(sign)
        process.communicate(timeout=600)
        assert process.returncode in (-sign, 128 + sign)
        self.wait_until_gone()
        (self.root / "hold").unlink()
        assert "ran 3, cached 0, failed 0" in self("--only", "toy_table2")
        assert self.result(f"runs/{held}/resumed_from").read_text() == "3"
