"""One optimiser step on a batch of samples: advantages, micro-batches, loss, clipped gradient.

Knows tokens and rewards. It does not know which method earned them, and reads no text.
"""

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from coevolve.advantages import ESTIMATORS, WITH_KL, WITH_VALUES, Advantages
from coevolve.checks import OLD_LOGPROBS, among
from coevolve.losses import PolicyLoss, policy_loss, weights
from coevolve.losses.reference import raised
from coevolve.policies.causal import Policy
from coevolve.policies.packing import Example, divide_by_temperature, micro_batches
from coevolve.policies.value import ValueHead
from coevolve.ranks import Ranks
from coevolve.types import Reply, Sample


class _Weighted(NamedTuple):
    """One reply made ready: advantages and weights per token."""

    reply: Reply
    advantages: list[float]
    weights: list[float]


def learn(
    policy: Policy,
    optimizer: Optimizer,
    samples: Sequence[Sample],
    *,
    estimator: str,
    length_norm: str = "token_mean",
    length_constant: float | None = None,
    grad_clip: float | None = 1.0,
    micro_tokens: int = 16384,
    old: str = "sampler",
    reference: Policy | None = None,
    kl_coef: float = 0.0,
    value: ValueHead | None = None,
    **objective: Any,
) -> dict[str, float]:
    """Take one step on `samples` (all of this policy) and return the step's metrics.

    The loss is normalised over the whole batch, so micro-batches of at most `micro_tokens` padded tokens
    leave the gradient as it is. `objective` is what `policy_loss` takes: kind, clip and entropy_coef. `old` says
    where the ratio's old log-probabilities come from: the sampler, or the learner before the step (ratio 1). The
    weights stay as they are when nothing has an advantage (`sequences_used` 0) and when the gradient is not finite
    (`skipped_update` 1). A `kl_coef` above 0 hands the estimator each token's log-ratio of the sampler to `reference`;
    `value` is the head of an estimator with a learned baseline. Of several processes each takes its share of the
    replies. `entropy` is the mean over the tokens trained on; `surprisal` estimates it over the tokens of all samples,
    at the temperatures sampled at, in nats.
    Raises ValueError naming a setting that is not allowed, or a reply without a log-probability for every token.
    """
    among("old", old, OLD_LOGPROBS)
    advantages, facts = _advantages(samples, estimator, micro_tokens, reference, kl_coef, value)
    ready = _weighted(samples, advantages, length_norm, length_constant)
    if not objective.get("entropy_coef"):
        ready = [one for one in ready if any(one.advantages)]
    ranks, parameters = Ranks(), list(policy.parameters())
    optimizer.zero_grad(set_to_none=True)
    sums, ratio_max = _accumulate(policy, ranks.share(ready), micro_tokens, old, **objective)
    sums = ranks.totals(sums)
    loss, tokens = sums.pop("loss"), sums.pop("tokens")
    ranks.add_gradients(parameters)
    norm = float(clip_grad_norm_(parameters, grad_clip or math.inf)) if tokens else 0.0
    skipped = not (math.isfinite(norm) and math.isfinite(loss))
    if tokens and not skipped:
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return {
        "loss": loss,
        "tokens": tokens,
        "ratio_max": max(ranks.gather([ratio_max])),
        **{name: total / tokens if tokens else math.nan for name, total in sums.items()},
        "grad_norm": norm,
        "skipped_update": float(skipped),
        "sequences": float(len(samples)),
        "sequences_used": float(len(ready)),
        "response_length": fmean(len(sample.reply.ids) for sample in samples) if samples else 0.0,
        "surprisal": -_mean((sample.reply.logprobs for sample in samples), math.nan),
        **facts,
    }


def _advantages(
    samples: Sequence[Sample], estimator: str, micro_tokens: int, reference: Policy | None, kl_coef: float, value: Any
) -> tuple[Advantages, dict[str, float]]:
    """Return the estimator's advantages, and the mean log-ratio `kl` to the reference where there is a penalty."""
    among("advantage", estimator, ESTIMATORS)
    for reply in (sample.reply for sample in samples):
        if len(reply.logprobs) != len(reply.ids):
            told = f"for each of its {len(reply.ids)} tokens, got {len(reply.logprobs)}"
            raise ValueError(f"logprobs of a reply of {reply.turn.role!r} must hold one number {told}")
    if kl_coef:
        if reference is None or estimator not in WITH_KL:
            raise ValueError(f"kl_coef needs a reference and an advantage of {WITH_KL}, got {reference}, {estimator!r}")
        ratios = _log_ratios(samples, reference, micro_tokens)
        return ESTIMATORS[estimator](samples, ratios, kl_coef), {"kl": _mean(ratios, 0.0)}
    if value is None and estimator in WITH_VALUES:
        raise ValueError(f"advantage {estimator!r} needs a value head, got none")
    known = () if value is None else (value.observe(samples, micro_tokens),)
    return ESTIMATORS[estimator](samples, *known), {}


