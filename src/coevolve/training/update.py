"""One optimiser step on a batch of samples: advantages, micro-batches, loss, clipped gradient.

Knows tokens and rewards. It does not know which method earned them, and reads no text.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from coevolve.advantages.estimators import ESTIMATORS
from coevolve.losses import PolicyLoss, TokenBatch, policy_loss
from coevolve.losses.reference import raised
from coevolve.models.packing import divide_by_temperature
from coevolve.models.policy import Policy
from coevolve.training.distributed import Distributed
from coevolve.training.settings import Learning
from coevolve.training.value_baselines import Baseline
from coevolve.types import Reply, Sample
from coevolve.validation import among

PER_TOKEN = ("entropy", "ratio_mean", "clip_fraction", "logprob_gap")  # metrics that are means over tokens
Ready = tuple[Reply, Sequence[float | None]]  # a reply and the advantage of each of its tokens, None where masked


def learn(
    policy: Policy,
    optimizer: Optimizer,
    samples: Sequence[Sample],
    settings: Learning,
    *,
    estimator: str,
    reference: Policy | None = None,
    kl_coef: float = 0.0,
    baseline: Baseline | None = None,
) -> dict[str, float]:
    """Take one step on `samples` (all of this policy), or one on each of `minibatches` shuffled shares of them.

    Returns the metrics; of several steps loss and norm are means. The loss is normalised over the whole step, so
    micro-batches of at most `micro_tokens` padded tokens leave the gradient as it is. `old` says where the ratio's old
    log-probabilities come from: the sampler, or the learner before the step (ratio 1). The weights stay as they are
    when no token is trained on (no advantage other than 0, and no entropy bonus) and when the gradient is not finite
    (`skipped_update` 1). With a `reference` the estimator gets `kl_coef` and each token's log-ratio of the sampler to
    it; `baseline` says what reward to expect. Of several processes each takes its share. `entropy` is over the tokens
    trained on; `surprisal` estimates it over all tokens of `samples`, as sampled, in nats.
    Raises ValueError for an estimator that there is not.
    """
    among("advantage", estimator, ESTIMATORS)
    known: tuple[Any, ...] = ()
    facts: dict[str, float] = {}
    if reference is not None:
        ratios = _log_ratios(samples, reference, settings.micro_tokens)
        known, facts = (ratios, kl_coef), {"kl": _mean(ratios, 0.0)}
    elif baseline is not None:
        known = (baseline.observe(samples, settings.micro_tokens),)
    advantages = ESTIMATORS[estimator](samples, *known)
    # An entropy bonus moves every token that is not masked, otherwise only an advantage does.
    moved = [any(a is not None for a in row) if settings.entropy_coef else any(row) for row in advantages]
    each = [*zip(samples, advantages, moved, strict=True)]
    steps, sums, ratio_max = min(settings.minibatches, len(each)), Counter[str](), 0.0
    order = torch.randperm(len(each)).tolist() if steps > 1 else range(len(each))  # samples come by role
    for part in ([each[k] for k in order[i::steps]] for i in range(steps)):
        weight = token_weight([sum(a is not None for a in row) for _, row, _ in part], settings)
        ready = [(sample.reply, row) for sample, row, moves in part if moves]
        done, highest = _update(policy, optimizer, ready, weight, settings)
        sums.update(done)
        ratio_max = max(ratio_max, highest)
    tokens = sums["tokens"]
    means = {name: sums[name] / tokens if tokens else math.nan for name in PER_TOKEN}
    means |= {name: sums[name] / max(steps, 1) for name in ("loss", "grad_norm")}
    counts = {"sequences": float(len(samples)), "sequences_used": float(sum(map(any, advantages)))}
    counts |= {name: sums[name] for name in ("tokens", "skipped_update")}
    surprisal = -_mean((sample.reply.logprobs for sample in samples), math.nan)
    return {**means, **counts, "ratio_max": ratio_max, "surprisal": surprisal, **facts}


def _update(
    policy: Policy, optimizer: Optimizer, ready: Sequence[Ready], weight: float, settings: Learning
) -> tuple[dict[str, float], float]:
    """Take one optimiser step, unless no token is trained on or the gradient is not finite.

    Returns the sums of `_accumulate` with the gradient's norm and whether the step was skipped, and the highest ratio.
    """
    distributed, parameters = Distributed(), list(policy.parameters())
    optimizer.zero_grad(set_to_none=True)
    mine, ratio_max = _accumulate(policy, distributed.shard(ready), weight, settings)
    sums = distributed.all_reduce_sum(mine)
    distributed.sum_gradients(parameters)
    norm = float(clip_grad_norm_(parameters, settings.grad_clip)) if sums["tokens"] else 0.0
    skipped = not (math.isfinite(norm) and math.isfinite(sums["loss"]))
    if sums["tokens"] and not skipped:
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return sums | {"grad_norm": norm, "skipped_update": float(skipped)}, max(distributed.gather([ratio_max]))


def _log_ratios(samples: Sequence[Sample], reference: Policy, micro_tokens: int) -> list[list[float]]:
    """Return log pi(token) - log pi_ref(token) of every reply, where pi is the policy that sampled it."""
    replies = [sample.reply for sample in samples]
    theirs = iter(reference.logprobs(replies, micro_tokens).tolist())
    return [[mine - next(theirs) for mine in reply.logprobs] for reply in replies]


def token_weight(lengths: Sequence[int], settings: Learning) -> float:
    """Return what each token of sequences of these lengths weighs in the loss, by `length_norm`.

    "token_mean": all tokens sum to 1. "constant": 1 / (sequences * max_tokens), the length-free mean of DrGRPO.
    "token_sum": 1.
    """
    divisors = {"token_mean": sum(lengths), "constant": len(lengths) * settings.max_tokens, "token_sum": 1}
    return 1 / max(divisors[settings.length_norm], 1)


def _accumulate(
    policy: Policy, ready: Sequence[Ready], weight: float, settings: Learning
) -> tuple[dict[str, float], float]:
    """Add every micro-batch to the gradient; return the sums of their metrics over tokens, and the highest ratio."""
    sums = dict.fromkeys(("loss", "tokens", *PER_TOKEN), 0.0)
    ratio_max = 0.0
    policy.model.train()  # adapters may have dropout
    for indices, hidden_TH, targets_T in policy.passes([reply for reply, _ in ready], settings.micro_tokens):
        result, gap_T = _loss(policy, [ready[i] for i in indices], hidden_TH, targets_T, weight, settings)
        result.loss.backward()
        count = len(gap_T)
        sums["loss"] += float(result.loss.detach())
        sums["tokens"] += count
        sums["entropy"] += float(result.entropy_T.sum())
        sums["ratio_mean"] += count * float(result.ratio_mean)
        sums["clip_fraction"] += count * float(result.clip_fraction)
        sums["logprob_gap"] += float(gap_T.sum())
        ratio_max = max(ratio_max, float(result.ratio_max))
    policy.model.eval()
    return sums, ratio_max


def _loss(
    policy: Policy, batch: list[Ready], hidden_TH: Tensor, targets_T: Tensor, weight: float, settings: Learning
) -> tuple[PolicyLoss, Tensor]:
    """Return a micro-batch's share of the loss, and each trained token's |learner - sampler| gap."""
    replies, advantages = [reply for reply, _ in batch], [a for _, row in batch for a in row]
    hidden_TH, temperature = divide_by_temperature(hidden_TH, replies)

    def packed(numbers: Iterable[float]) -> Tensor:
        return hidden_TH.new_tensor([*numbers], dtype=raised(hidden_TH.dtype))

    sampled_T = packed(logprob for reply in replies for logprob in reply.logprobs)
    used_T = torch.tensor([a is not None for a in advantages], device=hidden_TH.device)
    if not used_T.all():  # masked tokens cost nothing
        hidden_TH, targets_T, sampled_T = hidden_TH[used_T], targets_T[used_T], sampled_T[used_T]
    advantages_T = packed(a for a in advantages if a is not None)
    old_T, weights_T = sampled_T if settings.old == "sampler" else None, torch.full_like(advantages_T, weight)
    objective = settings.loss, settings.clip, settings.entropy_coef
    tokens = TokenBatch(targets_T, advantages_T, old_T, weights_T, temperature, *objective)
    result = policy_loss(hidden_TH, policy.head_VH, tokens)
    return result, (result.logprobs_T - sampled_T).abs()


def _mean(rows: Iterable[Sequence[float]], default: float) -> float:
    numbers = [number for row in rows for number in row]
    return fmean(numbers) if numbers else default
