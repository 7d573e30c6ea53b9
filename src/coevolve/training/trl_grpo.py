"""A `GRPOTrainer` whose batches are coevolve's episodes, with an advantage for every token.

TRL's trainer asks for one batch a step and divides it into `gradient_accumulation_steps` passes.
Here a pass has as many rows as the step needs, so no row is cut off. Suffixes name the axes of a
tensor: R rows, S positions of prompt and completion, T the tokens that are trained on.
"""

import copy
import math
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from datasets import Dataset
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer  # type: ignore[attr-defined]
from trl.trainer import utils

from coevolve.engines.router import EngineRouter
from coevolve.losses import TokenBatch
from coevolve.methods.baselines.trl_trainers import TorchLogProbHead
from coevolve.models.policy_set import PolicySet
from coevolve.training import machine
from coevolve.training.canary import Canary
from coevolve.training.config import Run
from coevolve.training.distributed import Distributed
from coevolve.training.progress import Timer
from coevolve.training.schedule import learning_rate_at
from coevolve.training.trainer import EndStep
from coevolve.training.trl_options import DEFAULT_PASSES, PASSES
from coevolve.training.update import (
    TrainingBatch,
    TrainingExample,
    UpdateSums,
    loss_config,
    sum_over_processes,
    token_weight,
)
from coevolve.types import Outcome, Sample

ROWS = 2  # of a pass, as TRL counts them; TRL wants at least two completions a prompt
# TRL's names of the optimisers of a run.
OPTIMIZERS = {"adamw": "adamw_torch", "adamw_8bit": "adamw_8bit"}
IGNORED = -100  # the label of a token without a loss
# What wrappers add to the names of parameters.
WRAPPERS = ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod.")


@dataclass(frozen=True)
class Pass:
    """The rows of one forward and backward pass, padded on the right."""

    input_RS: Tensor
    attention_RS: Tensor
    labels_RS: Tensor
    """Token ids where there is a loss, else IGNORED."""
    advantages_T: Tensor
    sampler_logprobs_T: Tensor
    reference_logprobs_T: Tensor | None
    """Under the starting policy, for a KL loss."""
    temperature_R: Tensor


class RunTrainer(Protocol):
    """What the trainer of a run does for TRL's: see `trl_trainer.TRLTrainer`."""

    run: Run
    team: PolicySet
    engine: EngineRouter
    distributed: Distributed
    canary: Canary

    def play(self, step: int) -> list[Outcome]:
        """Play the step's episodes in all processes."""

    def samples(self, outcomes: list[Outcome]) -> list[Sample]:
        """Return the samples of the trained policy."""

    def batch(self, samples: list[Sample]) -> TrainingBatch:
        """Return a step's samples with their advantages."""

    def after_update(self, step: int) -> dict[str, float]:
        """Load the new weights into the engine; return its costs."""

    def complete_checkpoint(self, folder: Path) -> None:
        """Add to TRL's checkpoint what it does not know."""


