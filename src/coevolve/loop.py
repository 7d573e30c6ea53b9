"""The loop: play a step's episodes, commit the pools, learn, look at validation, save. Resumes bit for bit.

Text (protocols) and tensors (losses) meet here and nowhere else. Everything random hangs on (seed, step, episode,
turn).
"""

import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import numpy
import torch

from coevolve import checkpoint, preflight, record, setups
from coevolve.advantages import WITH_VALUES
from coevolve.config import Run, assign
from coevolve.engines import connect
from coevolve.learner import learn
from coevolve.papers.conl.examine import examine, totals
from coevolve.policies import memory
from coevolve.policies.team import Team
from coevolve.progress import progress
from coevolve.ranks import Ranks
from coevolve.score import score, tally
from coevolve.track import Tracker, tracker
from coevolve.types import Outcome
from tinyworld.oracle import TinyWorld

COUNTS = ("tokens", "sequences", "sequences_used", "skipped_update")
EVALUATION = 1_000_000_000  # keys of evaluation turns never meet those of training


class Clock:
    """Seconds spent by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, phase: str, function: Callable, *args, **kwargs):
        """Run a function and charge its seconds to a phase."""
        start = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - start

    def take(self) -> dict[str, float]:
        """Return the seconds since the last call and start again from zero."""
        taken, self.seconds = self.seconds, {}
        return taken


class Trainer:
    """One run in memory: policies with their optimisers, engine and protocol."""

    def __init__(self, run: Run):
        self.run, self.protocol, self.ranks = run, run.protocol, Ranks()
        self.world = getattr(run.protocol, "world", TinyWorld())
        self.world.items("test", 1)  # published data and corpora may be missing: said before a model loads
        getattr(run.protocol, "fetch", lambda: None)()
        self.scratch = tempfile.TemporaryDirectory(prefix="coevolve-")  # where ranks write that write nothing
        random.seed(run.seed), numpy.random.seed(run.seed), torch.manual_seed(run.seed)
        models, trained = assign(run.protocol, run.model)
        self.team = Team(models, trained, run.lora, run.engine.startswith("unsloth"), run.four_bit)
        if getattr(run.protocol, "kl_coef", 0.0):
            self.team.keep_references()
        if getattr(run.protocol, "estimator", "") in WITH_VALUES:
            self.team.add_value_heads()
        self.team.optimize(run.learning_rate, run.weight_decay)
        self.read = getattr(run.protocol, "read", setups.read_answer)
        self.engine = connect(self.team, run.engine, run.temperature, run.max_tokens)

    def play(self, step: int) -> list[Outcome]:
        """Play the step's episodes and commit what they add to the pools, in episode order."""
        run = self.run
        episodes = [self.protocol.episode(random.Random(f"{run.seed}/{step}/{i}")) for i in range(run.batch_size)]
        outcomes = self.ranks.play(episodes, self.engine, (run.seed, step))
        for name, pool in self.protocol.pools.items():
            pool.extend(item for outcome in outcomes for item in outcome.adds.get(name, ()))
        return outcomes

    def learn(self, step: int, outcomes: Sequence[Outcome]) -> dict[str, float]:
        """Take one optimiser step per trained policy on everything it said that earned something.

        With several policies a metric is their mean (counts: their sum), and `tokens/NAME`, `entropy/NAME`
        are each one's own.
        """
        run = self.run
        learnt = {}
        self.engine.sleep()
        for number, name in enumerate(self.team.trained):
            samples = [s for outcome in outcomes for s in outcome.samples if s.policy == name]
            if not samples:
                continue
            torch.manual_seed((run.seed * 1_000_003 + step) * 101 + number)  # dropout's noise, the same when resumed
            learnt[name] = learn(
                self.team.learners[name],
                self.team.optimizers[name],
                samples,
                estimator=self.protocol.estimator,
                kind=run.loss,
                clip=run.clip,
                old=run.old,
                entropy_coef=run.entropy_coef,
                length_norm=run.length_norm,
                length_constant=float(run.max_tokens),
                grad_clip=run.grad_clip,
                micro_tokens=run.micro_tokens,
                reference=self.team.references.get(name),
                kl_coef=getattr(self.protocol, "kl_coef", 0.0),
                value=self.team.values.get(name),
                ranks=self.ranks,
            )
        if not self.team.finite():
            raise FloatingPointError("a weight is not finite after this step; resume from the last checkpoint")
        self.engine.sync()
        return merge(learnt) | self.ranks.totals(self.engine.costs())

    def score(self, split: str, setup: str = "vanilla") -> list[dict[str, object]]:
        """Answer the items of a split under an inference set-up; see `evaluate.score`."""
        tasks = self.world.items(split, self.run.eval_items)
        return score(
            self.engine,
            self.protocol.solver,
            tasks,
            read=self.read,
            key=(self.run.seed, EVALUATION),
            setup=setup,
            policies=getattr(self.protocol, "scored", self.team.trained),
            prompt=getattr(self.protocol, "prompt", "compact"),
            folder=getattr(self.protocol, "prompt_folder", None),
            play=self.ranks.play,
        )

    def validate(self, clock: Clock) -> dict[str, float]:
        """Share of the validation items answered right; nothing when `eval_every` is 0 or there are no such items."""
        counts = tally(clock("evaluate", self.score, "validation")) if self.run.eval_every else {"n": 0}
        return {"validation": counts["k"] / counts["n"]} if counts["n"] else {}

    def save(self, step: int) -> None:
        """Write a checkpoint of everything the next step depends on."""
        pools = {name: pool.items for name, pool in self.protocol.pools.items()}
        files = {
            "policy": self.team.save,
            "optimizers": self.team.save_optimizers,
            "pools.json": json.dumps(pools).encode(),
            "config.json": json.dumps(record.clean(self.run.describe())).encode(),
        }
        self.ranks.alone(lambda: checkpoint.save(self.run.out / "checkpoints", step, files))

    def resume(self) -> int:
        """Load the newest whole checkpoint, if there is one, and return the steps done."""
        found = checkpoint.newest(self.run.out / "checkpoints")
        if found is None:
            return 0
        step, folder = found
        self._same_run(json.loads((folder / "config.json").read_text(encoding="utf-8")), folder)
        self.team.restore(folder / "policy")
        self.engine.sync()
        self.team.restore_optimizers(folder / "optimizers")
        for name, items in json.loads((folder / "pools.json").read_text(encoding="utf-8")).items():
            self.protocol.pools[name].reset(tuple(item) if isinstance(item, list) else item for item in items)
        return step

    def _same_run(self, saved: dict, folder: Path) -> None:
        mine = json.loads(json.dumps(record.clean(self.run.describe())))
        free = ("steps", "keep_episodes", "track", "save_every")  # may change without changing what is learnt
        changed = [name for name in mine if name not in free and saved.get(name) != mine[name]]
        if changed:
            raise ValueError(f"{folder} belongs to a run with another {', '.join(changed)}; choose another out folder")


