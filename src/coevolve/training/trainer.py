"""A run in memory: its policies with their optimisers, an engine and a method.

Every random draw depends on (seed, step, episode, turn), so on a CPU the same run gives the same
bytes. On a GPU, rounding depends on what else is in a batch.
"""

import json
import math
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import set_seed

from coevolve.engines.loading import load_policy
from coevolve.engines.router import make_engine
from coevolve.evaluation.scoring import score
from coevolve.models.policy_set import LoadOptions, PolicySet
from coevolve.rollout.pools import frozen
from coevolve.runs import checkpoint, record
from coevolve.training import memory, preflight
from coevolve.training.canary import FIRST_GAP, Canary, probe
from coevolve.training.commit import commit
from coevolve.training.config import Run, assign_models
from coevolve.training.controls.control import Control
from coevolve.training.controls.dial import Dial
from coevolve.training.distributed import Distributed
from coevolve.training.progress import StepEnd, Timer
from coevolve.training.schedule import learning_rate_at
from coevolve.training.update import update_policy
from coevolve.training.value_baselines import make_baselines
from coevolve.types import Outcome, Sample

# Update metrics that add up over policies; all others are averaged.
COUNTS = ("tokens", "sequences", "sequences_used", "skipped_update")
# The second part of the keys of evaluation turns, which no training step has.
EVALUATION = 1_000_000_000


EndStep = Callable[[int, list[Outcome], dict[str, float]], StepEnd]


