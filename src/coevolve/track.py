"""A sink for metrics beside the files of a run: TensorBoard, trackio or Weights & Biases, through accelerate.

Each is an extra that has to be installed; `preflight.check` names a missing one before anything loads.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from coevolve.config import Run


@contextmanager
def tracker(run: Run, first: bool = True) -> Iterator[Any]:
    """Open the sink that `run.track` names; its `log(values, step)` takes the numbers of a step.

    Without a name, and in a process that is not the `first` of its run, it ignores them. TensorBoard's files lie in
    the run's folder: `tensorboard --logdir OUT`.
    """
    if not (run.track and first):
        yield SimpleNamespace(log=lambda values, step: None)
        return
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    about = {"name": f"{run.method}-s{run.seed}", "config": run.describe()}
    options = {"logging_dir": run.out / "tensorboard"} if run.track == "tensorboard" else about
    sink = LOGGER_TYPE_TO_CLASS[run.track]("coevolve", **options)
    sink.start()
    try:
        yield sink
    finally:
        sink.finish()
