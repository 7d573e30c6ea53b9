"""The command line's options: what `python -m reproduce` and its commands cell, snakefile and diff accept."""

import argparse
import os
from pathlib import Path
from typing import NoReturn

from reproduce import UserError

HOME = Path(__file__).resolve().parent.parent
DESCRIPTION = """Run every training run, table and figure that is not up to date. Other commands, each with --help:
`cell ID` makes one item alone, `snakefile` prints the plan as a Snakefile, `diff A B` compares two result trees.
What comes after ` -- ` is passed on to snakemake."""


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line."""

    def __init__(self, command: str, description: str) -> None:
        super().__init__(prog=f"python -m reproduce{command}", description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and leaving."""
        raise UserError(message)

    def add_plan(self) -> None:
        """Add what says which plan is meant."""
        self.add_argument("--preset", default="quick", help="a table of presets.toml, default quick")
        self.add_argument("--root", type=Path, default=HOME, help=argparse.SUPPRESS)
        self.add_argument("--force", action="store_true", help="run what is asked for even if it is up to date")

    def add_choice(self) -> None:
        """Add what chooses items of the plan."""
        self.add_argument("--only", metavar="IDS", help="ids, run names, tags or patterns, separated by commas")
        self.add_argument("--paper", metavar="PAPERS", help="mae, sage, comas, conl, spice; several by commas")


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    commands = {"diff": parse_diff, "cell": parse_cell, "snakefile": parse_snakefile}
    if arguments[:1] and arguments[0] in commands:
        return commands[arguments[0]](arguments[1:], argparse.Namespace(command=arguments[0]))
    return parse_run(arguments, argparse.Namespace(command="run"))


def parse_diff(arguments: list[str], options: argparse.Namespace) -> argparse.Namespace:
    """Read `diff A B`."""
    parser = Parser(" diff", "Compare two trees, cell by cell.")
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--tolerance", type=tolerance, default=1e-6, help="default 1e-6")
    return parser.parse_args(arguments, options)


def parse_cell(arguments: list[str], options: argparse.Namespace) -> argparse.Namespace:
    """Read `cell ID`."""
    parser = Parser(" cell", "Make one item alone, unless it is up to date; the runs it needs must be done.")
    parser.add_argument("id", help="as --list shows it: runs/base-s0, mae_table1")
    parser.add_plan()
    parser.add_argument("--parent", type=int, help=argparse.SUPPRESS)  # the scheduler's process: end when it ends
    return parser.parse_args(arguments, options)


def parse_snakefile(arguments: list[str], options: argparse.Namespace) -> argparse.Namespace:
    """Read `snakefile`."""
    parser = Parser(" snakefile", "Print the plan, without what is up to date, as a Snakefile.")
    parser.add_plan()
    parser.add_choice()
    return parser.parse_args(arguments, options)


def parse_run(arguments: list[str], options: argparse.Namespace) -> argparse.Namespace:
    """Read the options of a batch; what comes after `--` is snakemake's."""
    parser = Parser("", DESCRIPTION)
    parser.add_plan()
    parser.add_choice()
    jobs = os.environ.get("JOBS")
    parser.add_argument("--jobs", default=jobs, help="how many at once; default: JOBS, or all cores")
    parser.add_argument(
        "--executor",
        choices=("local", "ray", "snakemake"),
        default="local",
        help="what runs the items: processes of this machine (default), Ray, or snakemake",
    )
    parser.add_argument(
        "--address",
        help="of a running Ray cluster: HOST:PORT or auto; default: RAY_ADDRESS, "
        "or local, an instance for this command",
    )
    parser.add_argument("--tolerance", type=tolerance, default=1e-6, help="of --check, relative or absolute")
    parser.add_argument("--json", action="store_true", help="with --list: machine-readable")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="show every item and its state")
    what.add_argument("--dry-run", action="store_true", help="say what would run, and why")
    what.add_argument("--why", metavar="ID", help="say what changed since this item was done")
    what.add_argument(
        "--check",
        nargs="?",
        const="HEAD",
        metavar="REF",
        help="compare the preset's tables with a commit (default HEAD) or a folder",
    )
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    options = parser.parse_args(own, options)
    options.extra, options.jobs = arguments[len(own) + 1 :], job_count(options.jobs)
    if options.extra and options.executor != "snakemake":
        raise UserError("arguments after -- are for --executor snakemake")
    if options.address is not None and options.executor != "ray":
        raise UserError("--address is for --executor ray")
    return options


def tolerance(text: str) -> float:
    """Read a tolerance."""
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"a tolerance is a number of at least 0, not {text}")
    return value


def job_count(text: str | None) -> int:
    """Read how many items run at once; 0 if nothing is said."""
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1024:
        raise UserError(f"jobs must be a whole number from 1 to 1024, not {text!r}")
    return int(text)
