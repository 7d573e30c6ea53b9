"""The number of a data set's rows that are read, read in another form, and left out.

Rows that a benchmark does not want (SQuAD's questions without an answer) are counted only. A data
set that loses more of the others than MAX_UNREADABLE probably has another form than the reader
expects. Rows without a label are common: the hub hides the labels of some test splits.
"""

import sys
from collections import Counter
from fractions import Fraction
from functools import cache

from tqdm import tqdm

from published.values import LeftOut, Unlabelled, Unwanted

MAX_UNREADABLE = Fraction(1, 10)
MAX_UNLABELLED = Fraction(1, 2)
SHOWN_ROWS = 3  # of each reason


@cache
def say(line: str) -> None:
    """Print a line on stderr, once in a process and only in the first process of a run."""
    from coevolve.training.progress import is_first_process

    if is_first_process():
        tqdm.write(line, file=sys.stderr)  # does not land in the middle of a bar


class Reasons:
    """Rows grouped by a reason, with the first places of each."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.places: dict[str, list[str]] = {}

    def add(self, reason: str, place: str) -> None:
        """Count a row."""
        self.counts[reason] += 1
        places = self.places.setdefault(reason, [])
        if len(places) < SHOWN_ROWS:
            places.append(place)

    def text(self) -> str:
        """Return every reason with its number of rows, unless it is the only one."""
        parts = []
        for reason, count in self.counts.items():
            places = ", ".join(self.places[reason])
            more = ", ..." if count > SHOWN_ROWS else ""
            of_several = f"{count} because " if len(self.counts) > 1 else ""
            parts.append(f"{of_several}{reason} ({places}{more})")
        return ", ".join(parts)


class RowCounts:
    """Counts the rows of a data set; `name` is the data set, `where` its file or files."""

    def __init__(self, name: str, where: str):
        self.name = name
        self.where = where
        self.read = 0
        self.left_out = Reasons()
        self.changed = Reasons()
        self.kinds: Counter[type[LeftOut]] = Counter()

    @property
    def total(self) -> int:
        """The number of rows."""
        return self.read + self.left_out.counts.total()

    @property
    def has_news(self) -> bool:
        """Whether a row is left out or read in another form."""
        return bool(self.left_out.counts or self.changed.counts)

    def add(self, place: str, changes: tuple[str, ...] = ()) -> None:
        """Count a row that was read, and in which ways it differs from the published form."""
        self.read += 1
        for change in changes:
            self.changed.add(change, place)

    def leave_out(self, place: str, why: LeftOut) -> None:
        """Count a row that is left out."""
        self.kinds[type(why)] += 1
        example = f": {why.example}" if why.example else ""
        self.left_out.add(why.reason, f"{place}{example}")

    def line(self) -> str:
        """Return what was read, left out and changed, in one line."""
        parts = [f"{self.name}: {self.read} of {self.total} rows of {self.where}"]
        if self.left_out.counts:
            count = self.left_out.counts.total()
            parts.append(f"{count} left out: {self.left_out.text()}")
        if self.changed.counts:
            count = self.changed.counts.total()
            parts.append(f"{count} read although {self.changed.text()}")
        return "; ".join(parts)

    def check(self) -> None:
        """Raise ValueError, with the line, if there is no row or if too many are left out."""
        if not self.total:
            raise ValueError(f"{self.name}: there is no row in {self.where}")
        wanted = self.total - self.kinds[Unwanted]
        unreadable = self.kinds[LeftOut]
        unlabelled = self.kinds[Unlabelled]
        if unreadable > MAX_UNREADABLE * wanted:
            limit = f"at most 1 row in {1 / MAX_UNREADABLE} may be unreadable"
        elif unlabelled > MAX_UNLABELLED * wanted:
            limit = f"at most 1 row in {1 / MAX_UNLABELLED} may be without a label"
        else:
            return
        raise ValueError(f"{self.line()}; {limit}")
