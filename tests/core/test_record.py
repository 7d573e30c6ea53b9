"""The files of a run: strict JSON, equal bytes for equal runs, whole lines after a crash."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import Mock

import pytest

from coevolve.runs.record import (
    SCORE_FIELDS,
    Recorder,
    clean,
    keep_steps,
    means,
    read,
    remove_run,
    replies_of,
    write_atomically,
    write_json,
)
from coevolve.types import Outcome, Reply, Turn

# Line separators that are not line feeds, quotes, and half of a surrogate pair.
HOSTILE_TEXT = "a\u2028b\x85c\rd\ne\x0bf\x00\u2029 \U0001f600 é \"'\\ \ud800"


def outcome(text: str = "<answer>2</answer>", **facts: object) -> Outcome:
    """Return an episode with one sample, which has this text."""
    messages = (
        {"role": "user", "content": "system"},
        {"role": "user", "content": "solve 1+1"},
    )
    turn = Turn("solver", messages, "shared")
    reply = Reply(turn, text, prompt_ids=(1,), completion_ids=(5, 6, 7))
    return Outcome([reply.earns(0.5)], facts=facts)


def read_strict_json(text: str) -> dict:
    """Read JSON; fail the test for NaN and infinities, which JSON does not have."""
    return json.loads(text, parse_constant=pytest.fail)


def read_lines(path: Path) -> list[dict]:
    """Return the rows of a .jsonl file, all of which end with a line feed."""
    *lines, after_last_line_feed = path.read_bytes().decode().split("\n")
    assert after_last_line_feed == ""
    return [read_strict_json(line) for line in lines]


def file_names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


class TestJson:
    VALUE = {
        "a": math.nan,
        1: [math.inf, -math.inf, 1.5],
        "c": (1, {"d": None}),
        "e": Path("x/y"),
        "f": True,
        "g": {3},
    }
    CLEAN = {
        "a": None,
        "1": [None, None, 1.5],
        "c": [1, {"d": None}],
        "e": "x/y",
        "f": True,
        "g": [3],
    }

    def test_values_become_strict_json(self) -> None:
        assert clean(self.VALUE) == self.CLEAN

    def test_a_file_holds_strict_json_and_the_text_unchanged(
        self, tmp_path: Path
    ) -> None:
        path = tmp_path / "summary.json"
        write_json(path, self.VALUE | {"text": HOSTILE_TEXT})
        content = read_strict_json(path.read_text(encoding="utf-8"))
        assert content == self.CLEAN | {"text": HOSTILE_TEXT}


@pytest.mark.parametrize(
    ("content", "written"),
    [
        ("new \ud800\r\n", b"new \\ud800\r\n"),
        (b"\xff\x00new", b"\xff\x00new"),
    ],
    ids=["text", "bytes"],
)
def test_a_file_is_the_old_one_or_the_new_one(
    content: str | bytes, written: bytes, tmp_path: Path, monkeypatch
) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    power_cut = Mock(side_effect=SystemError("before the rename"))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", power_cut)
        with pytest.raises(SystemError, match="before the rename"):
            write_atomically(path, content)
    assert path.read_text() == "old"
    write_atomically(path, content)
    assert path.read_bytes() == written
    assert file_names(tmp_path) == ["file"], "a crash's leftover is used again"


def rows_of(*steps: int) -> bytes:
    """Return the lines of some steps, with a letter of two bytes in each."""
    lines = b""
    for step in steps:
        row = {"step": step, "text": f"é\u2028{step}"}
        lines += json.dumps(row, ensure_ascii=False).encode() + b"\n"
    return lines


@dataclass(frozen=True)
class KeptSteps:
    """The content of a file, the last step to keep, and the content that is left."""

    content: bytes
    last_step: int
    kept: bytes


SECOND_ROW = rows_of(2)
HALF_OF_A_LETTER = SECOND_ROW[: SECOND_ROW.index(b"\xc3") + 1]
KEPT_STEPS = {
    "several a step": KeptSteps(rows_of(1, 1, 2, 2, 3), 2, rows_of(1, 1, 2, 2)),
    "nothing later": KeptSteps(rows_of(0, 1), 5, rows_of(0, 1)),
    "all later": KeptSteps(rows_of(3, 4), 2, b""),
    "cut": KeptSteps(rows_of(1) + b'{"step": 2, "te', 2, rows_of(1)),
    "none": KeptSteps(rows_of(0, 1), -1, b""),
    "in a letter": KeptSteps(rows_of(1) + HALF_OF_A_LETTER, 9, rows_of(1)),
}


class TestKeepSteps:
    @pytest.mark.parametrize("case", KEPT_STEPS.values(), ids=KEPT_STEPS)
    def test_steps_to_be_played_again_are_dropped(
        self, tmp_path: Path, case: KeptSteps
    ) -> None:
        path = tmp_path / "metrics.jsonl"
        path.write_bytes(case.content)
        keep_steps(path, case.last_step)
        assert path.read_bytes() == case.kept
        assert file_names(tmp_path) == ["metrics.jsonl"]

    def test_a_missing_file_stays_missing(self, tmp_path: Path) -> None:
        keep_steps(tmp_path / "episodes.jsonl", 2)
        assert file_names(tmp_path) == []


def write_steps(recorder: Recorder, *steps: int, seconds: float = 1.0) -> None:
    """Record some steps, each with three episodes of which two are kept."""
    for step in steps:
        metrics = {"reward": step / 3, "loss": math.nan}
        recorder.step(step, metrics, {"play": seconds * step})
        first = outcome(HOSTILE_TEXT, step=step)
        episodes = [first, outcome("second"), outcome("third")]
        recorder.episodes(step, episodes, 2)


class TestInterruptedRun:
    FILES = ("metrics.jsonl", "episodes.jsonl")

    @pytest.fixture
    def interrupted(self, tmp_path: Path) -> Path:
        """The folder of a run whose files were cut in the last line."""
        folder = tmp_path / "interrupted"
        write_steps(Recorder(folder), 0, 1, 2, 3)
        for name in self.FILES:
            path = folder / name
            path.write_bytes(path.read_bytes()[:-9])
        return folder

    def test_the_resumed_run_writes_the_bytes_of_an_uninterrupted_one(
        self, interrupted: Path, tmp_path: Path
    ) -> None:
        whole = tmp_path / "whole"
        write_steps(Recorder(whole), 0, 1, 2, 3, 4)
        write_steps(Recorder(interrupted, done=2), 3, 4, seconds=2.0)
        for name in self.FILES:
            assert (interrupted / name).read_bytes() == (whole / name).read_bytes()
        assert len(read_lines(interrupted / "timings.jsonl")) == 5

    def test_without_a_checkpoint_the_record_starts_empty(
        self, interrupted: Path
    ) -> None:
        write_steps(Recorder(interrupted), 0)
        assert len(read_lines(interrupted / "metrics.jsonl")) == 1
        assert len(read_lines(interrupted / "episodes.jsonl")) == 2


class TestRemoving:
    """What a fresh start removes from the folder of a run."""

    MINE = ("questions.jsonl", "notes.md")

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """A folder with files of a user's, and some that are called like those of a run."""
        for name in (*self.MINE, "metrics.jsonl", "tracker.json"):
            (tmp_path / name).write_text("{}")
        for name in ("policy", "checkpoints"):
            (tmp_path / name).mkdir()
        return tmp_path

    def test_a_folder_that_is_no_run_keeps_everything(self, folder: Path) -> None:
        before = sorted(file_names(folder))
        remove_run(folder)
        assert sorted(file_names(folder)) == before

    def test_a_run_s_folder_keeps_what_the_run_did_not_write(
        self, folder: Path
    ) -> None:
        write_json(folder / "config.json", {"method_fields": {}})
        recorder = Recorder(folder)
        write_steps(recorder, 1)
        recorder.scores([])
        recorder.rows("conversations", [{"n": 1}])
        remove_run(folder)
        assert sorted(file_names(folder)) == sorted(self.MINE)


