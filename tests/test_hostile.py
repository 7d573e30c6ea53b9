"""Every text of the corpora has the outcome that its corpus expects, and no reader raises."""

import pytest
from hostile import CORPUS, KINDS, Page, outcome

FOREIGN_PAGES = [
    "<i>x</i>",
    '<p onclick="x">x</p>',
    '<p style="color:red">',
    "<p>x",
    "<!--x-->",
    "\x1b",
]


def test_every_kind_has_texts() -> None:
    assert {entry["kind"] for entry in CORPUS} == KINDS.keys()


def test_every_text_has_its_own_id() -> None:
    ids = {entry["id"] for entry in CORPUS}
    assert len(ids) == len(CORPUS)


@pytest.mark.parametrize("entry", CORPUS, ids=lambda entry: entry["id"])
def test_every_text_has_the_expected_outcome(entry: dict) -> None:
    assert outcome(entry["kind"], entry["input"]) == entry["expected"]


@pytest.mark.parametrize("page", FOREIGN_PAGES)
def test_a_page_with_foreign_markup_is_noticed(page: str) -> None:
    assert Page(page).foreign


def test_a_page_of_allowed_markup_is_not_foreign() -> None:
    assert not Page("<p>x</p>").foreign
