"""Learning rates with equal budgets: `python -m reproduce.sweep --table mae_table1`.

Every trained arm of a table trains with the same learning rates and seeds, and is scored on the
validation split alone. Presets then take the rate with the highest mean. Exit codes as in
`python -m reproduce`.
"""

import argparse
import contextlib
import csv
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass, fields, replace
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any, NoReturn

from reproduce import HOME, UserError, one_line, user_path
from reproduce.plan import Item, Plan, configuration, load
from reproduce.registry import hint

RATES = (1e-4, 2e-4, 4e-4, 8e-4)
SEEDS = (0, 1)
# Nothing but validation is of use here: no other strategies, conversations or snapshots.
SPARED = {"strategies": ["vanilla"], "examined": 0, "snapshots": []}


@dataclass(frozen=True)
class Trial:
    """One run of an arm with one learning rate, and its accuracy once it is known."""

    arm: str
    rate: float
    seed: int
    method: str
    settings: str  # a hash of all other fields of the run
    validation: float | None = None

    @property
    def key(self) -> tuple[str, float, int, str]:
        """What a trial is found by in a table of earlier ones."""
        return self.arm, self.rate, self.seed, self.settings


@dataclass(frozen=True)
class Choice:
    """The mean validation accuracy of a method or an arm with each rate, and the best rate."""

    name: str
    accuracy_of_rate: dict[float, float]

    @property
    def rate(self) -> float:
        """The rate with the highest accuracy, the lowest of equals."""
        best = max(self.accuracy_of_rate.values())
        rates = [rate for rate, mean in self.accuracy_of_rate.items() if mean == best]
        return min(rates)

    @property
    def is_at_the_edge(self) -> bool:
        """Whether a rate beyond those that were tried may be better still."""
        others = set(self.accuracy_of_rate) - {self.rate}
        return bool(others) and not min(others) < self.rate < max(others)


class Parser(argparse.ArgumentParser):
    """A parser that reports a mistake in one line."""

    def error(self, message: str) -> NoReturn:
        """Raise UserError instead of printing the usage and exiting."""
        raise UserError(message)


def parser() -> Parser:
    """Return the parser of the command line."""
    made = Parser(
        "python -m reproduce.sweep",
        description="Train every arm of a table with the same learning rates, and choose one "
        "for each arm by accuracy on the validation split.",
        allow_abbrev=False,
    )
    add = made.add_argument
    add("--table", required=True, metavar="ID", help="a table or figure with runs")
    add("--arms", nargs="+", metavar="RUN", help="runs of it, default all that train")
    add("--rates", type=float, nargs="+", default=RATES, help="learning rates to try")
    add("--seeds", type=int, nargs="+", default=SEEDS, help="seeds of each rate")
    add("--preset", default="standard", help="default standard")
    add("--jobs", type=int, default=1, help="runs at once, default 1")
    add("--count", action="store_true", help="only say how many runs it would take")
    add("--root", type=user_path, default=HOME, help=argparse.SUPPRESS)
    add(
        "--out",
        type=user_path,
        help="CSV file; default results/PRESET/sweeps/TABLE.csv",
    )
    return made


def trials_of(
    plan: Plan,
    table: str,
    rates: Sequence[float],
    seeds: Sequence[int],
    arms: Sequence[str] | None = None,
) -> list[Trial]:
    """Return a trial per trained arm of a table, rate and seed; `arms` names some of its runs.

    Raises UserError for a table without trained runs, for a run that is not of the table, and for
    a seed that a run does not have.
    """
    if table not in plan.items:
        raise UserError(f"--table {table}: no such table; {hint(table, plan.items)}")
    item = plan.items[table]
    reason = item.skip or item.fault
    if reason:
        raise UserError(f"--table {table}: {reason}")
    runs = item.config.get("runs", ())
    for arm in arms or ():
        if arm not in runs:
            raise UserError(f"--arms {arm}: not in {table}; {hint(arm, runs)}")
    trials = []
    for arm in arms or runs:
        for seed in seeds:
            for rate in rates:
                trials += _trials_of_run(plan, arm, rate, seed)
    if not trials:
        raise UserError(f"--table {table}: it has no runs that train")
    return trials


def _trials_of_run(plan: Plan, arm: str, rate: float, seed: int) -> list[Trial]:
    """Return the trial of a run; none if the run takes no steps."""
    items = items_of(plan, arm)
    first_seed = min(items)
    run = build(plan, items.get(seed, items[first_seed]), rate, out=Path("."))
    if run.steps == 0:
        return []
    if seed not in items:
        raise UserError(
            f"{arm} has no seed {seed} in preset {plan.name}, but {sorted(items)}"
        )
    described = run.describe() | {"learning_rate": None}
    text = json.dumps(described, sort_keys=True, default=str)
    settings = hashlib.sha256(text.encode()).hexdigest()[:8]
    return [Trial(arm, rate, seed, run.method_name, settings)]


def items_of(plan: Plan, arm: str) -> dict[int, Item]:
    """Return the items of a run by seed."""
    items = {}
    for item in plan.items.values():
        if item.kind == "run" and item.names[0] == arm:
            items[item.parameters["seed"]] = item
    return items


def build(plan: Plan, item: Item, rate: float, out: Path) -> Any:
    """Return a run of the batch with another learning rate, which validates only at its end."""
    config = configuration(plan.root)
    seed = item.parameters["seed"]
    values = dict(item.config) | {"learning_rate": rate}
    run = config.build(item.method, plan.name, seed=seed, out=out, overrides=values)
    known = config.field_defaults(type(run.method))
    values |= {name: value for name, value in SPARED.items() if name in known}
    values["eval_every"] = max(1, run.steps)
    return config.build(item.method, plan.name, seed=seed, out=out, overrides=values)


