"""The loop: play a step's episodes, commit the pools, learn, look at validation, save. Resumes bit for bit.

Loads torch only when everything else that a run needs is there. Knows no paper.
"""

import gc
import json
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock
from tqdm.auto import tqdm

from coevolve.advantages.segments import segments
from coevolve.evaluation.scoring import tally
from coevolve.methods.base import Method
from coevolve.runs import record, show
from coevolve.runs.trackers import tracker
from coevolve.training import diagnostics, preflight
from coevolve.training.config import Run
from coevolve.types import Outcome, Sample, T

if TYPE_CHECKING:
    from coevolve.training.trainer import Trainer


SLOW = {"load": "loading", "held_out": "asking the test questions", "setups": "and again in other set-ups"}


def timed(seconds: dict[str, float], phase: str, function: Callable[..., T], *arguments: Any) -> T:
    """Run a function and add the seconds it takes to those of a phase; during one of SLOW they are shown."""
    start = time.perf_counter()
    with waiting(SLOW[phase]) if phase in SLOW else nullcontext():  # no other bar is open then
        result = function(*arguments)
    seconds[phase] = seconds.get(phase, 0.0) + time.perf_counter() - start
    return result


def waiting(what: str) -> tqdm:
    """Return a bar without a length: until it is closed the first process says on stderr what is done and how long."""
    return ticking(tqdm(bar_format=f"{what} ... {{elapsed}}", disable=os.environ.get("RANK", "0") != "0"))


def ticking(bar: tqdm) -> tqdm:
    """Draw a bar anew until it is closed, as one step may take minutes: each second, off a terminal every ten."""

    def tick() -> None:
        while not bar.disable:  # closing sets it
            time.sleep(1 if bar.fp.isatty() else 10)
            bar.refresh()

    threading.Thread(target=tick, daemon=True).start()
    return bar


def train(run: Run) -> Path:
    """Run to the end, or go on from the newest checkpoint in `run.out`; return that folder.

    Leaves config.json, metrics.jsonl, episodes.jsonl, scores.csv (every test item before and after),
    summary.json and the trained `policy`. Training sees neither validation nor test questions.
    A finished run is left as it is. Raises ValueError in one line, before a model loads, when something that the run
    needs is missing. Ctrl-C or SIGTERM saves a checkpoint after the step and raises KeyboardInterrupt; the same run
    goes on there. A second Ctrl-C does not wait for the step. TimeoutError: another run is at work in the folder.
    """
    if preflight.finished(run):
        return run.out
    began, around = time.perf_counter(), dict[str, float]()
    preflight.check(run)
    run.protocol.before_run()
    trainer = timed(around, "load", _load, run)
    out = Path(run.out if trainer.distributed.is_main_process else trainer.scratch.name)
    with closing(trainer.engine), FileLock(out / ".in-use", blocking=False):
        done = trainer.resume()
        if done > run.steps:
            raise ValueError(f"steps: {out} holds a checkpoint of step {done}, allowed is that many or more")
        if not done:
            trainer.before = timed(around, "held_out", trainer.score, "test")
        log = record.Recorder(out, done)
        record.write_json(log.out / "config.json", run.describe())
        _learn(trainer, log, done)
        scores = {"before": trainer.before, "after": timed(around, "held_out", trainer.score, "test")}
        rows = [{"stage": stage, **row} for stage, scored in scores.items() for row in scored]
        for setup in [name for name in run.protocol.setups if name != "vanilla"]:
            rows += [{"stage": "after", **row} for row in timed(around, "setups", trainer.score, "test", setup)]
        log.scores(rows)
        extra = timed(around, "after_run", run.protocol.after_run, trainer.engine, (*trainer.key, 1), log)
        trainer.save_policies("policy")
        rows = [json.loads(line) for line in (log.out / "metrics.jsonl").read_bytes().splitlines()]
        shares = diagnostics.acted(rows, run.protocol.gates)
        summary = {
            "held_out": {stage: tally(scored) for stage, scored in scores.items()},
            "seconds": round(time.perf_counter() - began, 2),
            "seconds_around": {phase: round(seconds, 2) for phase, seconds in around.items()},
            "steps": run.steps,
            # TRL's trainers count steps of their own.
            **{"taken": rows[-1]["step"], "method": run.method, "seed": run.seed},
            "resumed_at": done,
            "made_with": {"python": platform.python_version(), "torch": version("torch"), "on": platform.platform()},
            "acted": shares,
            "warnings": diagnostics.warnings(shares, rows, run.protocol.answering.name),
            **extra,
        }
        record.write_json(log.out / "summary.json", summary)
    return run.out


def _load(run: Run) -> "Trainer":
    """Import torch and load the policies."""
    gc.disable()  # what the imports make is not garbage: looking through it again and again costs a fifth of their time
    from coevolve.training.trainer import Trainer

    gc.enable()
    return Trainer(run)


