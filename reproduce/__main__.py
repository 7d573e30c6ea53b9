"""The command line: `python -m reproduce`, `python -m reproduce diff A B`.

Exit codes: 0 all is well, 1 a notebook failed or results differ, 2 a mistake, told in one line on stderr.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NoReturn

from reproduce import UserError, compare, keys, one_line
from reproduce.plan import Item, Plan, check_items, load, select, with_needs
from reproduce.run import Batch, Report, execute

HOME = Path(__file__).resolve().parent.parent


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and leaving."""
        raise UserError(message)


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    if arguments[:1] == ["diff"]:
        parser = Parser(prog="python -m reproduce diff", description="Compare two trees, cell by cell.")
        parser.add_argument("first", type=Path)
        parser.add_argument("second", type=Path)
        parser.add_argument("--tolerance", type=tolerance, default=1e-6, help="default 1e-6")
        return parser.parse_args(arguments[1:], argparse.Namespace(command="diff"))
    parser = Parser(prog="python -m reproduce", allow_abbrev=False,
                    description="Run every training run, table and figure that is not up to date. "
                                "`python -m reproduce diff A B` compares two result trees.")
    parser.add_argument("--preset", default="quick", help="a table of presets.toml, default quick")
    parser.add_argument("--only", metavar="IDS", help="ids, run names, tags or patterns, separated by commas")
    jobs = os.environ.get("JOBS")
    parser.add_argument("--jobs", default=jobs, help="how many at once; default: JOBS, or all cores")
    parser.add_argument("--force", action="store_true", help="run what is asked for even if it is up to date")
    parser.add_argument("--tolerance", type=tolerance, default=1e-6, help="of --check, relative or absolute")
    parser.add_argument("--root", type=Path, default=HOME, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="with --list: machine-readable")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="show every item and its state")
    what.add_argument("--dry-run", action="store_true", help="say what would run, and why")
    what.add_argument("--why", metavar="ID", help="say what changed since this item was done")
    what.add_argument("--check", nargs="?", const="HEAD", metavar="REF",
                      help="compare the preset's tables with a commit (default HEAD) or a folder")
    return parser.parse_args(arguments, argparse.Namespace(command="run"))


def tolerance(text: str) -> float:
    """Read a tolerance."""
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"a tolerance is a number of at least 0, not {text}")
    return value


def job_count(text: str | None, preset_jobs: int) -> int:
    """Decide how many items run at once."""
    if not text:
        return preset_jobs or len(os.sched_getaffinity(0))
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1024:
        raise UserError(f"jobs must be a whole number from 1 to 1024, not {text!r}")
    return int(text)


def show_list(plan: Plan, items: list[Item], as_json: bool) -> int:
    """Print every item with its state and, where it never runs, the reason."""
    states = keys.statuses(plan, items)
    rows = [{"id": item.id, "status": states[item.id], "skip": item.skip} for item in items]
    if as_json:
        print(json.dumps(rows, indent=1))
        return 0
    width = max((len(row["id"]) for row in rows), default=0)
    for row in rows:
        print(f"{row['id']:<{width}}  {row['status']:<11}  {row['skip'] or ''}".rstrip())
    return 0


def show_why(plan: Plan, pattern: str) -> int:
    """Print which parts of the key changed."""
    for id in sorted(select(plan, pattern, "--why")):
        for line in keys.why(plan, plan.items[id]):
            print(f"{id}: {line}")
    return 0


def dry_run(plan: Plan, items: list[Item], forced: set[str]) -> int:
    """Print what would run, with the first reason."""
    check_items(plan, items)
    states = keys.statuses(plan, items)
    for item in items:
        if item.skip is None and (item.id in forced or states[item.id] != "done"):
            print(f"would run {item.id} ({'forced' if item.id in forced else keys.why(plan, item)[0]})")
    return 0


def screen() -> tuple[AbstractContextManager[object], Callable[[str, Batch], None]]:
    """Return a context and a function that prints lines, with a live bar if this is a terminal."""
    if not sys.stdout.isatty():
        return nullcontext(), lambda line, batch: print(line, flush=True) if line else None
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    # No refreshing thread: the runner forks, and a fork with threads can hang.
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    progress = Progress(*columns, auto_refresh=False, transient=True)
    task = progress.add_task("", total=None)

    def show(line: str, batch: Batch) -> None:
        if line:
            progress.console.print(line, markup=False, highlight=False, soft_wrap=True)
        progress.update(task, total=batch.total, completed=len(batch.report), refresh=True,
                        description=", ".join(worker.item.id for worker in batch.live))

    return progress, show


def summarise(plan: Plan, items: list[Item], report: Report, seconds: float) -> int:
    """Print how it all ended. Returns the exit code."""
    skipped = [item for item in items if item.skip is not None and item.kind == "artefact"]
    unclaimed = [item for item in items if item.kind == "unclaimed"]
    for item in skipped + (unclaimed if len(items) < len(plan.items) else []):
        print(f"skipped {item.id}: {item.skip}")
    for id, error in report.failed.items():
        kept = plan.folder / id / keys.FAILED
        print(f"failed {id}: {error}" + (f" (see {os.path.relpath(kept)})" if kept.exists() else ""))
    for id, reason in report.blocked.items():
        print(f"blocked {id}: {reason}")
    groups = {"ran": report.ran, "cached": report.cached, "failed": report.failed, "blocked": report.blocked,
              "skipped": skipped, "unclaimed": unclaimed}
    print(", ".join(f"{name} {len(group)}" for name, group in groups.items()), f"in {seconds:.1f}s")
    return 1 if report.failed or report.blocked else 0


def run(plan: Plan, items: list[Item], forced: set[str], jobs: int) -> int:
    """Check everything first, then run it. Returns the exit code."""
    check_items(plan, items)
    started = time.monotonic()
    context, show = screen()
    with context:
        report = execute(plan, items, forced, jobs, show)
    return summarise(plan, items, report, time.monotonic() - started)


def main(arguments: list[str]) -> int:
    """Do what the command line asks. Returns the exit code."""
    options = parse(arguments)
    if options.command == "diff":
        trees = [compare.read_tree(folder) for folder in (options.first, options.second)]
        found = compare.compare(*trees, options.tolerance)
        print(compare.report(found))
        return 1 if found else 0
    plan = load(options.root.resolve(), options.preset)
    jobs = job_count(options.jobs, plan.preset.jobs)
    if options.why:
        return show_why(plan, options.why)
    chosen = select(plan, options.only)
    if options.list:
        return show_list(plan, [item for id, item in plan.items.items() if id in chosen], options.json)
    if options.check:
        found = compare.check(plan, options.check, options.tolerance, chosen)
        print(compare.report(found))
        return 1 if found else 0
    items, forced = with_needs(plan, chosen), chosen if options.force else set()
    return dry_run(plan, items, forced) if options.dry_run else run(plan, items, forced, jobs)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(f"reproduce: {one_line(str(error))}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("reproduce: interrupted; the same command goes on from here", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
