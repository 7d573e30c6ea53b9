"""The page about a user's own method holds: its files train, and its tables match the code."""

import inspect
import json
import re
import runpy
import shlex
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
from core.conftest import by_hand, earned

from coevolve.cli import main
from coevolve.methods.base import Method
from coevolve.methods.registry import get_method
from coevolve.runs import record
from coevolve.training.commit import commit
from coevolve.training.controls.forms import FORMS, has_form
from coevolve.types import Outcome, Reply, Sample, Turn
from coevolve.worlds import World

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "your-own-method.md").read_text(encoding="utf-8")
FILES = ("duel.py", "jury.py", "novel.py", "reading.py")
MAX_FILE_LINES = 50
SMALL_RUN = ["steps=2", "batch_size=8", "eval_items=2"]


def code_blocks(language: str) -> list[str]:
    """The page's code blocks in a language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The page's Python files by name, saved in the working directory."""
    monkeypatch.chdir(tmp_path)
    contents = dict(zip(FILES, code_blocks("python"), strict=True))
    for name, content in contents.items():
        Path(name).write_text(content, encoding="utf-8")
    return contents


def execute(line: str) -> None:
    """Run a command of the page, training only for a moment."""
    arguments = shlex.split(line.removeprefix("coevolve "))
    if arguments[0] == "train":
        arguments += SMALL_RUN  # the later of two values counts
    assert main(arguments) == 0, line


def table_of_runs(output: str) -> dict[str, list[str]]:
    """The method, seed and steps of each run in the output of `coevolve runs`."""
    _, _, *rows = output.splitlines()
    runs = {}
    for row in rows:
        folder, method, _, seed, steps, *_ = row.removeprefix("| ").split(" | ")
        runs[folder] = [method, seed, steps]
    return runs


def test_the_pages_files_are_short(files: dict[str, str]) -> None:
    for name, content in files.items():
        assert len(content.splitlines()) <= MAX_FILE_LINES, name


@pytest.mark.usefixtures("files")
def test_the_pages_commands_train_its_files_and_list_and_plot_their_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    (commands,) = code_blocks("sh")
    export_line, *train_lines, runs_line = commands.splitlines()
    assert export_line == "export OMP_NUM_THREADS=1"
    for line in train_lines:
        execute(line)
    capsys.readouterr()
    execute(runs_line)
    assert table_of_runs(capsys.readouterr().out) == {
        "duel": ["./duel.py:Duel", "0", "2"],
        "jury": ["./jury.py:Jury", "0", "2"],
        "mae20": ["mae", "0", "2"],
    }

    metrics = record.read("runs/duel")
    assert {"reward/solver", "reward/proposer", "majority_correct"} <= {
        *metrics.columns
    }
    assert metrics["step"].max() == 2

    monkeypatch.setenv("MPLBACKEND", "Agg")
    runpy.run_path("reading.py")
    assert Path("duel.png").is_file()


@pytest.mark.usefixtures("files")
def test_the_jury_ignores_unreadable_votes() -> None:
    def rewards(votes: list[str]) -> list[tuple[str, float]]:
        jury = get_method("./jury.py:Jury")()
        return earned(by_hand(jury, ["<answer>3</answer>"], votes).outcome)

    one_unreadable = ["<score>10</score>", "ten", "<score>1</score>"]  # 1, None and 0
    assert rewards(one_unreadable) == [
        ("juror", 1.0),
        ("juror", 0.0),
        ("juror", 1.0),
        ("solver", 0.5),
    ]
    all_unreadable = ["?", "?", "?"]
    assert rewards(all_unreadable) == [("juror", 0.0)] * 3


