"""Experiment trackers: a resumed run is one run of the service, and shows every step once."""

import json
import sys
from pathlib import Path

import pytest
from fake_sinks import Sinks
from small_runs import train_small

from coevolve.runs import record
from coevolve.runs.record import TRACKER_FILE
from coevolve.runs.trackers import TABLE_COLUMNS, tracker
from coevolve.training.trainer import Trainer
from coevolve.types import Outcome, Reply, Turn

KINDS = ("tensorboard", "trackio", "wandb")
SERVICES = ("trackio", "wandb")
METRIC = "reward"


@pytest.fixture
def sinks(monkeypatch: pytest.MonkeyPatch) -> Sinks:
    """The services, none of which is installed."""
    return Sinks(monkeypatch)


def log(kind: str, out: Path, steps: range, error: Exception | None = None) -> None:
    """Log some steps of a run; `error` is raised while the sink is open."""
    done = steps.start - 1
    with tracker(kind, out, "own-s0", {"seed": 0}, done) as sink:
        for step in steps:
            sink.log({METRIC: 0.5}, step)
        if error:
            raise error


@pytest.mark.parametrize("kind", KINDS)
class TestSteps:
    """What a user sees of a run that was interrupted."""

    def test_one_session_shows_its_steps(
        self, kind: str, sinks: Sinks, tmp_path: Path
    ) -> None:
        log(kind, tmp_path, range(1, 4))
        assert sinks.shown(kind, tmp_path, METRIC) == [[1, 2, 3]]

    @pytest.mark.parametrize("start", [1, 2, 3, 4])
    def test_steps_that_are_taken_again_are_shown_once(
        self, start: int, kind: str, sinks: Sinks, tmp_path: Path
    ) -> None:
        with pytest.raises(KeyError):
            log(kind, tmp_path, range(1, 4), KeyError("a fault"))
        log(kind, tmp_path, range(start, 6))
        assert sinks.shown(kind, tmp_path, METRIC) == [[1, 2, 3, 4, 5]]

    def test_many_sessions_are_one_run(
        self, kind: str, sinks: Sinks, tmp_path: Path
    ) -> None:
        for start in (1, 2, 2, 3, 1, 4):
            log(kind, tmp_path, range(start, start + 3))
        assert sinks.shown(kind, tmp_path, METRIC) == [[*range(1, 7)]]

    def test_a_killed_session_is_resumed_as_well(
        self, kind: str, sinks: Sinks, tmp_path: Path
    ) -> None:
        log(kind, tmp_path, range(1, 3))
        state = (tmp_path / TRACKER_FILE).read_bytes()
        log(kind, tmp_path, range(3, 5))
        (tmp_path / TRACKER_FILE).write_bytes(state)  # a kill leaves what stood there
        log(kind, tmp_path, range(3, 6))
        (steps,) = sinks.shown(kind, tmp_path, METRIC)
        assert sorted(set(steps)) == [1, 2, 3, 4, 5]

    def test_two_folders_are_two_runs(
        self, kind: str, sinks: Sinks, tmp_path: Path
    ) -> None:
        folders = [tmp_path / "a", tmp_path / "b"]
        for folder in folders:
            log(kind, folder, range(1, 3))
        shown = [sinks.shown(kind, folder, METRIC) for folder in folders]
        runs = shown[0] + shown[1] if kind == "tensorboard" else shown[0]
        assert runs == [[1, 2], [1, 2]]


