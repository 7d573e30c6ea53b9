"""What a run leaves on disk: strict JSON, the same bytes for the same run, whole lines after an interruption."""

import json
import math
from pathlib import Path
from unittest.mock import Mock, call

import pytest
from accelerate.tracking import LOGGER_TYPE_TO_CLASS

from coevolve.runs.record import (
    SCORE_FIELDS,
    Recorder,
    clean,
    keep_steps,
    means,
    read,
    write_atomically,
    write_json,
)
from coevolve.runs.trackers import tracker
from coevolve.types import Outcome, Reply, Turn

HARD = "a\u2028b\x85c\rd\ne\x0bf\x00\u2029 \U0001f600 é \"'\\ \ud800"


def outcome(text: str = "<answer>2</answer>", **facts: object) -> Outcome:
    turn = Turn(
        "solver",
        (
            {"role": "user", "content": "system"},
            {"role": "user", "content": "solve 1+1"},
        ),
        "shared",
    )
    return Outcome([Reply(turn, text, (1,), (5, 6, 7)).earns(0.5)], facts=facts)


def strict(line: str) -> dict:
    return json.loads(line, parse_constant=pytest.fail)


def lines(path: Path) -> list[dict]:
    return [strict(line) for line in path.read_bytes().decode().split("\n")[:-1]]


def test_values_become_strict_json(tmp_path: Path) -> None:
    value = {
        "a": math.nan,
        1: [math.inf, -math.inf, 1.5],
        "c": (1, {"d": None}),
        "e": Path("x/y"),
        "f": True,
        "g": {3},
    }
    expected = {
        "a": None,
        "1": [None, None, 1.5],
        "c": [1, {"d": None}],
        "e": "x/y",
        "f": True,
        "g": [3],
    }
    assert clean(value) == expected
    write_json(tmp_path / "summary.json", value | {"text": HARD})
    assert strict(
        (tmp_path / "summary.json").read_text(encoding="utf-8")
    ) == expected | {"text": HARD}


@pytest.mark.parametrize("content", ["new \ud800\r\n", b"\xff\x00new"])
def test_a_file_is_the_old_one_or_the_new_one(
    content: str | bytes, tmp_path: Path, monkeypatch
) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with monkeypatch.context() as full:
        full.setattr(
            Path, "replace", lambda *_: 1 / 0
        )  # the power goes before the rename
        with pytest.raises(ZeroDivisionError):
            write_atomically(path, content)
    assert path.read_text() == "old"
    write_atomically(path, content)
    assert path.read_bytes() == (
        content if isinstance(content, bytes) else b"new \\ud800\r\n"
    )
    assert [p.name for p in tmp_path.iterdir()] == ["file"], (
        "what a crash left aside is used again"
    )


def rows(*steps: int) -> bytes:
    texts = (
        json.dumps({"step": step, "text": f"é\u2028{step}"}, ensure_ascii=False)
        for step in steps
    )
    return "".join(f"{text}\n" for text in texts).encode()


KEPT = {  # what a file holds, the last step that counts, what is left
    "several a step": (rows(1, 1, 2, 2, 3), 2, rows(1, 1, 2, 2)),
    "nothing later": (rows(0, 1), 5, rows(0, 1)),
    "all later": (rows(3, 4), 2, b""),
    "cut": (rows(1) + b'{"step": 2, "te', 2, rows(1)),
    "none": (rows(0, 1), -1, b""),
    "in a letter": (rows(1) + rows(2)[: rows(2).index(b"\xc3") + 1], 9, rows(1)),
}


