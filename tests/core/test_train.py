"""The loop as its user runs it: the same run gives the same bytes, a killed run resumes, and the model learns."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coevolve import config, record
from coevolve.baselines.tuned import SFT
from coevolve.engines import Switch
from coevolve.loop import Trainer, train
from reproduce.analysis import stats

SMALL = {"steps": 4, "batch_size": 4, "solves": 2, "attempts": 2, "eval_every": 2, "eval_items": 4, "save_every": 1}
SAME = ("metrics.jsonl", "episodes.jsonl", "scores.csv", "policy/model.safetensors")


def run(out: Path, method: str = "mae", seed: int = 0, **fields) -> Path:
    return train(config.build(method, "quick", seed=seed, out=out, overrides=SMALL | fields))


def same_bytes(one: Path, other: Path) -> None:
    for name in SAME:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> Path:
    return run(tmp_path_factory.mktemp("runs") / "straight")


def test_the_same_run_twice_writes_the_same_bytes(straight, tmp_path):
    same_bytes(straight, run(tmp_path / "again"))


def test_another_seed_differs(straight, tmp_path):
    other = run(tmp_path / "other", seed=1)
    assert (other / "metrics.jsonl").read_bytes() != (straight / "metrics.jsonl").read_bytes()


def test_old_says_where_the_ratios_denominator_comes_from(straight, tmp_path):
    same_bytes(straight, run(tmp_path / "sampler", old="sampler"))
    learner = run(tmp_path / "learner", old="learner")
    by_sampler, by_learner = (record.read(out).query("step > 0") for out in (straight, learner))
    assert (by_learner["logprob_gap"] > 0).all(), "the sampler's numbers are close, not the same"
    assert (by_learner["ratio_max"] == 1).all() and (by_learner["clip_fraction"] == 0).all()
    assert (by_sampler["ratio_max"] != 1).any() and by_sampler["ratio_max"].iloc[0] == pytest.approx(1, abs=1e-3)
    with pytest.raises(ValueError, match="belongs to a run with another old"):
        run(learner)


def test_a_run_that_stopped_goes_on_bit_for_bit(straight, tmp_path):
    run(tmp_path / "halves", steps=2)
    run(tmp_path / "halves")
    assert json.loads((tmp_path / "halves" / "summary.json").read_text())["resumed_at"] == 2
    same_bytes(straight, tmp_path / "halves")


def test_a_killed_process_resumes_bit_for_bit(straight, tmp_path):
    out = tmp_path / "killed"
    pairs = [f"{name}={value}" for name, value in SMALL.items()]
    command = [sys.executable, "-m", "coevolve", "train", "mae", "--seed", "0", "--out", str(out), *pairs]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(out.glob("checkpoints/step-*")) and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert list(out.glob("checkpoints/step-*")), "no checkpoint appeared before the kill"
    run(out)
    same_bytes(straight, out)


def test_a_folder_of_another_run_is_refused_by_field(straight):
    with pytest.raises(ValueError, match="learning_rate"):
        run(straight, learning_rate=1e-3)


def test_summary_counts_every_test_item(straight):
    summary, scores = json.loads((straight / "summary.json").read_text()), record.read(straight, "scores")
    for stage in ("before", "after"):
        rows = scores[scores["stage"] == stage]
        assert summary["held_out"][stage] == {"k": int(rows["correct"].sum()), "n": len(rows)}
        assert set(rows["split"]) == {"test"}
    assert summary["seconds"] > 0 and summary["peak_rss_mb"] > 0
    assert {"load", "held_out"} <= set(summary["seconds_around"])
    assert 0 < sum(summary["seconds_around"].values()) < summary["seconds"]


def test_pools_hold_no_held_out_question(straight):
    from tinyworld import tasks as tiny

    newest = sorted((straight / "checkpoints").glob("step-*"))[-1]
    pools = json.loads((newest / "pools.json").read_text())
    assert pools["pairs"] and all(tiny.split(question) == "train" for question in pools["questions"])


OTHERS = {"azr": {}, "base": {"steps": 0}, "sft": {"epochs": 1, "lora_rank": 4}}


@pytest.mark.parametrize(("method", "fields"), OTHERS.items())
def test_every_method_runs_to_a_summary(method, fields, tmp_path):
    known = config.settable(config.method(method)) | config.settable(config.Run)
    overrides = {name: value for name, value in (SMALL | fields).items() if name in known}
    train(config.build(method, "quick", out=tmp_path / method, overrides=overrides))
    summary = json.loads((tmp_path / method / "summary.json").read_text())
    assert summary["method"] == method and summary["held_out"]["after"]["n"] > 50
    if method == "base":
        assert summary["held_out"]["before"] == summary["held_out"]["after"]


def test_a_trainer_of_its_own_hands_its_weights_to_the_engine_before_anything_is_scored(tmp_path, monkeypatch):
    events = []

    def note(owner: type, name: str) -> None:
        true = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args: (true(*args), events.append(name))[0])

    note(Switch, "sync"), note(SFT, "fit"), note(Trainer, "score")
    train(config.build("sft", "smoke", out=tmp_path / "sft", overrides={"eval_every": 1}))
    after = events[events.index("fit") + 1 :]
    assert after == ["sync", "score", "score"], "validation and test see the trained weights"


def test_tensorboard_gets_the_numbers(tmp_path):
    pytest.importorskip("tensorboard")
    out = run(tmp_path / "tracked", steps=1, track="tensorboard")
    assert list((out / "tensorboard").glob("events.*"))


def test_a_missing_tracker_package_is_named_before_anything_loads(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if it were not installed
    with pytest.raises(ValueError, match="coevolve\\[track\\]"):
        run(tmp_path / "tracked", track="wandb", model="no such model")
    assert not (tmp_path / "tracked").exists()


def test_mae_raises_held_out_accuracy_beyond_its_interval(tmp_path):
    out = train(config.build("mae", "quick", out=tmp_path / "mae", overrides={"steps": 30, "eval_every": 0}))
    scores = record.read(out, "scores")
    before, after = (scores[scores["stage"] == s].sort_values("item")["correct"].to_list() for s in ("before", "after"))
    gain = stats.paired_bootstrap([before], [after])
    assert gain.low > 0, f"gain {gain}"
