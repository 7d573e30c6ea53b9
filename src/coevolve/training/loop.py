"""The training loop: play a step's episodes, learn from them, evaluate, save; resumes bit for bit.

Loads torch only after everything else that a run needs has been checked. Holds nothing that is
specific to one method.
"""

import gc
import json
import platform
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from coevolve.evaluation.scoring import count_correct
from coevolve.methods.base import Method
from coevolve.models import environment
from coevolve.rollout.errors import explained
from coevolve.runs import record
from coevolve.runs.trackers import tracker
from coevolve.training import diagnostics, preflight
from coevolve.training.config import Run
from coevolve.training.interrupts import stop_after_step
from coevolve.training.lost_state import AttributeWatch
from coevolve.training.metrics import step_metrics
from coevolve.training.progress import StepDisplay, StepEnd, Timer, is_first_process
from coevolve.types import Outcome

if TYPE_CHECKING:
    from coevolve.training.trainer import Trainer

# What the terminal says while the test questions are asked.
ASKING = "asking the test questions"
ASKING_AGAIN = "testing other inference strategies"

ScoreRows = list[dict[str, object]]  # one row per test item


def train(run: Run, fresh: bool = False) -> Path:
    """Play, learn, evaluate and save until the last step; return the run's folder.

    Resumes from the newest checkpoint in `run.out`; returns at once if the run is finished. Writes
    config.json, metrics.jsonl, episodes.jsonl, scores.csv (every test item before and after
    training), summary.json and the trained `policy`. Training never sees validation or test
    questions. `fresh` removes an earlier run from the folder and starts again.

    Raises ValueError in one line, before a model loads, if something that the run needs is missing,
    or if another process is training in the folder. After Ctrl-C or SIGTERM during a step, the step
    is finished and saved, then KeyboardInterrupt is raised; training the same run again resumes
    there. A second Ctrl-C does not wait for the step.
    """
    if not fresh and preflight.is_finished(run):
        return run.out
    timer = Timer()
    _check(run)
    with _opened(run, timer, fresh) as (trainer, out):
        resumed_at = _resume(trainer, out)
        if resumed_at == 0:  # otherwise the checkpoint holds these scores
            with timer.phase("held_out", show=ASKING):
                trainer.scores_before = trainer.evaluate("test")
        log = record.Recorder(out, resumed_at)
        record.write_json(out / "config.json", run.describe())

        _train_policies(trainer, log, resumed_at)

        with timer.phase("held_out", show=ASKING):
            scores_after = trainer.evaluate("test")
        scores = {"before": trainer.scores_before, "after": scores_after}
        log.scores(_rows_of_stages(scores) + _score_other_strategies(trainer, timer))
        with timer.phase("after_run"):
            # The 1 keeps this noise apart from that of the evaluations.
            key = (*trainer.evaluation_key, 1)
            with explained("after_run"):
                entries = run.method.after_run(trainer.engine, key, log)
        trainer.save_policies("policy")
        if trainer.distributed.is_main_process:
            summary = _summarise(run, out, scores, timer, resumed_at)
            record.write_json(out / "summary.json", summary | entries)
    return run.out


def accuracy_in_validation(run: Run) -> float:
    """Train a run and return its accuracy on the validation split at the end.

    For choosing hyper-parameters: no test question is asked. Writes config.json, metrics.jsonl,
    episodes.jsonl and the checkpoints, but no scores and no policy, and begins anew in every call:
    an earlier run in the folder is removed.

    Raises ValueError in one line as `train` does, and if `eval_every` is 0, if the world has no
    validation questions, or if no verifier can grade an answer to them. Ctrl-C ends it after a
    step, with KeyboardInterrupt.
    """
    if not run.eval_every:
        raise ValueError("eval_every must be above 0 to validate a run, got 0")
    _check(run)
    world = run.method.world
    if not world.items("validation", run.eval_items):
        raise ValueError(
            f"world must have validation questions to validate a run, and {world.name} has none"
        )
    try:
        with _opened(run, Timer(), fresh=True) as (trainer, out):
            log = record.Recorder(out)
            record.write_json(out / "config.json", run.describe())
            _train_policies(trainer, log, steps_done=0)
            last_line = (out / "metrics.jsonl").read_bytes().splitlines()[-1]
    except KeyboardInterrupt:
        raise KeyboardInterrupt("stopped; another call begins anew") from None
    accuracy: float | None = json.loads(last_line).get("validation")
    if accuracy is None:
        raise ValueError(
            f"world must have answers that a verifier can grade, and {world.name} has none in its "
            "validation split"
        )
    return accuracy


