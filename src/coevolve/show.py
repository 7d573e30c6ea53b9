"""Turns, replies, outcomes and token credit as HTML, Markdown and plain text for notebooks and terminals.

Uses only tags and inline styles that JupyterLab keeps in an untrusted notebook, and sets no text colour: it
reads on light and dark pages. Every text goes into a page through `element`, which escapes it. Knows no model.
"""

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from coevolve.segments import segments
from coevolve.types import Outcome, Reply, Sample, Turn

PRE = "white-space:pre-wrap;overflow-wrap:break-word;margin:0.3em 0 0.6em 1em"
CELL = "text-align:left;vertical-align:top;padding:0.1em 0.8em"
POSITIVE, NEGATIVE = "0,114,178", "213,94,0"
EMPTY = "▯"  # stands for a token that completes no character, such as the end token


@dataclass(frozen=True, repr=False)
class Shown:
    """Something to look at: HTML for notebooks, Markdown and plain text elsewhere."""

    html: str
    text: str

    def _repr_html_(self) -> str:
        return self.html

    def _repr_markdown_(self) -> str:
        return fenced(self.text)

    def __repr__(self) -> str:
        return self.text
