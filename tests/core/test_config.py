"""Runs and their configuration: methods by name, presets, fields in their types, mistakes in one line."""

import copy
import dataclasses
import json
import pickle
from pathlib import Path
from typing import get_args

import pytest
from data_files import OWN, tables

from coevolve import worlds
from coevolve.advantages import estimators
from coevolve.evaluation import strategies
from coevolve.methods import base as method_base
from coevolve.methods.baselines import absolute_zero
from coevolve.methods.mae import method as mae
from coevolve.methods.registry import METHODS, get_method
from coevolve.methods.spice import method as spice
from coevolve.methods.spice import rewards as spice_rewards
from coevolve.text import prompts
from coevolve.training import config
from coevolve.training.config import Run, build, differences, parse_overrides


def refused(method: str = "mae", /, preset: str = "quick", **overrides: object) -> str:
    """The one line with which a configuration is refused."""
    with pytest.raises(ValueError) as error:
        build(method, preset, out="somewhere", overrides=overrides)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_an_unknown_method_or_preset() -> None:
    names = ", ".join([*METHODS, "FILE.py:CLASS", "PACKAGE.MODULE:CLASS"])
    assert refused("mea") == f"method must be one of {names}, got 'mea'; did you mean 'mae'?"
    assert refused("zzz").endswith("got 'zzz'")
    known = ", ".join([*config.load_presets(), "none"])
    assert refused(preset="quik") == f"preset must be one of {known}, got 'quik'; did you mean 'quick'?"


@pytest.mark.parametrize("preset", config.load_presets())
@pytest.mark.parametrize("method", METHODS)
def test_every_preset_builds_for_every_method(method: str, preset: str, tmp_path: Path) -> None:
    run = build(method, preset, seed=4, out=tmp_path / "run")
    assert (run.method, run.seed, run.out) == (method, 4, tmp_path / "run")
    assert type(run.protocol) is get_method(method) and len(run.protocol.answering.fields) == 1
    for name, value in {**config.load_presets()[preset]["all"], **config.load_presets()[preset].get(method, {})}.items():
        value = tuple(value) if isinstance(value, list) else value
        assert value in (getattr(run, name, None), run.protocol.describe().get(name))
    assert list(tmp_path.iterdir()) == []


def test_a_method_of_ones_own_is_built_from_any_preset() -> None:
    run = build(OWN, "smoke", out="x", overrides={"rounds": 3, "heat": 1, "friends": ["a"], "steps": 7})
    mine = run.protocol
    assert (mine.rounds, mine.heat, mine.friends, mine.span) == (3, 1.0, ("a",), (0, 1)) and type(mine.heat) is float
    assert (run.method, run.steps, run.max_tokens) == (OWN, 7, config.load_presets()["smoke"]["all"]["max_tokens"])
    said = json.loads(json.dumps(run.describe()))
    assert said["method"] == OWN and said["protocol"]["rounds"] == 3 and said["protocol"]["world"] == "tiny"
    assert "out" not in said and said["seed"] == 0
    assert differences(run) == [], "there is no paper to differ from"
    assert build(OWN, "none", out="x").steps == 300
    assert refused(OWN, rounds="many") == "rounds must be a valid integer, got 'many'"
    assert refused(OWN, manner="rud") == "manner must be one of polite, rude, got 'rud'; did you mean 'rude'?"
    tone_error = "tones[1] must be one of low, high, got 'hgh'; did you mean 'high'?"
    assert refused(OWN, tones=["low", "hgh"]) == tone_error
    assert refused(OWN, span=[1]) == "span must be [first, last], got [1]"
    assert refused(OWN, threshold=0.5).startswith("field must be one of")


def test_a_file_is_one_module_however_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    cls = get_method(OWN)
    assert get_method("own_method.py:Debate") is get_method("./own_method.py:Debate") is cls
    assert pickle.loads(pickle.dumps(cls(rounds=5))).rounds == 5
    (tmp_path / "own_method.py").write_text(Path("own_method.py").read_text())
    assert get_method(f"{tmp_path}/own_method.py:Debate") is not cls
    assert get_method("coevolve.methods.mae.method:MAE") is get_method("mae")