def numbers_of(outcomes: Sequence[Outcome], learnt: dict[str, float], protocol: object) -> dict[str, float]:
    """A step's metrics: mean facts, mean reward and length by role (and by policy, of several), learner, pools."""
    metrics = {**record.mean_facts(outcomes), **learnt}
    by_group: dict[str, list] = {}
    for sample in (sample for outcome in outcomes for sample in outcome.samples):
        by_group.setdefault(sample.role, []).append(sample)
        if len(getattr(protocol, "policies", ())) > 1:
            by_group.setdefault(sample.policy, []).append(sample)
    for group, samples in by_group.items():
        rewards: dict[str, list[float]] = {f"reward/{group}": []}
        for sample in samples:
            parts = sample.reward if isinstance(sample.reward, Mapping) else {"": sample.reward}
            for tag, value in parts.items():
                rewards.setdefault(f"reward/{group}/{tag}".rstrip("/"), []).append(value)
        known = {name: [value for value in values if value is not None] for name, values in rewards.items()}
        metrics |= {name: sum(values) / len(values) for name, values in known.items() if values}
        metrics[f"length/{group}"] = sum(len(s.reply.ids) for s in samples) / len(samples)
    metrics |= {f"pool/{name}": len(pool) for name, pool in protocol.pools.items()}
    return metrics | (protocol.measure() if hasattr(protocol, "measure") else {})


