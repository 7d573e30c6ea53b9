"""A leading ~ stands for the home folder wherever a user can give a path."""

import json
import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from coevolve.cli import main
from coevolve.methods.registry import get_method
from coevolve.models import names
from coevolve.models.loading import load_local
from coevolve.runs import record
from coevolve.text import prompts
from coevolve.training import config, preflight
from coevolve.validation import expand_home, user_path

METHOD_FILE = Path(__file__).with_name("own_method.py")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder, and beside it an empty folder to work in."""
    home = tmp_path / "with blank" / "höme"
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return home


@pytest.fixture(autouse=True)
def nothing_is_written_here(home: Path):
    """Check after each test that the working folder has no folder called ~."""
    yield
    assert list(Path.cwd().iterdir()) == []


class TestExpansion:
    @pytest.mark.parametrize("ending", ["", "/", "/a b", "/~", "/a~b", "/x#text"])
    def test_a_leading_tilde_is_the_home_folder(self, ending: str, home: Path) -> None:
        assert expand_home(f"~{ending}") == f"{home}{ending}"
        assert user_path(f"~{ending}") == Path(f"{home}{ending}")
        assert user_path(Path(f"~{ending}")) == Path(f"{home}{ending}")

    @pytest.mark.parametrize(
        "text",
        ["", "runs", "a/~", "a~", "tiny", "Org/Name-3B", "http://h/v1#~", "/~/x"],
    )
    def test_any_other_text_stays(self, text: str) -> None:
        assert expand_home(text) == text
        assert user_path(text) == Path(text)

    def test_an_unknown_user_s_name_stays(self) -> None:
        assert expand_home("~no such user/x") == "~no such user/x"

    @pytest.mark.parametrize("text", ["~/x", "./~/x", "~no such user/x", "runs/x"])
    def test_a_second_call_changes_nothing(self, text: str) -> None:
        once = user_path(text)
        assert user_path(once) == once

    def test_a_folder_that_is_called_tilde_can_be_named(self) -> None:
        assert user_path("./~/x") == Path.cwd() / "~" / "x"


@pytest.fixture
def prompt_folder(home: Path) -> Path:
    """A folder in the home folder with a prompt of MAE's Solver."""
    folder = home / "own"
    folder.mkdir()
    (folder / "solver.compact.txt").write_text("Answer {question}")
    return folder


class TestFields:
    """Fields of a run and of methods."""

    def describe(self, method: str = "mae", out: str = "x", **overrides) -> dict:
        run = config.build(method, "smoke", out=out, overrides=overrides)
        return config.flatten(run.describe())

    @pytest.mark.parametrize("out", ["~/run", Path("~/run")])
    def test_out(self, out: str | Path, home: Path) -> None:
        assert config.build("mae", "smoke", out=out).out == home / "run"

    def test_model(self, home: Path) -> None:
        assert self.describe(model="~/m")["model"] == f"{home}/m"

    def test_models_of_several_policies(self, home: Path) -> None:
        models = ["~/m", "tiny", "Org/Name"]
        described = self.describe("comas", agents=3, model=models)
        assert described["model"] == (f"{home}/m", "tiny", "Org/Name")

    def test_the_model_of_a_judge(self, home: Path) -> None:
        assert self.describe(judge_model="~/m")["judge_model"] == f"{home}/m"

    def test_prompt_folder(self, prompt_folder: Path) -> None:
        described = self.describe(prompt_folder="~/own")
        assert described["prompt_folder"] == str(prompt_folder)
        read = prompts.read("mae", "solver", "compact", "~/own")
        assert read == "Answer {question}"

    @pytest.mark.parametrize("form", [str, Path, lambda name: [name]])
    def test_corpus(self, form, home: Path) -> None:
        (home / "notes.txt").write_text("One document about sums.")
        overrides = {"corpus": form("~/notes.txt")}
        run = config.build("spice", "smoke", out="x", overrides=overrides)
        assert len(run.method.source) == 1

    def test_a_run_that_names_its_model_in_full_is_the_same_run(
        self, home: Path
    ) -> None:
        assert self.describe(model="~/m") == self.describe(model=f"{home}/m")