@pytest.mark.parametrize(("name", "why"), tables("mistakes")["absent"].items())
def test_a_method_that_is_not_there(name: str, why: str) -> None:
    line = refused(name := name.format(own=OWN.partition(":")[0]))
    assert line.startswith("method") and repr(name) in line and why in line


def test_a_file_that_fails_is_tried_again(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("1 / 0")
    with pytest.raises(ZeroDivisionError):
        get_method(f"{file}:Debate")
    file.write_text(Path(OWN.partition(":")[0]).read_text())
    assert get_method(f"{file}:Debate").__name__ == "Debate"


@pytest.mark.parametrize("name", ["stps", "out", "protocol", "method", "pools", ""])
def test_an_unknown_field_names_those_of_run_and_method(name: str) -> None:
    line = refused(**{name: 1})
    assert line.startswith("field must be one of ") and f"got {name!r}" in line
    assert " steps," in line and " threshold," in line


@pytest.mark.parametrize(("wanted", "fields"), tables("mistakes")["values"].items())
def test_a_wrong_value_is_one_line(wanted: str, fields: dict[str, list]) -> None:
    for field, value in [(field, value) for field, values in fields.items() for value in values]:
        given = None if value == "null" else value
        assert refused(**{field: given}).partition("; did you mean")[0] == f"{field} must be {wanted}, got {given!r}"


@pytest.mark.parametrize(("method", "overrides", "line"), tables("mistakes")["together"])
def test_what_does_not_go_together(method: str, overrides: dict, line: str) -> None:
    assert refused(method, **overrides).startswith(line)


def test_a_run_in_which_every_policy_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get_method(OWN), "frozen", ("shared",))
    assert refused(OWN) == f"method must leave a policy to train, and {OWN} freezes all: shared"


def test_overrides_win_over_the_preset_and_the_preset_over_the_paper() -> None:
    assert Run(method="own", protocol=get_method(OWN)(), out=Path()).learning_rate == 1e-6
    run, table = build("mae", "quick", out="x"), config.load_presets()["quick"]
    assert (run.learning_rate, run.protocol.solves) == (table["all"]["learning_rate"], table["mae"]["solves"])
    changes = {"batch_size": 8, "solves": 2, "temperature": 1, "seed": 9, "lora": [4, 8, 0], "train": ["solver"]}
    run = build("mae", "quick", seed=3, out="x", overrides=changes | {"judge_temperature": 0, "prompt_folder": None})
    assert (run.batch_size, run.protocol.solves, run.temperature, run.seed) == (8, 2, 1.0, 9)
    assert type(run.temperature) is float and run.lora == (4, 8, 0) and type(run.lora[1]) is int
    mine = run.protocol
    assert (mine.train, mine.judge_temperature, mine.prompt_folder) == (("solver",), 0.0, None)


def test_pairs_of_the_command_line() -> None:
    pairs = ["steps=3", 'train=["solver"]', "setting=zero", "judge_temperature=null", "prompt_folder=a=b", "model="]
    values = {"steps": 3, "train": ["solver"], "setting": "zero", "judge_temperature": None, "prompt_folder": "a=b"}
    assert parse_overrides(pairs) == values | {"model": ""}
    with pytest.raises(ValueError, match="expected field=value, got 'fast'"):
        parse_overrides(["steps=1", "fast"])


def departures(run: Run) -> dict[str, tuple]:
    return {name: (default, value) for name, default, value in map(dataclasses.astuple, differences(run))}


