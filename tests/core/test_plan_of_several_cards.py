"""`coevolve plan` for several cards: each has its own memory, and all share hours and dollars."""

import pytest

from coevolve.training import plan
from coevolve.training.plan import CARDS, Fit, Replies, choose

CARD = CARDS[-1]
TRL = {"world": "tiny", "trainer": "trl"}
REPLIES = Replies(total=56, rewarded=11)
PROCESSES = 8


@pytest.fixture(scope="module")
def fit_of_one_card() -> Fit:
    return choose("mae", "gpu", TRL, CARD)


@pytest.fixture
def eight_shards(fit_of_one_card: Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("WORLD_SIZE", str(PROCESSES))


def cells_of(fit: Fit) -> list[str]:
    """Return the texts between the bars of a line."""
    line = plan.row(fit, REPLIES, CARD)
    parts = line.strip("|").split("|")
    return [part.strip() for part in parts]


@pytest.fixture
def cells_of_one_card(fit_of_one_card: Fit) -> list[str]:
    return cells_of(fit_of_one_card)


def test_one_card_stands_there_by_its_name(cells_of_one_card: list[str]) -> None:
    name = cells_of_one_card[0]
    assert name == CARD.name


def test_eight_cards_share_the_hours_and_cost_the_same(
    cells_of_one_card: list[str], eight_shards: None
) -> None:
    cells_of_all = cells_of(choose("mae", "gpu", TRL, CARD))
    assert cells_of_all[0] == f"8 x {CARD.name}"
    hours, dollars = map(float, cells_of_one_card[4:6])
    hours_of_all, dollars_of_all = map(float, cells_of_all[4:6])
    assert hours_of_all == pytest.approx(hours / PROCESSES, abs=0.06)
    assert dollars_of_all == pytest.approx(dollars, abs=0.02)


def test_a_card_of_eight_needs_less_memory(
    fit_of_one_card: Fit, eight_shards: None
) -> None:
    of_eight = choose("mae", "gpu", TRL, CARD)
    assert of_eight.memory.needed < fit_of_one_card.memory.needed


def test_the_number_of_cards_is_printed(
    monkeypatch: pytest.MonkeyPatch, eight_shards: None
) -> None:
    monkeypatch.setattr(plan, "EPISODES", 1)
    header, *_, note, _ = plan.lines("mae", "one-gpu", {"world": "tiny"})
    assert "GiB per card" in header
    assert note.startswith("8 cards (WORLD_SIZE) share the episodes")
