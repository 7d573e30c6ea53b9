"""One run in memory: policies with their optimisers, an engine, and a method. Text and tensors meet here.

Everything random depends on (seed, step, episode, turn), so the same run gives the same bytes.
"""

import json
import math
import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch

from coevolve.engines.loading import load_policy
from coevolve.engines.router import make_engine
from coevolve.evaluation.scoring import score
from coevolve.models.policy_set import PolicySet
from coevolve.rollout.pools import frozen
from coevolve.runs import checkpoint, record
from coevolve.training import memory, preflight
from coevolve.training.config import Run, assign_models
from coevolve.training.distributed import Distributed
from coevolve.training.update import update_policy
from coevolve.training.value_baselines import make_baselines
from coevolve.types import Outcome
from coevolve.validation import check_choice

COUNTS = ("tokens", "sequences", "sequences_used", "skipped_update")
EVALUATION = 1_000_000_000  # keys of evaluation turns never meet those of training


class Trainer:
    """Plays, learns, scores, saves and resumes one run."""

    def __init__(self, run: Run):
        """Load the policies; ValueError in one line, before any model loads, when data or memory do not suffice."""
        method = run.protocol
        self.run, self.method, self.distributed = run, method, Distributed()
        self.key = run.seed, EVALUATION  # of evaluation episodes
        self.before: list[dict[str, object]] = []  # scores of the test items before the first step
        self.items = {split: method.world.items(split, run.eval_items) for split in ("validation", "test")}
        memory.check(run)
        self.scratch = tempfile.TemporaryDirectory(prefix="coevolve-")  # where ranks write that write nothing
        random.seed(run.seed), numpy.random.seed(run.seed), torch.manual_seed(run.seed)
        models, trained = assign_models(method, run.model)
        self.team = PolicySet(models, trained, run.lora, run.engine.startswith("unsloth"), load_policy)
        if method.kl_coef:
            self.team.snapshot_reference_policies()
        self.team.baselines |= make_baselines(method.estimator, self.team.trainable)
        self.team.optimize(run.learning_rate, run.weight_decay)
        self.engine = make_engine(self.team, run.engine, run.temperature, run.max_tokens)

    def play(self, step: int) -> list[Outcome]:
        """Play the step's episodes and commit what they add to the pools, in episode order."""
        run = self.run
        episodes = [self.method.observed(random.Random(f"{run.seed}/{step}/{i}")) for i in range(run.batch_size)]
        outcomes = self.distributed.play(episodes, self.engine, (run.seed, step))
        for name, items in (pair for outcome in outcomes for pair in outcome.adds.items()):
            check_choice("the name of a pool in Outcome.adds", name, self.method.pools)
            self.method.pools[name].extend(items)
        return outcomes

    def learn(self, step: int, outcomes: Sequence[Outcome]) -> dict[str, float]:
        """Take one optimiser step per trained policy on everything it said that earned something.

        With several policies a metric is their mean (counts: their sum), and `tokens/NAME`, `entropy/NAME`
        are each one's own.
        """
        run, team = self.run, self.team
        learnt = {}
        how: dict[str, Any] = {"estimator": self.method.estimator, "kl_coef": self.method.kl_coef}
        self.engine.sleep()
        for number, name in enumerate(team.trained):
            samples = [s for outcome in outcomes for s in outcome.samples if s.policy == name]
            if not samples:
                continue
            torch.manual_seed((run.seed * 1_000_003 + step) * 101 + number)  # dropout's noise, the same when resumed
            how |= {"reference": team.reference_policies.get(name), "baseline": team.baselines.get(name)}
            learnt[name] = update_policy(team.trainable[name], team.optimizers[name], samples, run, **how)
        if not team.finite():
            raise FloatingPointError(f"a weight is not finite after step {step}; lower learning_rate, in a new folder")
        self.engine.load_weights()
        return merge(learnt) | self.distributed.all_reduce_sum(self.engine.costs())

    def score(self, split: str, setup: str = "vanilla") -> list[dict[str, object]]:
        """Answer the items of a split under an inference set-up; see `held_out.score`."""
        return score(self.engine, self.method, self.items[split], setup, key=self.key, play=self.distributed.play)

    def save(self, step: int) -> None:
        """Write a checkpoint of everything the next step depends on."""
        self.distributed.on_main_process(lambda: checkpoint.save(self.run.out / "checkpoints", step, self._write))

    def _write(self, folder: Path) -> None:
        self.team.save(folder / "policy")
        self.team.save_optimizers(folder / "optimizers")
        record.write_json(folder / "pools.json", {name: pool.items for name, pool in self.method.pools.items()})
        record.write_json(folder / "config.json", self.run.describe())
        record.write_json(folder / "before.json", self.before)

    def save_policies(self, name: str) -> None:
        """Write the trained policies into a folder of the run's."""
        folder = self.run.out / name
        self.distributed.on_main_process(lambda: self.team.save(folder))
        self.distributed.on_main_process(lambda: record.fsync_tree(folder))

    def resume(self) -> int:
        """Load the newest whole checkpoint, if there is one, and return the steps done."""
        step, folder = checkpoint.newest(self.run.out / "checkpoints") or (0, None)
        if folder is None:
            return 0
        preflight.same(self.run, folder)
        self.before = json.loads((folder / "before.json").read_bytes())
        self.team.restore(folder / "policy")
        self.engine.load_weights()
        self.team.restore_optimizers(folder / "optimizers")
        for name, items in json.loads((folder / "pools.json").read_bytes()).items():
            self.method.pools[name].reset(map(frozen, items))
        return step


def merge(learnt: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Join the policies' learning metrics: counts add up, everything else is averaged."""
    if len(learnt) < 2:
        return dict(next(iter(learnt.values()), {}))
    # Not a number: what a policy that was trained on no token has no mean of.
    joined = record.means(pair for one in learnt.values() for pair in one.items() if not math.isnan(pair[1]))
    joined |= {name: sum(metrics[name] for metrics in learnt.values()) for name in COUNTS}
    return joined | {f"{name}/{policy}": learnt[policy][name] for policy in learnt for name in ("tokens", "entropy")}