class TestServices:
    @pytest.mark.parametrize("kind", SERVICES)
    def test_a_service_gets_the_run_s_name_and_fields(
        self, kind: str, sinks: Sinks, tmp_path: Path
    ) -> None:
        log(kind, tmp_path, range(1, 2))
        (run,) = getattr(sinks, kind).runs.values()
        assert run.name.startswith("own-s0")
        assert run.config == {"seed": 0}
        assert not run.is_open

    @pytest.mark.parametrize("kind", SERVICES)
    def test_a_session_that_fails_is_ended(
        self, kind: str, sinks: Sinks, tmp_path: Path
    ) -> None:
        with pytest.raises(KeyError):
            log(kind, tmp_path, range(1, 2), KeyError("a fault"))
        (run,) = getattr(sinks, kind).runs.values()
        assert not run.is_open

    def test_files_of_wandb_stay_in_the_folder_of_the_run(
        self, sinks: Sinks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        log("wandb", Path("../run"), range(1, 2))
        assert list(Path.cwd().iterdir()) == []
        (id,) = sinks.wandb.runs
        assert (tmp_path / "run/wandb" / f"run-{id}").is_dir()

    def test_a_folder_remembers_the_run_of_each_service(
        self, sinks: Sinks, tmp_path: Path
    ) -> None:
        for kind, steps in {"wandb": range(1, 3), "trackio": range(3, 5)}.items():
            log(kind, tmp_path, steps)
        log("wandb", tmp_path, range(5, 6))
        assert sinks.shown("wandb", tmp_path, METRIC) == [[1, 2, 5]]
        assert sinks.shown("trackio", tmp_path, METRIC) == [[3, 4]]

    @pytest.mark.parametrize("kind", SERVICES)
    def test_a_run_that_starts_again_is_another_run_of_the_service(
        self, kind: str, sinks: Sinks, tmp_path: Path
    ) -> None:
        record.write_json(tmp_path / "config.json", {"method_fields": {}})
        log(kind, tmp_path, range(1, 4))
        record.remove_run(tmp_path)
        log(kind, tmp_path, range(1, 3))
        assert sinks.shown(kind, tmp_path, METRIC) == [[1, 2, 3], [1, 2]]

    def test_the_run_is_known_before_the_service_starts(
        self, sinks: Sinks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as context:
            context.setattr(sinks.wandb, "init", lambda **options: 1 / 0)
            with pytest.raises(ConnectionError, match="track 'wandb' cannot be opened"):
                log("wandb", tmp_path, range(1, 2))
        id = json.loads((tmp_path / TRACKER_FILE).read_bytes())["wandb"]["id"]
        log("wandb", tmp_path, range(1, 2))
        assert list(sinks.wandb.runs) == [id]

    def test_a_service_that_cannot_be_reached_is_one_line(
        self, sinks: Sinks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(**options: object) -> None:
            raise RuntimeError("api_key\nnot configured")

        monkeypatch.setattr(sinks.wandb, "init", refuse)
        with pytest.raises(ConnectionError) as error:
            log("wandb", tmp_path, range(1, 2))
        assert str(error.value) == (
            "track 'wandb' cannot be opened: RuntimeError: api_key not configured"
        )

    @pytest.mark.parametrize("kind", KINDS)
    def test_samples_are_shown_as_a_table(
        self, kind: str, sinks: Sinks, tmp_path: Path
    ) -> None:
        turn = Turn("solver", ({"role": "user", "content": "3+4=?"},))
        outcomes = [Outcome([Reply(turn, "7").earns(1.0)])]
        with tracker(kind, tmp_path, "own-s0", {}) as sink:
            sink.log({METRIC: 0.5}, 1, outcomes)
        if kind == "tensorboard":
            assert sinks.shown(kind, tmp_path, METRIC) == [[1]], "it has no tables"
            return
        (run,) = getattr(sinks, kind).runs.values()
        ((step, values),) = run.rows
        assert (step, values[METRIC]) == (1, 0.5)
        assert values["completions"].columns == list(TABLE_COLUMNS)
        assert values["completions"].rows == [[0, "solver", "3+4=?", "7", "1.0"]]

    def test_no_tracker_ignores_the_numbers_and_writes_nothing(
        self, tmp_path: Path
    ) -> None:
        log("", tmp_path, range(1, 4))
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_is_interrupted_behind_its_checkpoint_shows_every_step_once(
    kind: str, sinks: Sinks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    learn = Trainer.learn

    def fail_at_the_fourth_step(self: Trainer, step: int, outcomes: list) -> dict:
        if step == 4:
            raise OSError("no space left")
        return learn(self, step, outcomes)

    fields = {"steps": 5, "save_every": 2, "eval_every": 0, "track": kind}
    with monkeypatch.context() as context:
        context.setattr(Trainer, "learn", fail_at_the_fourth_step)
        with pytest.raises(OSError, match="no space left"):
            train_small(out, **fields)
    train_small(out, **fields)
    metric = "entropy"
    assert metric in record.read(out)
    assert sinks.shown(kind, out, metric) == [[1, 2, 3, 4, 5]]


@pytest.mark.thorough
def test_a_method_with_a_trainer_of_its_own_reports_its_last_step(
    sinks: Sinks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "trackio")  # TRL would ask it for more
    out = train_small(tmp_path / "run", "sft", track="wandb", eval_every=1)
    (run,) = sinks.wandb.runs.values()
    last = record.read(out).iloc[-1]
    assert run.rows == [(last["step"], {"validation": last["validation"]})]