class EpisodeTrainer(GRPOTrainer):
    """TRL's trainer of one run: its step plays, learns and records as the run's own one does."""

    def __init__(self, owner: RunTrainer, timer: Timer, end_step: EndStep):
        self.owner = owner
        self.run = owner.run
        self.timer = timer
        self.end_step = end_step
        self.is_stopped = False
        self.grad_norm = 0.0
        self.passes: list[Pass] = []
        self.outcomes: list[Outcome] = []
        self.sums = UpdateSums()
        self.batch_metrics: dict[str, float] = {}
        self.weight = 0.0
        self.learning_since = 0.0
        self.temperature_R1 = torch.ones(1, 1)
        self.has_warned = False
        policy = owner.team.primary
        on_gpu = policy.head_VH.is_cuda
        if not on_gpu:
            # TRL's own head is a Triton kernel.
            setattr(utils, "_ChunkedLogProbFunction", TorchLogProbHead)  # noqa: B010
        model = trainable_copy(policy.model)
        arguments = grpo_config(owner.run, on_gpu)
        rows = (
            ROWS * arguments.gradient_accumulation_steps * owner.distributed.world_size
        )
        super().__init__(
            model,
            _no_reward,
            arguments,
            # TRL counts steps by it; the prompts are those of the method's turns.
            Dataset.from_dict({"prompt": ["an episode"] * rows}),
            processing_class=policy.tokenizer,
            callbacks=[StepCallback(self)],
        )
        # TRL rounds adapters of 4-bit weights to bfloat16, in which small updates vanish.
        originals = policy.model.parameters()
        for copied, original in zip(model.parameters(), originals, strict=True):
            if copied.requires_grad:
                copied.data = original.detach().clone()
        self.remove_callback(PrinterCallback)  # the run has its own display
        plain = model.get_base_model() if hasattr(model, "get_base_model") else model
        plain.base_model.register_forward_hook(self._divide_by_temperature)

    def _divide_by_temperature(self, module: Any, inputs: Any, output: Any) -> Any:
        """Divide hidden states by the temperature of their row, as roles differ in theirs."""
        hidden_RSH = output.last_hidden_state
        output.last_hidden_state = hidden_RSH / self.temperature_R1[:, :, None].to(
            hidden_RSH
        )
        return output

    def get_decay_parameter_names(self, model: Any) -> list[str]:
        """Decay all weights, as the run's own trainer does."""
        return [name for name, _ in model.named_parameters()]

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """Return the next pass of the step; play the step before the first one."""
        if not self.passes:
            self._play(self.state.global_step + 1)
        return {"rows": self.passes.pop(0)}

    def _play(self, step: int) -> None:
        """Play a step's episodes in all processes; divide this process's rows into passes."""
        owner = self.owner
        run = self.run
        with self.timer.phase("play"):
            self.outcomes = owner.play(step)
        self.learning_since = time.perf_counter()
        owner.engine.sleep()
        samples = owner.samples(self.outcomes)
        batch = owner.batch(samples)
        self.batch_metrics = batch.metrics if samples else {}
        lengths = [example.unmasked_tokens for example in batch.examples]
        self.weight = token_weight(lengths, run)
        self.sums = UpdateSums()
        trained = [example for example in batch.examples if example.has_gradient(run)]
        self._set_learning_rate(step, is_learning=bool(trained))
        # Rows of similar length share a pass, and processes get passes of similar length.
        trained.sort(key=_length)
        own = owner.distributed.shard(trained)
        count = self.args.gradient_accumulation_steps
        for rows in divide(own, count):
            self.passes.append(self._pad(rows))

    def _set_learning_rate(self, step: int, is_learning: bool) -> None:
        """Set the rate of a step before its passes, in the last of which DeepSpeed takes the step.

        A step without anything to learn has none.
        """
        run = self.run
        rate = learning_rate_at(
            step, run.learning_rate, run.schedule, run.warmup_steps, run.steps
        )
        assert self.optimizer is not None
        for group in self.optimizer.param_groups:
            group["lr"] = rate if is_learning else 0.0

    def _pad(self, examples: Sequence[TrainingExample]) -> Pass:
        """Return examples as the tensors of a pass; without any, one row that is masked."""
        end = min(self.owner.team.primary.eos_token_ids)
        width = max((_length(example) for example in examples), default=2)
        rows = max(len(examples), 1)
        self._warn_of_large_pass(rows * width)
        input_RS = torch.full((rows, width), end)
        attention_RS = torch.zeros(rows, width, dtype=torch.long)
        attention_RS[:, 0] = 1  # a row without any token would have no attention
        labels_RS = torch.full((rows, width), IGNORED)
        advantages: list[float] = []
        logprobs: list[float] = []
        references: list[float] = []
        temperatures = [example.reply.temperature for example in examples] or [1.0]
        for row, example in enumerate(examples):
            reply = example.reply
            token_ids = [*reply.prompt_ids, *reply.completion_ids]
            input_RS[row, : len(token_ids)] = torch.tensor(token_ids)
            attention_RS[row, : len(token_ids)] = 1
            for i, advantage in enumerate(example.advantages):
                if advantage is not None:
                    labels_RS[row, len(reply.prompt_ids) + i] = reply.completion_ids[i]
                    advantages.append(advantage)
                    logprobs.append(reply.logprobs[i])
                    references += example.reference_logprobs[i : i + 1]
        device = self.accelerator.device
        return Pass(
            input_RS=input_RS.to(device),
            attention_RS=attention_RS.to(device),
            labels_RS=labels_RS.to(device),
            advantages_T=torch.tensor(advantages, device=device),
            sampler_logprobs_T=torch.tensor(logprobs, device=device),
            reference_logprobs_T=(
                torch.tensor(references, device=device) if references else None
            ),
            temperature_R=torch.tensor(temperatures, device=device),
        )

    def _warn_of_large_pass(self, tokens: int) -> None:
        limit = self.run.max_tokens_per_micro_batch
        if tokens > limit and not self.has_warned:
            self.has_warned = True
            warnings.warn(
                f"a pass has {tokens} tokens, more than max_tokens_per_micro_batch={limit}; "
                f"raise {PASSES} in trl, which is {self.args.gradient_accumulation_steps}",
                stacklevel=2,
            )

    def _compute_loss(self, model: Any, inputs: Any) -> Tensor:
        """Return a pass's part of the loss that `TokenBatch.loss_and_stats` defines.

        Times the number of processes, because TRL's backends average gradients over them.
        """
        rows: Pass = inputs["rows"]
        config = self.run
        self.temperature_R1 = rows.temperature_R[:, None]
        with self.accelerator.autocast():
            output = model(
                input_ids=rows.input_RS,
                attention_mask=rows.attention_RS,
                labels=rows.labels_RS,
                fused_lm_head=True,
            )
        # The output at a position predicts the next one.
        is_trained = rows.labels_RS[:, 1:] != IGNORED
        logprobs_T = output.log_probs[is_trained]
        old_logprobs_T = (
            rows.sampler_logprobs_T if config.old_logprobs == "sampler" else None
        )
        tokens = TokenBatch(
            targets_T=rows.labels_RS[:, 1:][is_trained],
            advantages_T=rows.advantages_T,
            weights_T=torch.full_like(rows.advantages_T, self.weight),
            old_logprobs_T=old_logprobs_T,
            config=loss_config(config),
            reference_logprobs_T=rows.reference_logprobs_T,
            sampler_logprobs_T=rows.sampler_logprobs_T if config.ratio_cap else None,
        )
        result = tokens.loss_and_stats(logprobs_T, output.entropy[is_trained])
        gap_T = (result.logprobs_T - rows.sampler_logprobs_T).abs()
        self.sums.add_micro_batch(result, gap_T)
        loss: Tensor = result.loss * self.accelerator.num_processes
        return loss

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        full = norm.full_tensor() if isinstance(norm, DTensor) else norm
        self.grad_norm = float(full) if full is not None else math.nan
        return full

    def before_optimizer_step(self) -> None:
        """Drop the gradient if there is nothing to learn, or if it is not finite.

        Under DeepSpeed the step is already taken.
        """
        sums = sum_over_processes(self.sums, self.owner.distributed)
        if sums.tokens:
            sums.grad_norm = self.grad_norm
        is_finite = math.isfinite(sums.grad_norm) and math.isfinite(sums.loss)
        sums.skipped_update = float(not is_finite)
        assert self.optimizer is not None
        if not (sums.tokens and is_finite):
            # AdamW leaves weights without a gradient alone.
            self.optimizer.zero_grad(set_to_none=True)
        self.sums = sums

    def after_optimizer_step(self, control: Any) -> None:
        """Load the new weights into the policy and end the step as every run does."""
        step = self.state.global_step
        self.load_policy()
        update_metrics: dict[str, float] = {}
        if self.batch_metrics:
            update_metrics = self.batch_metrics | self.sums.metrics(1)
            self.owner.canary.watch(step, update_metrics)
        metrics = update_metrics | self.owner.after_update(step)
        seconds = time.perf_counter() - self.learning_since
        self.timer.seconds["learn"] = seconds
        end = self.end_step(step, self.outcomes, metrics)
        self.is_stopped = end.is_stopped
        control.should_save = end.is_saved
        control.should_training_stop = end.is_stopped or step == self.run.steps

    @torch.no_grad()
    def load_policy(self) -> None:
        """Copy the trained weights into the policy that answers turns, in every process."""
        parameters = dict(self.owner.team.primary.model.named_parameters())
        model = self.accelerator.unwrap_model(self.model_wrapped)
        for name, full in full_parameters(model):
            parameters[name].copy_(full)


