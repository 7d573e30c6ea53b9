"""Places in a paper, such as "section 5.1, Table 1", and the artefacts that reproduce them."""

import re
from collections.abc import Collection

PLACE = re.compile(
    r"(?P<kind>Table|Figure) (?P<number>\d+[a-z]?)(?: \((?P<side>\w+)\))?"
)
KINDS = {"Table": "table", "Figure": "fig"}  # how ids name them
SIDES = {"middle": "mid"}  # how ids shorten a side


def artefact_of(paper: str, where: str, ids: Collection[str]) -> str:
    """Return which of some artefacts is the table or figure that a place names first.

    Return "" if none is.
    """
    place = PLACE.search(where)
    if place is None:
        return ""
    kind = KINDS[place["kind"]]
    stem = f"{paper}_{kind}{place['number']}"
    side = place["side"]
    candidates = (
        f"{stem}_{side}",
        f"{stem}_{SIDES.get(side, side)}",
        stem,
    )
    for id in candidates:
        if id in ids:
            return id
    for id in ids:
        if id.startswith(f"{stem}_"):
            return id
    return ""
