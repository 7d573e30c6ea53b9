"""A sink for metrics beside the files of a run: TensorBoard, trackio or Weights & Biases, through accelerate.

Each is an extra that has to be installed; `preflight.check` names a missing one before anything loads.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any


@contextmanager
def tracker(kind: str, out: Path, name: str, config: Mapping[str, Any]) -> Iterator[Any]:
    """Open the sink `kind`; its `log(values, step)` takes a step's metrics. An empty kind ignores them.

    `name` and `config` describe the run to services that show several. TensorBoard's files lie in
    the run's folder `out`: `tensorboard --logdir OUT`.
    """
    if not kind:
        yield SimpleNamespace(log=lambda values, step: None)
        return
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    options: dict[str, Any] = {"name": name, "config": config}
    if kind == "tensorboard":
        options = {"logging_dir": out / "tensorboard"}
    sink = LOGGER_TYPE_TO_CLASS[kind]("coevolve", **options)
    sink.start()
    try:
        yield sink
    finally:
        sink.finish()