class TestMemory:
    """The method that remembers the questions of earlier steps."""

    TRAIN = "coevolve train {} --preset smoke --out runs/own save_every=1 eval_every=0"
    SMALL = " solves=1 attempts=1 schedule=constant warmup_steps=0"

    @pytest.fixture
    def novel(self, files: dict[str, str]) -> Method:
        return get_method("./novel.py:Novel")()

    @pytest.mark.usefixtures("files")
    def test_it_pays_for_questions_unlike_those_of_the_step_before(
        self, novel: Method
    ) -> None:
        judged = ["<score>10</score>", *["<answer>3</answer>"] * novel.attempts]

        def proposal_of(step: int) -> Sample:
            episode = by_hand(
                novel, ["<question>1+2</question>"], judged, key=(0, step)
            )
            while episode.outcome is None:
                episode.answer(["<score>10</score>"] * len(episode.pending_turns))
            commit([episode.outcome], novel.pools)
            return episode.outcome.samples[0]

        first = proposal_of(1)
        second = proposal_of(2)
        assert first.parts == {"mae": first.reward}
        assert second.parts == {
            **first.parts,
            "novelty": 0.0,
        }  # the same question again
        assert novel.pools["proposed"].items == [(1, "1+2"), (2, "1+2")]

        novel.pools["proposed"].reset([(1, "1+2"), (2, "#")])
        third = proposal_of(3)
        assert third.parts["novelty"] == 1.0
        assert third.reward == third.parts["mae"] + novel.novelty_weight

    @pytest.mark.usefixtures("files")
    def test_a_resumed_run_remembers(self, capsys: pytest.CaptureFixture) -> None:
        train = self.TRAIN.format("./novel.py:Novel") + self.SMALL
        proposed = {}
        for steps in (1, 2):
            arguments = shlex.split(f"{train} steps={steps} batch_size=8 eval_items=2")
            assert main(arguments[1:]) == 0
            pools = Path(f"runs/own/checkpoints/step-{steps:08d}/pools.json")
            proposed[steps] = json.loads(pools.read_bytes())["proposed"]
        assert {step for step, _ in proposed[1]} == {1}
        assert {step for step, _ in proposed[2]} == {1, 2}
        assert proposed[2][: len(proposed[1])] == proposed[1]
        assert record.read("runs/own")["part/proposer/novelty"].notna().iloc[-1]
        assert "has changed by step" not in capsys.readouterr().out

    def test_an_attribute_instead_of_a_pool_is_warned_of(
        self, files: dict[str, str], capsys: pytest.CaptureFixture
    ) -> None:
        forgetful = files["duel.py"] + (
            "\n    def after_step(self, step, keep):\n        self.last = step\n"
        )
        Path("forgetful.py").write_text(forgetful, encoding="utf-8")
        execute(self.TRAIN.format("./forgetful.py:Duel"))
        warning = (
            "warning: the attribute 'last' of Duel has changed by step 1, and a resumed"
        )
        assert capsys.readouterr().out.count(warning) == 1


@dataclass(frozen=True)
class Field:
    """A field of one of the three types that an author meets."""

    owner: str
    name: str
    type: str


def test_the_pages_table_lists_every_field_with_its_type() -> None:
    row = re.compile(r"^\| `(\w+)\.(\w+)` \| `(.+?)` \|", re.MULTILINE)
    documented = [Field(*cells) for cells in row.findall(PAGE.replace(r"\|", "|"))]
    expected = []
    for owner in (Turn, Reply, Outcome):
        for field in fields(owner):
            annotation = inspect.formatannotation(field.type)
            annotation = re.sub(r"(coevolve\.types|typing)\.", "", annotation)
            expected.append(Field(owner.__name__, field.name, annotation))
    assert documented == expected


def test_the_pages_world_has_the_methods_of_its_table() -> None:
    _, _, table = PAGE.partition("| method of `self.world` | returns |")
    table, _, _ = table.partition("\n\n")
    methods = re.findall(r"^\| `(\w+)\(", table, re.MULTILINE)
    assert len(methods) == 6
    assert all(callable(getattr(World, name, None)) for name in methods)


OTHER_CONTROLS = [
    pytest.param(name, marks=pytest.mark.thorough)
    for name in ("shuffled", "random", "format")
]


@pytest.mark.parametrize("method", ["./duel.py:Duel", "./jury.py:Jury"])
@pytest.mark.parametrize("control", ["oracle", *OTHER_CONTROLS])
def test_the_pages_methods_have_every_control(
    files: dict[str, str], method: str, control: str
) -> None:
    execute(f"coevolve train {method} --out runs/arm control={control}")
    metrics = record.read("runs/arm")
    assert metrics["reward/solver"].notna().any()


def test_a_users_prompt_can_be_given_a_form(monkeypatch: pytest.MonkeyPatch) -> None:
    method = get_method("mae")()
    turn = Turn("critic", (), source="duel/critic")
    assert has_form(Reply(turn, "good"), method)
    monkeypatch.setitem(FORMS, "duel/critic", ("score",))
    assert has_form(Reply(turn, "<score>3</score>"), method)
    assert not has_form(Reply(turn, "good"), method)
