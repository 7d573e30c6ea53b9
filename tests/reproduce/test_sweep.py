"""Sweeps of learning rates: which runs they take, what they choose, and one small real sweep."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coevolve.training.trainer import Trainer
from reproduce import UserError, plan, sweep
from reproduce.sweep import Choice, Trial

ROOT = Path(__file__).resolve().parents[2]
TRIAL = Trial("mae_half", rate=1e-4, seed=0, method="mae", settings="a", validation=0.5)


@pytest.fixture(scope="module")
def smoke() -> plan.Plan:
    return plan.load(ROOT, "smoke")


def test_every_trained_arm_has_every_rate(smoke: plan.Plan) -> None:
    rates = [1e-4, 2e-4]
    rates_of_arm: dict[str, list[float]] = {}
    for trial in sweep.trials_of(smoke, "mae_table1", rates, [0]):
        rates_of_arm.setdefault(trial.arm, []).append(trial.rate)
    trained = set(smoke.items["mae_table1"].config["runs"])
    trained.remove("base")
    assert rates_of_arm == dict.fromkeys(trained, rates)


def test_all_rates_of_an_arm_share_its_other_settings(smoke: plan.Plan) -> None:
    settings_of_arm: dict[str, set[str]] = {}
    for trial in sweep.trials_of(smoke, "mae_table1", [1e-4, 2e-4], [0]):
        settings_of_arm.setdefault(trial.arm, set()).add(trial.settings)
    all_settings = set.union(*settings_of_arm.values())
    assert len(all_settings) == len(settings_of_arm)


def test_a_sweep_can_be_limited_to_some_arms(smoke: plan.Plan) -> None:
    trials = sweep.trials_of(smoke, "mae_table1", [1e-4], [0], ["sft", "azr"])
    assert [trial.arm for trial in trials] == ["sft", "azr"]
    with pytest.raises(UserError, match="--arms srt: not in mae_table1; did you mean"):
        sweep.trials_of(smoke, "mae_table1", [1e-4], [0], ["srt"])


@pytest.mark.parametrize(
    ("table", "seed", "reason"),
    [
        ("mae_tabl1", 0, "did you mean mae_table1"),
        ("mae_table5", 0, "no runs that train"),
        ("mae_table1", 7, "has no seed 7 in preset smoke"),
    ],
)
def test_what_cannot_be_swept_is_refused(
    table: str, seed: int, reason: str, smoke: plan.Plan
) -> None:
    with pytest.raises(UserError, match=reason):
        sweep.trials_of(smoke, table, [1e-4], [seed])


def test_runs_ask_nothing_but_validation_at_their_end(smoke: plan.Plan) -> None:
    item = sweep.items_of(smoke, "conl")[0]
    run = sweep.build(smoke, item, 5e-4, Path("out"))
    assert run.learning_rate == 5e-4
    assert run.eval_every == run.steps
    assert run.method.examined == 0
    assert run.method.strategies == ("vanilla",)


MEANS = [  # rate, seed, accuracy: 0.6 on average with both rates
    (1e-4, 0, 0.5),
    (1e-4, 1, 0.7),
    (2e-4, 0, 0.6),
    (2e-4, 1, 0.6),
]


def trials_of_means() -> list[Trial]:
    trials = []
    for rate, seed, accuracy in MEANS:
        trial = replace(TRIAL, rate=rate, seed=seed, validation=accuracy)
        trials.append(trial)
    return trials


def test_of_equal_means_the_lowest_rate_is_chosen() -> None:
    (choice,) = sweep.choices(trials_of_means(), by="arm")
    assert choice.name == "mae_half"
    assert choice.rate == 1e-4


def test_the_rate_with_the_highest_mean_is_chosen() -> None:
    better = replace(TRIAL, rate=2e-4, seed=2, validation=0.9)
    trials = [*trials_of_means(), better]
    (choice,) = sweep.choices(trials, by="method")
    assert choice.name == "mae"
    assert choice.rate == 2e-4


@pytest.mark.parametrize(
    ("best", "is_at_the_edge"), [(1e-4, True), (2e-4, False), (4e-4, True)]
)
def test_a_choice_at_the_edge_of_the_rates_is_marked(
    best: float, is_at_the_edge: bool
) -> None:
    accuracies = dict.fromkeys([1e-4, 2e-4, 4e-4], 0.5) | {best: 0.6}
    assert Choice("mae_half", accuracies).is_at_the_edge == is_at_the_edge


def test_a_table_of_trials_is_read_as_it_was_written(tmp_path: Path) -> None:
    trials = [TRIAL, replace(TRIAL, rate=2e-4, validation=0.6)]
    file = tmp_path / "sweeps" / "table.csv"
    sweep.write(file, trials)
    assert sweep.read(file) == trials
    with file.open(encoding="utf-8") as stream:
        chosen = [row["chosen"] for row in csv.DictReader(stream)]
    assert chosen == ["False", "True"]


SMALL = ["--preset", "smoke", "--table", "comas_table5", "--seeds", "0"]
SMALL += ["--rates", "1e-4", "1e-2"]


@pytest.fixture
def asked_splits(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The splits whose questions are asked."""
    splits = set()
    evaluate = Trainer.evaluate

    def recorded(self: Trainer, split: str, *arguments: Any) -> Any:
        splits.add(split)
        return evaluate(self, split, *arguments)

    monkeypatch.setattr(Trainer, "evaluate", recorded)
    return splits


def test_a_small_sweep_trains_scores_validation_and_continues(
    tmp_path: Path, asked_splits: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "comas.csv"
    command = [*SMALL, "--out", str(file)]
    assert sweep.main([*command, "--count"]) == 0
    assert not file.exists()

    assert sweep.main(command) == 0
    first, second = sweep.read(file)
    assert first.arm == second.arm == "comas_large"
    assert first.rate < second.rate
    assert first.validation is not None
    assert 0 <= first.validation <= 1
    assert asked_splits == {"validation"}
    (choice,) = sweep.choices([first, second], by="arm")
    printed = capsys.readouterr().out
    assert f"comas_large: {choice.rate:g}" in printed

    assert sweep.main(command) == 0
    assert "2 runs, 0 of them to train" in capsys.readouterr().out
    assert sweep.read(file) == [first, second]

    sweep.write(file, [TRIAL, first])
    assert sweep.main(command) == 0
    assert "2 runs, 1 of them to train" in capsys.readouterr().out
    assert sweep.read(file) == [TRIAL, first, second]  # also the line of another arm
