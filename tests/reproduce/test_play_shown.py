"""What results/play.html makes of an episode: steps, judgements, guesses, another seed."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from play_in_node import (
    CLOSE,
    SEEDS,
    SHOWN,
    Request,
    needs_node,
    page_data,
    play_in_python,
    requests,
    rewards_of,
    run_on,
)

NONSENSE = "no tags at all"
# The key calls 4, which the model says at temperature 0, wrong.
WRONG_KEY: Request = {
    "settings": {"method": "sage", "seed": 0, "temperature": 0.0, "isTrained": False},
    "edits": {0: "<question>2+2</question><type>math</type><answer>5</answer>"},
}


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    """Return the data in the committed page."""
    return page_data()


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory, data: dict[str, Any]) -> list[Any]:
    """Return what the page makes of the requested episodes, and of one with a wrong key."""
    asked = [*requests(), WRONG_KEY]
    return run_on(tmp_path_factory.mktemp("shown"), SHOWN, data, asked)


def steps_of(shown: list[Any]) -> Iterator[tuple[list[Any], Any]]:
    """Yield every step with the replies of its episode."""
    for episode in shown:
        for step in episode["steps"]:
            yield episode["replies"], step


@needs_node
class TestWhatIsShown:
    """Steps, parts, judgements and guesses of the played episodes."""

    def test_the_steps_hold_all_turns_in_order(self, shown: list[Any]) -> None:
        for episode in shown:
            numbers = []
            ends = []
            for step in episode["steps"]:
                numbers += step["numbers"]
                ends.append(step["numbers"][-1] + 1)
            assert numbers == list(range(len(episode["replies"])))
            assert episode["stops"] == ends

    def test_like_turns_are_one_step_and_none_of_them_is_paid(
        self, shown: list[Any]
    ) -> None:
        folds = 0
        for replies, step in steps_of(shown):
            folded = [replies[number] for number in step["numbers"]]
            if len(folded) > 1:
                assert len(folded) >= 3
                assert len({reply["role"] for reply in folded}) == 1
                assert not any(reply["isPaid"] for reply in folded)
                folds += 1
        assert folds

    def test_the_line_of_a_step_counts_what_the_oracle_calls_right(
        self, shown: list[Any]
    ) -> None:
        counted = 0
        for replies, step in steps_of(shown):
            verdicts = [replies[number]["verdict"] for number in step["numbers"]]
            known = []
            for verdict in verdicts:
                if verdict and verdict["ok"] is not None:
                    known.append(verdict["ok"])
            if known and len(verdicts) > 1:
                assert re.search(rf"\b{sum(known)}\b", step["verdict"])
                counted += 1
        assert counted

    def test_a_line_divides_an_episode_where_another_part_begins(
        self, data: dict[str, Any], shown: list[Any]
    ) -> None:
        rounds = data["methods"]["comas"]["rounds"]
        expected = {"mae": 2, "sage": 2, "comas": rounds, "conl": 4}
        for request, episode in zip([*requests(), WRONG_KEY], shown, strict=True):
            method = request["settings"]["method"]
            parts = episode["parts"]
            assert len(set(parts)) == len(parts)
            if method == "spice":  # no answers without a valid question
                is_answered = any(reply["key"] for reply in episode["replies"])
                assert len(parts) == 1 + is_answered
            else:
                assert len(parts) == expected[method]

    def test_a_card_has_what_the_judge_says_and_what_the_oracle_says(
        self, shown: list[Any]
    ) -> None:
        kinds = set()
        for episode in shown:
            replies = episode["replies"]
            for number, reply in enumerate(replies):
                assert reply["earlyJudgements"] == 0
                for judgement in reply["judgements"]:
                    assert judgement > number
                    assert replies[judgement]["judges"] == number
                if reply["judges"] is None or reply["verdict"] is None:
                    continue
                agrees = reply["says"].split(" (")[0] == reply["truth"]
                assert reply["verdict"]["ok"] == agrees
                kinds.add(agrees)
                if not agrees:
                    assert replies[reply["judges"]]["isMisjudged"]
        assert kinds == {True, False}

    def test_an_answer_is_marked_where_key_and_oracle_differ(
        self, shown: list[Any]
    ) -> None:
        marked = set()
        for episode in shown:
            for reply in episode["replies"]:
                if reply["key"] and reply["verdict"]["ok"] is not None:
                    differs = reply["key"]["ok"] != reply["verdict"]["ok"]
                    assert reply["isMisjudged"] == differs
                    marked.add(differs)
        assert marked == {True, False}

    def test_verdicts_and_pay_wait_for_the_guesses(self, shown: list[Any]) -> None:
        for episode in shown:
            replies = episode["replies"]
            asked = set()
            paid = set()
            for number, reply in enumerate(replies):
                if reply["verdict"] or reply["key"]:
                    asked.add(number)
                if reply["isPaid"]:
                    paid.add(number)
            hidden_again = len((asked | paid) - {0})
            # Before the last turn and after it; then with all verdicts shown; then with all pay.
            waiting = [len(asked), len(asked | paid), 0, len(paid), 0, hidden_again]
            assert episode["hidden"] == waiting

    @pytest.mark.parametrize("method", ["mae", "sage", "comas"])
    def test_a_note_says_what_becomes_of_an_unreadable_judgement(
        self, method: str, tmp_path: Path, data: dict[str, Any]
    ) -> None:
        settings = {"method": method, "seed": 0, "temperature": 1.0, "isTrained": False}
        readable = {"settings": settings, "edits": {}}
        [before] = run_on(tmp_path, SHOWN, data, [readable])
        judge = next(n for n, one in enumerate(before["replies"]) if one["says"])
        if method == "comas":  # an evaluation may have any form, a score may not
            judge += 1
        assert before["replies"][judge]["fallback"] is None

        unreadable = {"settings": settings, "edits": {judge: NONSENSE}}
        [after] = run_on(tmp_path, SHOWN, data, [unreadable])
        note = after["replies"][judge]["fallback"]
        assert note.startswith("Its form cannot be read")
        assert after["replies"][judge]["verdict"] is None
        rewards = {}
        for number, reply in enumerate(after["replies"]):
            if reply["isPaid"] and reply["payment"] is not None:
                rewards[number] = reply["payment"]
        stepper = play_in_python(data, unreadable)
        assert rewards == pytest.approx(rewards_of(stepper), abs=CLOSE)
        judged = after["replies"][judge]["judges"]
        if method == "comas":  # what the note says: masked, and a penalty
            assert judged not in rewards
            assert rewards[judge] == -1
        else:
            assert "counts it as 0.5" in note


@needs_node
class TestAnotherSeed:
    """The button that goes to the next seed with something to argue about."""

    MIXED = [{"ok": True, "reward": 0}, {"ok": False, "reward": 1}]
    DULL = [
        [{"ok": True, "reward": 1}, {"ok": True, "reward": 0}],
        [{"ok": True, "reward": 1}, {"ok": False, "reward": 1}],
        [{"ok": True, "reward": None}, {"ok": False, "reward": 1}],
        [{"ok": True, "reward": 0, "proposes": True}, {"ok": False, "reward": 1}],
    ]

    def found(self, tmp_path: Path, **request: Any) -> Any:
        """Return the seed found and those tried, from seed 5 if the request names none."""
        request = {"seed": 5, "episodes": {}, "other": self.DULL[0]} | request
        [result] = run_on(tmp_path, SEEDS, [request])
        return result

    def test_it_is_the_first_interesting_one(self, tmp_path: Path) -> None:
        dull = {6 + number: episode for number, episode in enumerate(self.DULL)}
        first = 6 + len(dull)
        result = self.found(tmp_path, episodes={**dull, first: self.MIXED})
        assert result == {"found": first, "tried": [*dull, first]}

    def test_a_question_that_somebody_tries_counts(self, tmp_path: Path) -> None:
        tried = [*self.DULL[-1], {"ok": None, "reward": 0, "tries": True}]
        assert self.found(tmp_path, other=tried)["found"] == 6

    def test_it_gives_up_and_takes_the_next(self, tmp_path: Path) -> None:
        result = self.found(tmp_path)
        assert result["found"] == 6
        assert result["tried"] == list(range(6, 16))

    def test_the_seeds_go_round(self, tmp_path: Path) -> None:
        result = self.found(tmp_path, seed=2**32 - 1, other=self.MIXED)
        assert result["found"] == 0

    def test_it_stops_when_the_visitor_chooses_something_else(
        self, tmp_path: Path
    ) -> None:
        assert self.found(tmp_path, other=None) == {"found": None, "tried": [6]}
