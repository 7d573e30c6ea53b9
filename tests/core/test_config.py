"""Runs and their configuration: presets build, mistakes are one line that names field and allowed values."""

import json
from dataclasses import fields
from pathlib import Path

import pytest

from coevolve import config
from coevolve.config import METHODS, Run, build, check, differences, parse_overrides
from coevolve.papers.mae.method import MAE
from published.world import DataWorld


def refused(method: str = "mae", /, preset: str = "quick", **overrides: object) -> str:
    """The one line with which a configuration is refused."""
    with pytest.raises(ValueError) as error:
        build(method, preset, out="somewhere", overrides=overrides)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_an_unknown_protocol() -> None:
    names = ", ".join(METHODS)
    assert refused("mea") == f"protocol must be one of {names}, got 'mea'; did you mean 'mae'?"
    assert refused("zzz").endswith("got 'zzz'")
    with pytest.raises(ValueError, match="protocol must be one of mae"):
        check("nope", {})


def test_an_unknown_preset() -> None:
    names = ", ".join(config.presets())
    assert refused(preset="quik") == f"preset must be one of {names}, got 'quik'; did you mean 'quick'?"


@pytest.mark.parametrize("name", ["stps", "worlds", "out", "protocol", "method", "pools", "", "steps "])
def test_an_unknown_field_names_those_of_run_and_method(name: str) -> None:
    line = refused(**{name: 1})
    assert line.startswith("field must be one of ") and f"got {name!r}" in line
    assert " steps," in line and " threshold," in line
    with pytest.raises(ValueError, match="field must be one of"):
        check("mae", {name: 1})


def test_fields_of_one_method_are_not_those_of_another() -> None:
    assert "'seeds'" not in refused(seeds=3).split(", got")[0]
    assert build("azr", "quick", out="x", overrides={"seeds": 3}).protocol.seeds == 3
    assert refused("azr", threshold=0.5).startswith("field must be one of")


@pytest.mark.parametrize(
    ("field", "value", "wanted"),
    [
        ("steps", 2.0, "int"),
        ("steps", True, "int"),
        ("steps", "3", "int"),
        ("steps", None, "int"),
        ("steps", [3], "int"),
        ("learning_rate", "fast", "float"),
        ("learning_rate", False, "float"),
        ("track", 1, "str"),
        ("model", None, "str or tuple"),
        ("quality_filter", 1, "bool"),
        ("quality_filter", "yes", "bool"),
        ("train", "solver", "tuple"),
        ("threshold", None, "float"),
        ("judge_temperature", "hot", "float or None"),
        ("prompt_folder", 3, "str or None"),
    ],
)
def test_a_value_of_another_type(field: str, value: object, wanted: str) -> None:
    assert refused(**{field: value}) == f"{field} must be {wanted}, got {value!r}"


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("steps", -1, "at least 0"),
        ("batch_size", 0, "at least 1"),
        ("max_tokens", 0, "at least 1"),
        ("micro_tokens", 0, "at least 1"),
        ("eval_every", -1, "at least 0"),
        ("eval_items", 0, "at least 1"),
        ("save_every", 0, "at least 1"),
        ("keep_episodes", -1, "at least 0"),
        ("seed", -1, "at least 0"),
        ("weight_decay", -0.1, "at least 0"),
        ("clip", [-0.1, 0.2], "at least 0"),
        ("clip", [0.2], "[low, high]"),
        ("lora", [0, 8, 0.0], "rank at least 1"),
        ("lora", [8, 16, 1.0], "dropout below 1"),
        ("lora", [8.0, 16, 0], "rank"),
        ("model", [], "list of names"),
        ("learning_rate", 0, "above 0"),
        ("grad_clip", -1.0, "above 0"),
        ("temperature", 0.0, "above 0"),
        ("learning_rate", float("nan"), "finite"),
        ("learning_rate", float("inf"), "finite"),
        ("threshold", float("nan"), "finite"),
        ("loss", "dpo", "ppo,"),
        ("old", "reference", "sampler, learner"),
        ("length_norm", "mean", "token_mean,"),
        ("track", "mlflow", "wandb,"),
        ("estimator", "nope", "task_relative,"),
        ("setting", "some", "zero, no, half, with"),
        ("variant", "ours", "paper, official"),
        ("train", ["critic"], "judge"),
        ("attempts", 0, "at least 1"),
        ("prompt", "long", "full, compact"),
        ("judge_temperature", -1, "at least 0"),
    ],
)
def test_a_value_that_is_not_allowed(field: str, value: object, allowed: str) -> None:
    line = refused(**{field: value})
    assert line.startswith(field) and allowed in line and "got" in line + " got" * (allowed == "finite")
    with pytest.raises(ValueError, match=field):
        check("mae", {field: value})


