"""The gates of a backbone: they can fail, and every measurement depends on its seed."""

from collections.abc import Callable
from functools import partial

import pytest

from coevolve.types import Reply, Turn
from tinyworld import gates

WANTS_MULTIPLE_CHOICE = (
    '{"suitable_for_mcq": true, "suitable_for_free_form": false, '
    '"best_answer_type": null, "reason": "names"}'
)
MEASUREMENTS = {
    "formats": gates.formats,
    "proposing": gates.proposing,
    "planning": gates.planning,
    "discussing": gates.discussing,
    "judging": partial(gates.judging, temperature=1.0),
    "rating": gates.rating,
    "ranking": gates.ranking,
    "challenging": gates.challenging,
}


def test_gates_can_fail() -> None:
    figures = {name: 0.0 for name in gates.GATES}
    figures["format"] = {"mae/solver": 0.5, "mae/proposer": 1.0}
    failures = gates.failures(figures)
    assert len(failures) == len(gates.GATES) + 2
    assert failures[-1] == "format of mae/proposer is 1.000, wanted 0.88 to 0.95"


def test_a_reader_of_documents_that_always_wants_multiple_choice_is_seen() -> None:
    def ask(role: str, fields: list, seed: int) -> list[Reply]:
        return [Reply(None, WANTS_MULTIPLE_CHOICE) for _ in fields]

    assert gates.challenging(ask, 3)["multiple_choice"] == 1.0


class Recorder:
    """A model that replies nothing and remembers the turns."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []

    def generate(self, turns: list[Turn]) -> list[Reply]:
        self.turns += turns
        return [Reply(turn, "") for turn in turns]

    def prompts(self) -> list[str]:
        return [turn.messages[0]["content"] for turn in self.turns]

    def seed_questions(self) -> set[int]:
        return {turn.key[0] for turn in self.turns}


def record(measurement: Callable, **arguments: int) -> Recorder:
    recorder = Recorder()
    ask = partial(gates.put, recorder.generate, "compact")
    measurement(ask, 6, **arguments)
    return recorder


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_the_seed_of_a_measurement_is_0_by_default_and_the_key_of_its_replies(
    name: str,
) -> None:
    measurement = MEASUREMENTS[name]
    assert record(measurement).turns == record(measurement, seed=0).turns
    assert record(measurement, seed=1).seed_questions() == {1}


@pytest.mark.parametrize("name", sorted(MEASUREMENTS.keys() - {"proposing"}))
def test_another_seed_draws_other_questions(name: str) -> None:
    measurement = MEASUREMENTS[name]
    assert (
        record(measurement, seed=1).prompts() != record(measurement, seed=0).prompts()
    )
    assert (
        record(measurement, seed=1).prompts() == record(measurement, seed=1).prompts()
    )


def measure_all(**arguments: int) -> Recorder:
    recorder = Recorder()
    gates.measure(recorder.generate, count=4, per_family=1, **arguments)
    return recorder


def test_the_seed_of_all_figures_reaches_every_question_and_reply() -> None:
    default = measure_all()
    other = measure_all(seed=1)
    assert default.seed_questions() == {0}
    assert other.seed_questions() == {1}
    assert default.prompts() != other.prompts()