def validate(root: Path, preset: str, trial: Trial) -> Trial:
    """Train the run of a trial in a folder of its own and return the trial with its accuracy."""
    plan = load(root, preset)
    configuration(root)  # puts the repository's package on the path
    from coevolve.training.loop import accuracy_in_validation

    with (
        tempfile.TemporaryDirectory(prefix="coevolve-sweep-") as folder,
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),  # progress bars; errors are raised
    ):
        item = items_of(plan, trial.arm)[trial.seed]
        run = build(plan, item, trial.rate, Path(folder))
        return replace(trial, validation=accuracy_in_validation(run))


def choices(trials: Iterable[Trial], by: str) -> list[Choice]:
    """Return the mean accuracy of each rate, and so the best rate, by arm or by method."""
    accuracies: dict[str, dict[float, list[float]]] = {}
    for trial in trials:
        of_rate = accuracies.setdefault(getattr(trial, by), {})
        if trial.validation is not None:
            of_rate.setdefault(trial.rate, []).append(trial.validation)
    chosen = []
    for name, of_rate in accuracies.items():
        means = {rate: fmean(values) for rate, values in of_rate.items()}
        chosen.append(Choice(name, means))
    return chosen


def write(file: Path, trials: Sequence[Trial]) -> None:
    """Write the trials so far as CSV, those of an arm's best rate marked as chosen."""
    best = {choice.name: choice.rate for choice in choices(trials, by="arm")}
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="utf-8", newline="") as stream:
        names = [field.name for field in fields(Trial)]
        table = csv.writer(stream, lineterminator="\n")
        table.writerow([*names, "chosen"])
        for trial in trials:
            values = [getattr(trial, name) for name in names]
            table.writerow([*values, trial.rate == best[trial.arm]])


def read(file: Path) -> list[Trial]:
    """Read the trials of an earlier, perhaps unfinished sweep; none without a file."""
    if not file.is_file():
        return []
    with file.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    return [
        Trial(
            arm=row["arm"],
            rate=float(row["rate"]),
            seed=int(row["seed"]),
            method=row["method"],
            settings=row["settings"],
            validation=float(row["validation"]),
        )
        for row in rows
    ]


def finished(
    root: Path, preset: str, waiting: Sequence[Trial], jobs: int
) -> Iterator[Trial]:
    """Yield each trial with its accuracy, in order; several are trained at once."""
    if jobs == 1:
        for trial in waiting:
            yield validate(root, preset, trial)
        return
    # A fork of a process that has loaded torch may hang.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from _in_order(pool, root, preset, waiting)


def _in_order(
    pool: Executor, root: Path, preset: str, waiting: Sequence[Trial]
) -> Iterator[Trial]:
    futures: list[Future[Trial]] = []
    for trial in waiting:
        futures.append(pool.submit(validate, root, preset, trial))
    for future in futures:
        yield future.result()


def show(title: str, chosen: Sequence[Choice]) -> None:
    """Print the accuracy with each rate, in percent, and the best rate."""
    print(title)
    for choice in chosen:
        shares = []
        for rate, accuracy in sorted(choice.accuracy_of_rate.items()):
            shares.append(f"{rate:g}: {accuracy:.1%}")
        edge = ", at the edge of the rates" if choice.is_at_the_edge else ""
        print(f"  {choice.name}: {choice.rate:g}{edge} ({', '.join(shares)})")


def sweep(options: argparse.Namespace) -> int:
    """Train what the CSV file lacks, write it after every run, and print the chosen rates."""
    root = options.root.resolve()
    plan = load(root, options.preset)
    trials = trials_of(plan, options.table, options.rates, options.seeds, options.arms)
    default = plan.folder / "sweeps" / f"{options.table}.csv"
    file = options.out or default
    known = {trial.key: trial for trial in read(file)}
    waiting = [trial for trial in trials if trial.key not in known]
    arms = {trial.arm for trial in trials}
    done = [trial for trial in known.values() if trial.arm not in arms]
    done += [known[trial.key] for trial in trials if trial.key in known]
    total = len(done) + len(waiting)
    print(f"{len(trials)} runs, {len(waiting)} of them to train")
    if options.count:
        return 0
    started_at = time.monotonic()
    for trial in finished(root, options.preset, waiting, options.jobs):
        done.append(trial)
        write(file, done)
        seconds = time.monotonic() - started_at
        print(
            f"[{len(done)}/{total}] {trial.arm} seed {trial.seed}, rate {trial.rate:g}: "
            f"{trial.validation:.1%} of validation ({seconds:.0f} s so far)"
        )
    show("best rate of each arm, on the validation split:", choices(done, by="arm"))
    show("of each method, over its arms:", choices(done, by="method"))
    print(f"table: {os.path.relpath(file)}")
    return 0


def main(arguments: list[str]) -> int:
    """Do what the command line says. Returns the exit code."""
    options = parser().parse_args(arguments)
    if options.jobs < 1:
        raise UserError(f"--jobs must be at least 1, not {options.jobs}")
    if min(options.rates) <= 0:
        raise UserError(f"--rates must be above 0, not {min(options.rates):g}")
    return sweep(options)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.stdout.reconfigure(line_buffering=True)
    try:
        sys.exit(main(sys.argv[1:]))
    except (UserError, ValueError) as error:
        print(f"reproduce.sweep: {one_line(str(error), 3000)}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("reproduce.sweep: interrupted; run it again to continue", file=sys.stderr)
        sys.exit(130)
