"""A run's folder: equal runs write equal bytes, stopped runs resume, other runs are refused."""

import json
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pandas
import pytest
from filelock import FileLock
from small_runs import (
    FIELDS,
    SMALL,
    assert_same_bytes,
    summary_of,
    train_small,
    train_small_by_command,
)

from coevolve.runs import record
from coevolve.runs.checkpoint import newest
from coevolve.training import loop
from coevolve.training.trainer import Trainer
from tinyworld import tasks as tiny

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of MAE that nothing interrupted."""
    return train_small(tmp_path_factory.mktemp("runs") / "uninterrupted")


class TestSameBytes:
    def test_the_same_run_twice_writes_the_same_bytes(self, finished_run, tmp_path):
        again = train_small(tmp_path / "again")
        assert_same_bytes(finished_run, again)

    def test_another_seed_writes_other_metrics(self, finished_run, tmp_path):
        other = train_small(tmp_path / "other", seed=1)
        metrics = (other / "metrics.jsonl").read_bytes()
        assert metrics != (finished_run / "metrics.jsonl").read_bytes()


def train_in_two_halves(out: Path, method: str, **fields) -> Path:
    """Train half of a small run's steps, then all of them, as if it had been stopped."""
    half = FIELDS[method].get("steps", SMALL["steps"]) // 2
    train_small(out, method, **fields, steps=half)
    (out / "summary.json").unlink()
    with pytest.raises(ValueError, match=f"holds a checkpoint of step {half}"):
        train_small(out, method, **fields, steps=half - 1)
    train_small(out, method, **fields)
    assert summary_of(out)["resumed_at"] == half
    return out


def assert_resumes_bit_for_bit(folder: Path, method: str, **fields) -> pandas.DataFrame:
    """Check a run in two halves against one in one piece; return the metrics of the latter."""
    whole = train_small(folder / "whole", method, **fields)
    halves = train_in_two_halves(folder / "halves", method, **fields)
    assert_same_bytes(whole, halves)
    return record.read(whole)


class TestResume:
    def test_mae_resumes_bit_for_bit(self, tmp_path):
        assert_resumes_bit_for_bit(tmp_path, "mae", estimator="rae")

    def test_conl_resumes_bit_for_bit(self, tmp_path):
        metrics = assert_resumes_bit_for_bit(tmp_path, "conl", estimator="gae")
        assert metrics["r_diag_null"].notna().any()
        assert metrics["reward/revision/revised_solution"].notna().any()
        assert "reward/review/initial_ranking" not in metrics, "masked"
        conversations = record.read(tmp_path / "whole", "conversations")
        assert len(conversations) == 12

    @pytest.mark.parametrize("lora", [[], [4, 8, 0.1]], ids=["full", "lora"])
    def test_comas_resumes_bit_for_bit(self, lora, tmp_path):
        metrics = assert_resumes_bit_for_bit(tmp_path, "comas", lora=lora)
        kl = metrics["kl"].dropna().tolist()
        assert abs(kl[0]) < 1e-4, "the policies start at the reference"
        assert abs(kl[-1]) > 1e-4, "and leave it"
        rewards = metrics["normalised"].dropna().tolist()
        assert rewards == [0.5, 0.5], "zero-sum"

    @pytest.mark.thorough
    @pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc")
    def test_killed_runs_resume_bit_for_bit(self):
        command = [sys.executable, "-m", "benchmarks.kills", "4", "--methods", "mae"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout[done.stdout.index(b"{") :])
        assert report["survived"] == report["runs"] >= 1
        assert report["lost"] == []


class TestInterrupted:
    @pytest.mark.parametrize(
        ("signals", "steps_done", "checkpoints"),
        [
            pytest.param([signal.SIGINT], 2, ["step-00000002"], id="Ctrl-C"),
            pytest.param([signal.SIGTERM] * 2, 2, ["step-00000002"], id="SIGTERM"),
            pytest.param([signal.SIGINT] * 2, 0, [], id="Ctrl-C twice"),
        ],
    )
    def test_a_signal_ends_a_run_after_the_step_and_it_resumes(
        self,
        signals,
        steps_done,
        checkpoints,
        finished_run,
        tmp_path,
        monkeypatch,
        capfd,
    ):
        original_learn = Trainer.learn
        original_handler = signal.getsignal(signal.SIGINT)

        def learn_with_signals(self, step, outcomes):
            if step == 2:
                for number in signals:
                    signal.raise_signal(number)
            return original_learn(self, step, outcomes)

        out = tmp_path / "interrupted"
        with monkeypatch.context() as patch:
            patch.setattr(Trainer, "learn", learn_with_signals)
            assert train_small_by_command(out, save_every=3) == 130
        assert [path.name for path in out.glob("checkpoints/step-*")] == checkpoints
        message = capfd.readouterr().err
        assert message.endswith(
            f"\nstopped at step {steps_done}; run the same command to resume\n"
        )
        assert "Traceback" not in message
        assert signal.getsignal(signal.SIGINT) == original_handler
        assert_same_bytes(finished_run, train_small(out))

    def test_an_interrupted_notebook_has_a_checkpoint(self, tmp_path, monkeypatch):
        def interrupt(*args):
            signal.raise_signal(signal.SIGINT)
            return {}

        monkeypatch.setattr(Trainer, "learn", interrupt)
        message = "^stopped at step 1; train the same run again to resume$"
        with pytest.raises(KeyboardInterrupt, match=message):
            train_small(tmp_path / "run", save_every=3)
        step, _ = newest(tmp_path / "run" / "checkpoints")
        assert step == 1

    def test_a_full_disk_is_one_line_and_loses_nothing(
        self, finished_run, tmp_path, monkeypatch, capfd
    ):
        out = tmp_path / "full"
        original_step = record.Recorder.step

        def step_until_the_disk_is_full(self, number, *args):
            original_step(self, number, *args)
            if number == 3:
                metrics = self.out / "metrics.jsonl"
                metrics.write_bytes(metrics.read_bytes()[:-9])  # the last line is cut
                raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(record.Recorder, "step", step_until_the_disk_is_full)
            assert train_small_by_command(out) == 1
        last_line = capfd.readouterr().err.splitlines()[-1]
        assert f"No space left on device; --out {out} resumes later" in last_line
        assert_same_bytes(finished_run, train_small(out))


