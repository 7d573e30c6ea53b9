"""The command line: `python -m reproduce`, and `python -m reproduce diff A B`.

Exit codes: 0 success, 1 a notebook failed or results differ, 2 a user's mistake, reported in one
line on stderr.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import NoReturn

from reproduce import HOME, UserError, compare, cores, keys, one_line, report, user_path
from reproduce.plan import Item, Plan, check_items, load, select, with_needs
from reproduce.run import Report, Start, execute

MAX_JOBS = 1024
MAX_ERROR = 3000  # characters


class Parser(argparse.ArgumentParser):
    """A parser that reports a mistake in one line."""

    def error(self, message: str) -> NoReturn:
        """Raise UserError instead of printing the usage and exiting."""
        raise UserError(message)


def diff_parser() -> Parser:
    """Return the parser of `diff A B`."""
    parser = Parser(
        "python -m reproduce diff",
        description="Compare two trees, cell by cell.",
        allow_abbrev=False,
    )
    parser.add_argument("first", type=user_path)
    parser.add_argument("second", type=user_path)
    parser.add_argument(
        "--tolerance",
        type=float,
        default=1e-6,
        help="relative or absolute, default 1e-6",
    )
    return parser


def batch_parser() -> Parser:
    """Return the parser of every other command."""
    parser = Parser(
        "python -m reproduce",
        description="Make every training run, table and figure that is not up to date. "
        "`diff A B` compares two result trees.",
        allow_abbrev=False,
    )
    add_selection(parser)
    add_execution(parser)
    add_actions(parser)
    return parser


def add_selection(parser: Parser) -> None:
    """Add the options that say which items are meant."""
    add = parser.add_argument
    add("--preset", default="quick", help="a table of presets.toml, default quick")
    add(
        "--only", metavar="IDS", help="comma-separated ids, run names, tags or patterns"
    )
    add(
        "--paper",
        metavar="PAPERS",
        help="comma-separated: mae, sage, comas, conl, spice or your own file's name",
    )
    add(
        "--registry",
        type=user_path,
        metavar="FILE",
        help="a TOML file with your own runs and artefacts",
    )
    add("--root", type=user_path, default=HOME, help=argparse.SUPPRESS)


def add_execution(parser: Parser) -> None:
    """Add the options that say how items are made."""
    add = parser.add_argument
    add(
        "--force",
        action="store_true",
        help="make the selected items even if up to date",
    )
    add(
        "--jobs",
        type=int,
        default=os.environ.get("JOBS") or None,
        help="items at once; default: JOBS, or all cores",
    )
    add(
        "--executor",
        choices=("local", "ray"),
        default="local",
        help="processes of this machine, or tasks of Ray",
    )
    add(
        "--address",
        help="of a running Ray cluster: HOST:PORT or auto; default: RAY_ADDRESS, or local",
    )


def add_actions(parser: Parser) -> None:
    """Add the options that do something else than making items."""
    actions = parser.add_mutually_exclusive_group()
    actions.add_argument(
        "--list", action="store_true", help="show every item and its state"
    )
    actions.add_argument(
        "--why", metavar="ID", help="list what changed since this item was made"
    )
    actions.add_argument(
        "--report",
        action="store_true",
        help="only build results/<preset>/index.html from existing results",
    )


def show_list(plan: Plan, items: list[Item]) -> int:
    """Print every item's state, and an artefact's title or the reason why it is never made."""
    why = keys.reasons(plan, items)
    width = max(len(item.id) for item in items)
    for item in items:
        about = item.skip or item.fault or ""
        if not about and item.kind == "artefact":
            about, _ = report.heading(plan, item)
        state = keys.status(plan, item, why[item.id])
        print(f"{item.id:<{width}}  {state:<11}  {about}".rstrip())
    return 0


def show_why(plan: Plan, items: list[Item]) -> int:
    """Print what changed since the items were made."""
    why = keys.reasons(plan, items)
    for item in items:
        unchanged = "is up to date" if item.skip is None else f"never runs: {item.skip}"
        for line in why[item.id] or [unchanged]:
            print(f"{item.id}: {line}")
    return 0


def show_differences(first: Path, second: Path, tolerance: float) -> int:
    """Print how two trees differ. Returns the exit code."""
    lines = compare.compare_trees(first, second, tolerance)
    for line in lines:
        print(one_line(line))
    print(f"{len(lines)} differences" if lines else "no differences")
    return 1 if lines else 0


def engine_of(plan: Plan, items: list[Item], options: argparse.Namespace) -> Start:
    """Return a function that makes the engine for these items.

    Raises UserError if the engine is Ray and cannot be reached.
    """
    if options.executor == "ray":
        from reproduce import on_ray

        address = options.address or os.environ.get("RAY_ADDRESS") or "local"
        on_ray.check(address)
        return lambda scratch: on_ray.Ray(plan, address, options.jobs or 0, scratch)
    from reproduce.local import Local

    at_once = options.jobs or plan.preset.jobs or cores()
    return lambda scratch: Local(plan, items, at_once, scratch)


def summarise(plan: Plan, items: list[Item], ended: Report, seconds: float) -> int:
    """Print how the batch ended. Returns the exit code."""
    skipped = [item for item in items if item.skip is not None]
    for item in skipped:
        print(f"skipped {item.id}: {item.skip}")
    for id, error in ended.failed.items():
        notebook = plan.folder / id / keys.FAILED
        place = f" (see {os.path.relpath(notebook)})" if notebook.exists() else ""
        print(f"failed {id}: {error}{place}")
    for id, reason in ended.blocked.items():
        print(f"blocked {id}: {reason}")
    counts = {
        "ran": len(ended.ran),
        "cached": len(ended.cached),
        "failed": len(ended.failed),
        "blocked": len(ended.blocked),
        "skipped": len(skipped),
    }
    summary = ", ".join(f"{group} {count}" for group, count in counts.items())
    print(f"{summary} in {seconds:.1f}s")
    return 1 if ended.failed or ended.blocked else 0


def run_batch(
    plan: Plan, chosen: set[str], items: list[Item], options: argparse.Namespace
) -> int:
    """Check all items that are not up to date, then make them. Returns the exit code."""
    why = keys.reasons(plan, items)
    forced = set()
    if options.force:
        forced = {id for id in chosen if plan.items[id].skip is None}
    stale = [item for item in items if item.id in forced or why[item.id]]
    # The others were checked when they were made, or their keys differ.
    check_items(plan, stale)
    started_at = time.monotonic()
    start = engine_of(plan, stale, options)
    ended = execute(plan, items, {item.id for item in stale}, forced, start)
    page = plan.folder / "index.html"
    if stale or not page.is_file():
        report.build(plan)
    print(f"report: {os.path.relpath(page)}")
    return summarise(plan, items, ended, time.monotonic() - started_at)


def check_options(options: argparse.Namespace) -> None:
    """Raise UserError for options that parse but make no sense."""
    if options.address is not None and options.executor != "ray":
        raise UserError("--address is for --executor ray")
    if options.jobs is not None and not 1 <= options.jobs <= MAX_JOBS:
        raise UserError(
            f"--jobs must be a whole number from 1 to {MAX_JOBS}, not {options.jobs}"
        )


def choose(plan: Plan, options: argparse.Namespace) -> set[str]:
    """Return the ids that --only, --paper and --why select together; UserError if none."""
    patterns = {"--only": options.only, "--paper": options.paper, "--why": options.why}
    chosen = set(plan.items)
    for option, pattern in patterns.items():
        chosen &= select(plan, pattern, option)
    if not chosen:
        used = [option for option, pattern in patterns.items() if pattern is not None]
        raise UserError(f"nothing matches {' and '.join(used)}")
    return chosen


def main(arguments: list[str]) -> int:
    """Do what the command line says. Returns the exit code."""
    if arguments[:1] == ["diff"]:
        options = diff_parser().parse_args(arguments[1:])
        return show_differences(options.first, options.second, options.tolerance)
    options = batch_parser().parse_args(arguments)
    check_options(options)
    plan = load(options.root.resolve(), options.preset, options.registry)
    chosen = choose(plan, options)
    items = [item for id, item in plan.items.items() if id in chosen]
    if options.why:
        return show_why(plan, items)
    if options.list:
        return show_list(plan, items)
    if options.report:
        print(f"report: {os.path.relpath(report.build(plan))}")
        return 0
    if sys.platform == "win32":
        raise UserError(
            "the batch needs the fork server of Linux or macOS; on Windows use WSL, or train "
            "single runs with `coevolve train`"
        )
    return run_batch(plan, chosen, with_needs(plan, chosen), options)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(f"reproduce: {one_line(str(error), MAX_ERROR)}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print(
            "reproduce: interrupted; run the same command again to resume",
            file=sys.stderr,
        )
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