def _check(run: Run) -> None:
    """Check what a run needs before its model loads, and let its method fetch data.

    Raises ValueError in one line if something is missing.
    """
    record.check_is_run(run.out)
    environment.prepare(run.engine)  # read when torch, vLLM and Unsloth start
    preflight.check(run)
    with explained("before_run"):
        run.method.before_run()


@contextmanager
def _opened(run: Run, timer: Timer, fresh: bool) -> Iterator[tuple["Trainer", Path]]:
    """Load a run's policies in a folder that no other process trains in.

    Yields the trainer and the folder to write to. `fresh` removes an earlier run first.
    """
    with _locked(run.out):
        with timer.phase("load", show="loading"):
            trainer = _load_trainer(run)
        out = run.out
        if not trainer.distributed.is_main_process:
            # The other processes write the same files, to be thrown away.
            out = Path(trainer.scratch.name)
        with closing(trainer.engine):
            if fresh:  # removed only now, when nothing more can be missing
                trainer.distributed.on_main_process(lambda: record.remove_run(run.out))
            yield trainer, out


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Keep other runs out of a folder; raise ValueError if one is there.

    Of the processes of a run, the first holds the lock, because it alone writes there.
    """
    if not is_first_process():
        yield
        return
    lock = FileLock(out / ".in-use")
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise ValueError(
            f"out must not be in use: another process is training in {out} "
            f"(it holds {lock.lock_file})"
        ) from None
    try:
        yield
    finally:
        lock.release()


def _load_trainer(run: Run) -> "Trainer":
    """Import torch and load the policies."""
    # Imports leave no garbage, and looking for it takes a fifth of their time.
    gc.disable()
    try:
        from coevolve.training.trainer import Trainer

        trainer_class = Trainer
        if run.trainer == "trl":
            from coevolve.training.trl_trainer import TRLTrainer

            trainer_class = TRLTrainer
    finally:
        gc.enable()
    return trainer_class(run)


def _resume(trainer: "Trainer", out: Path) -> int:
    """Restore the newest checkpoint, if there is one; return the number of steps done.

    Raises ValueError if it has more steps than the run.
    """
    steps_done = trainer.resume()
    if steps_done > trainer.run.steps:
        raise ValueError(
            f"steps must be at least {steps_done}, because {out} holds a checkpoint of step "
            f"{steps_done}, got {trainer.run.steps}"
        )
    return steps_done


def _train_policies(trainer: "Trainer", log: record.Recorder, steps_done: int) -> None:
    """Record step 0; take the remaining steps, or let the method's own trainer take all."""
    run = trainer.run
    timer = Timer()
    if steps_done == 0:
        validation = _validate(trainer, timer)
        _record_step(log, 0, validation, timer)
    # Most methods have no trainer of their own and return None at once.
    if type(run.method).fit is not Method.fit:
        trainer.engine.sleep()
    with timer.phase("learn"):
        steps_of_own_trainer = run.method.fit(trainer.team.primary, run, trainer.engine)
    if steps_of_own_trainer is None:
        _take_steps(trainer, log, timer, steps_done)
        return
    trainer.engine.load_weights()  # which the other trainer has changed
    validation = _validate(trainer, timer)
    _record_step(log, steps_of_own_trainer, validation, timer)
    with _open_tracker(trainer, steps_done) as sink:
        sink.log(validation, steps_of_own_trainer)


def _take_steps(
    trainer: "Trainer", log: record.Recorder, timer: Timer, steps_done: int
) -> None:
    """Take the steps after `steps_done`: play, learn, evaluate, record and save."""
    run = trainer.run
    is_main = trainer.distributed.is_main_process
    watch = AttributeWatch(run.method)
    with (
        _open_tracker(trainer, steps_done) as sink,
        StepDisplay(run, steps_done, is_shown=is_main) as display,
        stop_after_step() as received_signals,
    ):

        def end_step(
            step: int, outcomes: list[Outcome], update_metrics: dict[str, float]
        ) -> StepEnd:
            metrics = step_metrics(outcomes, update_metrics, run.method)
            if _is_due(step, run.eval_every, run.steps):
                metrics |= _validate(trainer, timer)
                display.show_replies(step, outcomes[0])
            log.episodes(step, outcomes, run.keep_episodes)
            # Recorded before it is saved, because a resumed run drops all rows after its
            # checkpoint. So the time to save stands in the next step's row.
            _record_step(log, step, metrics, timer)
            with explained(f"after_step of step {step}"):
                run.method.after_step(step, trainer.save_policies)
            sink.log(metrics, step, outcomes[: run.keep_episodes])
            display.advance(step, metrics)
            # A signal to any process stops all of them after the same step.
            is_stopped = any(trainer.distributed.gather([*received_signals]))
            is_due = _is_due(step, run.save_every, run.steps)
            end = StepEnd(is_stopped=is_stopped, is_saved=is_stopped or is_due)
            # After the first step, to tell early; then before a checkpoint, which lacks the values.
            if is_main and (end.is_saved or step == steps_done + 1):
                watch.warn(step)
            return end

        trainer.take_steps(steps_done, timer, end_step)


