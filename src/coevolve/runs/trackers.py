"""A sink for metrics beside the files of a run: TensorBoard, trackio or Weights & Biases.

Each is an optional extra that is used through accelerate; `preflight.check` reports a missing one
before anything is loaded.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any


@contextmanager
def tracker(
    kind: str, out: Path, name: str, config: Mapping[str, Any]
) -> Iterator[Any]:
    """Open the sink `kind`; its `log(values, step)` takes a step's metrics. "" ignores them.

    `name` and `config` describe the run to services that show several runs. TensorBoard's files
    are written to the run's folder `out`; show them with `tensorboard --logdir OUT`.
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