def file_versions(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return modification time and inode of everything in a folder."""
    versions = {}
    for path in folder.rglob("*"):
        status = path.stat()
        versions[path] = (status.st_mtime_ns, status.st_ino)
    return versions


@dataclass(frozen=True)
class OtherRun:
    """A run that must not continue in the folder of a run of MAE, and how the two differ."""

    difference: str
    method: str
    fields: dict[str, object]


SHORTENED_MODEL = f"'{'x' * 12}...{'x' * 13}'"  # of 99 characters
OTHER_RUNS = {
    "values": OtherRun(
        "batch_size 4 there, 5 now; solves 2 there, 3 now;",
        "mae",
        {"batch_size": 5, "solves": 3, "steps": 2},
    ),
    "long value": OtherRun(
        f"model 'tiny' there, {SHORTENED_MODEL} now;",
        "mae",
        {"model": "x" * 99},
    ),
    # Another method's fields are not compared.
    "method": OtherRun("method 'mae' there, 'base' now;", "base", {}),
}


class TestSecondRun:
    """A second run in the folder of a first."""

    @pytest.mark.parametrize(
        "arguments", [[], ["steps=2"]], ids=["same", "fewer steps"]
    )
    def test_a_finished_run_says_so(self, arguments, finished_run, capsys):
        before = file_versions(finished_run)
        assert train_small_by_command(finished_run, *arguments) == 0
        (line,) = capsys.readouterr().out.splitlines()
        start = (
            f"{finished_run} is already finished. To extend it, set a larger steps=N"
        )
        assert line.startswith(start)
        assert file_versions(finished_run) == before

    def test_a_finished_run_is_not_changed(self, finished_run):
        before = file_versions(finished_run)
        assert train_small(finished_run) == finished_run
        assert file_versions(finished_run) == before

    def test_a_folder_in_use_is_refused_before_a_model_loads(
        self, tmp_path, monkeypatch, capsys
    ):
        monkeypatch.setattr(loop, "_load_trainer", pytest.fail)
        with FileLock(tmp_path / ".in-use"):
            assert train_small_by_command(tmp_path) == 2
        line = capsys.readouterr().err.splitlines()[-1]
        assert f"another process is training in {tmp_path}" in line
        assert str(tmp_path / ".in-use") in line
        assert "resumes later" not in line
        assert not (tmp_path / "metrics.jsonl").exists()

    @pytest.mark.parametrize("other", OTHER_RUNS.values(), ids=OTHER_RUNS)
    def test_a_folder_of_another_run_is_refused_by_field(self, other, finished_run):
        start = f"{finished_run} holds a run with other settings"
        message = f"{start}: {other.difference} use its values"
        with pytest.raises(ValueError, match=re.escape(message)):
            train_small(finished_run, other.method, **other.fields)


class TestFinishedRun:
    @pytest.mark.parametrize("stage", ["before", "after"])
    def test_the_summary_counts_every_test_item(self, stage, finished_run):
        scores = record.read(finished_run, "scores")
        rows = scores[scores["stage"] == stage]
        counts = {"k": int(rows["correct"].sum()), "n": len(rows)}
        assert summary_of(finished_run)["held_out"][stage] == counts
        assert {*rows["split"]} == {"test"}

    def test_the_phases_around_the_steps_take_less_time_than_the_run(
        self, finished_run
    ):
        summary = summary_of(finished_run)
        seconds_around_steps = sum(summary["seconds_around"].values())
        assert 0 < seconds_around_steps < summary["seconds"]

    def test_the_pools_hold_no_held_out_question(self, finished_run):
        checkpoint = max(finished_run.glob("checkpoints/step-*"))
        pools = json.loads((checkpoint / "pools.json").read_text("utf-8"))
        assert pools["pairs"]
        splits = {tiny.split(question) for question in pools["questions"]}
        assert splits <= {"train"}
