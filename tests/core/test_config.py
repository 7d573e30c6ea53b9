"""Runs and their configuration: methods by name, presets, overrides, differences from the paper."""

import copy
import json
import pickle
from pathlib import Path
from typing import get_args

import pytest
from data_files import OWN

from coevolve.advantages import estimators
from coevolve.evaluation import strategies
from coevolve.methods import base
from coevolve.methods.baselines import absolute_zero
from coevolve.methods.mae import method as mae
from coevolve.methods.registry import METHODS, get_method
from coevolve.methods.spice import method as spice
from coevolve.methods.spice import rewards as spice_rewards
from coevolve.text import prompts
from coevolve.training import config
from coevolve.training.config import Run, build, differences, parse_overrides

OWN_FILE, _, OWN_CLASS = OWN.partition(":")
PRESETS = config.load_presets()


class TestPresets:
    @pytest.mark.parametrize("preset", PRESETS)
    @pytest.mark.parametrize("method", METHODS)
    def test_every_preset_builds_for_every_method(
        self, method: str, preset: str, tmp_path: Path
    ) -> None:
        run = build(method, preset, seed=4, out=tmp_path / "run")
        assert run.method_name == method
        assert run.seed == 4
        assert run.out == tmp_path / "run"
        assert type(run.method) is get_method(method)
        assert len(run.method.answering.fields) == 1
        method_values = run.method.describe()
        preset_values = PRESETS[preset]["all"] | PRESETS[preset].get(method, {})
        for name, value in preset_values.items():
            expected = tuple(value) if isinstance(value, list) else value
            assert expected in (getattr(run, name, None), method_values.get(name))
        assert list(tmp_path.iterdir()) == []

    def test_a_preset_starts_from_the_one_that_it_extends(self, tmp_path: Path) -> None:
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
        assert presets.keys() == {"long", "short"}
        assert presets["long"] == {
            "all": {"steps": 9},
            "mae": {"solves": 3, "attempts": 5},
        }
        assert presets["short"] == {
            "all": {"steps": 9},
            "mae": {"solves": 1, "attempts": 5},
            "sft": {"epochs": 2},
        }

    def test_extends_is_no_method_of_a_preset(self) -> None:
        assert "extends" not in PRESETS["quick"]

    def test_a_preset_that_extends_an_unknown_one_is_refused(
        self, tmp_path: Path
    ) -> None:
        file = tmp_path / "presets.toml"
        file.write_text("[long.all]\nsteps = 9\n[short]\nextends = 'lng'\n")
        line = "^extends of preset short must be one of long, got 'lng'; did you mean 'long'"
        with pytest.raises(ValueError, match=line):
            config.load_presets(file)


