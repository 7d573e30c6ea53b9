"""The command line: `python -m reproduce`, and `python -m reproduce diff A B`.

Exit codes: 0 all is well, 1 a notebook failed or results differ, 2 a mistake, told in one line on stderr.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import NoReturn

from reproduce import HOME, UserError, compare, keys, one_line, report
from reproduce.plan import Item, Plan, check_items, load, select, with_needs
from reproduce.run import Report, Start, execute


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and leaving."""
        raise UserError(message)


def diff_parser() -> Parser:
    """Return the grammar of `diff A B`."""
    parser = Parser("python -m reproduce diff", description="Compare two trees, cell by cell.", allow_abbrev=False)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--tolerance", type=float, default=1e-6, help="relative or absolute, default 1e-6")
    return parser


def batch_parser() -> Parser:
    """Return the grammar of everything else."""
    text = "Run every training run, table and figure that is not up to date. `diff A B` compares two result trees."
    parser = Parser("python -m reproduce", description=text, allow_abbrev=False)
    add = parser.add_argument
    add("--preset", default="quick", help="a table of presets.toml, default quick")
    add("--only", metavar="IDS", help="ids, run names, tags or patterns, separated by commas")
    add("--paper", metavar="PAPERS", help="mae, sage, comas, conl, spice or your own file's name; several by commas")
    add("--registry", type=Path, metavar="FILE", help="a TOML file with runs and artefacts of your own")
    add("--force", action="store_true", help="run what is asked for even if it is up to date")
    add("--jobs", type=int, default=os.environ.get("JOBS") or None, help="items at once; default: JOBS, or all cores")
    add("--executor", choices=("local", "ray"), default="local", help="processes of this machine, or tasks of Ray")
    add("--address", help="of a running Ray cluster: HOST:PORT or auto; default: RAY_ADDRESS, or local")
    add("--root", type=Path, default=HOME, help=argparse.SUPPRESS)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="show every item and its state")
    what.add_argument("--why", metavar="ID", help="say what changed since this item was done")
    what.add_argument("--report", action="store_true", help="only build results/<preset>/index.html from what is there")
    return parser


def show_list(plan: Plan, items: list[Item]) -> int:
    """Print every item with its state and, of a table or figure, the title or the reason why it never runs."""
    why, width = keys.reasons(plan, items), max(len(item.id) for item in items)
    for item in items:
        about = item.skip or (report.heading(plan, item)[0] if item.kind == "artefact" else "")
        print(f"{item.id:<{width}}  {keys.status(plan, item, why[item.id]):<11}  {about}".rstrip())
    return 0


def show_why(plan: Plan, items: list[Item]) -> int:
    """Print what changed since the items were done."""
    why = keys.reasons(plan, items)
    for item in items:
        settled = "is up to date" if item.skip is None else f"never runs: {item.skip}"
        for line in why[item.id] or [settled]:
            print(f"{item.id}: {line}")
    return 0


def show_differences(first: Path, second: Path, tolerance: float) -> int:
    """Print how two trees differ. Returns the exit code."""
    found = compare.trees(first, second, tolerance)
    for line in found:
        print(one_line(line))
    print(f"{len(found)} differences" if found else "no differences")
    return 1 if found else 0


def engine_of(plan: Plan, items: list[Item], options: argparse.Namespace) -> Start:
    """Return what makes the engine for these items, after a look at whether it can."""
    if options.executor == "ray":
        from reproduce import on_ray

        address = options.address or os.environ.get("RAY_ADDRESS") or "local"
        on_ray.check(address)
        return lambda scratch: on_ray.Ray(plan, address, options.jobs or 0, scratch)
    from reproduce.local import Local

    at_once = options.jobs or plan.preset.jobs or len(os.sched_getaffinity(0))
    return lambda scratch: Local(plan, items, at_once, scratch)


def summarise(plan: Plan, items: list[Item], ended: Report, seconds: float) -> int:
    """Print how it all ended. Returns the exit code."""
    skipped = [item for item in items if item.skip is not None]
    for item in skipped:
        print(f"skipped {item.id}: {item.skip}")
    for id, error in ended.failed.items():
        kept = plan.folder / id / keys.FAILED
        print(f"failed {id}: {error}" + (f" (see {os.path.relpath(kept)})" if kept.exists() else ""))
    for id, reason in ended.blocked.items():
        print(f"blocked {id}: {reason}")
    groups = {name: getattr(ended, name) for name in ("ran", "cached", "failed", "blocked")} | {"skipped": skipped}
    print(", ".join(f"{name} {len(group)}" for name, group in groups.items()), f"in {seconds:.1f}s")
    return 1 if ended.failed or ended.blocked else 0


def run(plan: Plan, chosen: set[str], items: list[Item], options: argparse.Namespace) -> int:
    """Check first all that is not done, then run it. Returns the exit code."""
    why = keys.reasons(plan, items)
    forced = {id for id in chosen if options.force and plan.items[id].skip is None}
    todo = [item for item in items if item.id in forced or why[item.id]]
    check_items(plan, todo)  # what is done was checked as it is now, or its key would differ
    started, engine = time.monotonic(), engine_of(plan, todo, options)
    ended = execute(plan, items, {item.id for item in todo}, forced, engine)
    page = plan.folder / "index.html"
    print(f"report: {os.path.relpath(page if page.is_file() and not todo else report.build(plan))}")
    return summarise(plan, items, ended, time.monotonic() - started)


def main(arguments: list[str]) -> int:
    """Do what the command line asks. Returns the exit code."""
    if arguments[:1] == ["diff"]:
        options = diff_parser().parse_args(arguments[1:])
        return show_differences(options.first, options.second, options.tolerance)
    options = batch_parser().parse_args(arguments)
    if options.address is not None and options.executor != "ray":
        raise UserError("--address is for --executor ray")
    if options.jobs is not None and not 1 <= options.jobs <= 1024:
        raise UserError(f"--jobs must be a whole number from 1 to 1024, not {options.jobs}")
    plan = load(options.root.resolve(), options.preset, options.registry)
    asked = {"--only": options.only, "--paper": options.paper, "--why": options.why}
    chosen = set.intersection(*(select(plan, patterns, option) for option, patterns in asked.items()))
    if not chosen:
        raise UserError(f"nothing matches {' and '.join(name for name in asked if asked[name] is not None)}")
    items = [item for id, item in plan.items.items() if id in chosen]
    if options.why:
        return show_why(plan, items)
    if options.list:
        return show_list(plan, items)
    if options.report:
        print(f"report: {os.path.relpath(report.build(plan))}")
        return 0
    return run(plan, chosen, with_needs(plan, chosen), options)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(f"reproduce: {one_line(str(error), 3000)}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("reproduce: interrupted; the same command goes on from here", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
