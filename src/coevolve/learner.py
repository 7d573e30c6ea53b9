"""One optimiser step on a batch of samples: advantages, micro-batches, loss, clipped gradient.

Knows tokens and rewards. It does not know which protocol earned them, and reads no text.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import torch
from torch import Tensor
from torch.optim import Optimizer

from coevolve.advantages import ESTIMATORS, WITH_KL, WITH_VALUES
from coevolve.losses import PolicyLoss, policy_loss, weights
from coevolve.policies.causal import Policy
from coevolve.policies.packing import heated, micro_batches
from coevolve.policies.reference import Reference
from coevolve.policies.sharding import clip_gradients, is_sharded
from coevolve.policies.value import ValueHead
from coevolve.policies.zero import Zero
from coevolve.ranks import Ranks
from coevolve.types import Reply, Sample

ALONE = Ranks(1)
OLD = ("sampler", "learner")


@dataclass(frozen=True)
class _Row:
    """One sample made ready: its reply, and advantages and weights per token."""

    reply: Reply
    advantages: list[float]
    weights: list[float]
    temperature: float

    @property
    def text(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self.reply.prompt_ids, self.reply.ids

    def idle(self) -> "_Row":
        """The same row, teaching nothing."""
        return replace(self, advantages=[0.0] * len(self.advantages), weights=[0.0] * len(self.weights))


def learn(
    policy: Policy,
    optimizer: Optimizer,
    samples: Sequence[Sample],
    *,
    estimator: str,
    kind: str = "ppo",
    clip: tuple[float, float] = (0.2, 0.28),
    dual_clip: float | None = None,
    entropy_coef: float = 0.0,
    length_norm: str = "token_mean",
    length_constant: float | None = None,
    grad_clip: float | None = 1.0,
    temperature: float = 1.0,
    micro_tokens: int = 16384,
    old: str = "sampler",
    reference: Reference | None = None,
    kl_coef: float = 0.0,
    value: ValueHead | None = None,
    ranks: Ranks = ALONE,
) -> dict[str, float]:
    """Take one step on `samples` (all of this policy) and return the step's metrics.

    The loss is normalised over the whole batch, so micro-batches of at most `micro_tokens` padded tokens
    leave the gradient as it is. `temperature` is that of the sampler; a turn's own comes first. `old` says
    where the ratio's old log-probabilities come from: the sampler, or the learner before the step (ratio 1).
    The weights stay as they are when nothing has an advantage (`sequences_used` 0) and when the gradient is
    not finite (`skipped_update` 1). A `kl_coef` above 0 hands the estimator each token's log-ratio of the
    sampler to `reference`; `value` is the head of an estimator with a learned baseline. Of several `ranks`
    each takes its share of the rows. `entropy` is the mean over the tokens trained on, `surprisal` an estimate
    of it over all. Raises ValueError naming a setting that is not allowed.
    """
    _check(estimator, old, reference, kl_coef, value)
    kl = (_log_ratios(samples, reference, temperature, micro_tokens), kl_coef) if kl_coef else ()
    more = (value.observe(samples, micro_tokens),) if estimator in WITH_VALUES else kl
    rows = _rows(samples, estimator, length_norm, length_constant, temperature, more)
    if entropy_coef == 0:
        rows = [row for row in rows if any(row.advantages)]
    optimizer.zero_grad(set_to_none=True)
    settings = {"clip": clip, "dual_clip": dual_clip, "kind": kind, "entropy_coef": entropy_coef}
    by_deepspeed = isinstance(optimizer, Zero)
    passes = _passes(policy, rows, ranks, micro_tokens, alike=by_deepspeed or policy.shards is not None)
    sums = _accumulate(policy, optimizer, passes, old, settings)
    sums.join(ranks)
    if not by_deepspeed:
        parts = (part for group in optimizer.param_groups for part in group["params"])
        ranks.add_gradients(part for part in parts if not is_sharded(part))
    norm, skipped = _update(optimizer, sums, grad_clip)
    return {
        **sums.metrics(),
        "grad_norm": norm if sums.tokens else 0.0,
        "skipped_update": float(skipped),
        "sequences": float(len(samples)),
        "sequences_used": float(len(rows)),
        "response_length": fmean(len(sample.reply.ids) for sample in samples) if samples else 0.0,
        "surprisal": _surprisal(samples),
        **({"kl": _mean_ratio(kl[0])} if kl else {}),
    }


def _surprisal(samples: Sequence[Sample]) -> float:
    """Return the mean of -log p over the tokens of all samples, in nats a token; nan without any.

    Samples without an advantage count as well, so methods whose policies say the same have the same value. The
    log-probabilities are the sampler's, so this estimates the policy's entropy at the temperatures sampled at.
    """
    logprobs = [logprob for sample in samples for logprob in sample.reply.logprobs]
    return -fmean(logprobs) if logprobs else math.nan


def _accumulate(policy: Policy, optimizer: Optimizer, passes: list[list[_Row]], old: str, settings: dict) -> "_Sums":
    """Add every micro-batch to the gradient; return the sums of their metrics."""
    sums = _Sums()
    policy.model.train()  # adapters may have dropout
    for number, batch in enumerate(passes, 1):
        result, gap = _loss(policy, batch, old, settings)
        if isinstance(optimizer, Zero):
            optimizer.backward(result.loss, last=number == len(passes))
        else:
            result.loss.backward()
        if any(batch[0].weights):  # not an idle one
            sums.add(result, gap)
    policy.model.eval()
    return sums


def _update(optimizer: Optimizer, sums: "_Sums", grad_clip: float | None) -> tuple[float, bool]:
    """Clip and step unless something is not finite; return the gradient's norm and whether the step was skipped."""
    norm, skipped = math.nan, False
    if sums.tokens:
        most = grad_clip or math.inf
        norm = optimizer.clip(most) if isinstance(optimizer, Zero) else clip_gradients(optimizer, most)
        skipped = not (math.isfinite(norm) and math.isfinite(sums.loss))
        if not skipped:
            optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm, skipped


