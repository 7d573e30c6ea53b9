"""Stand-ins for wandb, trackio and TensorBoard, with the signatures and the rules of the real ones.

They behave as their documentation says about resuming: what a run shows is what a user would see.
"""

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch.utils


class ServiceRun:
    """A run of a service, and how often each step was logged to it."""

    def __init__(self, name: str | None, config: dict[str, Any]) -> None:
        self.name = name
        self.config = config
        self.rows: list[tuple[int, dict]] = []
        self.is_open = True

    @property
    def steps(self) -> list[int]:
        """The steps that the service shows, in the order in which they came."""
        return [step for step, _ in self.rows]

    def finish(self, exit_code: int | None = None, quiet: bool | None = None) -> None:
        """End the session."""
        self.is_open = False


class WandbRun(ServiceRun):
    """Ignores steps that are behind the current one, as wandb's service does."""

    def log(
        self, data: dict, step: int | None = None, commit: bool | None = None
    ) -> None:
        """Log a step."""
        assert self.is_open
        if not self.rows or step > self.steps[-1]:
            self.rows.append((step, data))


class TrackioRun(ServiceRun):
    """Shows whatever it gets."""

    def log(self, metrics: dict, step: int | None = None) -> None:
        """Log a step."""
        assert self.is_open
        self.rows.append((step, metrics))


class WandbTable:
    """A table of wandb."""

    def __init__(self, columns: list[str], data: list[list]) -> None:
        self.columns = columns
        self.rows = data


class TrackioTable:
    """A table of trackio."""

    def __init__(self, dataframe: Any) -> None:
        self.columns = list(dataframe.columns)
        self.rows = dataframe.to_numpy().tolist()


class Wandb(ModuleType):
    """The module wandb, and the runs of its server by id."""

    Table = WandbTable

    def __init__(self) -> None:
        super().__init__("wandb")
        self.__spec__ = ModuleSpec("wandb", None)
        self.runs: dict[str, WandbRun] = {}

    def init(  # noqa: PLR0913
        self,
        entity=None,
        project=None,
        dir=None,
        id=None,
        name=None,
        notes=None,
        tags=None,
        config=None,
        config_exclude_keys=None,
        config_include_keys=None,
        allow_val_change=None,
        group=None,
        job_type=None,
        mode=None,
        force=None,
        reinit=None,
        resume=None,
        resume_from=None,
        fork_from=None,
        save_code=None,
        settings=None,
    ) -> WandbRun:
        """Start a run, or resume the one with this id."""
        assert project == "coevolve"
        assert not set(id) & set("/\\#?%:")
        assert resume in (None, "allow", "must", "never", "auto")
        if resume == "must" and id not in self.runs:
            raise ValueError(f"no run {id}")
        if resume == "never" and id in self.runs:
            raise ValueError(f"run {id} exists")
        if resume is None or id not in self.runs:
            self.runs[id] = WandbRun(name, config)
        assert Path(dir).is_absolute()
        (Path(dir) / "wandb" / f"run-{id}").mkdir(parents=True, exist_ok=True)
        self.runs[id].is_open = True
        self.runs[id].config = config
        return self.runs[id]


class Trackio(ModuleType):
    """The module trackio, and the runs of its project by name."""

    Table = TrackioTable

    def __init__(self) -> None:
        super().__init__("trackio")
        self.__spec__ = ModuleSpec("trackio", None)
        self.runs: dict[str, TrackioRun] = {}

    def init(  # noqa: PLR0913
        self,
        project: str,
        name: str | None = None,
        group: str | None = None,
        space_id: str | None = None,
        space_storage=None,
        dataset_id: str | None = None,
        config: dict | None = None,
        resume: str = "never",
        settings=None,
        private: bool | None = None,
        embed: bool = True,
        auto_log_gpu: bool | None = None,
        gpu_log_interval: float = 10.0,
    ) -> TrackioRun:
        """Start a run, or resume the one with this name."""
        assert project == "coevolve"
        assert resume in ("allow", "must", "never")
        if resume == "never" and name in self.runs:
            name = f"{name}-generated-{len(self.runs)}"
        run = self.runs.setdefault(name, TrackioRun(name, config))
        run.is_open = True
        return run


class EventFiles(ModuleType):
    """The module torch.utils.tensorboard, and the events that were written to each folder."""

    def __init__(self) -> None:
        super().__init__("torch.utils.tensorboard")
        self.events: dict[Path, list[tuple[str, int]]] = {}
        files = self

        class SummaryWriter:
            """Writes events to a folder."""

            def __init__(  # noqa: PLR0913
                self,
                log_dir=None,
                comment="",
                purge_step=None,
                max_queue=10,
                flush_secs=120,
                filename_suffix="",
            ) -> None:
                self.events = files.events.setdefault(Path(log_dir), [])
                if purge_step is not None:
                    self.events.append(("start", purge_step))

            def add_scalar(
                self, tag, scalar_value, global_step=None, walltime=None, **options
            ) -> None:
                """Write an event."""
                self.events.append((tag, global_step))

            def flush(self) -> None:
                """Write what waits."""

            def close(self) -> None:
                """Close the file."""

        self.SummaryWriter = SummaryWriter

    def steps(self, folder: Path, tag: str) -> list[int]:
        """Return the steps of a curve that TensorBoard shows.

        A session that starts at a step hides the events of earlier sessions from that step on.
        """
        shown: list[int] = []
        for name, step in self.events[folder]:
            if name == "start":
                shown = [earlier for earlier in shown if earlier < step]
            elif name == tag:
                shown.append(step)
        return shown


class Sinks:
    """All three, in place of the real ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wandb = Wandb()
        self.trackio = Trackio()
        self.tensorboard = EventFiles()
        package = ModuleType("tensorboard")
        package.__spec__ = ModuleSpec("tensorboard", None)
        modules = {
            "wandb": self.wandb,
            "trackio": self.trackio,
            "tensorboard": package,
            "torch.utils.tensorboard": self.tensorboard,
        }
        for name, module in modules.items():
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr(torch.utils, "tensorboard", self.tensorboard, raising=False)

    def shown(self, kind: str, out: Path, metric: str) -> list[list[int]]:
        """Return the steps of a metric in each run that a user sees for the folder `out`."""
        if kind == "tensorboard":
            folder = out / "tensorboard" / "coevolve"
            return [self.tensorboard.steps(folder, metric)]
        return [run.steps for run in getattr(self, kind).runs.values()]
