"""Every text of the corpora at its door: what comes of it is what is expected, and nothing raises."""

import pytest
from hostile import CORPUS, KINDS, Page, outcome


def test_every_kind_has_texts() -> None:
    assert {entry["kind"] for entry in CORPUS} == KINDS.keys() and len({entry["id"] for entry in CORPUS}) == len(CORPUS)


@pytest.mark.parametrize("entry", CORPUS, ids=lambda entry: entry["id"])
def test_the_outcome_of_every_text(entry: dict) -> None:
    assert outcome(entry["kind"], entry["input"]) == entry["expected"]


FOREIGN = ["<i>x</i>", '<p onclick="x">x</p>', '<p style="color:red">', "<p>x", "<!--x-->", "\x1b"]


@pytest.mark.parametrize("page", FOREIGN)
def test_a_page_with_what_does_not_belong_there_is_noticed(page: str) -> None:
    assert Page(page).foreign and not Page("<p>x</p>").foreign
