"""Two Triton kernels for a chunk of logits: its statistics, and in place the loss's gradient.

What the objective is worth to each token is computed between them, in torch. A program of a kernel owns a row.
"""

# mypy: ignore-errors

import torch
import triton
import triton.language as tl
from torch import Tensor

from coevolve.losses.chunked import TorchRows
from coevolve.losses.reference import TokenBatch

LOWEST = tl.constexpr(-1e30)  # stands in for minus infinity where it would meet a 0
LANE = tl.constexpr(64)  # rows are padded to whole groups of so many columns, so that every load is 16 bytes wide


@triton.jit
def _read(line, at, width):
    """Logits, minus infinity (also beyond the row) as a number whose products with 0 are 0; nan stays nan."""
    x = tl.load(line + at, mask=at < width, other=LOWEST).to(tl.float32)
    return tl.maximum(x, LOWEST, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _columns(line, UNITS: tl.constexpr, THREADS: tl.constexpr):
    """Columns of the first step as (unit, thread, neighbours): a thread's neighbours are one load of 16 bytes."""
    WIDTH: tl.constexpr = 128 // line.dtype.element_ty.primitive_bitwidth
    unit, thread = tl.arange(0, UNITS)[:, None, None], tl.arange(0, THREADS)[None, :, None]
    return (unit * THREADS + thread) * WIDTH + tl.arange(0, WIDTH)[None, None, :]


@triton.jit
def _target(line, targets, row, columns, peak):
    """The target, its logit and whether it can be; the logit of a target outside the vocabulary is nan."""
    target = tl.load(targets + row)
    known = (target >= 0) & (target < columns) & (peak > LOWEST)
    return target, tl.load(line + target, mask=known, other=float("nan")).to(tl.float32), known


@triton.jit
def _statistics(
    logits, columns, targets, logprobs, entropy, tops, sums, inverse, UNITS: tl.constexpr, THREADS: tl.constexpr
):
    """Write a row's log-probability and entropy, its maximum, and its sum of exp((x - maximum) / temperature).

    Until the row's end these are a thread's own, so that nothing has to be exchanged before.
    """
    row, width = tl.program_id(0), tl.cdiv(columns, LANE) * LANE
    line, rate = logits + row.to(tl.int64) * width, inverse * 1.4426950408889634  # exp(inverse x) = 2^(rate x)
    peak = tl.full((THREADS,), LOWEST, tl.float32)
    total = tl.zeros((THREADS,), tl.float32)
    moment = tl.zeros((THREADS,), tl.float32)
    first = _columns(line, UNITS, THREADS)
    for start in range(0, width, first.numel):
        x = _read(line, start + first, width)
        higher = tl.maximum(peak, tl.max(tl.max(x, 2), 0))
        fall, z = peak - higher, x - higher[None, :, None]
        e, shrink = tl.exp2(rate * z), tl.exp2(rate * fall)
        moment = shrink * (moment + fall * total) + tl.sum(tl.sum(e * z, 2), 0)
        total = shrink * total + tl.sum(tl.sum(e, 2), 0)
        peak = higher
    top = tl.max(peak, 0)
    fall = peak - top
    shrink = tl.exp2(rate * fall)
    moment = tl.sum(shrink * (moment + fall * total), 0)
    total = tl.sum(shrink * total, 0)
    _, x, _ = _target(line, targets, row, columns, top)
    tl.store(logprobs + row, (x - top) * inverse - tl.log(total))
    tl.store(entropy + row, tl.log(total) - inverse * moment / total)
    tl.store(tops + row, top)
    tl.store(sums + row, total)


@triton.jit
def _gradient(
    logits, columns, targets, slopes, bonuses, entropy, tops, sums, inverse, UNITS: tl.constexpr, THREADS: tl.constexpr
):
    """Overwrite a row's logits with slope ([j = target] - p_j) - bonus p_j (log p_j + entropy).

    Without an entropy bonus `bonuses` is None.
    """
    row, width = tl.program_id(0), tl.cdiv(columns, LANE) * LANE
    line, rate = logits + row.to(tl.int64) * width, inverse * 1.4426950408889634  # exp(inverse x) = 2^(rate x)
    top, total, slope = tl.load(tops + row), tl.load(sums + row), tl.load(slopes + row)
    bonus = 0.0 if bonuses is None else tl.load(bonuses + row)
    level = -(bonus * (tl.load(entropy + row) - tl.log(total)) + slope) / total
    tilt = -bonus * inverse / total
    target, x, known = _target(line, targets, row, columns, top)
    tl.debug_barrier()  # every thread has read the target's logit before one overwrites it
    first = _columns(line, UNITS, THREADS)
    for start in range(0, width, first.numel):
        at = start + first
        z = _read(line, at, width) - top
        gradient = tl.exp2(rate * z) * level
        if bonuses is not None:
            gradient = tl.exp2(rate * z) * (tilt * z + level)
        tl.store(line + at, gradient.to(logits.dtype.element_ty), mask=at < width, eviction_policy="evict_first")
    tl.debug_barrier()
    z = tl.maximum(x - top, LOWEST, propagate_nan=tl.PropagateNan.ALL)
    gradient = tl.exp2(rate * z) * (tilt * z + level) + slope
    tl.store(line + target, gradient.to(logits.dtype.element_ty), mask=known)


def launch(columns: int, size: int) -> dict[str, int]:
    """Return the launch's shape for rows of so many numbers of `size` bytes: long rows get more threads."""
    warps = next((w for w, least in ((32, 2**16), (16, 2**14), (8, 2**12)) if columns >= least), 4)
    units = 2 if columns >= 2 * 32 * warps * 16 // size else 1
    return {"UNITS": units, "THREADS": 32 * warps, "num_warps": warps}


class TritonRows(TorchRows):
    """The same as two kernel launches. A target outside the vocabulary gets nan."""

    def __init__(self, hidden_TH: Tensor, rows: int, columns: int):
        self.whole_CV = hidden_TH.new_empty(rows, -(-columns // LANE.value) * LANE.value)
        self.logits_CV = self.whole_CV[:, :columns]

    def __call__(
        self, logits_CV: Tensor, tokens: TokenBatch, logprobs_C: Tensor, entropy_C: Tensor, gradient: bool
    ) -> Tensor | None:
        """Fill in log-probabilities and entropies; overwrite the logits with their gradient if it is wanted."""
        rows, columns = logits_CV.shape
        self.whole_CV[:rows, columns:] = -torch.inf
        shape, line = launch(columns, logits_CV.element_size()), (logits_CV, columns, tokens.targets_T.contiguous())
        row = entropy_C, torch.empty_like(entropy_C), torch.empty_like(entropy_C), 1 / tokens.temperature
        with torch.cuda.device_of(logits_CV):
            _statistics[(rows,)](*line, logprobs_C, *row, **shape)
            if not gradient:
                return None
            _gradient[(rows,)](*line, *tokens.slopes(logprobs_C, entropy_C), *row, **shape)
        return logits_CV