class TestLines:
    @pytest.fixture
    def recorder(self, tmp_path: Path) -> Recorder:
        """A recorder that has written one step."""
        recorder = Recorder(tmp_path / "deep" / "run")
        write_steps(recorder, 1)
        return recorder

    def test_metrics_and_timings_are_a_line_per_step(self, recorder: Recorder) -> None:
        metrics = read_lines(recorder.out / "metrics.jsonl")
        assert metrics == [{"step": 1, "reward": 1 / 3, "loss": None}]
        timings = read_lines(recorder.out / "timings.jsonl")
        assert timings == [{"step": 1, "play": 1.0}]

    def test_episodes_are_a_line_each(self, recorder: Recorder) -> None:
        first, second = read_lines(recorder.out / "episodes.jsonl")
        sample = {
            "role": "solver",
            "policy": "shared",
            "prompt": "solve 1+1",
            "text": HOSTILE_TEXT,
            "tokens": 3,
            "before": [{"role": "user", "content": "system"}],
            "reward": 0.5,
            "turn": None,
        }
        assert first == {
            "step": 1,
            "episode": 0,
            "facts": {"step": 1},
            "samples": [sample],
            "unpaid": [],
        }
        assert second["episode"] == 1
        assert second["samples"][0]["text"] == "second"

    def test_a_transcript_has_unpaid_replies_and_whole_dialogues(
        self, recorder: Recorder
    ) -> None:
        asked = {"role": "user", "content": "1+1?"}
        doubt = {"role": "user", "content": "sure?"}
        said = {"role": "assistant", "content": "3"}
        unpaid = Reply(Turn("solver", (asked,)), "3")
        paid = Reply(Turn("solver", (asked, said, doubt)), "2")
        outcome = Outcome([paid.earns(1.0)], replies=(unpaid, paid))
        recorder.episodes(1, [outcome], keep=1)
        *_, row = read_lines(recorder.out / "episodes.jsonl")
        assert [one["text"] for one in row["unpaid"]] == ["3"]
        replies, samples = replies_of(row)
        assert [reply.text for reply in replies] == ["3", "2"]
        assert replies[1].turn.messages == (asked, said, doubt)
        (sample,) = samples
        assert sample.reply is replies[1]
        assert sample.reward == 1.0

    def test_a_transcript_of_an_earlier_release_has_its_samples(self) -> None:
        row = {"role": "solver", "policy": "shared", "prompt": "p", "text": "t"}
        episode = {"samples": [{**row, "tokens": 2, "reward": 0.5}]}
        ((reply,), (sample,)) = replies_of(episode)
        assert sample.reply is reply
        assert len(reply.completion_ids) == 2

    def test_rows_of_a_method_replace_earlier_ones(self, recorder: Recorder) -> None:
        recorder.rows("talks", [{"text": HOSTILE_TEXT}, {"loss": math.inf}])
        recorder.rows("talks", [{"texts": [HOSTILE_TEXT], "n": 2}])
        rows = read_lines(recorder.out / "talks.jsonl")
        assert rows == [{"texts": [HOSTILE_TEXT], "n": 2}]
        assert list(read(recorder.out, "talks")["n"]) == [2]