class StepCallback(TrainerCallback):
    """Passes TRL's events on to its trainer."""

    def __init__(self, trainer: EpisodeTrainer):
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Wake the engine: the copy of the weights, or its shard, is where it stays."""
        self.trainer.owner.engine.load_weights()

    def on_pre_optimizer_step(
        self, args: Any, state: Any, control: Any, **_: Any
    ) -> None:
        """Decide whether the optimiser step is taken."""
        self.trainer.before_optimizer_step()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Evaluate and record."""
        self.trainer.after_optimizer_step(control)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Complete the checkpoint."""
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        self.trainer.owner.complete_checkpoint(folder)


def grpo_config(run: Run, on_gpu: bool) -> Any:
    """Return TRL's configuration of a run; `trl` comes last."""
    values: dict[str, Any] = {
        "output_dir": str(run.out / "checkpoints"),
        "max_steps": run.steps,
        "learning_rate": run.learning_rate,
        "lr_scheduler_type": "constant",  # `_set_learning_rate` sets the rate
        "optim": OPTIMIZERS[run.optimizer],
        "weight_decay": run.weight_decay,
        "max_grad_norm": run.grad_clip,
        "per_device_train_batch_size": ROWS,
        "num_generations": ROWS,
        PASSES: DEFAULT_PASSES,
        "max_completion_length": run.max_tokens,
        "beta": 0.0,
        "seed": run.seed,
        "bf16": on_gpu,
        "gradient_checkpointing": on_gpu,
        "use_cpu": not on_gpu,
        "dataloader_pin_memory": on_gpu,
        "ignore_data_skip": True,  # the method's episodes depend on the step alone
        "logging_strategy": "no",
        "disable_tqdm": True,
        "report_to": "none",
        "save_strategy": "no",  # `end_step` says when
        "save_total_limit": 2,
    }
    return GRPOConfig(**(values | run.trl))