class TestOwnMethod:
    """A user's own method, loaded from its file."""

    @pytest.fixture
    def run(self) -> Run:
        overrides = {"rounds": 3, "friend_temperature": 1, "friends": ["a"], "steps": 7}
        return build(OWN, "smoke", out="x", overrides=overrides)

    def test_its_fields_have_their_types(self, run: Run) -> None:
        method = run.method
        assert method.rounds == 3
        assert method.friend_temperature == 1.0
        assert type(method.friend_temperature) is float
        assert method.friends == ("a",)
        assert method.span == (0, 1)

    def test_any_preset_sets_the_fields_of_the_run(self, run: Run) -> None:
        assert run.method_name == OWN
        assert run.steps == 7
        assert run.max_tokens == PRESETS["smoke"]["all"]["max_tokens"]

    def test_the_preset_none_sets_nothing(self) -> None:
        assert build(OWN, "none", out="x").steps == 300

    def test_its_description_is_json(self, run: Run) -> None:
        description = json.loads(json.dumps(run.describe()))
        assert description["method"] == OWN
        assert description["method_fields"]["rounds"] == 3
        assert description["method_fields"]["world"] == "tiny"
        assert description["seed"] == 0
        assert "out" not in description

    def test_it_has_no_paper_to_differ_from(self, run: Run) -> None:
        assert differences(run) == []

    def test_a_file_is_one_module_under_all_of_its_paths(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(Path(__file__).parent)
        cls = get_method(OWN)
        assert get_method("own_method.py:Debate") is cls
        assert get_method("./own_method.py:Debate") is cls

    def test_a_copied_file_is_another_module(self, tmp_path: Path) -> None:
        (tmp_path / "own_method.py").write_text(Path(OWN_FILE).read_text())
        assert get_method(f"{tmp_path}/own_method.py:Debate") is not get_method(OWN)

    def test_a_method_is_pickled(self) -> None:
        method = get_method(OWN)(rounds=5)
        assert pickle.loads(pickle.dumps(method)).rounds == 5

    def test_a_method_of_a_package_is_named_by_its_module(self) -> None:
        assert get_method("coevolve.methods.mae.method:MAE") is get_method("mae")

    def test_a_file_that_fails_is_tried_again(self, tmp_path: Path) -> None:
        file = tmp_path / "mine.py"
        file.write_text("1 / 0")
        with pytest.raises(ValueError, match="ZeroDivisionError"):
            get_method(f"{file}:{OWN_CLASS}")
        file.write_text(Path(OWN_FILE).read_text())
        assert get_method(f"{file}:{OWN_CLASS}").__name__ == "Debate"


class TestOverrides:
    def test_without_a_preset_a_field_has_its_default(self) -> None:
        run = Run(method_name="own", method=get_method(OWN)(), out=Path())
        assert run.learning_rate == 1e-6

    def test_a_preset_wins_over_the_paper(self) -> None:
        run = build("mae", "quick", out="x")
        assert run.learning_rate == PRESETS["quick"]["mae"]["learning_rate"]
        assert run.method.solves == PRESETS["quick"]["mae"]["solves"]

    def test_overrides_win_over_the_preset(self) -> None:
        overrides = {"batch_size": 8, "solves": 2, "seed": 9}
        run = build("mae", "quick", seed=3, out="x", overrides=overrides)
        assert run.batch_size == 8
        assert run.method.solves == 2
        assert run.seed == 9

    def test_numbers_and_lists_take_the_type_of_their_field(self) -> None:
        overrides = {
            "temperature": 1,
            "lora": [4, 8, 0],
            "train": ["solver"],
            "judge_temperature": 0,
            "prompt_folder": None,
        }
        run = build("mae", "quick", out="x", overrides=overrides)
        assert run.temperature == 1.0
        assert type(run.temperature) is float
        assert run.lora == (4, 8, 0)
        assert type(run.lora[1]) is int
        assert run.method.train == ("solver",)
        assert run.method.judge_temperature == 0.0
        assert run.method.prompt_folder is None

    def test_pairs_of_the_command_line_are_json_or_else_text(self) -> None:
        pairs = [
            "steps=3",
            'train=["solver"]',
            "setting=zero",
            "judge_temperature=null",
            "prompt_folder=a=b",
            "model=",
        ]
        assert parse_overrides(pairs) == {
            "steps": 3,
            "train": ["solver"],
            "setting": "zero",
            "judge_temperature": None,
            "prompt_folder": "a=b",
            "model": "",
        }

    def test_a_pair_without_an_equals_sign_is_refused(self) -> None:
        with pytest.raises(ValueError, match="expected field=value, got 'fast'"):
            parse_overrides(["steps=1", "fast"])


class TestDifferences:
    """The fields of MAE in which a run differs from the paper."""

    OPERATIONAL = {"track": "wandb", "out": Path("x"), "seed": 7}
    PAPER_MODEL = "Qwen/Qwen2.5-3B-Instruct"

    def changed(self, run: Run) -> dict[str, tuple]:
        """Return {field: (paper's value, run's value)}."""
        return {change.field: (change.paper, change.run) for change in differences(run)}

    def test_where_and_how_a_run_works_is_no_difference(self) -> None:
        paper = get_method("mae")(prompt="full", world="data")
        run = Run(
            method_name="mae", method=paper, model=self.PAPER_MODEL, **self.OPERATIONAL
        )
        assert differences(run) == []

    def test_a_baseline_is_compared_with_the_model_of_the_paper_that_it_plays_for(
        self,
    ) -> None:
        run = build("azr", "gpu", out="x", overrides={"paper": "spice"})
        assert self.changed(run)["model"] == ("Qwen/Qwen3-4B-Base", self.PAPER_MODEL)

    def test_fields_of_the_run_and_of_the_method_are_compared(self) -> None:
        method = get_method("mae")(
            prompt="full", world="data:gsm8k", threshold=0.5, train=("solver",)
        )
        run = Run(
            method_name="mae",
            method=method,
            model=self.PAPER_MODEL,
            steps=80,
            loss="ppo",
            **self.OPERATIONAL,
        )
        assert self.changed(run) == {
            "steps": (300, 80),
            "threshold": (0.7, 0.5),
            "world": ("data", "data:gsm8k"),
            "train": (("proposer", "solver", "judge"), ("solver",)),
        }

    def test_a_preset_differs_where_it_sets_another_value(self) -> None:
        changed = self.changed(build("mae", "quick", out="x"))
        quick = PRESETS["quick"]["all"] | PRESETS["quick"]["mae"]
        assert changed["learning_rate"] == (1e-6, quick["learning_rate"])
        assert changed["solves"] == (1, quick["solves"])
        assert changed["world"] == ("data", "tiny")
        assert changed["model"] == (self.PAPER_MODEL, "tiny")
        assert "attempts" not in changed, "the preset writes the paper's own value"


@pytest.mark.parametrize(
    ("choices", "table"),
    [
        (estimators.Estimator, estimators.ESTIMATORS),
        (base.Strategy, strategies.STRATEGIES),
        (prompts.Variant, strategies.LIMITS),
        (mae.Setting, mae.REFERENCE_PROBABILITY),
        (spice.Verifier, spice.VERIFIERS),
        (spice.Template, spice.TEMPLATES),
        (spice_rewards.ChallengerReward, spice_rewards.CHALLENGER),
        (absolute_zero.Paper, absolute_zero.STEPS),
    ],
)
def test_a_table_has_an_entry_for_every_choice(choices: object, table: dict) -> None:
    assert set(get_args(choices)) == table.keys()


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda run: pickle.loads(pickle.dumps(run))],
    ids=["copied", "pickled"],
)
def test_a_copied_run_has_the_same_roles_and_pools(copied) -> None:
    run = build("mae", "quick", out="x")
    run.method.pools["questions"].extend(["1+1"])
    other = copied(run)
    assert other.describe() == run.describe()
    assert other.method.roles == run.method.roles
    questions = other.method.pools["questions"]
    assert questions.items == run.method.pools["questions"].items


def test_a_method_with_other_fields_has_roles_made_from_them() -> None:
    method = get_method("mae")(solves=2)
    replaced = method.replace(judge_temperature=0.5)
    assert replaced.solves == 2
    assert replaced.question_rater.temperature == 0.5
    assert method.question_rater.temperature is None
    assert replaced.world is method.world
