"""CoNL in one room on pretend runs: parts that add up, pairs, missing answers."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from pytest import approx

from coevolve.runs.record import Recorder, write_json
from reproduce.analysis import conl_room
from reproduce.analysis.conl_room import (
    BY_CONVERSING,
    BY_TRAINING,
    CONVERSATION,
    REST,
    WHOLE,
)

LABELS = {"conl_base": "untrained", "srt_m": "SRT-M", "conl": "CoNL"}
FAMILIES = ("mod", "rate", "add", "div", "code")  # one of each stand-in
QUESTIONS = 20  # of each family
SEEDS = {"conl_base": [0], "srt_m": [0, 1], "conl": [0, 1]}
# Correct answers of 20 in each family: run, setting, by seed.
CORRECT = {
    "conl_base": {"greedy": [4], "vote": [6], "conversation": [12]},
    "srt_m": {"greedy": [6, 8], "vote": [9, 11], "conversation": [13, 15]},
    "conl": {"greedy": [6, 6], "vote": [8, 8], "conversation": [16, 18]},
}
RIVALS = {"untrained": "greedy", "SRT-M": "vote"}


@dataclass(frozen=True)
class Question:
    """A question of a family; the first ones are answered correctly."""

    family: str
    number: int

    @property
    def text(self) -> str:
        return f"{self.family} {self.number}"


def questions(per_family: int) -> Iterator[Question]:
    for family in FAMILIES:
        for number in range(per_family):
            yield Question(family, number)


def scores(strategy: str, correct: int) -> Iterator[dict[str, Any]]:
    """Answers of a policy alone, some of them to questions that were not discussed."""
    for question in questions(QUESTIONS + 5):
        yield {
            "stage": "after",
            "strategy": strategy,
            "family": question.family,
            "item": question.number,
            "question": question.text,
            "correct": int(question.number < correct),
        }


def conversations(correct: int) -> Iterator[dict[str, Any]]:
    """Discussions, whose items have other numbers than those of the scores."""
    for item, question in enumerate(questions(QUESTIONS)):
        yield {
            "item": item,
            "family": question.family,
            "question": question.text,
            "pass_1": float(question.number < correct),
            "rank_rho": None,
        }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for run, by_setting in CORRECT.items():
        talking = by_setting["conversation"]
        for seed, correct in enumerate(talking):
            recorder = Recorder(tmp_path / f"{run}-s{seed}")
            steps = 0 if run == "conl_base" else 3
            write_json(recorder.out / "summary.json", {"steps": steps})
            greedy = scores("vanilla", by_setting["greedy"][seed])
            vote = scores("consistency", by_setting["vote"][seed])
            recorder.scores([*greedy, *vote])
            recorder.rows("conversations", conversations(correct))
    return tmp_path


@pytest.fixture
def room(folder: Path) -> conl_room.OneRoom:
    return conl_room.read(folder, SEEDS, LABELS, "CoNL", "untrained")


def test_every_setting_is_over_the_questions_that_were_discussed(
    room: conl_room.OneRoom,
) -> None:
    assert room.questions() == len(FAMILIES) * QUESTIONS
    accuracy = conl_room.accuracies(room).set_index(["method", "setting"])["accuracy"]
    assert accuracy["untrained", "vote"] == approx(30)
    assert accuracy["SRT-M", "greedy"] == approx(35)
    assert accuracy["CoNL", CONVERSATION] == approx(85)


def test_a_difference_is_split_into_conversation_training_and_rest(
    room: conl_room.OneRoom,
) -> None:
    parts = conl_room.decomposition(room, RIVALS, {"SRT-M": 4.85})
    assert parts["part"].tolist() == [
        *(WHOLE, BY_CONVERSING, BY_TRAINING),
        *(WHOLE, BY_CONVERSING, BY_TRAINING, REST),
    ]
    over_untrained = [65, 40, 25]  # 85 - 20 = (60 - 20) + (85 - 60)
    over_rival = [35, 30, 15, -10]  # 85 - 50 = (60 - 30) + (85 - 70) + rest
    assert parts["delta"].tolist() == approx(over_untrained + over_rival)
    printed = parts["paper"].dropna()
    assert printed.tolist() == [4.85]
    assert parts.loc[printed.index, "over"].item() == "SRT-M"
    assert parts.loc[printed.index, "part"].item() == WHOLE


def test_a_policy_is_compared_with_itself_unit_by_unit(
    room: conl_room.OneRoom,
) -> None:
    conversing = room.gain_by_conversing("SRT-M", "vote")
    assert conversing.delta == approx(20), "each seed gains 20 points"
    talking = conl_room.Cell("SRT-M", CONVERSATION)
    accuracy = room.accuracy(talking)
    assert conversing.standard_error < accuracy.standard_error, "seeds differ"


def test_one_trained_seed_has_no_limits_and_the_untrained_model_has(
    folder: Path,
) -> None:
    runs = {"conl_base": [0], "srt_m": [0], "conl": [0]}
    room = conl_room.read(folder, runs, LABELS, "CoNL", "untrained")
    parts = conl_room.decomposition(room, RIVALS, {}).set_index(["over", "part"])
    assert np.isnan(parts.loc[("SRT-M", BY_TRAINING), "low"])
    gain = parts.loc[("SRT-M", BY_CONVERSING)]
    assert gain["low"] < 30 < gain["high"]
    limits = conl_room.accuracies(room)[["low", "high"]]
    assert limits.notna().all(axis=None), "over questions alone"


def test_every_method_is_compared_with_the_untrained_one_and_conl_with_every_method(
    room: conl_room.OneRoom,
) -> None:
    gains = conl_room.gains(room)
    is_same_setting = gains["setting"] == gains["over setting"]
    pairs = gains[is_same_setting].groupby("setting")[["method", "over"]]
    for _, compared in pairs:
        assert list(compared.itertuples(index=False, name=None)) == [
            ("SRT-M", "untrained"),
            ("CoNL", "untrained"),
            ("CoNL", "SRT-M"),
        ]


def test_the_table_has_a_row_for_each_policy_and_its_own_columns(
    room: conl_room.OneRoom,
) -> None:
    accuracy = conl_room.accuracies(room)
    table = conl_room.main_table(room, accuracy, conl_room.gains(room))
    untrained, rival, full = table.to_dict("records")
    assert rival["policy"] == "SRT-M"
    assert rival["seeds"] == 2
    assert rival["in the conversation"].startswith("70.0 [")
    assert rival["conversation minus vote"].startswith("+20.0 [")
    assert rival["CoNL over this, in the conversation"].startswith("+15.0 [")
    assert untrained["over untrained, in the conversation"] == ""
    assert full["CoNL over this, in the conversation"] == ""


def test_the_parts_are_said_in_words(room: conl_room.OneRoom) -> None:
    printed = {"untrained": 13.47, "SRT-M": 4.25}
    parts = conl_room.decomposition(room, RIVALS, printed)
    over_untrained, over_rival = conl_room.parts_in_words(parts, "CoNL")
    assert "minus untrained alone, asked once: +65.0 [" in over_untrained
    assert "the rest" not in over_untrained
    assert "minus SRT-M alone, vote of five: +35.0 [" in over_rival
    assert "(printed: +4.2)" in over_rival
    assert "the rest is -10.0 [" in over_rival


def test_the_printed_differences_are_those_of_the_claims() -> None:
    rows = {"SRT-M": "Self-Rewarding (Multi-Agent)", "CoNL": "CoNL (Ours)"}
    printed = conl_room.printed_differences("conl_table2", rows, "CoNL", "Qwen3-8B")
    assert printed == {"SRT-M": approx(4.85)}


def test_a_policy_that_was_not_asked_in_every_setting_is_refused(
    folder: Path,
) -> None:
    scores = folder / "srt_m-s1" / "scores.csv"
    frame = pd.read_csv(scores)
    frame[frame["strategy"] == "vanilla"].to_csv(scores, index=False)
    with pytest.raises(ValueError, match="'SRT-M', seed 1, .*'vote': 0"):
        conl_room.read(folder, SEEDS, LABELS, "CoNL", "untrained")


def test_the_figure_shows_every_policy_and_every_part(room: conl_room.OneRoom) -> None:
    accuracy = conl_room.accuracies(room)
    parts = conl_room.decomposition(room, RIVALS, {"SRT-M": 4.85})
    settings, differences = conl_room.draw(accuracy, parts, "CoNL").axes
    assert names_of_rows(settings) == list(LABELS.values())
    assert names_of_rows(differences) == [
        *("CoNL - untrained", BY_CONVERSING, BY_TRAINING),
        *("CoNL - SRT-M", BY_CONVERSING, BY_TRAINING, REST),
    ]
    widths = [bar.get_width() for bar in differences.patches]
    assert widths == approx(list(parts["delta"]))


def names_of_rows(ax: Axes) -> list[str]:
    return [label.get_text() for label in ax.get_yticklabels()]
