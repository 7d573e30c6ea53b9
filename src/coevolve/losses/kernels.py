"""One Triton kernel that turns a chunk of logits into statistics and, in place, into the loss's gradient.

A program owns a row and reads it twice: from memory for the statistics, then mostly from the L2 cache for the gradient.
"""

from contextlib import nullcontext

import torch
import triton
import triton.language as tl
from torch import Tensor

from coevolve.losses.chunked import LOWEST, Tokens
from coevolve.losses.reference import SATURATION

LANE = 64  # rows are padded to whole groups of so many columns, so that every load is 16 bytes wide


@triton.jit
def _slope(logprob, advantage, old, low, high, saturation, KIND: tl.constexpr, HAS_OLD: tl.constexpr):
    """Derivative of a token's term (reference.Objective) by the token's log-probability; nan stays nan."""
    if KIND == "reinforce":
        return -advantage
    gap = logprob - logprob
    if HAS_OLD:
        gap = logprob - tl.where(tl.abs(old) == float("inf"), float("nan"), old)
    stopped = gap > saturation
    ratio = tl.exp(tl.where(stopped, saturation, gap))
    if KIND == "ppo":
        stopped = stopped | ((advantage > 0) & (ratio > 1 + high)) | ((advantage < 0) & (ratio < 1 - low))
    return tl.where(stopped, 0.0, -advantage * ratio)


