"""One update of a policy on a batch of samples: advantages, micro-batches, loss, clipped gradient.

The update works on tokens and rewards alone: it is the same for every method, and reads no text.
Suffixes name the axes of a tensor: T the tokens of a micro-batch, H the hidden size, V the
vocabulary.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from statistics import fmean

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from coevolve.advantages.estimators import ESTIMATORS
from coevolve.advantages.inputs import Advantages, EstimatorInputs
from coevolve.advantages.used import used_shares
from coevolve.losses import LossConfig, PolicyLoss, TokenBatch, policy_loss
from coevolve.losses.reference import at_least_float32
from coevolve.models.packing import MicroBatch
from coevolve.models.policy import Policy
from coevolve.training.distributed import Distributed
from coevolve.training.settings import OptimizationConfig
from coevolve.training.value_baselines import Baseline
from coevolve.types import Reply, Sample
from coevolve.validation import check_choice


@dataclass(frozen=True)
class TrainingExample:
    """A reply and the advantage of each token of its completion; None masks a token."""

    reply: Reply
    advantages: Sequence[float | None]
    # Of each token of the completion under the reference policy, for a KL loss.
    reference_logprobs: Sequence[float] = ()

    @property
    def unmasked_tokens(self) -> int:
        """Number of tokens that are not masked."""
        return sum(advantage is not None for advantage in self.advantages)

    def has_gradient(self, config: OptimizationConfig) -> bool:
        """Whether an advantage differs from 0, or all tokens have an entropy bonus or a KL loss."""
        if config.entropy_coef or config.kl_loss_coef:
            return self.unmasked_tokens > 0
        return any(self.advantages)


@dataclass
class UpdateSums:
    """What optimiser steps add up; `metrics` makes means of it."""

    # Sums over optimiser steps.
    loss: float = 0.0
    grad_norm: float = 0.0  # before clipping
    skipped_update: float = (
        0.0  # steps not taken because loss or gradient was not finite
    )
    # Sums over the tokens that were trained on.
    tokens: float = 0.0
    entropy: float = 0.0
    ratio: float = 0.0
    clipped: float = 0.0
    logprob_gap: float = 0.0
    # The highest over all tokens.
    ratio_max: float = 0.0

    def add_micro_batch(self, result: PolicyLoss, gap_T: Tensor) -> None:
        """Add a micro-batch; `gap_T` is each token's |learner - sampler| log-probability."""
        tokens = len(gap_T)
        self.loss += float(result.loss.detach())
        self.tokens += tokens
        self.entropy += float(result.entropy_T.sum())
        self.ratio += tokens * float(result.ratio_mean)
        self.clipped += tokens * float(result.clip_fraction)
        self.logprob_gap += float(gap_T.sum())
        self.ratio_max = max(self.ratio_max, float(result.ratio_max))

    def add_step(self, step: "UpdateSums") -> None:
        """Add another optimiser step."""
        for name in SUMMED_FIELDS:
            setattr(self, name, getattr(self, name) + getattr(step, name))
        self.ratio_max = max(self.ratio_max, step.ratio_max)

    def metrics(self, steps: int) -> dict[str, float]:
        """Return means over tokens (nan without any), means over steps, and counts."""

        def mean_over_tokens(total: float) -> float:
            return total / self.tokens if self.tokens else math.nan

        return {
            "entropy": mean_over_tokens(self.entropy),
            "ratio_mean": mean_over_tokens(self.ratio),
            "clip_fraction": mean_over_tokens(self.clipped),
            "logprob_gap": mean_over_tokens(self.logprob_gap),
            "loss": self.loss / max(steps, 1),
            "grad_norm": self.grad_norm / max(steps, 1),
            "tokens": self.tokens,
            "skipped_update": self.skipped_update,
            "ratio_max": self.ratio_max,
        }


# Fields that add up over steps and over processes: all but the maximum.
SUMMED_FIELDS = tuple(
    field.name for field in fields(UpdateSums) if field.name != "ratio_max"
)


def update_policy(
    policy: Policy,
    optimizer: Optimizer,
    samples: Sequence[Sample],
    config: OptimizationConfig,
    *,
    estimator: str,
    reference: Policy | None = None,
    kl_coef: float = 0.0,
    baseline: Baseline | None = None,
) -> dict[str, float]:
    """Update `policy` once on its `samples`: one optimiser step for each minibatch.

    With a `reference` policy, the estimator gets `kl_coef` and each token's log-ratio of the
    sampling policy to it, and the loss that of `config.kl_loss_coef`. A `baseline` predicts the
    reward to expect at each token, then learns from `samples`; it is not asked if there is a
    `kl_coef`. With several processes, each handles its shard of the batch.

    Returns the metrics. `entropy` is a mean over the tokens trained on, `surprisal` estimates it
    over all tokens of `samples` as they were sampled, and `kl` is the mean log-ratio to
    `reference`; all in nats a token. `used/ROLE` is the share of a role's samples with an
    advantage. Raises ValueError for an unknown estimator.
    """
    batch = training_batch(
        samples,
        config,
        estimator=estimator,
        reference=reference,
        kl_coef=kl_coef,
        baseline=baseline,
    )
    sums = UpdateSums()
    steps = 0
    for minibatch in minibatches(batch.examples, config.minibatches):
        step_sums = optimizer_step(policy, optimizer, minibatch, config)
        if steps == 0 and config.minibatches > 1:
            # Later minibatches meet other weights than those that sampled.
            batch.metrics["logprob_gap_first"] = step_sums.metrics(1)["logprob_gap"]
        sums.add_step(step_sums)
        steps += 1
    return batch.metrics | sums.metrics(steps)