def write_model(folder: Path) -> Path:
    """Write a folder that passes for a model's until it is loaded."""
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


class TestPlaces:
    """Functions that take a folder or a file."""

    def test_a_method_s_file(self, home: Path) -> None:
        (home / "own.py").write_text(METHOD_FILE.read_text("utf-8"), "utf-8")
        assert get_method("~/own.py:Debate").__name__ == "Debate"

    def test_a_model_s_folder(self, home: Path) -> None:
        folder = write_model(home / "m")
        assert names.find("~/m") == folder
        preflight.check_model("~/m")

    def test_the_folder_of_an_adapter(self, home: Path) -> None:
        folder = write_model(home / "a")
        settings = {"base_model_name_or_path": "~/base"}
        (folder / "adapter_config.json").write_text(json.dumps(settings))
        base = write_model(home / "base")
        assert names.locate("~/a").base == base
        (base / "config.json").unlink()
        with pytest.raises(ValueError, match="got '~/base'$"):
            load_local("~/a")

    def test_the_folder_of_a_run(self, home: Path) -> None:
        (home / "metrics.jsonl").write_text('{"step": 3}\n')
        assert list(record.read("~")["step"]) == [3]

    @pytest.mark.parametrize("variable", ["COEVOLVE_CACHE", "XDG_CACHE_HOME"])
    def test_the_cache(self, variable, home, monkeypatch) -> None:
        from published import smollm2

        for name in ("COEVOLVE_CACHE", "XDG_CACHE_HOME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(variable, "~/c")
        assert home / "c" in [smollm2._cache(), smollm2._cache().parent]

    def test_the_mirror_of_data_sets(self, home, monkeypatch) -> None:
        from published import data

        (home / "mirror/gsm8k").mkdir(parents=True)
        monkeypatch.setenv("COEVOLVE_DATA", "~/mirror")
        folder = data._mirror_folder(data.BENCHMARKS["gsm8k"])
        assert folder == home / "mirror/gsm8k"


class TestCommands:
    """Command lines; a shell leaves the ~ of --out=~/x as it is."""

    @pytest.mark.parametrize("form", [["--out=~/run"], ["--out", "~/run"]])
    def test_train(self, form: list[str], home: Path, monkeypatch) -> None:
        loop = Mock(side_effect=ValueError("enough"))
        monkeypatch.setattr("coevolve.training.loop.train", loop)
        assert main(["train", "mae", *form, "model=~/m"]) == 2
        (run, _), _ = loop.call_args
        assert run.out == home / "run"
        assert run.model == f"{home}/m"

    @pytest.mark.parametrize(
        "command",
        [
            ["report", "~/gone"],
            ["report", "~/run", "--to=~/gone/page.html"],
            ["runs", "~/gone"],
            ["ask", "mae/solver", "question=1", "--model=~/gone"],
            ["export", "~/gone", "--to=~/merged"],
            ["export", "tiny", "--to=~/gone"],
            ["grade", "~/gone", "--judge=tiny"],
            ["train", "mae", "--out=~/new", "model=~/gone"],
            ["train", "mae", "--out=~/new", "judge_model=~/gone"],
            ["train", "mae", "--out=~/new", "prompt_folder=~/gone"],
            ["train", "spice", "--out=~/new", "corpus=~/gone"],
            ["train", "~/gone.py:Duel", "--out=~/new"],
            ["warm", "~/gone", "--out=~/new"],
        ],
        ids=" ".join,
    )
    def test_a_message_names_the_path_in_full(
        self, command: list[str], home: Path, capsys
    ) -> None:
        (home / "run").mkdir()
        (home / "run/config.json").write_text('{"method_fields": {}}')
        if command[1] == "tiny":  # a folder that holds files is refused
            (home / "gone").mkdir()
            (home / "gone/file").touch()
        assert main(command) == 2
        captured = capsys.readouterr()
        assert f"{home}{os.sep}gone" in captured.err
        assert not (home / "new").exists()