@triton.jit
def _read(line, at, width, LOWEST: tl.constexpr):
    """Logits, minus infinity (also beyond the row) as a number whose products with 0 are 0; nan stays nan."""
    x = tl.load(line + at, mask=at < width, other=LOWEST).to(tl.float32)
    return tl.maximum(x, LOWEST, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _columns(UNITS: tl.constexpr, THREADS: tl.constexpr, WIDTH: tl.constexpr):
    """Columns of one step as (unit, thread, neighbours): a thread's neighbours are one load of 16 bytes."""
    unit, thread = tl.arange(0, UNITS)[:, None, None], tl.arange(0, THREADS)[None, :, None]
    return (unit * THREADS + thread) * WIDTH + tl.arange(0, WIDTH)[None, None, :]


@triton.jit
def _statistics(
    line, width, rate, LOWEST: tl.constexpr, UNITS: tl.constexpr, THREADS: tl.constexpr, WIDTH: tl.constexpr
):
    """A row's maximum, sum of 2^(rate (x - maximum)), and sum of the same times (x - maximum).

    Until the row's end they are a thread's own, so that nothing has to be exchanged before.
    """
    peak = tl.full((THREADS,), LOWEST, tl.float32)
    total = tl.zeros((THREADS,), tl.float32)
    moment = tl.zeros((THREADS,), tl.float32)
    for start in range(0, width, UNITS * THREADS * WIDTH):
        x = _read(line, start + _columns(UNITS, THREADS, WIDTH), width, LOWEST)
        higher = tl.maximum(peak, tl.max(tl.max(x, 2), 0))
        fall, z = peak - higher, x - higher[None, :, None]
        e, shrink = tl.exp2(rate * z), tl.exp2(rate * fall)
        moment = shrink * (moment + fall * total) + tl.sum(tl.sum(e * z, 2), 0)
        total = shrink * total + tl.sum(tl.sum(e, 2), 0)
        peak = higher
    top = tl.max(peak, 0)
    fall = peak - top
    shrink = tl.exp2(rate * fall)
    return top, tl.sum(shrink * total, 0), tl.sum(shrink * (moment + fall * total), 0)


@triton.jit
def _rows(
    logits,
    width,
    columns,
    targets,
    advantages,
    old,
    weights,
    logprobs,
    entropy,
    inverse,
    low,
    high,
    coef,
    saturation,
    LOWEST: tl.constexpr,
    KIND: tl.constexpr,
    HAS_OLD: tl.constexpr,
    HAS_BONUS: tl.constexpr,
    GRADIENT: tl.constexpr,
    UNITS: tl.constexpr,
    THREADS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    row = tl.program_id(0)
    line = logits + row.to(tl.int64) * width
    rate = inverse * 1.4426950408889634  # exp(x / temperature) = 2^(rate x)
    top, total, moment = _statistics(line, width, rate, LOWEST, UNITS, THREADS, WIDTH)
    target = tl.load(targets + row)
    known = (target >= 0) & (target < columns) & (top > LOWEST)
    x = tl.load(line + target, mask=known, other=float("nan")).to(tl.float32)
    spread = tl.log(total) - inverse * moment / total
    logprob = (x - top) * inverse - tl.log(total)
    tl.store(logprobs + row, logprob)
    tl.store(entropy + row, spread)
    if GRADIENT:
        before = 0.0
        if HAS_OLD:
            before = tl.load(old + row)
        advantage, weight = tl.load(advantages + row), tl.load(weights + row) * inverse
        slope = weight * _slope(logprob, advantage, before, low, high, saturation, KIND, HAS_OLD)
        slope = tl.where(weight == 0, 0.0, slope)  # masked, whatever the rest says
        # The gradient is slope ([j = target] - p_j) + bonus p_j (log p_j + entropy).
        bonus = weight * coef
        level = (bonus * (spread - tl.log(total)) - slope) / total
        tilt = bonus * inverse / total
        tl.debug_barrier()  # every thread has read the target's logit before one overwrites it
        STEP: tl.constexpr = UNITS * THREADS * WIDTH
        # Backwards: what was read last is the likeliest to be in the cache still.
        for left in range(0, width, STEP):
            at = (width - 1) // STEP * STEP - left + _columns(UNITS, THREADS, WIDTH)
            z = _read(line, at, width, LOWEST) - top
            gradient = tl.exp2(rate * z) * level
            if HAS_BONUS:
                gradient = tl.exp2(rate * z) * (tilt * z + level)
            gradient = gradient.to(logits.dtype.element_ty)
            tl.store(line + at, gradient, mask=at < width, eviction_policy="evict_first")
        tl.debug_barrier()
        z = tl.maximum(x - top, LOWEST, propagate_nan=tl.PropagateNan.ALL)
        gradient = tl.exp2(rate * z) * (tilt * z + level) + slope
        tl.store(line + target, gradient.to(logits.dtype.element_ty), mask=known)


def launch(columns: int, size: int) -> dict[str, int]:
    """Return the launch's shape for rows of so many numbers of `size` bytes.

    Long rows get all threads a multiprocessor can give to one program: fewer rows are then under way, and stay in
    the L2 cache (on an H200, 132 rows of 297 KiB in 60 MB) until they are read again.
    """
    warps = next((w for w, least in ((32, 2**16), (16, 2**14), (8, 2**12)) if columns >= least), 4)
    width = 16 // size
    units = 2 if columns >= 2 * 32 * warps * width else 1
    return {"UNITS": units, "THREADS": 32 * warps, "WIDTH": width, "num_warps": warps}


class TritonRows:
    """`Rows` as one kernel launch. A target outside the vocabulary gets nan."""

    def __init__(self, hidden_TH: Tensor, rows: int, columns: int):
        padded = -(-columns // LANE) * LANE
        self.whole_CV = hidden_TH.new_empty(rows, padded)
        self.logits_CV = self.whole_CV[:, :columns]
        self.device = torch.cuda.device(hidden_TH.device) if hidden_TH.is_cuda else nullcontext()

    def __call__(
        self, logits_CV: Tensor, tokens: Tokens, logprobs_C: Tensor, entropy_C: Tensor, gradient: bool
    ) -> Tensor | None:
        """Fill in log-probabilities and entropies; overwrite the logits with their gradient if it is wanted."""
        (rows, columns), objective = logits_CV.shape, tokens.objective
        self.whole_CV[:rows, columns:] = -torch.inf
        (low, high), coef = map(float, objective.clip), float(objective.entropy_coef)
        old_C = tokens.old_logprobs_T
        with self.device:
            _rows[(rows,)](
                logits_CV,
                logits_CV.stride(0),
                columns,
                tokens.targets_T,
                tokens.advantages_T,
                tokens.weights_T if old_C is None else old_C,
                tokens.weights_T,
                logprobs_C,
                entropy_C,
                1 / tokens.temperature,
                low,
                high,
                coef,
                SATURATION,
                LOWEST=LOWEST,
                KIND=objective.kind,
                HAS_OLD=old_C is not None,
                HAS_BONUS=coef != 0,
                GRADIENT=gradient,
                **launch(columns, logits_CV.element_size()),
            )
        return logits_CV if gradient else None