def _learn(trainer: "Trainer", log: record.Recorder, done: int) -> None:
    """Take the run's steps from `done` on, or let the method's own trainer take them."""
    run, clock = trainer.run, dict[str, float]()
    if done == 0:
        log.step(0, _validate(trainer, clock), clock)
        clock.clear()
    steps = timed(clock, "learn", run.protocol.fit, trainer.team.primary, run)
    if steps is not None:
        trainer.engine.load_weights()
        log.step(steps, _validate(trainer, clock), clock)
        return
    silence = 0
    bar = tqdm(total=run.steps, initial=done, desc=f"{run.method} seed {run.seed}", disable=not trainer.distributed.is_main_process)
    sink_kind = run.track if trainer.distributed.is_main_process else ""
    metric_sink = tracker(sink_kind, run.out, f"{run.method}-s{run.seed}", run.describe())
    with metric_sink as sink, ticking(bar), stoppable() as came:
        for step in range(done + 1, run.steps + 1):
            metrics = _step(trainer, log, clock, step)
            sink.log(metrics, step)
            silence = silence + 1 if diagnostics.silent(metrics) or metrics.get("skipped_update") else 0
            if silence == diagnostics.SILENCE and trainer.distributed.is_main_process:
                why = "no reward varies, or no gradient is finite"
                tqdm.write(f"step {step}: nothing learnt for {silence} steps: {why}")
            bar.set_postfix({name: metrics[name] for name in metrics if name.startswith(("reward/", "validation"))})
            bar.update()
            stops = any(trainer.distributed.gather([*came]))  # what one rank was told, all are
            if stops or step % run.save_every == 0 or step == run.steps:
                timed(clock, "save", trainer.save, step)
            if stops:
                raise KeyboardInterrupt(f"stopped at step {step}; train the same run again to go on")


@contextmanager
def stoppable() -> Iterator[list[int]]:
    """Note SIGINT and SIGTERM in a list, so that a step ends as if nothing had come; a second Ctrl-C does not wait.

    Launchers of several processes follow a Ctrl-C with SIGTERM, so that one always waits. Outside the main thread,
    which alone may receive signals, nothing changes.
    """
    came: list[int] = []

    def receive(number: int, frame: object) -> None:
        came.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.write(2, b"\nstopping after this step; Ctrl-C once more stops at once\n")  # print may be busy

    here = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM) if here}
    try:
        yield came
    finally:
        for number, receiver in before.items():
            signal.signal(number, receiver or signal.SIG_DFL)  # None: not set from Python


def _step(trainer: "Trainer", log: record.Recorder, clock: dict[str, float], step: int) -> dict[str, Any]:
    """Play, learn, look at validation and record one step; return its metrics."""
    run = trainer.run
    outcomes = timed(clock, "play", trainer.play, step)
    metrics = numbers_of(outcomes, timed(clock, "learn", trainer.learn, step, outcomes), run.protocol)
    if run.eval_every and (step % run.eval_every == 0 or step == run.steps):
        metrics |= _validate(trainer, clock)
        if trainer.distributed.is_main_process:
            said = {s.role: f"{s.role}, {show.rewards(s)}: {s.reply.text[:100]!r}" for s in outcomes[0].samples}
            tqdm.write("\n  ".join([f"step {step}, replies of one episode:", *said.values()]))
    log.episodes(step, outcomes, run.keep_episodes)
    log.step(step, metrics, clock)
    clock.clear()
    run.protocol.after_step(step, trainer.save_policies)
    return metrics


def _validate(trainer: "Trainer", clock: dict[str, float]) -> dict[str, float]:
    """Share of the validation items answered right; nothing when `eval_every` is 0 or there are no such items."""
    counts = tally(timed(clock, "evaluate", trainer.score, "validation")) if trainer.run.eval_every else {"n": 0}
    return {"validation": counts["k"] / counts["n"]} if counts["n"] else {}


def numbers_of(outcomes: Sequence[Outcome], learnt: Mapping[str, float], method: Method) -> dict[str, Any]:
    """A step's metrics: mean facts, learner, mean reward and length by role (and by policy, of several), counts."""
    facts = [fact for outcome in outcomes for fact in outcome.facts.items() if isinstance(fact[1], (int, float))]
    samples = [sample for outcome in outcomes for sample in outcome.samples]
    by_role = [pair for s in samples for pair in _earned(s, s.role)]
    by_both = [pair for s in samples for name in (s.role, s.policy) for pair in _earned(s, name)]
    earned = by_both if len(method.policies) > 1 else by_role
    counts = {"generated": sum(outcome.generated for outcome in outcomes)}
    counts |= {f"pool/{name}": len(pool) for name, pool in method.pools.items()}
    spreads = diagnostics.spreads(by_role)
    return {**record.means(facts), **learnt, **record.means(earned), **spreads, **counts, **method.measure()}


def _earned(sample: Sample, name: str) -> list[tuple[str, float | None]]:
    """Return a sample's rewards, by segment where segments are paid, and its length, of a role or a policy."""
    paid = [(f"reward/{name}/{tag}".rstrip("/"), value) for tag, value in segments(sample).items()]
    return [*paid, (f"length/{name}", len(sample.reply.completion_ids))]