def trainable_copy(model: Any) -> Any:
    """Return a copy to train; unless weights are sharded, it shares those that stay as they are."""
    shared: dict[int, Any] = {}
    if not machine.is_sharded():
        for parameter in model.parameters():
            if not parameter.requires_grad:
                shared[id(parameter)] = parameter
    return copy.deepcopy(model, shared)


def divide(items: Sequence[Any], count: int) -> Iterator[Sequence[Any]]:
    """Yield `count` consecutive parts of similar size; some are empty if items are few."""
    for part in range(count):
        start = part * len(items) // count
        yield items[start : (part + 1) * len(items) // count]


def full_parameters(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, whole tensor) of every trained parameter; all processes take part."""
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        for wrapper in WRAPPERS:
            name = name.replace(wrapper, "")
        if isinstance(parameter, DTensor):
            yield name, parameter.full_tensor()
            continue
        # Gathers a shard of ZeRO-3, whatever parameter it is of; does nothing to other parameters.
        with utils.maybe_gather_lm_head_ctx(parameter):
            yield name, parameter.data


def _length(example: TrainingExample) -> int:
    """Return the tokens of prompt and completion."""
    return len(example.reply.prompt_ids) + len(example.reply.completion_ids)


def _no_reward(**_: object) -> list[float | None]:
    """Stand in for the reward that TRL demands: rewards come from the method."""
    return [0.0]
