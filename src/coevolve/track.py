"""A sink for metrics beside the files of a run: TensorBoard, trackio or Weights & Biases, through accelerate.

Each is an extra that has to be installed; `preflight.check` names a missing one before anything loads.
"""

from typing import Any

from coevolve.config import Run


def tracker(run: Run) -> Any:
    """Start the sink that `run.track` names, or one that ignores everything; it has `log(values, step)` and `finish()`.

    TensorBoard's files lie in the run's folder: `tensorboard --logdir OUT`.
    """
    from accelerate import PartialState
    from accelerate.tracking import GeneralTracker, TensorBoardTracker, TrackioTracker, WandBTracker

    if not run.track:
        return GeneralTracker(_blank=True)
    PartialState()  # the sinks ask whether this is the main process
    if run.track == "tensorboard":
        sink = TensorBoardTracker("tensorboard", run.out)
    else:
        kind = TrackioTracker if run.track == "trackio" else WandBTracker
        sink = kind("coevolve", name=f"{run.method}-s{run.seed}", config=run.describe())
    sink.start()
    return sink
