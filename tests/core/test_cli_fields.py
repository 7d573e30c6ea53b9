"""The command `fields`: every field with the paper's value, the preset's and its meaning."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from data_files import OWN

from coevolve.advantages.estimators import WITH_KL
from coevolve.advantages.segments import WITH_SEGMENTS
from coevolve.cli import main
from coevolve.methods.registry import METHODS, get_method
from coevolve.training import config

# A field's line, and the indented lines below it.
FIELD = r"^  (\w+) +(.*)\n((?:   +.*\n)+)"


@dataclass(frozen=True)
class Listed:
    """What `fields` prints of one field."""

    values: str
    text: str


def listed_fields(output: str) -> dict[str, Listed]:
    """Return {field: what is printed of it}."""
    fields: dict[str, Listed] = {}
    for name, values, text in re.findall(FIELD, output, re.MULTILINE):
        fields[name] = Listed(values, " ".join(text.split()))
    return fields


class TestMAE:
    @pytest.fixture
    def listed(self, capsys: pytest.CaptureFixture) -> dict[str, Listed]:
        assert main(["fields", "mae"]) == 0
        return listed_fields(capsys.readouterr().out)

    @pytest.fixture
    def quick(self) -> dict[str, dict]:
        return config.load_presets()["quick"]

    def test_all_fields_of_run_and_method_are_listed_once(self, capsys) -> None:
        assert main(["fields", "mae"]) == 0
        names = re.findall(r"^  (\w+) ", capsys.readouterr().out, re.MULTILINE)
        run_fields = config.field_defaults(config.Run)
        method_fields = config.field_defaults(get_method("mae"))
        assert sorted(names) == sorted({*run_fields, *method_fields})

    def test_a_field_that_the_preset_leaves_has_one_value(self, listed) -> None:
        assert listed["threshold"].values == "0.7"

    def test_a_field_that_the_preset_sets_has_two_values(self, listed, quick) -> None:
        assert listed["solves"].values == f"1 -> {quick['mae']['solves']}"
        assert listed["batch_size"].values == "128 -> 32"
        assert listed["batch_size"].text == (
            "Episodes per step. Allowed: whole number above 0."
        )

    def test_the_first_value_is_the_paper_s_and_not_the_default(self, listed) -> None:
        assert listed["prompt"].values == "full -> compact"

    def test_values_are_written_as_a_command_line_takes_them(self, listed) -> None:
        assert listed["train"].values == "[proposer, solver, judge]"
        assert listed["judge_temperature"].values == "null"
        assert listed["quality_filter"].values == "true"

    def test_the_head_says_how_values_of_nothing_are_typed(self, capsys) -> None:
        assert main(["fields", "mae"]) == 0
        head, _, _ = capsys.readouterr().out.partition("\n\n")
        for text in ("field=null", "field=''", "field='[]'", "field='{}'"):
            assert text in head

    def test_choices_and_limits_are_listed(self, listed) -> None:
        assert listed["setting"].text.endswith("Allowed: zero | no | half | with.")
        assert listed["weight_decay"].text.endswith("number at least 0.")
        assert listed["judge_temperature"].text.endswith("number at least 0 or null.")
        assert listed["lora"].text.endswith(
            "[rank at least 1, alpha, dropout below 1]."
        )


class TestOwnMethod:
    def test_the_first_value_is_the_default(
        self, capsys: pytest.CaptureFixture
    ) -> None:
        assert main(["fields", OWN, "rounds=3"]) == 0
        listed = listed_fields(capsys.readouterr().out)
        assert listed["rounds"].values == "2 -> 3"

    def test_the_docstring_of_a_field_is_its_meaning(
        self, tmp_path: Path, capsys: pytest.CaptureFixture
    ) -> None:
        source, _, class_name = OWN.partition(":")
        file = tmp_path / "mine.py"
        file.write_text(Path(source).read_text())
        assert main(["fields", f"{file}:{class_name}"]) == 0
        assert " How often the solver speaks. " in capsys.readouterr().out


def test_the_limits_of_estimators_are_those_of_the_code() -> None:
    texts = config.field_help(get_method("mae"))
    for name in WITH_KL:
        assert name in texts["kl_coef"]
    for name in WITH_SEGMENTS:
        assert name in texts["estimator"]


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
    mae = config.field_help(get_method("mae"))
    assert azr["estimator"] == mae["estimator"] != ""


def test_the_meaning_of_a_field_is_its_docstring() -> None:
    azr = config.field_help(get_method("azr"))
    meaning = (
        "The paper whose prompts are used: answers in tags (mae) or boxed (spice)."
    )
    assert azr["paper"] == meaning
