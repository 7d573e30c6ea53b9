"""`coevolve runs FOLDER`: a table of the finished runs below a folder."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from coevolve.commands.fields import written
from coevolve.training import config
from coevolve.validation import user_path

COLUMNS = (
    "folder",
    "method",
    "model",
    "seed",
    "steps",
    "before",
    "after",
    "gain",
    "seconds",
    "differs in",
)
# Entries of config.json that have a column, or that no reader compares.
OTHER_COLUMNS = ("method", "model", "seed", "steps", "method_sources")
Folder = Annotated[Path, Argument(parser=user_path, metavar="[FOLDER]")]
Metrics = Annotated[
    list[str] | None,
    Option(
        "--metric",
        help="a metric of the last step as a column, such as reward/solver; may be repeated",
    ),
]


@dataclass(frozen=True)
class FinishedRun:
    """The files of a finished run."""

    folder: Path
    summary: Mapping[str, Any]

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The entries of config.json by name, those of the method among them."""
        file = self.folder / "config.json"
        return config.flatten(json.loads(file.read_bytes())) if file.is_file() else {}

    @property
    def seconds(self) -> float:
        """How long the run took; of parts before a resumption, their steps count."""
        seconds: float = self.summary["seconds"]
        resumed_at = self.summary.get("resumed_at", 0)
        if not resumed_at:
            return seconds
        for timing in self._lines("timings"):
            step = timing.pop("step")
            if step <= resumed_at:
                seconds += sum(timing.values())
        return round(seconds, 2)

    def last(self, metric: str) -> str:
        """Return the last recorded value of a metric, as text."""
        for row in reversed(self._lines("metrics")):
            value = row.get(metric)
            if value is not None:
                return f"{value:.3g}"
        return ""

    def _lines(self, name: str) -> list[dict[str, Any]]:
        """Return the lines of NAME.jsonl; none without the file."""
        file = self.folder / f"{name}.jsonl"
        lines = file.read_bytes().splitlines() if file.is_file() else []
        return [json.loads(line) for line in lines]


def runs(folder: Folder = Path("runs"), metric: Metrics = None) -> None:
    """Print a Markdown table of the finished runs in a folder.

    The gain is in accuracy points on the test questions. The seconds of a resumed run include the
    steps of all its parts. The last column has the fields in which the listed runs of one method
    differ.
    """
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}; name one that holds runs")
    metrics = metric or []
    _print_row([*COLUMNS, *metrics])
    _print_row(["---"] * (len(COLUMNS) + len(metrics)))
    finished = _finished_runs(folder)
    for run in finished:
        of_method = [
            one for one in finished if one.summary["method"] == run.summary["method"]
        ]
        cells = [
            run.folder.relative_to(folder),
            *_results(run),
            ", ".join(_differences(run, of_method)),
            *map(run.last, metrics),
        ]
        _print_row(cells)


def _print_row(cells: Sequence[object]) -> None:
    typer.echo("| " + " | ".join(map(str, cells)) + " |")


def _finished_runs(folder: Path) -> list[FinishedRun]:
    finished = []
    for path in sorted(folder.rglob("summary.json")):
        if path.with_name("scores.csv").is_file():
            summary = json.loads(path.read_bytes())
            finished.append(FinishedRun(path.parent, summary))
    return finished


def _results(run: FinishedRun) -> list[object]:
    """Return the cells from the method to the seconds."""
    summary = run.summary
    before = summary["held_out"]["before"]
    after = summary["held_out"]["after"]
    gain = 100 * (_share(after) - _share(before))
    return [
        summary["method"],
        written(run.settings.get("model", "")).strip("'"),
        summary["seed"],
        # TRL's trainers count their own steps.
        summary.get("taken", summary["steps"]),
        _accuracy(before),
        _accuracy(after),
        f"{gain:+.1f}",
        run.seconds,
    ]


def _differences(run: FinishedRun, others: Sequence[FinishedRun]) -> list[str]:
    """Return the fields, with this run's values, in which it differs from one of the others."""
    changed = []
    for name, value in run.settings.items():
        is_alike = all(other.settings.get(name) == value for other in others)
        if name not in OTHER_COLUMNS and not is_alike:
            changed.append(f"{name}={written(value)}")
    return changed


def _share(counts: Mapping[str, int]) -> float:
    return float(counts["k"] / max(counts["n"], 1))


def _accuracy(counts: Mapping[str, int]) -> str:
    """Return correct answers of scored ones, with the percentage."""
    return f"{counts['k']}/{counts['n']} ({_share(counts):.1%})"
