"""The command line: `python -m reproduce`, and its commands cell, snakefile and diff.

Exit codes: 0 all is well, 1 a notebook failed or results differ, 2 a mistake, told in one line on stderr.
"""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from reproduce import UserError, compare, keys, one_line, warm
from reproduce.options import HOME, parse
from reproduce.plan import Item, Plan, check_items, load, select, with_needs
from reproduce.run import Report, Show, execute

BAR = 20  # characters of the progress line's bar; the numbers after it take as many


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
    check_items(plan, todo := keys.todo(plan, items, forced))
    for item in todo:
        print(f"would run {item.id} ({'forced' if item.id in forced else keys.why(plan, item)[0]})")
    return 0


def plain(line: str, report: Report) -> None:
    """Print a line, where there is no terminal."""
    if line:
        print(line, flush=True)


def at_work(live: list[str], room: int) -> str:
    """Name as many of the items at work as fit into so many characters, and count the others."""
    names = [id.removeprefix("runs/") for id in live]
    for shown in range(len(names), 0, -1):
        line = ", ".join([*names[:shown], *([f"{len(names) - shown} more"] if shown < len(names) else [])])
        if len(line) <= room:
            return line
    return f"{len(names)} at work" if names else ""


def screen() -> tuple[AbstractContextManager[object], Show]:
    """Return a context and a function that prints lines, with a live bar if this is a terminal."""
    if not sys.stdout.isatty():
        return nullcontext(), plain
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    # No refreshing thread: the runner forks, and a fork with threads can hang.
    columns = (BarColumn(BAR), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    progress = Progress(*columns, auto_refresh=False, transient=True)
    task = progress.add_task("", total=None)

    def show(line: str, report: Report) -> None:
        if line:
            progress.console.print(line, markup=False, highlight=False, soft_wrap=True)
        room = progress.console.width - 2 * BAR
        progress.update(
            task, total=report.total, completed=len(report), description=at_work(report.live, room), refresh=True
        )

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
    groups = {
        "ran": report.ran,
        "cached": report.cached,
        "failed": report.failed,
        "blocked": report.blocked,
        "skipped": skipped,
        "unclaimed": unclaimed,
    }
    print(", ".join(f"{name} {len(group)}" for name, group in groups.items()), f"in {seconds:.1f}s")
    return 1 if report.failed or report.blocked else 0


def executor(plan: Plan, options: argparse.Namespace) -> Callable[[list[Item], set[str], Show], Report]:
    """Return what runs items, after making sure that it can."""
    here = plan.preset.jobs or len(os.sched_getaffinity(0))
    if options.executor == "snakemake":
        from reproduce.snake import Snakemake

        return Snakemake(plan, HOME, options.jobs or here, options.extra).execute
    if options.executor == "ray":
        from reproduce.on_ray import Ray

        address = options.address or os.environ.get("RAY_ADDRESS") or "local"
        engine = Ray(plan, HOME, None if address == "local" else address, options.jobs)
    else:
        from reproduce.local import Local

        engine = Local(plan, options.jobs or here)
    return lambda items, forced, show: execute(plan, items, forced, engine, show)


def run(plan: Plan, items: list[Item], forced: set[str], options: argparse.Namespace) -> int:
    """Check first all that is not done, then run it. Returns the exit code."""
    check_items(plan, keys.todo(plan, items, forced))  # what is done was checked as it is now, or its key would differ
    started, start = time.monotonic(), executor(plan, options)
    context, show = screen()
    with context:
        report = start(items, forced, show)
    return summarise(plan, items, report, time.monotonic() - started)


def cell(plan: Plan, options: argparse.Namespace) -> int:
    """Make one item. Returns the exit code."""
    from reproduce.alone import run_cell

    if options.parent is not None:
        warm.die_with_parent(signal.SIGTERM, options.parent)
    chosen = select(plan, options.id, "cell")
    if len(chosen) != 1:
        raise UserError(f"cell {options.id}: names {len(chosen)} items; one is needed")
    report = run_cell(plan, plan.items[chosen.pop()], options.force, options.parent is not None, plain)
    return 1 if report.failed else 0


def snakefile(plan: Plan, items: list[Item], forced: set[str]) -> int:
    """Print the plan as a Snakefile."""
    from reproduce import snake

    check_items(plan, rules := keys.todo(plan, items, forced))
    print(snake.snakefile(plan, HOME, rules, forced, snake.new_folder(plan, "file")), end="")
    return 0


def choose(plan: Plan, only: str | None, paper: str | None) -> set[str]:
    """Return the ids that --only and --paper agree on."""
    chosen = select(plan, only) & select(plan, paper, "--paper")
    if not chosen:
        raise UserError(f"--only {only} and --paper {paper} have nothing in common")
    return chosen


def main(arguments: list[str]) -> int:
    """Do what the command line asks. Returns the exit code."""
    options = parse(arguments)
    if options.command == "diff":
        trees = [compare.read_tree(folder) for folder in (options.first, options.second)]
        found = compare.compare(*trees, options.tolerance)
        print(compare.report(found))
        return 1 if found else 0
    plan = load(options.root.resolve(), options.preset)
    if options.command == "cell":
        return cell(plan, options)
    chosen = choose(plan, options.only, options.paper)
    items, forced = with_needs(plan, chosen), chosen if options.force else set()
    if options.command == "snakefile":
        return snakefile(plan, items, forced)
    if options.why:
        return show_why(plan, options.why)
    if options.list:
        return show_list(plan, [item for id, item in plan.items.items() if id in chosen], options.json)
    if options.check:
        found = compare.check(plan, options.check, options.tolerance, chosen)
        print(compare.report(found))
        return 1 if found else 0
    return dry_run(plan, items, forced) if options.dry_run else run(plan, items, forced, options)


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