class Trainer:
    """Plays, learns, scores, saves and resumes one run."""

    def __init__(self, run: Run):
        """Load the policies.

        Raises ValueError in one line, before any model loads, if data or memory do not suffice.
        """
        method = run.method
        self.run = run
        self.method = method
        self.distributed = Distributed()
        self.evaluation_key = (run.seed, EVALUATION)
        self.scores_before: list[dict[str, object]] = []  # of the untrained policies
        self.has_learnt = False  # whether the weights are other than the loaded ones
        self.items = {
            "validation": method.world.items("validation", run.eval_items),
            "test": method.world.items("test", run.test_items or run.eval_items),
        }
        need = memory.check(run)
        # Processes other than the main one write into this folder.
        self.scratch = tempfile.TemporaryDirectory(prefix="coevolve-")
        set_seed(run.seed)
        models, trained = assign_models(method, run.model)
        unsloth = run.engine.startswith("unsloth")
        loading = LoadOptions(run.seed, run.quantize == "4bit", run.template_options)
        self.team = PolicySet(models, trained, run.lora, unsloth, load_policy, loading)
        if method.kl_coef or run.kl_loss_coef:
            self.team.snapshot_reference_policies()
        self.team.baselines |= make_baselines(method.estimator, self.team.trainable)
        self.team.optimize(run.learning_rate, run.weight_decay, run.optimizer)
        self.engine = make_engine(
            self.team,
            run.engine,
            run.temperature,
            run.max_tokens,
            run.vllm,
            later_gib=need.later,
            server=run.vllm_server,
        )
        self.canary = Canary(dropout=run.lora[2] if run.lora else 0.0)
        if run.engine.endswith("vllm"):
            try:
                probe(self.team.trainable, self.engine, self.canary)
            except BaseException:
                self.engine.close()
                raise
        dial = Dial(method.world, run.oracle_accuracy, run.oracle_errors, run.seed)
        self.control = Control(run.control, method, dial, run.seed)

    def play(self, step: int) -> list[Outcome]:
        """Play the step's episodes, then add their items to the pools in episode order.

        Raises ValueError for an item that no pool can take, see `commit`.
        """
        run = self.run
        episodes = []
        for i in range(run.batch_size):
            rng = random.Random(f"{run.seed}/{step}/{i}")
            episodes.append(self.method.observed(rng))
        engine = self.control.engine(self.engine)
        with self._explain_output():
            outcomes = self.distributed.play(episodes, engine, (run.seed, step))
        commit(outcomes, self.method.pools)
        return self.control.pay(step, outcomes)

    def take_steps(self, steps_done: int, timer: Timer, end_step: EndStep) -> None:
        """Take the steps after `steps_done`; `end_step` evaluates and records each of them.

        Raises KeyboardInterrupt after a step that a signal stopped.
        """
        for step in range(steps_done + 1, self.run.steps + 1):
            with timer.phase("play"):
                outcomes = self.play(step)
            with timer.phase("learn"):
                update_metrics = self.learn(step, outcomes)
            end = end_step(step, outcomes, update_metrics)
            if end.is_saved:
                with timer.phase("save"):
                    self.save(step)
            if end.is_stopped:
                raise stopped_at(step)

    def learn(self, step: int, outcomes: Sequence[Outcome]) -> dict[str, float]:
        """Update every trained policy on all of its samples; return the metrics, see `merge`.

        Raises FloatingPointError if a weight is not finite afterwards.
        """
        team = self.team
        metrics_of: dict[str, dict[str, float]] = {}
        self.engine.sleep()
        run = self.run
        rate = learning_rate_at(
            step, run.learning_rate, run.schedule, run.warmup_steps, run.steps
        )
        team.set_learning_rate(rate)
        for number, name in enumerate(team.trained):
            samples = samples_of_policy(outcomes, name)
            if samples:
                # Dropout draws the same noise in a resumed run.
                torch.manual_seed((run.seed * 1_000_003 + step) * 101 + number)
                metrics = self._update(name, samples)
                self.canary.watch(step, metrics)
                metrics.pop(FIRST_GAP, None)  # for the canary alone
                metrics_of[name] = metrics
        return merge(metrics_of) | self._after_update(step)

    def _after_update(self, step: int) -> dict[str, float]:
        """Load the new weights into the engine; return what its replies cost.

        Raises FloatingPointError if a weight is not finite.
        """
        if not self.team.finite():
            raise FloatingPointError(
                f"a weight is not finite after step {step}; {self._advice()}"
            )
        self.has_learnt = True
        self.engine.load_weights()
        return self.distributed.all_reduce_sum(self.engine.costs())

    def _update(self, name: str, samples: Sequence[Sample]) -> dict[str, float]:
        baseline: Any = self.team.baselines.get(name)
        return update_policy(
            self.team.trainable[name],
            self.team.optimizers[name],
            samples,
            self.run,
            estimator=self.method.estimator,
            reference=self.team.reference_policies.get(name),
            kl_coef=self.method.kl_coef,
            baseline=baseline,
        )

    def evaluate(
        self, split: str, strategy: str = "vanilla"
    ) -> list[dict[str, object]]:
        """Answer the items of a split under an inference strategy, see `scoring.score`."""
        with self._explain_output():
            return score(
                self.engine,
                self.method,
                self.items[split],
                strategy,
                key=self.evaluation_key,
                play=self.distributed.play,
            )

    @contextmanager
    def _explain_output(self) -> Iterator[None]:
        """Say what to do about a model whose output is not finite since it was trained."""
        try:
            yield
        except FloatingPointError as error:
            if not self.has_learnt:
                raise
            raise FloatingPointError(
                f"the model's output is not finite after training; {self._advice()}"
            ) from error

    def _advice(self) -> str:
        rate = self.run.learning_rate
        return f"lower learning_rate, which is {rate:g}, in a new folder"

    def save(self, step: int) -> None:
        """Write a checkpoint of everything that the next step depends on."""
        checkpoints = self.run.out / "checkpoints"
        self.distributed.on_main_process(
            lambda: checkpoint.save(checkpoints, step, self._write_checkpoint)
        )

    def _write_checkpoint(self, folder: Path) -> None:
        pools = {name: pool.items for name, pool in self.method.pools.items()}
        self.team.save(folder / "policy")
        self.team.save_optimizers(folder / "optimizers")
        record.write_json(folder / "pools.json", pools)
        record.write_json(folder / "config.json", self.run.describe())
        record.write_json(folder / "before.json", self.scores_before)

    def save_policies(self, name: str) -> None:
        """Write the trained policies into the folder `name` of the run."""
        folder = self.run.out / name
        self.distributed.on_main_process(lambda: self.team.save(folder))
        self.distributed.on_main_process(lambda: record.fsync_tree(folder))

    def resume(self) -> int:
        """Load the newest undamaged checkpoint, if there is one, and return its step, else 0.

        Raises ValueError if it belongs to another run.
        """
        newest = self._newest_checkpoint()
        if newest is None:
            return 0
        step, folder = newest
        preflight.check_same_run(self.run, folder)
        self.scores_before = json.loads((folder / "before.json").read_bytes())
        self.team.restore(folder / "policy")
        self.engine.load_weights()
        self.team.restore_optimizers(folder / "optimizers")
        saved_pools = json.loads((folder / "pools.json").read_bytes())
        for name, items in saved_pools.items():
            self.method.pools[name].reset(map(frozen, items))
        self.has_learnt = True
        return step

    def _newest_checkpoint(self) -> tuple[int, Path] | None:
        return checkpoint.newest(self.run.out / "checkpoints")


def stopped_at(step: int) -> KeyboardInterrupt:
    """Return the exception that ends a run which a signal stopped."""
    return KeyboardInterrupt(
        f"stopped at step {step}; train the same run again to resume"
    )


def samples_of_policy(outcomes: Sequence[Outcome], policy: str) -> list[Sample]:
    """Return the samples that a policy made, in the order of the episodes."""
    samples = []
    for outcome in outcomes:
        samples += [sample for sample in outcome.samples if sample.policy == policy]
    return samples


def merge(metrics_of: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Join the update metrics of several policies: add up counts, average everything else.

    `metrics_of` is {policy: its metrics}. `tokens/POLICY` and `entropy/POLICY` keep each policy's
    own value. The metrics of a single policy are returned unchanged.
    """
    if len(metrics_of) < 2:
        return dict(next(iter(metrics_of.values()), {}))
    numbers = []
    for metrics in metrics_of.values():
        for name, value in metrics.items():
            if not math.isnan(value):  # the mean of a policy without trained tokens
                numbers.append((name, value))
    joined = record.means(numbers)
    for name in COUNTS:
        joined[name] = sum(metrics[name] for metrics in metrics_of.values())
    for policy, metrics in metrics_of.items():
        for name in ("tokens", "entropy"):
            joined[f"{name}/{policy}"] = metrics[name]
    return joined