@dataclass(frozen=True)
class TrainingBatch:
    """The examples to learn from, and metrics of the samples as they were sampled."""

    examples: list[TrainingExample]
    metrics: dict[str, float]


def training_batch(
    samples: Sequence[Sample],
    config: OptimizationConfig,
    *,
    estimator: str,
    reference: Policy | None = None,
    kl_coef: float = 0.0,
    baseline: Baseline | None = None,
) -> TrainingBatch:
    """Return `samples` with their advantages; arguments and errors as for `update_policy`."""
    check_choice("advantage", estimator, ESTIMATORS)
    inputs = EstimatorInputs(samples, kl_coef=kl_coef)
    metrics: dict[str, float] = {}
    if reference is not None:
        inputs.log_ratios = log_ratios_to(
            reference, samples, config.max_tokens_per_micro_batch
        )
        metrics["kl"] = _mean_over_tokens(inputs.log_ratios, default=0.0)
    if baseline is not None and not kl_coef:
        # Returns its predictions for these samples, then learns from their rewards.
        inputs.values = baseline.observe(samples, config.max_tokens_per_micro_batch)
    advantages = ESTIMATORS[estimator](inputs)
    logprobs = [sample.reply.logprobs for sample in samples]
    metrics["surprisal"] = -_mean_over_tokens(logprobs, default=math.nan)
    metrics["sequences"] = float(len(samples))
    metrics["sequences_used"] = float(sum(any(row) for row in advantages))
    metrics |= used_shares(samples, advantages)
    examples = _examples(samples, advantages, inputs.log_ratios)
    return TrainingBatch(examples, metrics)


def _examples(
    samples: Sequence[Sample],
    advantages: Advantages,
    log_ratios: Sequence[Sequence[float]],
) -> list[TrainingExample]:
    """Return the samples with their advantages, and the log-probabilities of a reference policy.

    `log_ratios` is empty without one.
    """
    examples = []
    for i, (sample, row) in enumerate(zip(samples, advantages, strict=True)):
        reference_logprobs: list[float] = []
        if log_ratios:
            pairs = zip(sample.reply.logprobs, log_ratios[i], strict=True)
            reference_logprobs = [logprob - ratio for logprob, ratio in pairs]
        examples.append(TrainingExample(sample.reply, row, reference_logprobs))
    return examples


def minibatches(
    examples: Sequence[TrainingExample], count: int
) -> Iterator[list[TrainingExample]]:
    """Yield at most `count` minibatches, none empty, shuffled unless there is only one.

    The order is drawn from torch's global generator, which the run seeds alike in all processes.
    """
    examples = list(examples)
    count = min(count, len(examples))
    if count > 1:  # samples come sorted by role
        order = torch.randperm(len(examples)).tolist()
        examples = [examples[i] for i in order]
    for start in range(count):
        yield examples[start::count]


def optimizer_step(
    policy: Policy,
    optimizer: Optimizer,
    batch: Sequence[TrainingExample],
    config: OptimizationConfig,
) -> UpdateSums:
    """Accumulate the gradient over micro-batches and take one optimiser step.

    Every unmasked token of the whole batch counts in the weight of a token, also those without a
    gradient and those of other processes, so the size of micro-batches does not change the
    gradient. No step is taken if no token has a gradient, or if the loss or the gradient is not
    finite; `skipped_update` counts the second case alone.
    """
    distributed = Distributed()
    parameters = list(policy.parameters())
    optimizer.zero_grad(set_to_none=True)
    unmasked_lengths = [example.unmasked_tokens for example in batch]
    weight = token_weight(unmasked_lengths, config)
    trained = [example for example in batch if example.has_gradient(config)]
    sums = _accumulate_gradient(policy, distributed.shard(trained), weight, config)
    sums = sum_over_processes(sums, distributed)
    distributed.sum_gradients(parameters)
    if sums.tokens:
        sums.grad_norm = float(clip_grad_norm_(parameters, config.grad_clip))
    is_finite = math.isfinite(sums.grad_norm) and math.isfinite(sums.loss)
    if sums.tokens and is_finite:
        optimizer.step()
    sums.skipped_update = float(not is_finite)
    optimizer.zero_grad(set_to_none=True)
    return sums


