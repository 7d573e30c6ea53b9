"""Optional sinks for metrics beside the files of a run: TensorBoard, trackio, Weights & Biases.

Each is an extra that has to be installed; a missing one is reported before training starts.
"""

import importlib
from collections.abc import Mapping
from typing import Any

from coevolve.config import Run
from coevolve.record import clean

PACKAGES = {"tensorboard": "torch.utils.tensorboard", "trackio": "trackio", "wandb": "wandb"}


class Tracker:
    """A sink that ignores everything; the others are alike."""

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Take the numbers of one step."""

    def close(self) -> None:
        """Flush and let go."""


class TensorBoard(Tracker):
    """Scalars into the run's own folder: `tensorboard --logdir <out>`."""

    def __init__(self, module: Any, run: Run):
        self.writer = module.SummaryWriter(run.out / "tensorboard")

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Write every number as a scalar."""
        for name, value in numbers(metrics).items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Close the event file."""
        self.writer.close()


class Logged(Tracker):
    """trackio and wandb share one interface: init, log, finish."""

    def __init__(self, module: Any, run: Run):
        self.module = module
        module.init(project="coevolve", name=f"{run.method}-s{run.seed}", config=clean(run.describe()))

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Send the numbers of one step."""
        self.module.log(numbers(metrics), step=step)

    def close(self) -> None:
        """Finish the remote run."""
        self.module.finish()


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers among the metrics."""
    return {name: value for name, value in clean(metrics).items() if isinstance(value, (int, float))}


def package(name: str) -> Any:
    """Import what a tracker needs; raise ValueError when it is not installed."""
    try:
        return importlib.import_module(PACKAGES[name])
    except ImportError as error:
        raise ValueError(f"track = {name!r} needs its package: pip install 'coevolve[track]' ({error})") from None


def tracker(run: Run) -> Tracker:
    """Make the sink that `run.track` names; raise ValueError when its package is not installed."""
    if not run.track:
        return Tracker()
    return (TensorBoard if run.track == "tensorboard" else Logged)(package(run.track), run)
