"""The loop: play a step's episodes, commit the pools, learn, look at validation, save. Resumes bit for bit.

Text wing and tensor wing meet here and nowhere else. Everything random hangs on (seed, step, episode, turn).
"""

import json
import random
import resource
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy
import torch

from coevolve import checkpoint, policies, record
from coevolve.config import Run
from coevolve.evaluate.score import score, tally
from coevolve.learn import learn
from coevolve.play import Batched, play
from coevolve.policies import Policy
from coevolve.progress import progress
from coevolve.track import Tracker, tracker
from coevolve.types import Outcome
from coevolve.worlds import tiny

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
    """One run in memory: policy, optimiser, engine and protocol."""

    def __init__(self, run: Run):
        self.run, self.protocol = run, run.protocol
        random.seed(run.seed), numpy.random.seed(run.seed), torch.manual_seed(run.seed)
        self.policy = policies.load(run.model)
        self.engine = Batched(partial(self.policy.generate, temperature=run.temperature, max_tokens=run.max_tokens))
        self.optimizer = torch.optim.AdamW(
            self.policy.parameters(), lr=run.learning_rate, weight_decay=run.weight_decay
        )

    def play(self, step: int) -> list[Outcome]:
        """Play the step's episodes and commit what they add to the pools, in episode order."""
        run = self.run
        episodes = [self.protocol.episode(random.Random(f"{run.seed}/{step}/{i}")) for i in range(run.batch_size)]
        outcomes = play(episodes, self.engine, (run.seed, step))
        for name, pool in self.protocol.pools.items():
            pool.extend(item for outcome in outcomes for item in outcome.adds.get(name, ()))
        return outcomes

    def learn(self, outcomes: Sequence[Outcome]) -> dict[str, float]:
        """Take one optimiser step on everything that earned something."""
        run = self.run
        samples = [sample for outcome in outcomes for sample in outcome.samples]
        if not samples:
            return {}
        metrics = learn(
            self.policy, self.optimizer, samples, estimator=run.estimator, kind=run.loss,
            clip=(run.clip_low, run.clip_high), entropy_coef=run.entropy_coef, length_norm=run.length_norm,
            length_constant=float(run.max_tokens), grad_clip=run.grad_clip, temperature=run.temperature,
            micro_tokens=run.micro_tokens,
        )  # fmt: skip
        if not all(torch.isfinite(parameter).all() for parameter in self.policy.parameters()):
            raise FloatingPointError("a weight is not finite after this step; resume from the last checkpoint")
        return metrics

    def score(self, split: str) -> list[dict[str, object]]:
        """Answer the items of a split greedily."""
        tasks = tiny.items(split, self.run.eval_items)
        return score(self.engine, self.protocol.solver, tasks, key=(self.run.seed, EVALUATION))

    def validate(self, clock: Clock) -> dict[str, float]:
        """Share of the validation items answered right (nothing when `eval_every` is 0)."""
        if not self.run.eval_every:
            return {}
        counts = tally(clock("evaluate", self.score, "validation"))
        return {"validation": counts["k"] / counts["n"]}

    def save(self, step: int) -> Path:
        """Write a checkpoint of everything the next step depends on."""
        pools = {name: pool.items for name, pool in self.protocol.pools.items()}
        files = {
            "policy": self.policy.save,
            "optimizer.safetensors": lambda path: checkpoint.save_optimizer(path, self.optimizer),
            "pools.json": json.dumps(pools).encode(),
            "config.json": json.dumps(record.clean(self.run.describe())).encode(),
        }
        return checkpoint.save(self.run.out / "checkpoints", step, files)

    def resume(self) -> int:
        """Load the newest whole checkpoint, if there is one, and return the steps done."""
        found = checkpoint.newest(self.run.out / "checkpoints")
        if found is None:
            return 0
        step, folder = found
        self._same_run(json.loads((folder / "config.json").read_text(encoding="utf-8")), folder)
        saved = Policy.load(folder / "policy")
        self.policy.model.load_state_dict(saved.model.state_dict())
        checkpoint.load_optimizer(folder / "optimizer.safetensors", self.optimizer)
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
    """A step's metrics: mean facts, mean reward and length by role, learner, pools."""
    metrics = {**record.mean_facts(outcomes), **learnt}
    by_role: dict[str, list] = {}
    for outcome in outcomes:
        for sample in outcome.samples:
            by_role.setdefault(sample.role, []).append(sample)
    for role, samples in by_role.items():
        rewards = [s.reward for s in samples if isinstance(s.reward, (int, float))]
        metrics[f"reward/{role}"] = sum(rewards) / len(rewards) if rewards else None
        metrics[f"length/{role}"] = sum(len(s.reply.ids) for s in samples) / len(samples)
    metrics |= {f"pool/{name}": len(pool) for name, pool in protocol.pools.items()}
    return metrics | (protocol.measure() if hasattr(protocol, "measure") else {})


def train(run: Run) -> Path:
    """Run to the end, or go on from the newest checkpoint in `run.out`; return that folder.

    Leaves config.json, metrics.jsonl, episodes.jsonl, scores.csv (every test item before and after),
    summary.json and the trained `policy`. Training sees neither validation nor test questions.
    """
    with closing(tracker(run)) as sink:  # before the model loads: its package may be missing
        return _train(run, sink)


def _train(run: Run, sink: Tracker) -> Path:
    began = time.perf_counter()
    trainer = Trainer(run)
    rows = [{"stage": "before", **row} for row in trainer.score("test")]
    before, done = tally(rows), trainer.resume()
    log = record.Recorder(run.out, done)
    record.write_json(run.out / "config.json", run.describe())
    clock = Clock()
    if done == 0:
        log.step(0, trainer.validate(clock), clock.take())
    if hasattr(run.protocol, "fit"):  # a baseline with a trainer of its own
        steps = clock("learn", run.protocol.fit, trainer.policy, run)
        log.step(steps, trainer.validate(clock), clock.take())
    else:
        _steps(trainer, log, sink, clock, done)
    last = trainer.score("test")
    log.scores(rows + [{"stage": "after", **row} for row in last])
    trainer.policy.save(run.out / "policy")
    summary = {"held_out": {"before": before, "after": tally(last)}, "seconds": round(time.perf_counter() - began, 2),
               "peak_rss_mb": round(peak_rss_mb()), "steps": run.steps, "method": run.method, "seed": run.seed,
               "resumed_at": done}  # fmt: skip
    record.write_json(run.out / "summary.json", summary)
    return run.out


def _steps(trainer: Trainer, log: record.Recorder, sink: Tracker, clock: Clock, done: int) -> None:
    run = trainer.run
    with progress(run.steps, f"{run.method} seed {run.seed}") as bar:
        for step in range(done + 1, run.steps + 1):
            outcomes = clock("play", trainer.play, step)
            metrics = numbers_of(outcomes, clock("learn", trainer.learn, outcomes), run.protocol)
            if run.eval_every and (step % run.eval_every == 0 or step == run.steps):
                metrics |= trainer.validate(clock)
            log.episodes(step, outcomes, run.keep_episodes)
            log.step(step, metrics, clock.take())
            sink.log(step, metrics)
            if step % run.save_every == 0 or step == run.steps:
                clock("save", trainer.save, step)
            shown = {name: metrics[name] for name in metrics if name.startswith("reward/") or name == "validation"}
            bar.update(step, **shown)


def peak_rss_mb() -> float:
    """Peak resident memory of this process in MiB (Linux counts KiB, macOS bytes)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 if sys.platform != "darwin" else 1024**2)