def _check(estimator: str, old: str, reference: Reference | None, kl_coef: float, value: ValueHead | None) -> None:
    if estimator not in ESTIMATORS:
        raise ValueError(f"advantage must be one of {sorted(ESTIMATORS)}, got {estimator!r}")
    if old not in OLD:
        raise ValueError(f"old must be one of {OLD}, got {old!r}")
    if kl_coef and (reference is None or estimator not in WITH_KL):
        raise ValueError(f"kl_coef needs a reference and an advantage of {WITH_KL}, got {reference}, {estimator!r}")
    if estimator in WITH_VALUES and value is None:
        raise ValueError(f"advantage {estimator!r} needs a value head, got none")


def _log_ratios(
    samples: Sequence[Sample], reference: Reference, temperature: float, micro_tokens: int
) -> list[list[float]]:
    """Return log pi(token) - log pi_ref(token) of every reply, where pi is the policy that sampled it."""
    found: dict[int, list[float]] = {}
    rows = [_Row(sample.reply, [], [], _heat(sample, temperature)) for sample in samples if sample.reply.ids]
    for batch in _micro_batches(rows, micro_tokens, reference.policy.shares_prompts):
        logprobs_T = reference.logprobs([row.text for row in batch], [row.temperature for row in batch])
        values = logprobs_T.split([len(row.reply.ids) for row in batch])
        for row, its in zip(batch, values, strict=True):
            pairs = zip(row.reply.logprobs, its.tolist(), strict=True)
            found[id(row.reply)] = [new - ref for new, ref in pairs]
    return [found.get(id(sample.reply), []) for sample in samples]


def _mean_ratio(log_ratios: list[list[float]]) -> float:
    ratios = [ratio for its in log_ratios for ratio in its]
    return fmean(ratios) if ratios else 0.0


def _heat(sample: Sample, temperature: float) -> float:
    own = sample.reply.turn.temperature
    return (temperature if own is None else own) or 1.0  # the sampler reports greedy replies at temperature 1


def _rows(
    samples: Sequence[Sample], estimator: str, norm: str, constant: float | None, temperature: float, more: tuple = ()
) -> list[_Row]:
    """Return the samples that have tokens; weights count the whole batch, before any row is left out.

    A token whose advantage is None is masked: it has no weight and does not count in the normaliser.
    """
    for sample in samples:
        if len(sample.reply.logprobs) != len(sample.reply.ids):
            sizes = f"{len(sample.reply.ids)} ids and {len(sample.reply.logprobs)} log-probabilities"
            raise ValueError(f"a reply of role {sample.role!r} has {sizes}: it needs one of each per token")
    advantages = ESTIMATORS[estimator](samples, *more)
    lengths = [sum(value is not None for value in values) for values in advantages]
    parts = weights(lengths, norm, constant).split(lengths) if samples else ()
    rows = []
    for sample, values, part in zip(samples, advantages, parts, strict=True):
        counted = iter(part.tolist())
        shares = [0.0 if value is None else next(counted) for value in values]
        rows.append(_Row(sample.reply, [value or 0.0 for value in values], shares, _heat(sample, temperature)))
    return [row for row in rows if any(row.weights)]