def _accumulate_gradient(
    policy: Policy,
    examples: Sequence[TrainingExample],
    weight: float,
    config: OptimizationConfig,
) -> UpdateSums:
    """Add the gradient of every micro-batch; return the sums over its tokens."""
    sums = UpdateSums()
    replies = [example.reply for example in examples]
    policy.model.train()  # adapters may have dropout
    for micro_batch in policy.forward_micro_batches(
        replies, config.max_tokens_per_micro_batch
    ):
        rows = [examples[i] for i in micro_batch.indices]
        result, gap_T = micro_batch_loss(policy, micro_batch, rows, weight, config)
        result.loss.backward()
        sums.add_micro_batch(result, gap_T)
    policy.model.eval()
    return sums


def sum_over_processes(sums: UpdateSums, distributed: Distributed) -> UpdateSums:
    """Return the sums of all processes together."""
    values = {name: getattr(sums, name) for name in SUMMED_FIELDS}
    totals = distributed.all_reduce_sum(values)
    return UpdateSums(**totals, ratio_max=max(distributed.gather([sums.ratio_max])))


def loss_config(config: OptimizationConfig) -> LossConfig:
    """Return the objective that a configuration asks for."""
    return LossConfig(
        loss=config.loss,
        clip=config.clip,
        entropy_coef=config.entropy_coef,
        kl_loss_coef=config.kl_loss_coef,
        ratio_cap=config.ratio_cap,
    )


def micro_batch_loss(
    policy: Policy,
    micro_batch: MicroBatch,
    examples: Sequence[TrainingExample],
    weight: float,
    config: OptimizationConfig,
) -> tuple[PolicyLoss, Tensor]:
    """Return a micro-batch's part of the loss, and each token's |learner - sampler| gap (T,).

    `examples` are those of the micro-batch's replies, in their order. Masked tokens are left out
    of both. `weight` is that of each token in the loss.
    """
    # One temperature for all logits: 1.0 if replies differ in theirs, as states are then divided.
    hidden_TH, temperature = micro_batch.at_sampling_temperature()
    targets_T = micro_batch.targets_T

    def per_token_tensor(values: Iterable[float]) -> Tensor:
        return hidden_TH.new_tensor([*values], dtype=at_least_float32(hidden_TH.dtype))

    advantages_of_tokens = [a for example in examples for a in example.advantages]
    reference_logprobs_T = per_token_tensor(
        logprob for example in examples for logprob in example.reference_logprobs
    )
    has_reference = len(reference_logprobs_T) > 0
    sampler_logprobs_T = per_token_tensor(
        logprob for reply in micro_batch.replies for logprob in reply.logprobs
    )
    is_unmasked = [advantage is not None for advantage in advantages_of_tokens]
    if not all(is_unmasked):
        is_unmasked_T = torch.tensor(is_unmasked, device=hidden_TH.device)
        hidden_TH = hidden_TH[is_unmasked_T]
        targets_T = targets_T[is_unmasked_T]
        sampler_logprobs_T = sampler_logprobs_T[is_unmasked_T]
        if has_reference:
            reference_logprobs_T = reference_logprobs_T[is_unmasked_T]
    advantages_T = per_token_tensor(a for a in advantages_of_tokens if a is not None)
    # None: the learner's own log-probabilities stand in for the old ones (ratio 1).
    old_logprobs_T = sampler_logprobs_T if config.old_logprobs == "sampler" else None
    tokens = TokenBatch(
        targets_T=targets_T,
        advantages_T=advantages_T,
        weights_T=torch.full_like(advantages_T, weight),
        old_logprobs_T=old_logprobs_T,
        temperature=temperature,
        reference_logprobs_T=reference_logprobs_T if has_reference else None,
        sampler_logprobs_T=sampler_logprobs_T if config.ratio_cap else None,
        config=loss_config(config),
    )
    result = policy_loss(hidden_TH, policy.head_VH, tokens)
    return result, (result.logprobs_T - sampler_logprobs_T).abs()


def log_ratios_to(
    reference: Policy, samples: Sequence[Sample], max_tokens_per_micro_batch: int
) -> list[list[float]]:
    """Return log pi(token) - log pi_ref(token) of every token, with pi the sampling policy."""
    replies = [sample.reply for sample in samples]
    packed_logprobs = reference.logprobs(replies, max_tokens_per_micro_batch)
    reference_logprobs = iter(packed_logprobs.tolist())
    rows = []
    for reply in replies:
        rows.append([logprob - next(reference_logprobs) for logprob in reply.logprobs])
    return rows


def token_weight(lengths: Sequence[int], config: OptimizationConfig) -> float:
    """Return the weight of each token in the loss, for sequences of these lengths.

    By `loss_aggregation`: "token_mean" makes all weights sum to 1; "constant" is
    1 / (sequences * max_tokens), the length-free mean of DrGRPO; "token_sum" is 1.
    """
    divisors = {
        "token_mean": sum(lengths),
        "constant": len(lengths) * config.max_tokens,
        "token_sum": 1,
    }
    return 1 / max(divisors[config.loss_aggregation], 1)


def _mean_over_tokens(rows: Iterable[Sequence[float]], default: float) -> float:
    values = [value for row in rows for value in row]
    return fmean(values) if values else default
