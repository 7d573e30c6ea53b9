"""One update of a policy on a batch of samples: advantages, micro-batches, loss, clipped gradient.

Knows tokens and rewards. Does not know which method earned them, and reads no text.
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
    """A reply and the advantage of each token of its completion, None where masked."""

    reply: Reply
    advantages: Sequence[float | None]

    @property
    def unmasked_tokens(self) -> int:
        """Number of tokens that are not masked."""
        return sum(advantage is not None for advantage in self.advantages)

    def moves_weights(self, entropy_coef: float) -> bool:
        """Whether it has a gradient: a nonzero advantage, or an entropy bonus on some token."""
        if entropy_coef:
            return self.unmasked_tokens > 0
        return any(self.advantages)


@dataclass
class UpdateStats:
    """Sums over trained tokens and over optimiser steps, and the highest ratio."""

    loss: float = 0.0
    tokens: float = 0.0
    entropy: float = 0.0
    ratio_mean: float = 0.0
    clip_fraction: float = 0.0
    logprob_gap: float = 0.0
    grad_norm: float = 0.0
    skipped_update: float = 0.0
    ratio_max: float = 0.0

    def add_micro_batch(self, result: PolicyLoss, gap_T: Tensor) -> None:
        """Add a micro-batch; `gap_T` is each token's |learner - sampler| log-probability."""
        tokens = len(gap_T)
        self.loss += float(result.loss.detach())
        self.tokens += tokens
        self.entropy += float(result.entropy_T.sum())
        self.ratio_mean += tokens * float(result.ratio_mean)
        self.clip_fraction += tokens * float(result.clip_fraction)
        self.logprob_gap += float(gap_T.sum())
        self.ratio_max = max(self.ratio_max, float(result.ratio_max))

    def add_step(self, step: "UpdateStats") -> None:
        """Add the sums of another optimiser step."""
        for name in SUMS:
            setattr(self, name, getattr(self, name) + getattr(step, name))
        self.ratio_max = max(self.ratio_max, step.ratio_max)

    def metrics(self, steps: int) -> dict[str, float]:
        """Return means over tokens (nan without any), means over steps, and counts."""
        values: dict[str, float] = {}
        for name in ("entropy", "ratio_mean", "clip_fraction", "logprob_gap"):
            total: float = getattr(self, name)
            values[name] = total / self.tokens if self.tokens else math.nan
        values["loss"] = self.loss / max(steps, 1)
        values["grad_norm"] = self.grad_norm / max(steps, 1)
        values["tokens"] = self.tokens
        values["skipped_update"] = self.skipped_update
        values["ratio_max"] = self.ratio_max
        return values


SUMS = tuple(field.name for field in fields(UpdateStats) if field.name != "ratio_max")


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
    """Take one optimiser step on `samples` (all of this policy), or one per minibatch of them.

    Returns the metrics. With a `reference` policy, the estimator gets `kl_coef` and each token's
    log-ratio of the sampling policy to it; a `baseline` predicts the expected reward per token.
    `entropy` is a mean over the trained tokens; `surprisal` estimates it over all tokens of
    `samples`, as sampled, in nats. With several processes, each handles its shard of the batch.
    Raises ValueError for an unknown estimator.
    """
    check_choice("advantage", estimator, ESTIMATORS)
    inputs = EstimatorInputs(samples, kl_coef=kl_coef)
    metrics: dict[str, float] = {}
    if reference is not None:
        inputs.log_ratios = log_ratios_to(
            reference, samples, config.max_tokens_per_micro_batch
        )
        metrics["kl"] = _mean_over_tokens(inputs.log_ratios, default=0.0)
    elif baseline is not None:
        inputs.values = baseline.observe(samples, config.max_tokens_per_micro_batch)
    advantages = ESTIMATORS[estimator](inputs)

    stats = UpdateStats()
    steps = 0
    for minibatch in minibatches(samples, advantages, config.minibatches):
        stats.add_step(optimizer_step(policy, optimizer, minibatch, config))
        steps += 1
    metrics |= stats.metrics(steps)
    logprobs = [sample.reply.logprobs for sample in samples]
    metrics["surprisal"] = -_mean_over_tokens(logprobs, default=math.nan)
    metrics["sequences"] = float(len(samples))
    metrics["sequences_used"] = float(sum(any(row) for row in advantages))
    return metrics