def merge(learnt: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Join the policies' learning metrics: counts add up, everything else is averaged."""
    if len(learnt) < 2:
        return dict(next(iter(learnt.values()), {}))
    names = next(iter(learnt.values()))
    total = {name: sum(metrics[name] for metrics in learnt.values()) for name in names}
    joined = {name: value if name in COUNTS else value / len(learnt) for name, value in total.items()}
    joined |= {f"{name}/{policy}": learnt[policy][name] for policy in learnt for name in ("tokens", "entropy")}
    return joined


def train(run: Run) -> Path:
    """Run to the end, or go on from the newest checkpoint in `run.out`; return that folder.

    Leaves config.json, metrics.jsonl, episodes.jsonl, scores.csv (every test item before and after),
    summary.json and the trained `policy`. Training sees neither validation nor test questions.
    Raises ValueError in one line, before a model loads, when something that the run needs is missing.
    """
    preflight.check(run)
    memory.check(run)
    sink = tracker(run) if Ranks().first else Tracker()
    with closing(sink), ExitStack() as ends:
        return _train(run, sink, ends)


def _train(run: Run, sink: Tracker, ends: ExitStack) -> Path:
    began, around = time.perf_counter(), Clock()
    trainer = around("load", Trainer, run)
    ends.callback(trainer.engine.close)  # its memory is the next run's
    names = getattr(run.protocol, "setups", ("vanilla",))
    rows = {"before": around("held_out", trainer.score, "test")}
    done = trainer.resume()
    log = record.Recorder(run.out if trainer.ranks.first else Path(trainer.scratch.name), done)
    trainer.ranks.alone(lambda: record.write_json(run.out / "config.json", run.describe()))
    clock = Clock()
    if done == 0:
        log.step(0, trainer.validate(clock), clock.take())
    if hasattr(run.protocol, "fit"):  # a baseline with a trainer of its own
        steps = clock("learn", run.protocol.fit, trainer.team.first, run)
        trainer.engine.sync()
        log.step(steps, trainer.validate(clock), clock.take())
    else:
        _steps(trainer, log, sink, clock, done)
    rows["after"] = around("held_out", trainer.score, "test")
    more = [row for name in names if name != "vanilla" for row in around("setups", trainer.score, "test", name)]
    log.scores(
        [{"stage": stage, **row} for stage, its in rows.items() for row in its]
        + [{"stage": "after", **row} for row in more]
    )
    examined, talks = getattr(run.protocol, "examined", 0), []
    if examined:
        talks = around("examined", examine, run.protocol, trainer.engine, examined, (run.seed, EVALUATION, 1))
    if talks:
        log.conversations(talks)
    trainer.ranks.alone(lambda: trainer.team.save(run.out / "policy"))
    summary = {
        "held_out": {stage: tally(its) for stage, its in rows.items()},
        "seconds": round(time.perf_counter() - began, 2),
        "seconds_around": {phase: round(its, 2) for phase, its in around.take().items()},
        "peak_rss_mb": round(peak_rss_mb()),
        "steps": run.steps,
        "method": run.method,
        "seed": run.seed,
        "resumed_at": done,
        **({"conversations": totals(talks)} if talks else {}),
    }
    trainer.ranks.alone(lambda: record.write_json(run.out / "summary.json", summary))
    return run.out


def _steps(trainer: Trainer, log: record.Recorder, sink: Tracker, clock: Clock, done: int) -> None:
    run = trainer.run
    with progress(run.steps, f"{run.method} seed {run.seed}", silent=not trainer.ranks.first) as bar:
        for step in range(done + 1, run.steps + 1):
            outcomes = clock("play", trainer.play, step)
            metrics = numbers_of(outcomes, clock("learn", trainer.learn, step, outcomes), run.protocol)
            if run.eval_every and (step % run.eval_every == 0 or step == run.steps):
                metrics |= trainer.validate(clock)
            log.episodes(step, outcomes, run.keep_episodes)
            log.step(step, metrics, clock.take())
            sink.log(step, metrics)
            if step % run.save_every == 0 or step == run.steps:
                clock("save", trainer.save, step)
            if step in getattr(run.protocol, "snapshots", ()):
                trainer.ranks.alone(lambda: trainer.team.save(run.out / "snapshots" / str(step)))  # noqa: B023
            shown = {name: metrics[name] for name in metrics if name.startswith("reward/") or name == "validation"}
            bar.update(step, **shown)


def peak_rss_mb() -> float:
    """Peak resident memory of this process in MiB (Linux counts KiB, macOS bytes)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 if sys.platform != "darwin" else 1024**2)
