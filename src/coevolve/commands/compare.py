"""`coevolve compare RUN RUN`: two runs side by side: accuracy, settings, metrics."""

import math
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from coevolve.commands import terminal
from coevolve.commands.fields import written
from coevolve.runs import compare as runs_compared
from coevolve.runs.compare import in_points
from coevolve.validation import user_path

Run = Annotated[Path, Argument(parser=user_path, metavar="RUN")]
Row = dict[str, Any]  # of the table that `runs.compare` returns
MAX_VALUE = 28  # characters of a setting
CUT = "..."  # the end of a longer one


def compare(
    first: Run,
    second: Run,
    metrics: Annotated[
        bool, Option("--metrics", help="also list what the last steps recorded")
    ] = False,
) -> None:
    """Compare two runs: accuracy, gain, settings.

    Brackets hold 95 % intervals over the test questions. They do not cover other seeds.
    """
    rows = runs_compared.compare(first, second).to_dict("records")
    _show_accuracies(_part(rows, runs_compared.ACCURACY), first, second)
    settings = _part(rows, runs_compared.SETTING)
    terminal.show()
    title = "Settings that differ" if settings else "No setting differs"
    _show_head(title, first, second)
    for row in settings:
        _show_line(row["name"], _setting(row["first"]), _setting(row["second"]))
    if metrics:
        terminal.show()
        _show_head("Metrics, means over the last fifth of the steps", first, second)
        for row in _part(rows, runs_compared.METRIC):
            _show_line(row["name"], _number(row["first"]), _number(row["second"]))


def _part(rows: list[Row], part: str) -> list[Row]:
    return [row for row in rows if row["part"] == part]


def _show_head(title: str, first: Path, second: Path) -> None:
    terminal.show(terminal.styled(title, bold=True))
    _show_line("", str(first), str(second))


def _show_line(name: str, first: str, second: str) -> None:
    line = f"  {name:22} {first:28} {second}"
    terminal.show(line.rstrip())


def _show_accuracies(rows: list[Row], first: Path, second: Path) -> None:
    """Print the accuracy before and after training, and the gains."""
    if not rows:
        terminal.show("No test scores to compare: one of the runs has not finished.")
        return
    _show_head("Accuracy on test questions", first, second)
    *stages, gain = rows
    for row in stages:
        _show_line(row["name"], f"{row['first']:.1f} %", f"{row['second']:.1f} %")
    gain_of_first = in_points(gain["first"], gain["first_low"], gain["first_high"])
    gain_of_second = in_points(gain["second"], gain["second_low"], gain["second_high"])
    _show_line("gain, in points", gain_of_first, gain_of_second)
    terminal.show(f"  {_conclusion(gain)}")


def _conclusion(gain: Row) -> str:
    """Say how much more the second run gained, if both were asked the same questions."""
    low = gain["low"]
    high = gain["high"]
    if math.isnan(low):
        return (
            "The gains have no paired interval: other questions, or all changed alike."
        )
    difference = in_points(gain["difference"], low, high)
    if low > 0 or high < 0:
        end = "the interval of the difference excludes 0."
    else:
        end = "the interval includes 0, so these runs show no difference."
    return f"Gain of the second minus that of the first: {difference} points; {end}"


def _setting(value: Any) -> str:
    """Return the value of a field as text; a table holds all of them as floats if it can."""
    if isinstance(value, float):
        return _number(value)
    text = written(value)
    return text if len(text) <= MAX_VALUE else text[: MAX_VALUE - len(CUT)] + CUT


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4g}"
