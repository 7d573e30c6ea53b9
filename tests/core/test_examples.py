"""The examples of methods: short, trained for a few steps, and right in every game by hand."""

from pathlib import Path

import pytest
from core.conftest import by_hand, earned

from coevolve.cli import main
from coevolve.methods.registry import get_method
from coevolve.runs import record
from coevolve.types import Outcome

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SQLM = f"{EXAMPLES / 'sqlm.py'}:SQLM"
NIM = f"{EXAMPLES / 'nim.py'}:Nim"
SMALL = ["--preset", "smoke", "batch_size=4", "eval_items=1", "eval_every=0"]
MAX_LINES = 90


def answers(*texts: str) -> list[str]:
    return [f"<answer>{text}</answer>" for text in texts]


@pytest.mark.parametrize("name", ["sqlm.py", "nim.py"])
def test_an_example_is_short(name: str) -> None:
    text = (EXAMPLES / name).read_text()
    lines = text.splitlines()
    assert len(lines) < MAX_LINES


class TestSQLM:
    def rewards(self, *replies: str) -> list[float]:
        method = get_method(SQLM)(attempts=len(replies))
        proposal = "<question>3*4</question>"
        stepper = by_hand(method, [proposal])
        stepper.answer(replies)
        samples = stepper.outcome.samples
        return [sample.reward for sample in samples]

    def test_the_majority_is_paid_and_a_question_that_divides(self) -> None:
        replies = answers("12", "12", "7")
        proposer, *solver = self.rewards(*replies)
        assert proposer == 1.0
        assert solver == [1.0, 1.0, 0.0]

    def test_a_question_on_which_all_agree_is_too_easy(self) -> None:
        replies = answers("12", "12")
        proposer, *solver = self.rewards(*replies)
        assert proposer == 0.0
        assert solver == [1.0, 1.0]

    def test_a_question_without_any_vote_is_too_hard(self) -> None:
        rewards = self.rewards("?", "")
        assert set(rewards) == {0.0}

    def test_a_test_question_pays_nobody(self) -> None:
        method = get_method(SQLM)()
        held_out, *_ = method.world.items("test", 1)
        proposal = f"<question>{held_out.question}</question>"
        stepper = by_hand(method, [proposal])
        assert stepper.outcome is not None
        assert stepper.outcome.samples == []


class TestNim:
    def play(self, *moves: str, stones: int) -> Outcome:
        """Play a game from a number of stones by these moves."""
        method = get_method(NIM)()
        seed = SEED_OF[stones]
        stepper = by_hand(method, seed=seed)
        for move in answers(*moves):
            stepper.answer([move])
        assert stepper.outcome is not None, "the game goes on"
        return stepper.outcome

    def test_who_takes_the_last_stone_wins(self) -> None:
        outcome = self.play("1", "3", stones=4)
        assert earned(outcome, "first") == [-1.0]
        assert earned(outcome, "second") == [1.0]
        assert outcome.facts["illegal"] is False
        assert outcome.facts["winning_move"] == 1.0

    @pytest.mark.parametrize("move", ["4", "0", "x", "-1"])
    def test_an_illegal_move_loses(self, move: str) -> None:
        outcome = self.play("1", move, stones=5)
        assert earned(outcome, "first") == [1.0]
        assert earned(outcome, "second") == [-1.0]
        assert outcome.facts["illegal"] is True

    def test_more_stones_than_there_are_cannot_be_taken(self) -> None:
        outcome = self.play("3", "2", stones=4)
        assert earned(outcome, "first") == [1.0]
        assert earned(outcome, "second") == [-1.0]

    def test_a_frozen_opponent_is_never_trained(self) -> None:
        method = get_method(NIM)(opponent="tiny-1")
        assert method.policies == ("shared", "opponent")
        assert method.frozen == ("opponent",)
        seed = SEED_OF[4]
        stepper = by_hand(method, seed=seed)
        for move in answers("1", "1", "2"):
            stepper.answer([move])
        assert earned(stepper.outcome, "first") == [1.0, 1.0]
        assert earned(stepper.outcome, "second") == []


def seeds_by_stones() -> dict[int, int]:
    """Return a seed for each number of stones that a game can begin with."""
    seed_of: dict[int, int] = {}
    method = get_method(NIM)()
    for seed in range(100):
        stepper = by_hand(method, seed=seed)
        (turn,) = stepper.pending_turns
        stones = int(turn.fields["stones"])
        seed_of.setdefault(stones, seed)
    return seed_of


SEED_OF = seeds_by_stones()


@pytest.mark.parametrize("method", [SQLM, NIM], ids=["sqlm", "nim"])
def test_an_example_trains(method: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert main(["train", method, "--out", str(out), *SMALL, "steps=2"]) == 0
    metrics = record.read(out)
    assert metrics["step"].max() == 2
    rewards = [name for name in metrics if name.startswith("reward/")]
    assert rewards