def test_differences_from_the_paper() -> None:
    mae, real = get_method("mae"), {"model": "Qwen/Qwen2.5-3B-Instruct", "track": "wandb", "out": Path("x")}
    paper = mae(prompt="full", world="data")
    assert differences(Run(method="mae", protocol=paper, seed=7, **real)) == [], "where it runs is no departure"
    part = mae(prompt="full", world="data:gsm8k", threshold=0.5, train=("solver",))
    changed = {"steps": (300, 80), "threshold": (0.7, 0.5), "world": ("data", "data:gsm8k")}
    changed["train"] = (("proposer", "solver", "judge"), ("solver",))
    assert departures(Run(method="mae", protocol=part, steps=80, loss="ppo", **real)) == changed
    found = departures(build("mae", "quick", out="x"))
    table = config.load_presets()["quick"]["all"] | config.load_presets()["quick"]["mae"]
    assert found["learning_rate"] == (1e-6, table["learning_rate"]) and found["solves"] == (1, table["solves"])
    assert "attempts" not in found, "the preset writes the paper's own value"
    assert found["world"] == ("data", "tiny") and found["model"] == ("Qwen/Qwen2.5-3B-Instruct", "tiny")


CHOICES = [
    (estimators.Estimator, estimators.ESTIMATORS),
    (method_base.Setup, strategies.SETUPS),
    (prompts.Variant, strategies.LIMITS),
    (mae.Setting, mae.SETTINGS),
    (spice.Verifier, spice.VERIFIERS),
    (spice.Template, spice.TEMPLATES),
    (spice_rewards.ChallengerReward, spice_rewards.CHALLENGER),
    (absolute_zero.Paper, absolute_zero.STEPS),
]


@pytest.mark.parametrize(("choices", "table"), CHOICES)
def test_a_table_has_an_entry_for_every_choice(choices: object, table: dict) -> None:
    assert set(get_args(choices)) == table.keys()


def test_a_preset_starts_from_the_one_that_it_extends(tmp_path: Path) -> None:
    file = tmp_path / "presets.toml"
    file.write_text("""
        [long.all]
        steps = 9
        [long.mae]
        solves = 3
        attempts = 5
        [short]
        extends = "long"
        [short.mae]
        solves = 1
        [short.sft]
        epochs = 2
    """)
    presets = config.load_presets(file)
    long = {"all": {"steps": 9}, "mae": {"solves": 3, "attempts": 5}}
    short = {"all": {"steps": 9}, "mae": {"solves": 1, "attempts": 5}, "sft": {"epochs": 2}}
    assert presets == {"long": long, "short": short}
    assert "extends" not in config.load_presets()["quick"]
    file.write_text("[long.all]\nsteps = 9\n[short]\nextends = 'lng'\n")
    line = "^extends of preset short must be one of long, got 'lng'; did you mean 'long'"
    with pytest.raises(ValueError, match=line):
        config.load_presets(file)


def test_a_run_is_copied_and_pickled_with_its_roles_and_pools() -> None:
    run = build("mae", "quick", out="x")
    run.protocol.pools["questions"].extend(["1+1"])
    for copied in (copy.deepcopy(run), pickle.loads(pickle.dumps(run))):
        assert copied.describe() == run.describe()
        assert copied.protocol.roles == run.protocol.roles
        assert copied.protocol.pools["questions"].items == run.protocol.pools["questions"].items


def test_a_method_with_other_fields_has_roles_made_from_them() -> None:
    mae_method = get_method("mae")(solves=2)
    hot = mae_method.replace(judge_temperature=0.5)
    assert (hot.solves, hot.rater.temperature, mae_method.rater.temperature) == (2, 0.5, None)
    assert hot.world is mae_method.world


def test_an_unknown_field_of_a_method_suggests_the_right_one() -> None:
    line = r"^field must be one of .*, got 'solvs'; did you mean 'solves'\?$"
    with pytest.raises(ValueError, match=line):
        get_method("mae")(solvs=2)


def test_an_error_in_a_method_s_own_roles_keeps_its_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def define_roles(self: object) -> None:
        raise ValueError("no such persona")

    monkeypatch.setattr(get_method(OWN), "define_roles", define_roles)
    with pytest.raises(ValueError, match="^no such persona$") as error:
        get_method(OWN)()
    assert error.traceback[-1].name == "define_roles"


@pytest.mark.parametrize("world", [3, None, ["tiny"]])
def test_a_world_is_a_name(world: object) -> None:
    assert refused(world=world) == f"world must be {worlds.NAMES}, got {world!r}"
