"""`trainer=trl`: TRL updates the weights; playing, advantages, scoring and records stay ours.

Every process keeps a whole copy of the policy that answers turns, and TRL has a second one, which
FSDP2 or ZeRO-3 may shard. The first gets the second one's weights after each step. Without shards,
both share the frozen base of adapters.
"""

from pathlib import Path

from coevolve.runs import checkpoint
from coevolve.training.progress import Timer
from coevolve.training.trainer import EndStep, Trainer, samples_of_policy, stopped_at
from coevolve.training.trl_grpo import EpisodeTrainer
from coevolve.training.update import TrainingBatch, training_batch
from coevolve.types import Outcome, Sample


class TRLTrainer(Trainer):
    """Plays, scores and records as `Trainer`; its steps are those of TRL's `GRPOTrainer`."""

    def take_steps(self, steps_done: int, timer: Timer, end_step: EndStep) -> None:
        """Let TRL take the steps after `steps_done`; see `Trainer.take_steps`."""
        if steps_done >= self.run.steps:
            return
        # The copy of a sharded model is whole at first.
        self.engine.sleep()
        trl_trainer = EpisodeTrainer(self, timer, end_step)
        newest = self._newest_checkpoint()
        resume_from = str(newest[1]) if newest else None
        trl_trainer.train(resume_from_checkpoint=resume_from)
        if trl_trainer.is_stopped:
            raise stopped_at(trl_trainer.state.global_step)

    def samples(self, outcomes: list[Outcome]) -> list[Sample]:
        """Return the samples of the trained policy in all processes' episodes."""
        return samples_of_policy(outcomes, self.team.trained[0])

    def batch(self, samples: list[Sample]) -> TrainingBatch:
        """Return a step's samples, those of all processes, with their advantages."""
        name = self.team.trained[0]
        baseline = self.team.baselines.get(name)
        return training_batch(
            samples,
            self.run,
            estimator=self.method.estimator,
            reference=self.team.reference_policies.get(name),
            kl_coef=self.method.kl_coef,
            baseline=baseline,  # type: ignore[arg-type]
        )

    def after_update(self, step: int) -> dict[str, float]:
        """Load TRL's weights, which the policy has by now, into the engine; return its costs."""
        return self._after_update(step)

    def complete_checkpoint(self, folder: Path) -> None:
        """Add to TRL's checkpoint what it does not know, then seal it."""
        self.distributed.state.wait_for_everyone()  # every process writes its shards

        def write() -> None:
            self._write_checkpoint(folder)
            checkpoint.seal(folder)

        self.distributed.on_main_process(write)

    def _newest_checkpoint(self) -> tuple[int, Path] | None:
        checkpoints = checkpoint.of_trl(self.run.out / "checkpoints")
        return max(checkpoints.items(), default=None)
