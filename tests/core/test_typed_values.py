"""Values as people type them on a command line: numbers, names of folders, lists, commands."""

import shlex
from pathlib import Path

import pytest
from data_files import OWN
from hypothesis import given
from hypothesis import strategies as st
from small_runs import train_small, train_small_by_command

from coevolve.cli import last_lines, main
from coevolve.methods.registry import METHODS, get_method
from coevolve.training import config
from coevolve.training.config import parse_overrides, parse_text, parse_value

NUMBERS = {
    ".0003": 0.0003,
    "-.5": -0.5,
    "+.5": 0.5,
    "5.": 5.0,
    "+3": 3,
    "-3": -3,
    "007": 7,
    "1_000": 1000,
    "1_000.5": 1000.5,
    "1e-4": 1e-4,
    "1E-4": 1e-4,
    "+1e3": 1e3,
    ".5e-3": 5e-4,
    "5.e3": 5e3,
    "0": 0,
    "-0.0": -0.0,
}
NO_NUMBERS = [
    "fast",
    "1,5",
    "1 000",
    "1__000",
    "_1",
    "1_",
    "1e",
    "e5",
    ".",
    "+",
    "--3",
    "+-3",
    "0x10",
    "1/2",
    "3e-4f",
    "١٢",
    "½",
    "1e5.5",
    "inf",
    "nan",
]


@pytest.mark.parametrize(("text", "number"), NUMBERS.items())
def test_a_number_is_read_as_python_reads_it(text: str, number: float) -> None:
    value = parse_value(text)
    assert (value, type(value)) == (number, type(number))


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_what_is_no_number_stays_text_and_is_refused(text: str) -> None:
    assert parse_value(text) == text
    overrides = parse_overrides([f"learning_rate={text}"])
    with pytest.raises(ValueError) as error:
        config.build("mae", "smoke", out="x", overrides=overrides)
    line = f"learning_rate must be a valid number, got {text!r}"
    assert str(error.value) == line


@given(st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False)))
def test_whatever_python_prints_of_a_number_is_read(number: float) -> None:
    for text in (repr(number), f"{number:_}", f"{number:+}"):
        assert parse_value(text) == number


@given(st.text(max_size=20))
def test_any_text_is_read_without_an_error(text: str) -> None:
    parse_value(text)
    parse_text(text)


LISTS = {
    "[.5, 1]": [0.5, 1],
    "[8,16,.05]": [8, 16, 0.05],
    "[]": [],
    "['a', \"b\"]": ["a", "b"],
    "[1_000]": [1000],
    '["a"]': ["a"],
    "[a, b]": "[a, b]",
    "[1": "[1",
    "[f()]": "[f()]",
    "True": True,
    "False": False,
    "None": None,
    "true": True,
    "null": None,
}


@pytest.mark.parametrize(("text", "value"), LISTS.items())
def test_a_list_or_a_constant_may_be_written_as_in_python(text, value) -> None:
    assert parse_value(text) == value


TEXTS = {
    "2024": "2024",
    "007": "007",
    "1e5": "1e5",
    ".5": ".5",
    "true": "true",
    "NaN": "NaN",
    "tiny": "tiny",
    '"tiny"': "tiny",
    '["a", "2024"]': ["a", "2024"],
    "[2024, 1.50]": ["2024", "1.50"],
    "[a]": "[a]",
    "null": None,
    "": "",
}


@pytest.mark.parametrize(("text", "value"), TEXTS.items())
def test_a_field_of_text_keeps_numbers_as_they_were_typed(text, value) -> None:
    assert parse_overrides([f"model={text}"], {"model"}) == {"model": value}


class TestFieldsOfText:
    """Which fields take names and no numbers."""

    @pytest.mark.parametrize("method", [*METHODS, OWN])
    def test_of_a_run(self, method: str) -> None:
        names = config.text_fields(get_method(method))
        assert {"model", "track", "prompt", "prompt_folder", "engine"} <= names
        assert not names & {"steps", "learning_rate", "lora", "clip", "seed"}

    @pytest.mark.parametrize(
        ("method", "text", "numbers"),
        [
            ("mae", {"judge_model", "setting", "train"}, {"solves", "quality_filter"}),
            ("spice", {"corpus", "verifier"}, {"documents", "bytes_per_token"}),
            (OWN, {"manner", "tones"}, {"rounds", "span"}),
        ],
    )
    def test_of_a_method(self, method: str, text: set, numbers: set) -> None:
        names = config.text_fields(get_method(method))
        assert text <= names
        assert not names & numbers

    def test_a_folder_may_have_a_number_for_a_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
    ) -> None:
        monkeypatch.chdir(tmp_path)
        for command in (
            ["train", "mae", "--out", "run", "model=2024"],
            ["ask", "mae/solver", "question=1", "--model", "2024"],
        ):
            assert main(command) == 2
            assert "got '2024'" in capsys.readouterr().err


class TestMessages:
    @pytest.mark.parametrize(
        ("command", "message"),
        [
            ("train mae --out x steps = 10", "got 'steps'; write it without blanks"),
            ("train mae --out x =3", "expected field=value, got '=3'"),
            ("train own.py --out x", "name a class of the file, as in own.py:CLASS"),
            ("ask solver question=1", "expected METHOD/ROLE, such as mae/solver"),
        ],
    )
    def test_the_right_form_is_shown(self, command: str, message: str, capsys) -> None:
        assert main(command.split()) == 2
        assert message in capsys.readouterr().err


class TestLearningRate:
    """A learning rate that is too high is named, whatever breaks first."""

    @pytest.mark.parametrize("rate", ["1e9", "1e38"])
    @pytest.mark.parametrize("steps", [1, 3])
    def test_it_is_named(self, rate: str, steps: int, tmp_path: Path, capsys) -> None:
        out = tmp_path / "run"
        fields = {"steps": steps, "eval_every": 0}
        assert train_small_by_command(out, f"learning_rate={rate}", **fields) == 1
        last = capsys.readouterr().err.splitlines()[-1]
        shown = f"{float(rate):g}"
        assert "not finite" in last
        assert f"lower learning_rate, which is {shown}, in a new folder" in last


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run in a folder whose name a shell would take apart."""
    folder = tmp_path_factory.mktemp("runs") / "it's $HOME; a (run)"
    return train_small(folder, "base")


def test_the_printed_command_names_the_folder_for_a_shell(run: Path) -> None:
    _, command = last_lines(run)[-1].split("For a report, run: ")
    assert shlex.split(command) == ["coevolve", "report", str(run)]


def test_a_run_s_folder_stands_for_its_policy(run: Path, tmp_path: Path) -> None:
    assert main(["ask", "mae/solver", "question=1", "--model", str(run)]) == 0
    assert main(["export", str(run), "--to", str(tmp_path / "merged")]) == 0
    assert (tmp_path / "merged" / "config.json").is_file()