class TestMeans:
    def test_known_numbers_are_averaged_by_name(self) -> None:
        numbers = [
            ("a", 1),
            ("b", None),
            ("correct", True),
            ("a", 0.5),
            ("b", 3.0),
            ("correct", False),
            ("c", None),
        ]
        assert means(numbers) == {"a": 0.75, "b": 3.0, "correct": 0.5}

    def test_no_numbers_have_no_means(self) -> None:
        assert means([]) == {}


class TestRead:
    """A run of two steps, read back as DataFrames."""

    STEPS = [
        {
            "reward": 0.1 + 0.2,
            "share": 1 / 3,
            "loss": math.inf,
            "date": "2026",
            "updated": 5,
        },
        {
            "reward": 1.0,
            "share": 2 / 3,
            "loss": 0.5,
            "date": "2027",
            "updated": 6,
        },
    ]

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        recorder = Recorder(tmp_path)
        recorder.step(1, self.STEPS[0], {"play": 0.25})
        recorder.step(2, self.STEPS[1], {"play": 0.5})
        recorder.episodes(1, [outcome("two\u2028lines", proposal="1+1")], 1)
        return tmp_path

    def test_metrics_keep_their_exact_values_and_types(self, folder: Path) -> None:
        metrics = read(str(folder)).to_dict("list")
        losses = metrics.pop("loss")
        assert math.isnan(losses[0]), "a number that is not finite is missing"
        assert metrics == {
            "step": [1, 2],
            "reward": [0.1 + 0.2, 1.0],
            "share": [1 / 3, 2 / 3],
            "date": ["2026", "2027"],
            "updated": [5, 6],
        }

    def test_timings_are_read_by_name(self, folder: Path) -> None:
        assert list(read(folder, "timings")["play"]) == [0.25, 0.5]

    def test_episodes_keep_texts_and_facts(self, folder: Path) -> None:
        (episode,) = read(folder, "episodes").to_dict("records")
        assert episode["samples"][0]["text"] == "two\u2028lines"
        assert episode["facts"] == {"proposal": "1+1"}

    @pytest.mark.parametrize("name", ["metrics", "scores", "episodes"])
    def test_a_missing_file_is_named(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(
            ValueError, match=f"no {name}.* in .*: has the run finished"
        ):
            read(tmp_path, name)


class TestScores:
    ANSWERS = ["007", "no", None, "NA", "1,5", 'a"b', "two\nlines", "a\rb"]

    @pytest.fixture
    def rows(self) -> list[dict]:
        """One row per answer."""
        rows = []
        for item, answer in enumerate(self.ANSWERS):
            row = dict.fromkeys(SCORE_FIELDS, 1)
            rows.append(row | {"item": item, "question": "1+1", "answer": answer})
        return rows

    @pytest.fixture
    def recorder(self, tmp_path: Path, rows: list[dict]) -> Recorder:
        """A recorder that has written the scores."""
        recorder = Recorder(tmp_path)
        recorder.scores(rows)
        return recorder

    def test_answers_stay_text(self, recorder: Recorder) -> None:
        scores = read(recorder.out, "scores")
        assert list(scores.columns) == list(SCORE_FIELDS)
        assert list(scores["answer"]) == [answer or "" for answer in self.ANSWERS]
        assert list(scores["item"]) == list(range(8))

    def test_equal_scores_are_equal_bytes(
        self, recorder: Recorder, rows: list[dict]
    ) -> None:
        path = recorder.out / "scores.csv"
        first = path.read_bytes()
        recorder.scores(rows)
        assert path.read_bytes() == first
        assert b"\r\n" not in first

    def test_an_unknown_field_is_refused_and_the_file_stays(
        self, recorder: Recorder, rows: list[dict]
    ) -> None:
        path = recorder.out / "scores.csv"
        first = path.read_bytes()
        with pytest.raises(ValueError, match="surplus"):
            recorder.scores([rows[0] | {"surplus": 1}])
        assert path.read_bytes() == first