def _accumulate(
    policy: Policy, ready: Sequence[_Weighted], micro_tokens: int, old: str, **objective: Any
) -> tuple[dict[str, float], float]:
    """Add every micro-batch to the gradient; return the sums of their metrics over tokens, and the highest ratio."""
    sums = dict.fromkeys(("loss", "tokens", "entropy", "ratio_mean", "clip_fraction", "logprob_gap"), 0.0)
    ratio_max = 0.0
    policy.model.train()  # adapters may have dropout
    for indices in micro_batches([_example(one.reply) for one in ready], micro_tokens, policy.shares_prompts):
        result, gap_T = _loss(policy, [ready[i] for i in indices], old, **objective)
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


def _mean(rows: Iterable[Sequence[float]], default: float) -> float:
    numbers = [number for row in rows for number in row]
    return fmean(numbers) if numbers else default


def _example(reply: Reply) -> Example:
    return reply.prompt_ids, reply.ids


def _log_ratios(samples: Sequence[Sample], reference: Policy, micro_tokens: int) -> list[list[float]]:
    """Return log pi(token) - log pi_ref(token) of every reply, where pi is the policy that sampled it."""
    found: dict[int, list[float]] = {}
    spoken = [sample.reply for sample in samples if sample.reply.ids]
    for indices in micro_batches([_example(reply) for reply in spoken], micro_tokens, reference.shares_prompts):
        batch = [spoken[i] for i in indices]
        each = reference.logprobs(batch).split([len(reply.ids) for reply in batch])
        for reply, known_T in zip(batch, each, strict=True):
            found[id(reply)] = [new - ref for new, ref in zip(reply.logprobs, known_T.tolist(), strict=True)]
    return [found.get(id(sample.reply), []) for sample in samples]


def _weighted(samples: Sequence[Sample], advantages: Advantages, norm: str, constant: float | None) -> list[_Weighted]:
    """Return the replies that have tokens; weights count the whole batch, before any reply is left out.

    A token whose advantage is None is masked: it has no weight and does not count in the normaliser.
    """
    counted = iter(weights([sum(a is not None for a in row) for row in advantages], norm, constant).tolist())
    ready = []
    for sample, row in zip(samples, advantages, strict=True):
        parts = [0.0 if advantage is None else next(counted) for advantage in row]
        ready.append(_Weighted(sample.reply, [advantage or 0.0 for advantage in row], parts))
    return [one for one in ready if any(one.weights)]


def _loss(policy: Policy, batch: list[_Weighted], old: str, **objective: Any) -> tuple[PolicyLoss, Tensor]:
    """Return a micro-batch's share of the loss, and each trained token's |learner - sampler| gap."""
    replies = [one.reply for one in batch]
    hidden_TH, targets_T = policy.states([_example(reply) for reply in replies])
    hidden_TH, temperature = divide_by_temperature(hidden_TH, replies)

    def packed(rows: Iterable[Sequence[float]]) -> Tensor:
        return hidden_TH.new_tensor([number for row in rows for number in row], dtype=raised(hidden_TH.dtype))

    weights_T, advantages_T = packed(one.weights for one in batch), packed(one.advantages for one in batch)
    sampled_T, used_T = packed(reply.logprobs for reply in replies), weights_T != 0
    if not used_T.all():  # masked tokens cost nothing
        known = hidden_TH, targets_T, advantages_T, sampled_T, weights_T
        hidden_TH, targets_T, advantages_T, sampled_T, weights_T = (x_T[used_T] for x_T in known)
    objective |= {"temperature": temperature, "weights_T": weights_T}
    old_T = sampled_T if old == "sampler" else None
    result = policy_loss(hidden_TH, policy.head_VH, targets_T, advantages_T, old_T, **objective)
    return result, (result.logprobs_T - sampled_T).abs()
