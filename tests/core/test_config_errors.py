"""Mistakes in a configuration: each is one line with the field, what is allowed and the value."""

from typing import Any

import pytest
from data_files import OWN, tables

from coevolve import worlds
from coevolve.methods.registry import METHODS, get_method
from coevolve.training import config

MISTAKES = tables("mistakes")
OWN_FILE = OWN.partition(":")[0]


def refusal(method: str = "mae", /, preset: str = "quick", **overrides: object) -> str:
    """Return the one line that refuses a configuration."""
    with pytest.raises(ValueError) as error:
        config.build(method, preset, out="somewhere", overrides=overrides)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_an_unknown_method_is_answered_with_all_names_and_the_closest() -> None:
    names = ", ".join([*METHODS, "FILE.py:CLASS", "PACKAGE.MODULE:CLASS"])
    line = f"method must be one of {names}, got 'mea'; did you mean 'mae'?"
    assert refusal("mea") == line


def test_no_method_is_suggested_if_none_is_close() -> None:
    assert refusal("zzz").endswith("got 'zzz'")


def test_an_unknown_preset_is_answered_with_all_names_and_the_closest() -> None:
    names = ", ".join([*config.load_presets(), "none"])
    line = f"preset must be one of {names}, got 'quik'; did you mean 'quick'?"
    assert refusal(preset="quik") == line


@pytest.mark.parametrize(("name", "reason"), MISTAKES["absent"].items())
def test_a_method_that_cannot_be_loaded(name: str, reason: str) -> None:
    name = name.format(own=OWN_FILE)
    line = refusal(name)
    assert line.startswith("method")
    assert repr(name) in line
    assert reason in line


@pytest.mark.parametrize("name", ["stps", "out", "method", "method", "pools", ""])
def test_an_unknown_field_is_answered_with_those_of_run_and_method(name: str) -> None:
    line = refusal(**{name: 1})
    assert line.startswith(f"field {name!r} is unknown; did you mean ") or (
        line.startswith("field must be one of ") and f"got {name!r}" in line
    )
    assert " steps," in line
    assert " threshold," in line


def test_an_unknown_field_of_a_method_suggests_the_closest_one() -> None:
    line = r"^field must be one of .*, got 'solvs'; did you mean 'solves'\?$"
    with pytest.raises(ValueError, match=line):
        get_method("mae")(solvs=2)


def wrong_values() -> list[tuple[str, str, Any]]:
    """Return (what is allowed, field, wrong value) from the file of mistakes."""
    cases = []
    for allowed, fields in MISTAKES["values"].items():
        for field, values in fields.items():
            for value in values:
                cases.append((allowed, field, None if value == "null" else value))
    return cases


@pytest.mark.parametrize(("allowed", "field", "value"), wrong_values())
def test_a_wrong_value(allowed: str, field: str, value: Any) -> None:
    line, _, _ = refusal(**{field: value}).partition("; did you mean")
    assert line == f"{field} must be {allowed}, got {value!r}"


@pytest.mark.parametrize("value", [3, None, ["tiny"]])
def test_a_world_must_be_a_name(value: object) -> None:
    assert refusal(world=value) == f"world must be {worlds.NAMES}, got {value!r}"


@pytest.mark.parametrize(("method", "overrides", "line"), MISTAKES["together"])
def test_fields_that_exclude_each_other(
    method: str, overrides: dict, line: str
) -> None:
    assert refusal(method, **overrides).startswith(line)


def test_a_run_must_train_a_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get_method(OWN), "frozen", ("shared",))
    line = f"method must leave a policy to train, and {OWN} freezes all: shared"
    assert refusal(OWN) == line


WARM_START = "coevolve.methods.baselines.warm_start:WarmStart"


@pytest.mark.parametrize("method", ["sft", "srlm", WARM_START])
@pytest.mark.parametrize(
    ("field", "value"),
    [("steps", 9), ("schedule", "cosine"), ("batch_size", 2), ("loss", "importance")],
)
def test_a_field_that_a_method_s_own_trainer_does_not_read(
    method: str, field: str, value: object
) -> None:
    line = refusal(method, **{field: value})
    assert line.startswith(f"{field} must be left out for {method}")
    assert "learning_rate" in line
    own = "dpo_batch" if method == "srlm" else "epochs"
    assert own in line


class TestOwnMethod:
    """Mistakes in the fields of a user's own method."""

    def test_a_number_must_be_one(self) -> None:
        line = "rounds must be a valid integer, got 'many'"
        assert refusal(OWN, rounds="many") == line

    def test_a_choice_suggests_the_closest(self) -> None:
        line = "manner must be one of polite, rude, got 'rud'; did you mean 'rude'?"
        assert refusal(OWN, manner="rud") == line

    def test_a_list_of_choices_names_the_wrong_entry(self) -> None:
        line = "tones[1] must be one of low, high, got 'hgh'; did you mean 'high'?"
        assert refusal(OWN, tones=["low", "hgh"]) == line

    def test_a_field_may_say_in_words_what_is_allowed(self) -> None:
        assert refusal(OWN, span=[1]) == "span must be [first, last], got [1]"

    def test_it_has_no_fields_of_other_methods(self) -> None:
        assert refusal(OWN, threshold=0.5).startswith("field must be one of")

    def test_an_error_in_its_roles_keeps_its_traceback(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def define_roles(self: object) -> None:
            raise ValueError("no such persona")

        monkeypatch.setattr(get_method(OWN), "define_roles", define_roles)
        with pytest.raises(ValueError, match="^no such persona$") as error:
            get_method(OWN)()
        assert error.traceback[-1].name == "define_roles"