def _open_tracker(trainer: "Trainer", steps_done: int) -> AbstractContextManager[Any]:
    """Open the run's tracker; processes other than the main one have none."""
    run = trainer.run
    kind = run.track if trainer.distributed.is_main_process else ""
    name = f"{run.method_name}-s{run.seed}"
    return tracker(kind, run.out, name, run.describe(), steps_done)


def _is_due(step: int, every: int, last_step: int) -> bool:
    """Return whether an action is due: every `every` steps and at the last one (0: never)."""
    return every > 0 and (step % every == 0 or step == last_step)


def _validate(trainer: "Trainer", timer: Timer) -> dict[str, float]:
    """Return the accuracy on the validation split as a metric.

    Empty if `eval_every` is 0 or there are no validation items.
    """
    if not trainer.run.eval_every:
        return {}
    with timer.phase("evaluate"):
        rows = trainer.evaluate("validation")
    counts = count_correct(rows)
    if not counts["n"]:
        return {}
    return {"validation": counts["k"] / counts["n"]}


def _record_step(
    log: record.Recorder, step: int, metrics: dict[str, Any], timer: Timer
) -> None:
    """Write a step's metrics and durations, and reset the timer for the next step."""
    log.step(step, metrics, timer.seconds)
    timer.seconds.clear()


def _rows_of_stages(scores: dict[str, ScoreRows]) -> ScoreRows:
    """Return the rows of all stages, each marked with its stage: before or after training."""
    rows: ScoreRows = []
    for stage, scored in scores.items():
        rows += [{"stage": stage, **row} for row in scored]
    return rows


def _score_other_strategies(trainer: "Trainer", timer: Timer) -> ScoreRows:
    """Score the test items after training under the method's further inference strategies."""
    rows: ScoreRows = []
    for strategy in trainer.run.method.strategies:
        if strategy == "vanilla":  # scored already
            continue
        with timer.phase("strategies", show=ASKING_AGAIN):
            scored = trainer.evaluate("test", strategy)
        rows += [{"stage": "after", **row} for row in scored]
    return rows


def _summarise(
    run: Run, out: Path, scores: dict[str, ScoreRows], timer: Timer, resumed_at: int
) -> dict[str, Any]:
    """Return the entries of summary.json.

    They hold the accuracy, durations, versions, and how often each filter and reward acted. The
    durations are this process's: those before a resumption do not count.
    """
    lines = (out / "metrics.jsonl").read_bytes().splitlines()
    rows = [json.loads(line) for line in lines]
    shares_acted = diagnostics.activity(rows, run.method.filters)
    answering_role = run.method.answering.name
    held_out = {stage: count_correct(scored) for stage, scored in scores.items()}
    collapse = diagnostics.collapse(
        held_out["before"], held_out["after"], run.learning_rate
    )
    return {
        "held_out": held_out,
        "seconds": round(timer.elapsed(), 2),
        # Of the phases before and after the steps, whose own durations are in timings.jsonl.
        "seconds_around": {
            phase: round(seconds, 2) for phase, seconds in timer.seconds.items()
        },
        "steps": run.steps,
        # Differs from `steps` if the method has its own trainer, which counts its own steps.
        "taken": rows[-1]["step"],
        "method": run.method_name,
        "scored": list(run.method.scored),
        "seed": run.seed,
        "resumed_at": resumed_at,
        "made_with": {
            "python": platform.python_version(),
            "torch": version("torch"),
            "on": platform.platform(),
        },
        "acted": shares_acted,
        "warnings": collapse + diagnostics.warnings(shares_acted, rows, answering_role),
    }
