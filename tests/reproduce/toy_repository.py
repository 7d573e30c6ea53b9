"""A copy of the small repository in `toy`, two notebooks and a package without torch, and a way to run the batch on it."""

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


class Toy:
    """A copy of the small repository, and the command run on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copytree(TEMPLATE, root)

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        """Start the command."""
        root = () if arguments[:1] == ("diff",) else ("--root", str(self.root))
        command, pipe = [sys.executable, "-m", "reproduce", *arguments, *root], subprocess.PIPE
        return subprocess.Popen(command, cwd=ROOT, env={**os.environ, **variables}, text=True, stdout=pipe, stderr=pipe)

    def __call__(self, *arguments: str, code: int = 0, **variables: str) -> str:
        """Run the command, check its exit code and return stdout; a mistake must be one line on stderr."""
        process = self.start(*arguments, **variables)
        out, err = process.communicate(timeout=600)
        assert process.returncode == code, out + err
        assert re.fullmatch(r"reproduce: [^\n]+\n" if code == 2 else "", err), err
        assert not out or code != 2
        return err or out

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

    def states(self, *options: str) -> dict[str, str]:
        """Return id -> status."""
        return dict(line.split()[:2] for line in self("--list", *options).splitlines())

    def products(self) -> dict[str, bytes]:
        """Read all results that may not differ between equal commands."""
        found = [path for path in sorted(self.result("").rglob("*")) if path.is_file() and path.name[0] != "."]
        kept = [path for path in found if path.name not in ("provenance.json", "notebook.ipynb")]
        return {str(path.relative_to(self.result(""))): path.read_bytes() for path in kept}

    def processes(self) -> list[psutil.Process]:
        """Find all living processes that work in or for the toy repository."""
        everybody = psutil.process_iter(["cwd", "cmdline", "environ", "status"])
        living = [process for process in everybody if process.info["status"] != psutil.STATUS_ZOMBIE]
        return [process for process in living if str(self.root) in str(process.info)]

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
