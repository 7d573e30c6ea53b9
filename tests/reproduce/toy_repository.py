"""A copy of the small repository in `toy`, and a way to run the batch on it.

The repository has two notebooks and a package without torch.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = Path(__file__).with_name("toy")
# The batch writes files with the package's own writer, which the toy package lacks.
BORROWED = (
    "src/coevolve/runs/record.py",
    "src/coevolve/types.py",
    "src/coevolve/validation.py",
)
NOT_REPEATABLE = ("provenance.json", "notebook.ipynb")
SECONDS_TO_HOLD = 300
SECONDS_TO_END = 60
SECONDS_TO_FINISH = 600
POLL_SECONDS = 0.05


class Toy:
    """A copy of the small repository, and the batch command on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copytree(TEMPLATE, root)
        for name in BORROWED:
            shutil.copy(ROOT / name, root / name)

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        """Start the command."""
        command = [sys.executable, "-m", "reproduce", *arguments]
        if "diff" not in arguments:
            command += ["--root", str(self.root)]
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **variables},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def __call__(self, *arguments: str, code: int = 0, **variables: str) -> str:
        """Run the command, check its exit code and return stdout.

        A user's mistake (code 2) must be one line on stderr, which is returned instead.
        """
        process = self.start(*arguments, **variables)
        out, err = process.communicate(timeout=SECONDS_TO_FINISH)
        assert process.returncode == code, out + err
        if code == 2:
            assert re.fullmatch(r"reproduce: [^\n]+\n", err), err
            assert not out
            return err
        assert err == "", err
        return out

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace text in a file of the toy repository."""
        file = self.root / path
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    def hold(self) -> None:
        """Make the runs called odd pause at step 3, until the file `hold` is removed."""
        held = 'overrides = { steps = 15, hold = "../hold" }'
        self.edit("reproduce/toy.toml", "overrides = { steps = 1 }", held)
        (self.root / "hold").touch()

    def release(self) -> None:
        """Let the held runs continue."""
        (self.root / "hold").unlink()

    def wait_for_hold(self, process: subprocess.Popen[str]) -> str:
        """Wait until one of the runs called odd, made by the process, is held; return its name."""
        limit = time.monotonic() + SECONDS_TO_HOLD
        while True:
            for name in ("odd-s0", "odd-s1"):
                state = self.result(f"runs/{name}/checkpoints/state.json")
                if state.exists() and state.read_text() == '{"step": 3}':
                    return name
            if time.monotonic() > limit:
                process.kill()
            assert process.poll() is None, process.communicate()
            time.sleep(POLL_SECONDS)

    def result(self, path: str) -> Path:
        """Return the path of a result."""
        return self.root / "results/quick" / path

    def hidden_results(self) -> list[str]:
        """Return the names of hidden files and folders among the results."""
        return [path.name for path in self.result("").glob(".*")]

    def table(self, id: str) -> list[str]:
        """Return the lines of a table."""
        return self.result(f"{id}/table.csv").read_text().splitlines()

    def resumed_from(self, run: str) -> str:
        """Return the step at which a run started or resumed."""
        return self.result(f"runs/{run}/resumed_from").read_text()

    def states(self, *options: str) -> dict[str, str]:
        """Return id -> state."""
        states = {}
        for line in self("--list", *options).splitlines():
            id, state, *_ = line.split()
            states[id] = state
        return states

    def products(self) -> dict[str, bytes]:
        """Read all results that must not differ between equal commands."""
        folder = self.result("")
        contents = {}
        for path in sorted(folder.rglob("*")):
            is_hidden = path.name.startswith(".")
            if path.is_file() and not is_hidden and path.name not in NOT_REPEATABLE:
                contents[str(path.relative_to(folder))] = path.read_bytes()
        return contents

    def processes(self) -> list[psutil.Process]:
        """Find all living processes that work in or for the toy repository."""
        everything = psutil.process_iter(["cwd", "cmdline", "environ", "status"])
        return [process for process in everything if self._is_worker(process.info)]

    def _is_worker(self, info: dict[str, object]) -> bool:
        return info["status"] != psutil.STATUS_ZOMBIE and str(self.root) in str(info)

    def wait_until_gone(self) -> None:
        """Wait until no process of the toy repository is left."""
        limit = time.monotonic() + SECONDS_TO_END
        left = self.processes()
        while left:
            assert time.monotonic() < limit, [process.cmdline() for process in left]
            time.sleep(POLL_SECONDS)
            left = self.processes()

    def check_kill_and_resume(
        self, process: subprocess.Popen[str], signal_number: int, held: str
    ) -> None:
        """Kill a command while the run `held` is held; the next command must resume the run.

        Nothing of the killed command may be left.
        """
        process.send_signal(signal_number)
        process.communicate(timeout=SECONDS_TO_FINISH)
        assert process.returncode in (-signal_number, 128 + signal_number)
        self.wait_until_gone()
        self.release()
        assert "ran 3, cached 0, failed 0" in self("--only", "toy_table2")
        assert self.resumed_from(held) == "3"
