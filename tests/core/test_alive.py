"""Which mechanisms acted, by hand; a run says so in its summary and its last lines."""

import json
from unittest.mock import Mock

import pytest

from coevolve import __main__
from coevolve.training import config, diagnostics, loop, progress

ROWS = [
    {"step": 0, "validation": 0.5},
    {"step": 1, "spread/solver": 0.5, "spread/judge": 0.0, "accepted": 0.5, "parsed": 1.0, "reward/solver": 0.2},
    {"step": 2, "spread/solver": 0.0, "spread/judge": 0.0, "accepted": 1.0, "parsed": 1.0, "reward/solver": 0.4},
    {"step": 3, "spread/solver": 0.1, "spread/judge": 0.0, "parsed": 0.0, "reward/solver": 0.9, "validation": 0.25},
]


def test_spreads_are_of_rewards_and_of_known_ones() -> None:
    earned = [("reward/a/x", 1.0), ("reward/a/x", 0.0), ("reward/a/x", None), ("length/a", 7), ("reward/b", 2.0)]
    assert diagnostics.spreads(earned) == {"spread/a/x": 0.5, "spread/b": 0.0}


def test_a_reward_acts_where_it_varies_and_a_gate_where_it_splits() -> None:
    shares = diagnostics.activity(ROWS, {"quality filter": "accepted", "format": "parsed", "never seen": "nothing"})
    assert shares == {"reward of solver": 2 / 3, "reward of judge": 0.0, "quality filter": 0.5, "format": 0.0}
    assert [diagnostics.has_no_signal(row) for row in ROWS] == [True, False, True, False]


def test_idle_mechanisms_and_a_mistaken_judge_are_said() -> None:
    shares = {"reward of judge": 0.0, "quality filter": 0.19, "format": 0.2}
    idle = ["idle: reward of judge acted in 0% of the steps", "idle: quality filter acted in 19% of the steps"]
    told = "solver is paid more in the second half (0.200, 0.650) and right less often (0.500, 0.250 of validation)"
    assert diagnostics.warnings(shares, ROWS, "solver") == [*idle, told]
    assert diagnostics.warnings({}, ROWS, "reasoner") == diagnostics.warnings({}, ROWS[:2], "solver") == []


SECRETS = ("HF_TOKEN", "OPENAI_API_KEY", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "MY_SECRET")


def test_a_run_reports_what_acted_and_no_secret_of_the_environment(tmp_path, capsys, monkeypatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, "canary-4711")
    free = 'task_types=["free"]'  # so multiple choice has nothing to do
    assert __main__.main(["train", "spice", "--preset", "smoke", "--out", str(tmp_path), free]) == 0
    said = capsys.readouterr()
    lines, files = said.out.splitlines(), [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 10 and not [path for path in files if b"canary-4711" in path.read_bytes()]
    assert "canary-4711" not in said.out + said.err
    summary = json.loads((tmp_path / "summary.json").read_bytes())
    assert {"reward of challenger", "reward of reasoner", "rules of validity"} <= summary["acted"].keys()
    assert "idle: multiple choice acted in 0% of the steps" in summary["warnings"]
    assert lines[-5 - len(summary["warnings"]) : -5] == summary["warnings"]
    assert "loading ... 00:" in said.err and "one episode:\n  challenger" in said.out


@pytest.mark.parametrize(("max_tokens", "times"), [(1, 1), (48, 0)])
def test_a_run_in_which_no_reward_varies_says_so_once(max_tokens, times, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(diagnostics, "PATIENCE", 2)
    cut = {"max_tokens": max_tokens, "steps": 4, "eval_every": 0, "eval_items": 1}  # one token is no answer
    loop.train(config.build("mae", "smoke", out=tmp_path, overrides=cut))
    told = "step 2: nothing learnt for 2 steps"
    assert capsys.readouterr().out.count(told) == times


def test_a_bar_is_drawn_anew_each_second_or_off_a_terminal_every_ten_until_it_is_closed(monkeypatch) -> None:
    naps, bar = [], Mock(disable=False, **{"fp.isatty.side_effect": [True, False, True]})
    bar.refresh.side_effect = lambda: setattr(bar, "disable", len(naps) == 3)
    monkeypatch.setattr(progress.time, "sleep", naps.append)
    monkeypatch.setattr(progress.threading, "Thread", lambda target, daemon: Mock(start=target))
    assert progress.keep_refreshing(bar) is bar and naps == [1, 10, 1]