@pytest.mark.parametrize("preset", config.presets())
@pytest.mark.parametrize("protocol", METHODS)
def test_every_preset_builds_for_every_method(protocol: str, preset: str, tmp_path: Path) -> None:
    run = build(protocol, preset, seed=4, out=tmp_path / "run")
    assert (run.method, run.seed, run.out) == (protocol, 4, tmp_path / "run")
    assert type(run.protocol) is config.method(protocol) and len(run.protocol.solver.fields) == 1
    for name, value in {**config.presets()[preset]["all"], **config.presets()[preset][protocol]}.items():
        value = tuple(value) if isinstance(value, list) else value
        assert value in (getattr(run, name, None), config.settings(run.protocol).get(name))
    assert list(tmp_path.iterdir()) == []
    assert json.loads(config.as_json(run)) == json.loads(json.dumps(run.describe()))


def test_presets_hold_only_methods_and_an_all_table() -> None:
    for preset in config.presets().values():
        assert set(preset) == {"all", *METHODS}


def test_overrides_win_over_the_preset_and_the_preset_over_the_paper() -> None:
    assert Run(method="mae", protocol=None, out=Path()).learning_rate == 1e-6
    run = build("mae", "quick", out="x")
    table = config.presets()["quick"]["all"] | config.presets()["quick"]["mae"]
    chosen = (run.learning_rate, run.batch_size, run.protocol.solves, run.temperature)
    assert chosen == (table["learning_rate"], table["batch_size"], table["solves"], 1.0)
    run = build("mae", "quick", seed=3, out="x", overrides={"batch_size": 8, "solves": 2, "temperature": 1, "seed": 9})
    assert (run.batch_size, run.protocol.solves, run.temperature, run.seed) == (8, 2, 1.0, 9)
    assert type(run.temperature) is float
    run = build("mae", "quick", out="x", overrides={"train": ["solver"], "judge_temperature": 0, "prompt_folder": None})
    assert (run.protocol.train, run.protocol.judge_temperature, run.protocol.prompt_folder) == (("solver",), 0.0, None)


def test_the_protocols_own_estimator_holds_unless_another_is_asked_for() -> None:
    assert build("mae", "quick", out="x").protocol.estimator == "task_relative"
    assert build("mae", "quick", out="x", overrides={"estimator": "group_mean"}).protocol.estimator == "group_mean"


def test_pairs_of_the_command_line() -> None:
    pairs = [
        "steps=3",
        "learning_rate=1e-4",
        'train=["solver"]',
        "setting=zero",
        "quality_filter=false",
        "judge_temperature=null",
        "prompt_folder=a=b",
        "model=",
    ]
    assert parse_overrides(pairs) == {
        "steps": 3,
        "learning_rate": 1e-4,
        "train": ["solver"],
        "setting": "zero",
        "quality_filter": False,
        "judge_temperature": None,
        "prompt_folder": "a=b",
        "model": "",
    }
    with pytest.raises(ValueError, match="expected field=value, got '--fast'"):
        parse_overrides(["steps=1", "--fast"])


def test_differences_from_the_paper() -> None:
    real = {"model": "Qwen/Qwen2.5-3B-Instruct", "track": "wandb", "out": Path("x")}
    world = DataWorld("mae")
    run = Run(method="mae", protocol=MAE(prompt="full", world=world), seed=7, **real)
    assert differences(run) == [], "where and how often it runs is no departure"
    part = MAE(prompt="full", world=DataWorld("mae", ("gsm8k",)), threshold=0.5, train=("solver",))
    assert differences(Run(method="mae", protocol=part, steps=80, loss="ppo", **real)) == [
        ("steps", 300, 80),
        ("threshold", 0.7, 0.5),
        ("train", ("proposer", "solver", "judge"), ("solver",)),
        ("world", "data", "data:gsm8k"),
    ]
    tiny = Run(method="mae", protocol=MAE(), out=Path("x"))
    assert differences(tiny) == [
        ("model", "Qwen/Qwen2.5-3B-Instruct", "tiny"),
        ("prompt", "full", "compact"),
        ("world", "data", "tiny"),
    ]
    rows = {name: (default, value) for name, default, value in differences(build("mae", "quick", out="x"))}
    table = config.presets()["quick"]["all"] | config.presets()["quick"]["mae"]
    assert rows["learning_rate"] == (1e-6, table["learning_rate"]) and rows["solves"] == (1, table["solves"])
    assert "attempts" not in rows, "the preset writes the paper's own value"


def test_a_run_describes_itself_in_plain_values() -> None:
    run = build("mae", "quick", seed=7, out="x")
    said = json.loads(config.as_json(run))
    assert said["seed"] == 7 and said["method"] == "mae" and said["protocol"]["setting"] == "half"
    assert "out" not in said and said["protocol"]["world"] == "tiny"


def test_a_run_stays_small() -> None:
    assert len(fields(Run)) <= 26


def test_what_two_adapters_or_steps_without_training_would_be_is_refused() -> None:
    assert refused("sft", lora=[4, 8, 0.0]).startswith("lora must be [] for sft, whose own adapter is lora_rank")
    assert build("sft", "quick", out="x", overrides={"lora": [4, 8, 0.0], "lora_rank": 0}).lora == (4, 8, 0.0)
    assert refused("base", steps=5) == "steps must be 0 for base, which trains nothing, got 5"