@pytest.mark.parametrize(("held", "steps", "kept"), KEPT.values(), ids=KEPT)
def test_steps_to_be_played_again_are_dropped(
    tmp_path: Path, held: bytes, steps: int, kept: bytes
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(held)
    keep_steps(path, steps)
    keep_steps(tmp_path / "episodes.jsonl", steps)
    assert path.read_bytes() == kept and [p.name for p in tmp_path.iterdir()] == [
        "metrics.jsonl"
    ]


def write(recorder: Recorder, *steps: int, seconds: float = 1.0) -> None:
    for step in steps:
        recorder.step(
            step, {"reward": step / 3, "loss": math.nan}, {"play": seconds * step}
        )
        recorder.episodes(
            step, [outcome(HARD, step=step), outcome("second"), outcome("third")], 2
        )


def content(folder: Path) -> list[bytes]:
    return [(folder / f"{name}.jsonl").read_bytes() for name in ("metrics", "episodes")]


def test_a_run_interrupted_anywhere_writes_the_bytes_of_one_that_was_not(
    tmp_path: Path,
) -> None:
    write(Recorder(tmp_path / "whole"), 0, 1, 2, 3, 4)
    write(Recorder(tmp_path / "cut"), 0, 1, 2, 3)
    for name in ("metrics", "episodes"):
        path = tmp_path / "cut" / f"{name}.jsonl"
        path.write_bytes(path.read_bytes()[:-9])
    write(Recorder(tmp_path / "cut", done=2), 3, 4, seconds=2.0)
    assert content(tmp_path / "cut") == content(tmp_path / "whole")
    assert len(lines(tmp_path / "cut" / "timings.jsonl")) == 5
    write(
        Recorder(tmp_path / "cut"), 0
    )  # without a checkpoint a run starts from an empty record
    assert [
        len(lines(tmp_path / "cut" / f"{name}.jsonl"))
        for name in ("metrics", "episodes")
    ] == [1, 2]


def test_lines_of_a_run(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "deep" / "run")
    write(recorder, 1)
    assert lines(recorder.out / "metrics.jsonl") == [
        {"step": 1, "reward": 1 / 3, "loss": None}
    ]
    assert lines(recorder.out / "timings.jsonl") == [{"step": 1, "play": 1.0}]
    first, second = lines(recorder.out / "episodes.jsonl")
    said = {
        "role": "solver",
        "policy": "shared",
        "prompt": "solve 1+1",
        "text": HARD,
        "tokens": 3,
        "reward": 0.5,
    }
    assert first == {"step": 1, "episode": 0, "facts": {"step": 1}, "samples": [said]}
    assert (second["episode"], second["samples"][0]["text"]) == (1, "second")
    for rows in (
        [{"text": HARD}, {"loss": math.inf}],
        [{"said": [HARD], "n": 2}],
    ):  # a method's own, written anew
        recorder.rows("talks", rows)
    assert lines(recorder.out / "talks.jsonl") == [{"said": [HARD], "n": 2}]
    assert list(read(recorder.out, "talks")["n"]) == [2]


def test_known_numbers_are_averaged_by_name() -> None:
    numbers = [
        ("a", 1),
        ("b", None),
        ("right", True),
        ("a", 0.5),
        ("b", 3.0),
        ("right", False),
        ("c", None),
    ]
    assert means(numbers) == {"a": 0.75, "b": 3.0, "right": 0.5} and means([]) == {}


def test_reading_a_run_back(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    first = {
        "reward": 0.1 + 0.2,
        "share": 1 / 3,
        "loss": math.inf,
        "date": "2026",
        "updated": 5,
    }
    recorder.step(1, first, {"play": 0.25})
    recorder.step(
        2,
        {"reward": 1.0, "share": 2 / 3, "loss": 0.5, "date": "2027", "updated": 6},
        {"play": 0.5},
    )
    recorder.episodes(1, [outcome("two\u2028lines", proposal="1+1")], 1)
    metrics = read(str(tmp_path)).to_dict("list")
    assert math.isnan(metrics.pop("loss")[0]), "what is no finite number is missing"
    exact = {
        "reward": [0.1 + 0.2, 1.0],
        "share": [1 / 3, 2 / 3],
        "date": ["2026", "2027"],
        "updated": [5, 6],
    }
    assert metrics == {"step": [1, 2], **exact} and list(
        read(tmp_path, "timings")["play"]
    ) == [0.25, 0.5]
    (episode,) = read(tmp_path, "episodes").to_dict("records")
    assert episode["samples"][0]["text"] == "two\u2028lines" and episode["facts"] == {
        "proposal": "1+1"
    }


@pytest.mark.parametrize("name", ["metrics", "scores", "episodes"])
def test_reading_what_is_not_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=f"no {name}.* in .*: has the run finished"):
        read(tmp_path, name)


def test_scores_keep_answers_as_text(tmp_path: Path) -> None:
    answers = ["007", "no", None, "NA", "1,5", 'a"b', "two\nlines", "a\rb"]
    rows = [
        dict.fromkeys(SCORE_FIELDS, 1) | {"item": i, "question": "1+1", "answer": a}
        for i, a in enumerate(answers)
    ]
    recorder = Recorder(tmp_path)
    recorder.scores(rows)
    first = (tmp_path / "scores.csv").read_bytes()
    scores = read(tmp_path, "scores")
    assert list(scores.columns) == list(SCORE_FIELDS)
    assert list(scores["answer"]) == [answer or "" for answer in answers] and list(
        scores["item"]
    ) == list(range(8))
    recorder.scores(rows)
    assert (tmp_path / "scores.csv").read_bytes() == first and b"\r\n" not in first
    with pytest.raises(ValueError, match="surplus"):
        recorder.scores([rows[0] | {"surplus": 1}])
    assert (tmp_path / "scores.csv").read_bytes() == first


def test_a_tracker_gets_the_numbers_of_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {"tensorboard", "trackio", "wandb"} <= {*LOGGER_TYPE_TO_CLASS}
    sink_class = Mock()
    for kind in ("wandb", "tensorboard"):
        monkeypatch.setitem(LOGGER_TYPE_TO_CLASS, kind, sink_class)
    for kind in ("wandb", "tensorboard", ""):
        with (
            pytest.raises(KeyError),
            tracker(kind, tmp_path, "own-s0", {"seed": 0}) as sink,
        ):
            sink.log({"reward": 0.5}, 3)
            raise KeyError("the sink is closed")
    calls = [call().start(), call().log({"reward": 0.5}, 3), call().finish()]
    first, second = (
        call("coevolve", name="own-s0", config={"seed": 0}),
        call("coevolve", logging_dir=tmp_path / "tensorboard"),
    )
    assert sink_class.mock_calls == [first, *calls, second, *calls]
