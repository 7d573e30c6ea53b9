"""A sink for metrics beside the files of a run: TensorBoard, trackio or Weights & Biases.

Each is an optional extra that is used through accelerate; `preflight.check` reports a missing one
before anything is loaded. A run that resumes continues in its own run of the service, and no step
is shown twice. What it needs for that stands in OUT/tracker.json.
"""

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from coevolve.runs import record
from coevolve.types import Outcome

TABLE_COLUMNS = ("episode", "role", "prompt", "completion", "reward")


@dataclass
class ServiceRun:
    """The run of a service that belongs to a run's folder."""

    # No service allows / \ # ? % or : in an id.
    id: str = field(default_factory=lambda: secrets.token_hex(6))
    last_step: int = 0  # whose metrics the service is known to have


@contextmanager
def tracker(
    kind: str,
    out: Path,
    name: str,
    config: Mapping[str, Any],
    steps_done: int = 0,
) -> Iterator[Any]:
    """Open the sink `kind`; its `log(values, step)` takes a step's metrics. "" ignores them.

    `log(values, step, outcomes)` also shows the samples of episodes, as a table of the service.
    `name` and `config` describe the run to services that show several runs. The run continues after
    step `steps_done`: TensorBoard hides later steps of an earlier attempt, the services get only
    those that they lack. Files are written to the run's folder `out`, except for trackio's.

    Raises ConnectionError if the sink cannot be opened.
    """
    if not kind:
        yield SimpleNamespace(log=lambda values, step, outcomes=(): None)
        return
    runs = _read_state(out)
    service = runs.setdefault(kind, ServiceRun())
    # Written first: a run that dies while the service starts must find the same id again.
    _write_state(out, runs)
    sink = _open(kind, out, name, config, service.id, steps_done)

    def log(
        values: Mapping[str, Any], step: int, outcomes: Sequence[Outcome] = ()
    ) -> None:
        is_known = kind != "tensorboard" and step <= service.last_step
        if not is_known:
            tables = _tables(kind, outcomes)
            sink.log({**values, **tables}, step)
            sent.append(step)

    sent: list[int] = []
    try:
        yield SimpleNamespace(log=log)
    finally:
        sink.finish()  # waits until everything has arrived
        service.last_step = max([service.last_step, *sent])
        _write_state(out, runs)


def _open(
    kind: str,
    out: Path,
    name: str,
    config: Mapping[str, Any],
    id: str,
    steps_done: int,
) -> Any:
    """Start accelerate's tracker, as a new run of the service or as the one with this id."""
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    options: dict[str, Any]
    if kind == "tensorboard":
        options = {
            "logging_dir": out / "tensorboard",
            "purge_step": steps_done + 1,
        }
    elif kind == "wandb":
        options = {
            "name": name,
            "config": config,
            "id": id,
            "resume": "allow",
            "dir": str(out.resolve()),
            "allow_val_change": True,  # of `steps`, when a finished run is extended
        }
    else:  # trackio has no ids: its runs are found by name
        options = {"name": f"{name}-{id}", "config": config, "resume": "allow"}
    try:
        sink = LOGGER_TYPE_TO_CLASS[kind]("coevolve", **options)
        sink.start()
    except Exception as error:  # each service has its own classes of errors
        reason = " ".join(str(error).split())[:300]
        raise ConnectionError(
            f"track {kind!r} cannot be opened: {type(error).__name__}: {reason}"
        ) from error
    return sink


def _tables(kind: str, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return a table of a service with the samples of episodes; TensorBoard has no tables."""
    if kind == "tensorboard" or not outcomes:
        return {}
    rows: list[list[Any]] = []
    for episode, outcome in enumerate(outcomes):
        for sample in outcome.samples:
            prompt = sample.reply.turn.messages[-1]["content"]
            reward = record.clean(sample.reward)
            rows.append([episode, sample.role, prompt, sample.reply.text, str(reward)])
    service = import_module(kind)
    if kind == "wandb":
        table = service.Table(columns=list(TABLE_COLUMNS), data=rows)
    else:
        from pandas import DataFrame

        table = service.Table(dataframe=DataFrame(rows, columns=list(TABLE_COLUMNS)))
    return {"completions": table}


def _read_state(out: Path) -> dict[str, ServiceRun]:
    """Return the run of each service that was used so far."""
    path = out / record.TRACKER_FILE
    if not path.is_file():
        return {}
    state = json.loads(path.read_bytes())
    return {kind: ServiceRun(**fields) for kind, fields in state.items()}


def _write_state(out: Path, runs: Mapping[str, ServiceRun]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    state = {kind: asdict(run) for kind, run in runs.items()}
    record.write_json(out / record.TRACKER_FILE, state)