def minibatches(
    samples: Sequence[Sample], advantages: Advantages, count: int
) -> Iterator[list[TrainingExample]]:
    """Yield `count` minibatches, shuffled unless there is only one; none is empty."""
    examples = [
        TrainingExample(sample.reply, row)
        for sample, row in zip(samples, advantages, strict=True)
    ]
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
) -> UpdateStats:
    """Accumulate the gradient over micro-batches and take one optimiser step.

    Tokens are weighted over the whole batch, so the size of micro-batches does not change the
    gradient. The weights stay the same if no token is trained on (no advantage other than 0 and no
    entropy bonus), or if the gradient is not finite (`skipped_update` 1).
    """
    distributed = Distributed()
    parameters = list(policy.parameters())
    optimizer.zero_grad(set_to_none=True)
    weight = token_weight([example.unmasked_tokens for example in batch], config)
    trained = [
        example for example in batch if example.moves_weights(config.entropy_coef)
    ]
    stats = _accumulate_gradient(policy, distributed.shard(trained), weight, config)
    stats = _sum_over_processes(stats, distributed)
    distributed.sum_gradients(parameters)
    if stats.tokens:
        stats.grad_norm = float(clip_grad_norm_(parameters, config.grad_clip))
    is_finite = math.isfinite(stats.grad_norm) and math.isfinite(stats.loss)
    if stats.tokens and is_finite:
        optimizer.step()
    stats.skipped_update = float(not is_finite)
    optimizer.zero_grad(set_to_none=True)
    return stats


def _accumulate_gradient(
    policy: Policy,
    examples: Sequence[TrainingExample],
    weight: float,
    config: OptimizationConfig,
) -> UpdateStats:
    """Add the gradient of every micro-batch; return the sums over its tokens."""
    stats = UpdateStats()
    replies = [example.reply for example in examples]
    policy.model.train()  # adapters may have dropout
    for micro_batch in policy.forward_micro_batches(
        replies, config.max_tokens_per_micro_batch
    ):
        advantages = [examples[i].advantages for i in micro_batch.indices]
        result, gap_T = micro_batch_loss(
            policy, micro_batch, advantages, weight, config
        )
        result.loss.backward()
        stats.add_micro_batch(result, gap_T)
    policy.model.eval()
    return stats


def _sum_over_processes(stats: UpdateStats, distributed: Distributed) -> UpdateStats:
    sums = distributed.all_reduce_sum({name: getattr(stats, name) for name in SUMS})
    return UpdateStats(**sums, ratio_max=max(distributed.gather([stats.ratio_max])))


def micro_batch_loss(
    policy: Policy,
    micro_batch: MicroBatch,
    advantages: Advantages,
    weight: float,
    config: OptimizationConfig,
) -> tuple[PolicyLoss, Tensor]:
    """Return a micro-batch's part of the loss, and each token's |learner - sampler| gap (T,)."""
    hidden_TH, temperature = micro_batch.at_sampling_temperature()
    targets_T = micro_batch.targets_T

    def packed(values: Iterable[float]) -> Tensor:
        return hidden_TH.new_tensor([*values], dtype=at_least_float32(hidden_TH.dtype))

    advantage_of_token = [advantage for row in advantages for advantage in row]
    sampled_T = packed(p for reply in micro_batch.replies for p in reply.logprobs)
    used = [advantage is not None for advantage in advantage_of_token]
    if not all(used):  # masked tokens cost nothing
        used_T = torch.tensor(used, device=hidden_TH.device)
        hidden_TH = hidden_TH[used_T]
        targets_T = targets_T[used_T]
        sampled_T = sampled_T[used_T]
    advantages_T = packed(a for a in advantage_of_token if a is not None)
    tokens = TokenBatch(
        targets_T=targets_T,
        advantages_T=advantages_T,
        weights_T=torch.full_like(advantages_T, weight),
        old_logprobs_T=sampled_T if config.old_logprobs == "sampler" else None,
        temperature=temperature,
        config=LossConfig(config.loss, config.clip, config.entropy_coef),
    )
    result = policy_loss(hidden_TH, policy.head_VH, tokens)
    return result, (result.logprobs_T - sampled_T).abs()


def log_ratios_to(
    reference: Policy, samples: Sequence[Sample], max_tokens: int
) -> list[list[float]]:
    """Return log pi(token) - log pi_ref(token) of every token, with pi the sampling policy."""
    replies = [sample.reply for sample in samples]
    reference_logprobs = iter(reference.logprobs(replies, max_tokens).tolist())
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
