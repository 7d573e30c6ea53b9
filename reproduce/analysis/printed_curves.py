"""The curves that a paper describes in words: their points, read from `reproduce/paper_numbers`.

A description is a number, a range, or a way such as "0.4 -> 0.78 (step 40) -> 0.5-0.6".
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

NUMBER = r"\d+(?:\.\d+)?"
VALUE = re.compile(rf"(?<!step )({NUMBER})(?:-({NUMBER}))?")
STEP = re.compile(rf"step ({NUMBER})(?:-({NUMBER}))?")
AXIS = re.compile(rf"steps {NUMBER}-({NUMBER})")  # "steps 0-100 on the axis"
NAMED_PLACES = {"start": 0.0, "end": 1.0}  # of training
COLUMNS = ["method", "at", "value"]


@dataclass(frozen=True)
class Reading:
    """One row of the paper's numbers: where it lies in training, and what it says."""

    method: str
    place: str
    text: str


def read(numbers: pd.DataFrame, table: str, quantity: str = "") -> pd.DataFrame:
    """Return the points of a figure: method, at (share of the printed axis, 0 to 1) and value.

    `numbers` is a file of paper_numbers; `table` names the figure in it, and `quantity` how the
    name of its quantity begins. Of a range, the middle counts. Sorted by method and place.
    """
    rows = numbers[numbers["table"] == table]
    rows = rows[rows["benchmark"].str.startswith(quantity)]
    readings = []
    for row in rows.itertuples():
        text = str(row.printed)
        readings.append(Reading(row.method, row.setup, text))
    first, last = _axis(readings)
    points = []
    for reading in readings:
        points += _points(reading, first, last)
    frame = pd.DataFrame(points, columns=COLUMNS)
    return frame.sort_values(["method", "at"], kind="stable", ignore_index=True)


def _axis(readings: list[Reading]) -> tuple[float, float]:
    """Return the first and the last step of the printed axis; 0 and 1 if no step is named."""
    steps = []
    for reading in readings:
        if reading.place in NAMED_PLACES:
            steps.append(0.0)
        axis = AXIS.search(reading.place)
        if axis:
            steps += [0.0, float(axis[1])]
        texts = f"{reading.place} {reading.text}"
        for match in STEP.finditer(texts):
            step = _middle(match)
            steps.append(step)
    last = max(steps, default=0.0)
    if last == 0:
        return 0.0, 1.0
    return min(steps), last


def _points(reading: Reading, first: float, last: float) -> list[tuple]:
    """Return the points of one reading; a single number without a place is a level."""
    place = STEP.search(reading.place)
    texts = re.split("->|,", reading.text)
    pieces = [text for text in texts if text.strip()]
    points = []
    for number, piece in enumerate(pieces):
        value = VALUE.search(piece)
        if value is None:
            continue
        step = place or STEP.search(piece)
        if step:
            share = (_middle(step) - first) / (last - first)
            ats = [share]
        elif reading.place in NAMED_PLACES:
            ats = [NAMED_PLACES[reading.place]]
        elif len(pieces) == 1:
            ats = [0.0, 1.0]
        else:
            ats = [number / (len(pieces) - 1)]
        for at in ats:
            point = (reading.method, at, _middle(value))
            points.append(point)
    return points


def _middle(match: re.Match) -> float:
    low, high = match.groups()
    return (float(low) + float(high or low)) / 2


def on_axis(
    points: pd.DataFrame, rows: Mapping[str, str], first: float, last: float
) -> pd.DataFrame:
    """Return the points with our names of the methods, at steps from `first` to `last`.

    `rows` maps our names to the paper's, where these differ.
    """
    names = {printed: ours for ours, printed in rows.items()}
    return points.assign(
        method=points["method"].replace(names),
        step=first + points["at"] * (last - first),
    )
