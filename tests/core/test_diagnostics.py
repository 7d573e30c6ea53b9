"""Which mechanisms of a run acted: computed by hand, and reported by a run as it ends."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pytest import approx

from coevolve import __main__
from coevolve.advantages.estimators import ESTIMATORS
from coevolve.advantages.inputs import EstimatorInputs
from coevolve.advantages.used import used_shares
from coevolve.training import config, diagnostics, loop, progress
from coevolve.types import Reply, Sample, Turn

# The metrics of four steps. No judge has an advantage; `parsed` passes all or nothing.
ROWS = [
    {"step": 0, "validation": 0.5},
    {
        "step": 1,
        "used/solver": 0.5,
        "used/judge": 0.0,
        "accepted": 0.5,
        "parsed": 1.0,
        "reward/solver": 0.2,
    },
    {
        "step": 2,
        "used/solver": 0.0,
        "used/judge": 0.0,
        "accepted": 1.0,
        "parsed": 1.0,
        "reward/solver": 0.4,
    },
    {
        "step": 3,
        "used/solver": 0.1,
        "used/judge": 0.0,
        "parsed": 0.0,
        "reward/solver": 0.9,
        "validation": 0.25,
    },
]
GATES = {"quality filter": "accepted", "format": "parsed", "never seen": "nothing"}


def test_spreads_are_those_of_known_rewards() -> None:
    numbers = [
        ("reward/a/x", 1.0),
        ("reward/a/x", 0.0),
        ("reward/a/x", None),
        ("length/a", 7),
        ("reward/b", 2.0),
    ]
    assert diagnostics.spreads(numbers) == {"spread/a/x": 0.5, "spread/b": 0.0}


def samples_of(role: str, *rewards: Any) -> list[Sample]:
    """Samples of two tokens each, whose second character is the second token."""
    turn = Turn(role, ())
    reply = Reply(turn, "ab", (1,), (2, 3), (-0.1, -0.1), (1, 2))
    return [reply.earns(reward) for reward in rewards]


def used_by(estimator: str, samples: list[Sample]) -> dict[str, float]:
    advantages = ESTIMATORS[estimator](EstimatorInputs(samples))
    return used_shares(samples, advantages)


def test_the_share_of_samples_with_an_advantage_is_that_of_known_rewards() -> None:
    samples = samples_of("solver", 1.0, 0.0, 1.0, 0.0) + samples_of("judge", 0.5, 0.5)
    expected = {"used/solver": approx(1.0), "used/judge": 0.0}
    assert used_by("task_relative", samples) == expected


def test_a_share_is_that_of_the_groups_whose_rewards_differ() -> None:
    samples = samples_of("solver", 1.0, 0.0, 1.0, 1.0, 0.0, 0.0)
    for number, sample in enumerate(samples):
        samples[number] = replace(sample, group_id=number // 2)
    assert used_by("group_mean", samples) == {"used/solver": approx(1 / 3)}


def test_one_reward_of_many_that_differs_hardly_acts() -> None:
    rewards = [0.0] + [1.0] * 95
    shares = used_by("task_relative", samples_of("judge", *rewards))
    alike = 1 / 96
    assert shares == {"used/judge": approx(4 * alike * (1 - alike))}


def test_a_rounding_error_is_no_advantage() -> None:
    samples = samples_of("judge", 0.1 + 0.2, 0.3, 0.3)
    assert used_by("task_relative", samples) == {"used/judge": 0.0}


def test_a_masked_segment_is_a_sample_without_an_advantage() -> None:
    rewards = [{"a": 1.0}, {"a": 0.0}, {"a": None}, {"a": None}]
    samples = samples_of("review", *rewards) + samples_of("verdict", {"b": None})
    assert used_by("segment_centred", samples) == {"used/review/a": approx(0.5)}


def test_each_of_several_segments_has_its_own_share() -> None:
    spans = {"a": ((0, 1),), "b": ((1, 2),)}
    samples = samples_of("review", {"a": 1.0, "b": 2.0}, {"a": 0.0, "b": 2.0})
    samples = [replace(sample, spans=spans) for sample in samples]
    expected = {"used/review/a": approx(1.0), "used/review/b": 0.0}
    assert used_by("segment_centred", samples) == expected


def test_a_reward_acts_on_its_samples_and_a_filter_where_it_splits() -> None:
    assert diagnostics.activity(ROWS, GATES) == {
        "reward of solver": approx(0.2),
        "reward of judge": 0.0,
        "quality filter": 0.5,
        "format": 0.0,
    }


def test_a_step_in_which_no_sample_has_an_advantage_has_no_signal() -> None:
    steps = [diagnostics.has_no_signal(row) for row in ROWS]
    assert steps == [True, False, True, False]


def test_warnings_name_idle_mechanisms_and_a_reward_that_misleads_the_solver() -> None:
    shares = {"reward of judge": 0.0, "quality filter": 0.19, "format": 0.2}
    assert diagnostics.warnings(shares, ROWS, "solver") == [
        "warning: reward of judge gave an advantage to 0% of its samples, "
        "so almost nothing was learnt from it; this is no error, see docs/metrics.md#idle",
        "warning: quality filter passed some candidates and rejected others in 19% of the steps, "
        "so it had almost no effect; this is no error, see docs/metrics.md#idle",
        "solver is rewarded more in the second half (0.200, 0.650) "
        "and correct less often (0.500, 0.250 of validation)",
    ]


@pytest.mark.parametrize(
    ("share", "shown"), [(0.0, "0%"), (0.004, "0.4%"), (0.0096, "1.0%"), (0.05, "5%")]
)
def test_a_small_share_is_not_rounded_to_nothing(share: float, shown: str) -> None:
    text = diagnostics.described("reward of critic", share)
    assert text == f"reward of critic acted in {shown} of the samples"


def test_there_is_no_warning_without_two_halves_to_compare() -> None:
    assert diagnostics.warnings({}, ROWS, "reasoner") == []
    assert diagnostics.warnings({}, ROWS[:2], "solver") == []


SECRET = "canary-4711"
SECRET_NAMES = (
    "HF_TOKEN",
    "OPENAI_API_KEY",
    "WANDB_API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "MY_SECRET",
)


@dataclass(frozen=True)
class FinishedRun:
    """A run of MAE whose filter keeps everything, in an environment with secrets."""

    out: Path
    stdout: str
    stderr: str

    @property
    def summary(self) -> dict:
        return json.loads((self.out / "summary.json").read_bytes())


@pytest.fixture
def finished(tmp_path, capsys, monkeypatch) -> FinishedRun:
    for name in SECRET_NAMES:
        monkeypatch.setenv(name, SECRET)
    command = ["train", "mae", "--preset", "smoke", "--out", str(tmp_path)]
    assert __main__.main([*command, "threshold=0"]) == 0
    captured = capsys.readouterr()
    return FinishedRun(tmp_path, captured.out, captured.err)


def check_report_of_idle_mechanisms(finished: FinishedRun) -> None:
    summary = finished.summary
    expected = {"reward of proposer", "reward of solver", "format of proposals"}
    assert expected <= summary["acted"].keys()
    warnings = summary["warnings"]
    start = (
        "warning: quality filter passed some candidates and rejected others in 0% of"
    )
    assert any(line.startswith(start) for line in warnings)
    lines = finished.stdout.splitlines()
    assert lines[-5 - len(warnings) : -5] == warnings


def check_that_no_secret_is_written(finished: FinishedRun) -> None:
    files = [path for path in finished.out.rglob("*") if path.is_file()]
    assert len(files) > 10
    for path in files:
        assert SECRET.encode() not in path.read_bytes(), path
    assert SECRET not in finished.stdout + finished.stderr


def test_a_run_reports_what_acted_and_no_secret_of_the_environment(finished) -> None:
    check_report_of_idle_mechanisms(finished)
    check_that_no_secret_is_written(finished)
    assert "loading ... 00:" in finished.stderr
    assert "one episode:\n  proposer" in finished.stdout


# A completion of one token holds no answer, so no reward varies and no advantage is other than 0.
@pytest.mark.parametrize(("max_tokens", "warnings"), [(1, 1), (48, 0)])
def test_a_run_in_which_no_reward_varies_says_so_once(
    max_tokens, warnings, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(diagnostics, "PATIENCE", 2)
    fields = {
        "max_tokens": max_tokens,
        "steps": 4,
        "eval_every": 0,
        "eval_items": 1,
    }
    loop.train(config.build("mae", "smoke", out=tmp_path, overrides=fields))
    line = "warning: nothing was learnt in the last 2 steps up to step 2"
    assert capsys.readouterr().out.count(line) == warnings


def test_a_bar_is_redrawn_each_second_on_a_terminal_and_else_every_ten(
    monkeypatch,
) -> None:
    pauses = []
    bar = Mock(disable=False)
    bar.fp.isatty.side_effect = [True, False, True]

    def close_after_three_pauses() -> None:
        bar.disable = len(pauses) == 3

    def thread(target, daemon):
        return Mock(start=target)

    bar.refresh.side_effect = close_after_three_pauses
    monkeypatch.setattr(progress.time, "sleep", pauses.append)
    monkeypatch.setattr(progress.threading, "Thread", thread)
    assert progress.keep_refreshing(bar) is bar
    assert pauses == [1, 10, 1]
