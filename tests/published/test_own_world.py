"""A user's own questions as a world: splits, names, whole runs of every method."""

import json
from pathlib import Path

import pandas
import pytest
from own_questions import COLOURS, sums, write_jsonl

from coevolve import worlds
from coevolve.cli import main
from coevolve.runs import record
from coevolve.training import config
from published.own import OwnWorld, named
from published.own_rows import read_items


class TestSplits:
    """Splits of the file, or by the hash of the question."""

    def test_a_split_does_not_depend_on_the_other_questions(self, file: Path) -> None:
        write_jsonl(file, sums(200))
        splits = {item.question: item.split for item in read_items(file)}
        write_jsonl(file, sums(200)[::-3])
        for item in read_items(file):
            assert item.split == splits[item.question]
        counts = pandas.Series(splits).value_counts()
        assert 20 <= counts["test"] <= 60
        assert 8 <= counts["validation"] <= 35

    def test_a_column_decides(self, file: Path) -> None:
        rows = sums(9)
        for number, row in enumerate(rows):
            splits = ("train", "Validation", " test ")
            row["split"] = splits[number % 3]
        write_jsonl(file, rows)
        world = named(f"file:{file}")
        assert world.seed_questions() == ["0+5", "3+5", "6+5"]
        questions = [item.question for item in world.items("validation")]
        assert questions == ["1+5", "4+5", "7+5"]
        assert world.held_out("2+5")
        assert not world.held_out("3+5")

    @pytest.mark.parametrize(("split", "empty"), [("train", "test"), ("test", "train")])
    def test_an_empty_split_is_named(self, split: str, empty: str, file: Path) -> None:
        rows = [{**row, "split": split} for row in sums(3)]
        write_jsonl(file, rows)
        with pytest.raises(ValueError, match=f"has no question in split {empty}; "):
            named(f"file:{file}").check()

    def test_a_method_without_seed_questions_needs_no_training(
        self, file: Path
    ) -> None:
        rows = [{**row, "split": "test"} for row in sums(3)]
        write_jsonl(file, rows)
        named(f"file:{file}", seeds=False).check()


def test_topics_are_families_and_levels_are_kept(file: Path) -> None:
    rows = sums()
    for n, row in enumerate(rows):
        row["topic"] = f"t{n % 2}"
        row["level"] = 3.0
    write_jsonl(file, rows)
    world = named(f"file:{file}")
    assert set(world.lists.tests) == {"t0", "t1"}
    assert {item.level for item in world.items("test")} == {3}


def test_columns_without_effect_are_named(
    file: Path, capsys: pytest.CaptureFixture
) -> None:
    write_jsonl(file, [{**row, "choises": "x"} for row in sums()])
    read_items(file)
    assert capsys.readouterr().err.endswith("; columns without effect: choises\n")


class TestName:
    """The world's name: where the file is, and what is in it."""

    @pytest.fixture
    def world(self, file: Path) -> OwnWorld:
        write_jsonl(file, sums())
        return named(f"file:{file}")

    def test_relative_paths_and_tildes_name_the_same_world(
        self, world: OwnWorld, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(file.parent)
        monkeypatch.setenv("HOME", str(file.parent))
        paths = ("own.jsonl", "./own.jsonl", "~/own.jsonl")
        for path in paths:
            assert named(f"file:{path}").name == world.name
        assert named(world.name).name == world.name

    def test_another_content_is_refused(self, world: OwnWorld, file: Path) -> None:
        write_jsonl(file, sums(31))
        with pytest.raises(ValueError, match="has changed: its hash is .*, and was "):
            named(world.name)
        with pytest.raises(ValueError, match="has changed since it was named"):
            world.check()

    @pytest.mark.parametrize(
        ("path", "message"),
        [
            ("nowhere.jsonl", "^world: there is no file /.*nowhere.jsonl$"),
            ("own.txt", "^PATH of world=file:PATH must end with one of .jsonl, .json"),
            ("", "^PATH of world=file:PATH must end with one of"),
        ],
    )
    def test_other_paths_are_refused(self, path: str, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            named(f"file:{path}")

    def test_the_core_knows_it_by_name(self, world: OwnWorld) -> None:
        assert worlds.resolve(world.name).name == world.name
        assert "file:PATH" in worlds.NAMES


class TestRuns:
    """Whole runs with the embedded backbone."""

    OPTIONS = ("--preset", "smoke", "world=file:own.jsonl", "eval_items=3")

    @pytest.fixture(autouse=True)
    def here(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        rows = sums(24)
        for n in range(3):
            name = {"question": f"Who is {n}?", "answer": "Ann"}
            choice = {"question": f"Which is {n}?", "answer": "A", "choices": COLOURS}
            rows += [name, choice]
        write_jsonl(file, rows)
        monkeypatch.chdir(file.parent)

    @pytest.mark.parametrize("method", ["mae", "sage", "comas", "conl", "spice", "sft"])
    def test_every_method_runs(self, method: str, file: Path) -> None:
        size = "epochs=1" if method == "sft" else "steps=1"
        assert main(["train", method, *self.OPTIONS, "--out", "run", size]) == 0
        settings = json.loads(Path("run/config.json").read_text())
        world = named(f"file:{file}")
        assert settings["method_fields"]["world"] == world.name
        questions = {item.question for item in world.items("test")}
        assert set(record.read(Path("run"), "scores")["question"]) <= questions

    def test_a_changed_file_is_another_run(
        self, file: Path, capsys: pytest.CaptureFixture
    ) -> None:
        command = ["train", "base", *self.OPTIONS, "--out", "run"]
        assert main(command) == 0
        assert main(command) == 0
        write_jsonl(file, sums(40))
        assert main(command) == 2
        assert "holds a run with other settings: world " in capsys.readouterr().err

    def test_the_line_comes_before_any_model(
        self, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
    ) -> None:
        monkeypatch.setattr("coevolve.training.trainer.PolicySet", None)
        write_jsonl(file, [{"question": "q", "answer": None}])
        assert main(["train", "mae", *self.OPTIONS, "--out", "run"]) == 2
        (line,) = capsys.readouterr().err.splitlines()[-1:]
        assert line.startswith("coevolve: own.jsonl: 0 of 1 rows of ")
        assert not Path("run").exists()


def test_a_notebook_builds_the_same_world(file: Path) -> None:
    write_jsonl(file, sums())
    overrides = {"world": f"file:{file}"}
    run = config.build("mae", "smoke", out="run", overrides=overrides)
    assert len(run.method.world.seed_rows()) > 10
