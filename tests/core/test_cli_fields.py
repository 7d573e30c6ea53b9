"""The command `fields`: every field with the paper's value, the preset's and its meaning."""

from pathlib import Path

import pytest
from data_files import OWN

from coevolve.cli import main
from coevolve.methods.registry import METHODS, get_method
from coevolve.training import config


def listed_words(output: str) -> dict[str, list[str]]:
    """Return {field: the further words of its line}."""
    words = {}
    for line in output.splitlines():
        field, *others = line.split()
        words[field] = others
    return words


class TestMAE:
    @pytest.fixture
    def listed(self, capsys: pytest.CaptureFixture) -> dict[str, list[str]]:
        assert main(["fields", "mae"]) == 0
        return listed_words(capsys.readouterr().out)

    @pytest.fixture
    def quick(self) -> dict[str, dict]:
        return config.load_presets()["quick"]

    def test_all_fields_of_run_and_method_are_listed(self, listed) -> None:
        run_fields = config.field_defaults(config.Run)
        method_fields = config.field_defaults(get_method("mae"))
        assert set(listed) == {"field", *run_fields, *method_fields}

    def test_a_field_that_the_preset_leaves_has_one_value(self, listed) -> None:
        assert listed["threshold"][:3] == ["0.7", "A", "question"]

    def test_a_field_that_the_preset_sets_has_two_values(self, listed, quick) -> None:
        solves = str(quick["mae"]["solves"])
        assert listed["solves"][:3] == ["1", solves, "How"]
        assert listed["batch_size"] == ["128", "32", "Episodes", "per", "step."]

    def test_the_meaning_ends_the_line(self, listed, quick) -> None:
        meaning = "Learning rate of AdamW, constant; sft and srlm decay it to 0."
        learning_rate = str(quick["all"]["learning_rate"])
        assert listed["learning_rate"] == ["1e-06", learning_rate, *meaning.split()]

    def test_the_first_value_is_the_paper_s_and_not_the_default(self, listed) -> None:
        assert listed["prompt"][:2] == ["'full'", "'compact'"]


class TestOwnMethod:
    def test_the_first_value_is_the_default(
        self, capsys: pytest.CaptureFixture
    ) -> None:
        assert main(["fields", OWN, "rounds=3"]) == 0
        line = "rounds               2                        3"
        assert line in capsys.readouterr().out

    def test_the_docstring_of_a_field_is_its_meaning(
        self, tmp_path: Path, capsys: pytest.CaptureFixture
    ) -> None:
        source, _, class_name = OWN.partition(":")
        file = tmp_path / "mine.py"
        file.write_text(Path(source).read_text())
        assert main(["fields", f"{file}:{class_name}"]) == 0
        assert " How often the solver speaks.\n" in capsys.readouterr().out


@pytest.mark.parametrize("method", METHODS)
def test_every_field_has_a_meaning(method: str) -> None:
    cls = get_method(method)
    help_texts = config.field_help(cls)
    fields = config.field_defaults(config.Run) | config.field_defaults(cls)
    assert [name for name in fields if not help_texts.get(name)] == []


def test_a_subclass_may_replace_the_meaning_of_an_inherited_field() -> None:
    spice = config.field_help(get_method("spice"))
    assert spice["estimator"] == "Equations 3 and 4: DrGRPO."


def test_a_field_inherits_its_meaning() -> None:
    azr = config.field_help(get_method("azr"))
    assert azr["estimator"] == "How rewards become advantages, see `advantages`."


def test_the_meaning_of_a_field_is_its_docstring() -> None:
    azr = config.field_help(get_method("azr"))
    meaning = (
        "The paper whose prompts are used: answers in tags (mae) or boxed (spice)."
    )
    assert azr["paper"] == meaning
