"""The Snakemake executor: the plan as a Snakefile, one rule per item, each one `python -m reproduce cell`.

Needs the extra `snakemake` to run it, none to write it. What is up to date has no rule: the file is the plan of
one moment, and the cells decide again. Slurm and Kubernetes are plugins of Snakemake.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from reproduce import UserError, keys, one_line, warm
from reproduce.alone import cell_command
from reproduce.folder import workshop
from reproduce.plan import Item, Plan
from reproduce.run import Report, Show, demand, read_line, stoppable

HEAD = """\
# Made by `python -m reproduce snakefile --preset {preset}`: the {count} items that were not up to date then.
# One rule makes one item and what it needs comes first; `python -m reproduce cell` skips what is up to date.
# After a change of code, presets or notebooks write it again. docs/cluster.md has the options for Slurm.
workdir: {workdir}

rule all:
    localrule: True
    input: {made}
"""
LOOK = 0.5  # seconds between looks at what has been made
GRACE = 30.0  # seconds that snakemake gets to end its jobs


def made(item: Item) -> str:
    """Name the empty file, relative to Snakemake's folder, that says the item's rule has ended well."""
    return f"made/{item.id.replace('/', '.')}"


def log(item: Item) -> str:
    """Name the file, relative to Snakemake's folder, into which the item's cell speaks."""
    return f"logs/{item.id.replace('/', '.')}.log"


def snakefile(plan: Plan, home: Path, rules: list[Item], forced: set[str], workdir: Path) -> str:
    """Write the items that would run as a Snakefile that works in the folder `workdir`."""
    ours, urgency = {item.id for item in rules}, demand(rules)
    text = HEAD.format(
        preset=plan.preset.name,
        count=len(rules),
        workdir=literal(str(workdir)),
        made=literal([made(item) for item in rules]),
    )
    for number, item in enumerate(rules, 1):
        command = shlex.join([sys.executable, *cell_command(plan, item, item.id in forced)])
        # The cell takes the shell's place, so that it ends when snakemake does, its parent then.
        shell = f"exec > {{log}} 2>&1; cd {shlex.quote(str(home))}; exec {command} --parent $PPID"
        shell = shell.replace("{", "{{").replace("}", "}}").replace("{{log}}", "{log}")
        gpus = plan.preset.gpus if item.kind == "run" else 0
        name = re.sub(r"\W", "_", item.id.removeprefix("runs/"))
        text += f"\n\nrule {item.kind}_{number}_{name}:\n"
        text += f"    input: {literal([made(plan.items[need]) for need in item.needs if need in ours])}\n"
        text += f"    output: touch({literal(made(item))})\n    log: {literal(log(item))}\n"
        text += f"    priority: {urgency[item.id]}\n    retries: {plan.preset.retries}\n"
        text += f"    resources: runtime={item.timeout // 60 + 10}{f', gpu={gpus}' if gpus else ''}\n"
        text += f"    shell: {literal(shell)}\n"
    return text


def literal(value: str | list[str]) -> str:
    """Write text, or a list of it, as Python source."""
    return json.dumps(value, ensure_ascii=False)


def new_folder(plan: Plan, purpose: str) -> Path:
    """Name a folder that no other Snakefile uses: what an older one has made must not count."""
    return plan.folder / ".snakemake" / f"{purpose}-{datetime.now(UTC):%Y%m%dT%H%M%S%f}"


class Snakemake:
    """One run of snakemake over the items that are not up to date."""

    def __init__(self, plan: Plan, home: Path, jobs: int, extra: list[str]) -> None:
        """Look whether snakemake is there. extra: arguments of snakemake itself."""
        if find_spec("snakemake") is None:
            raise UserError(
                "--executor snakemake: the package snakemake is not installed; pip install -e '.[snakemake]'"
            )
        self.plan, self.home, self.jobs, self.extra = plan, home, jobs, extra

    def execute(self, items: list[Item], forced: set[str], show: Show) -> Report:
        """Write the Snakefile, run it and say how every item ended."""
        report = Report(sum(item.skip is None for item in items))
        if not report.total:
            return report
        with stoppable(), workshop(self.plan, items, apart=True):
            for old in self.plan.folder.glob(".snakemake/batch-*"):
                shutil.rmtree(old, ignore_errors=True)
            folder, rules = new_folder(self.plan, "batch"), keys.todo(self.plan, items, forced)
            for item in items:
                if item.skip is None and item not in rules:
                    marker = keys.read_marker(self.plan.folder / item.id, "provenance.json")
                    show(report.done(item.id, marker.get("wall_seconds", 0.0), cached=True), report)
            if rules:
                folder.mkdir(parents=True)
                text = snakefile(self.plan, self.home, rules, forced, folder)
                (folder / "Snakefile").write_text(text, encoding="utf-8")
                self.watch(folder, rules, report, show)
        return report

    def watch(self, folder: Path, rules: list[Item], report: Report, show: Show) -> None:
        """Run snakemake, show every item when it is made, and tell at the end what became of the others."""
        options = ["--jobs", str(self.jobs), "--keep-going", "--rerun-incomplete", "--nocolor", "--latency-wait", "60"]
        command = [
            sys.executable,
            "-m",
            "snakemake",
            "--snakefile",
            str(folder / "Snakefile"),
            "--directory",
            str(folder),
            *options,
            *self.extra,
        ]
        parent, messages = os.getpid(), folder / "snakemake.log"
        with messages.open("wb") as out:
            process = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=lambda: warm.die_with_parent(signal.SIGKILL, parent),
            )
        left = {item.id: item for item in rules}
        try:
            ended = False
            while not ended:
                ended = process.poll() is not None
                for item in [item for item in left.values() if (folder / made(item)).exists()]:
                    del left[item.id]
                    show(report.done(item.id, *read_line(last_line(folder / log(item)))[1:]), report)
                report.live = [item.id for item in left.values() if (folder / log(item)).exists()]
                show("", report)
                time.sleep(0 if ended else LOOK)
        finally:
            end(process)
        if process.returncode and not any((folder / log(item)).exists() for item in rules):
            raise UserError(f"snakemake: {complaint(messages)} (see {messages})")
        for item in left.values():
            show(report.block(item) or self.explain(item, folder, report), report)

    def explain(self, item: Item, folder: Path, report: Report) -> str:
        """Note why an item was not made, from what its cell said last. Returns its line."""
        said = folder / log(item)
        error, seconds, _ = read_line(last_line(said)) if said.exists() else ("snakemake did not start it", 0.0, False)
        return report.fail(item.id, error or f"snakemake gave it up; see {folder / 'snakemake.log'}", seconds)


def end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt snakemake and its cells here, as a terminal does, so that it cancels jobs elsewhere; then insist."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def last_line(path: Path) -> str:
    """Return the last line of a text file that is not blank, or nothing."""
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1] if lines else ""


def complaint(path: Path) -> str:
    """Pick from snakemake's messages the first that reports an error."""
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    errors = [line for line in lines if re.search(r"(?i)error|exception", line)]
    return one_line((errors or lines or ["ended without a word"])[0])