def _micro_batches(rows: Sequence[_Row], micro_tokens: int, share: bool) -> Iterator[list[_Row]]:
    """Yield batches of similar length whose padded size keeps within `micro_tokens`."""
    for batch in micro_batches([row.text for row in rows], micro_tokens, share):
        yield [rows[i] for i in batch]


def _passes(policy: Policy, rows: Sequence[_Row], ranks: Ranks, micro_tokens: int, alike: bool) -> list[list[_Row]]:
    """Return this rank's micro-batches; `alike`, where a pass waits for all ranks: as many as any, with idle rows."""
    batches = list(_micro_batches(ranks.share(rows), micro_tokens, policy.shares_prompts))
    idle = int(ranks.most(len(batches))) - len(batches) if alike else 0
    return batches + [[rows[0].idle()] for _ in range(idle)]


def _loss(policy: Policy, batch: list[_Row], old: str, settings: dict) -> tuple[PolicyLoss, Tensor]:
    """Return a micro-batch's share of the loss, and each trained token's |learner - sampler| gap."""
    hidden_TH, targets_T = policy.states([row.text for row in batch])
    lengths = [len(row.reply.ids) for row in batch]
    hidden_TH, temperature = heated(hidden_TH, [row.temperature for row in batch], lengths)
    dtype = torch.promote_types(hidden_TH.dtype, torch.float32)

    def packed(values: Iterator[Sequence[float]]) -> Tensor:
        numbers = [number for row in values for number in row]
        return torch.tensor(numbers, dtype=dtype, device=targets_T.device)

    weights_T = packed(row.weights for row in batch)
    known = targets_T, packed(row.advantages for row in batch), packed(row.reply.logprobs for row in batch), weights_T
    used_T = weights_T != 0
    if used_T.any() and not used_T.all():  # masked tokens cost nothing; an idle batch keeps its graph
        hidden_TH, *known = (x_T[used_T] for x_T in (hidden_TH, *known))
    targets_T, advantages_T, sampled_T, weights_T = known
    result = policy_loss(
        hidden_TH,
        policy.head_VH,
        targets_T,
        advantages_T,
        sampled_T if old == "sampler" else None,
        temperature=temperature,
        weights_T=weights_T,
        **settings,
    )
    return result, (result.logprobs_T - sampled_T).abs()


class _Sums:
    """Running sums of a step's metrics over its micro-batches."""

    def __init__(self) -> None:
        self.tokens, self.loss, self.ratio_max = 0, 0.0, 0.0
        self.means = {"entropy": 0.0, "ratio_mean": 0.0, "clip_fraction": 0.0, "logprob_gap": 0.0}

    def add(self, result: PolicyLoss, gap_T: Tensor) -> None:
        """Count a micro-batch in."""
        count = len(gap_T)
        self.tokens += count
        self.loss += float(result.loss.detach())
        self.ratio_max = max(self.ratio_max, float(result.ratio_max))
        self.means["entropy"] += float(result.entropy_T.sum())
        self.means["logprob_gap"] += float(gap_T.sum())
        self.means["ratio_mean"] += count * float(result.ratio_mean)
        self.means["clip_fraction"] += count * float(result.clip_fraction)

    def join(self, ranks: Ranks) -> None:
        """Count in what the other ranks counted."""
        values = torch.tensor([float(self.tokens), self.loss, *self.means.values()], dtype=torch.float64)
        ranks.add([values])
        tokens, self.loss, *means = values.tolist()
        self.tokens, self.ratio_max = int(tokens), ranks.most(self.ratio_max)
        self.means = dict(zip(self.means, means, strict=True))

    def metrics(self) -> dict[str, float]:
        """Return the metrics; means are over the tokens that were trained on (nan without any)."""
        means = {name: total / self.tokens if self.tokens else math.nan for name, total in self.means.items()}
        return {"loss": self.loss, "tokens": float(self.tokens), "ratio_max": self.ratio_max, **means}
