"""Two Triton kernels for a chunk of logits: its statistics, and in place the loss's gradient.

What the objective is worth to each token is computed between them, in torch. Each program of a
kernel owns one row, the logits of one token.
"""

# mypy: ignore-errors

import torch
import triton
import triton.language as tl
from torch import Tensor

from coevolve.losses.chunked import TorchRows
from coevolve.losses.reference import TokenBatch

# Stands in for minus infinity where that would meet a 0.
LOWEST = tl.constexpr(-1e30)
# Rows are padded to whole groups of this many columns, so that every load is 16 bytes wide.
LANE = tl.constexpr(64)
LOG2_E = tl.constexpr(1.4426950408889634)  # exp(x) = 2^(LOG2_E x)
LOAD_BYTES = 16  # that one thread loads at once

# Warps of a program by the length of a row: long rows get more threads.
WARPS_BY_COLUMNS = ((2**16, 32), (2**14, 16), (2**12, 8))
FEWEST_WARPS = 4


@triton.jit
def _load_logits(row_start, at, width):
    """Load logits as float32, with LOWEST for minus infinity and beyond the row; nan stays nan.

    Products of LOWEST with 0 are 0, those of minus infinity would be nan.
    """
    x = tl.load(row_start + at, mask=at < width, other=LOWEST).to(tl.float32)
    return tl.maximum(x, LOWEST, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _first_columns(row_start, UNITS: tl.constexpr, THREADS: tl.constexpr):
    """Return the columns of the first step as (unit, thread, neighbour).

    A thread's neighbours are one load of 16 bytes.
    """
    WIDTH: tl.constexpr = 128 // row_start.dtype.element_ty.primitive_bitwidth
    unit = tl.arange(0, UNITS)[:, None, None]
    thread = tl.arange(0, THREADS)[None, :, None]
    neighbour = tl.arange(0, WIDTH)[None, None, :]
    return (unit * THREADS + thread) * WIDTH + neighbour


@triton.jit
def _load_target(row_start, targets, row, columns, row_max):
    """Return the target, its logit, and whether it lies in the vocabulary.

    The logit of a target outside the vocabulary is nan.
    """
    target = tl.load(targets + row)
    exists = (target >= 0) & (target < columns) & (row_max > LOWEST)
    logit = tl.load(row_start + target, mask=exists, other=float("nan")).to(tl.float32)
    return target, logit, exists


@triton.jit
def _statistics(
    logits,
    columns,
    targets,
    logprobs,
    entropy,
    row_maxima,
    row_sums,
    inverse_temperature,
    UNITS: tl.constexpr,
    THREADS: tl.constexpr,
):
    """Write a row's log-probability, entropy, maximum, and sum of exp((x - max) / temperature).

    Until the end of the row, maximum and sums are each thread's own, so that threads exchange
    nothing before.
    """
    row = tl.program_id(0)
    width = tl.cdiv(columns, LANE) * LANE
    row_start = logits + row.to(tl.int64) * width
    rate = inverse_temperature * LOG2_E  # exp(x / temperature) = 2^(rate x)
    thread_max = tl.full((THREADS,), LOWEST, tl.float32)
    thread_sum = tl.zeros((THREADS,), tl.float32)  # of e = exp((x - max) / temperature)
    thread_moment = tl.zeros((THREADS,), tl.float32)  # of e (x - max)
    first = _first_columns(row_start, UNITS, THREADS)
    for start in range(0, width, first.numel):
        x = _load_logits(row_start, start + first, width)
        new_max = tl.maximum(thread_max, tl.max(tl.max(x, 2), 0))
        fall = thread_max - new_max
        z = x - new_max[None, :, None]
        e = tl.exp2(rate * z)
        shrink = tl.exp2(rate * fall)
        moment_here = tl.sum(tl.sum(e * z, 2), 0)
        thread_moment = shrink * (thread_moment + fall * thread_sum) + moment_here
        thread_sum = shrink * thread_sum + tl.sum(tl.sum(e, 2), 0)
        thread_max = new_max
    row_max = tl.max(thread_max, 0)
    fall = thread_max - row_max
    shrink = tl.exp2(rate * fall)
    row_moment = tl.sum(shrink * (thread_moment + fall * thread_sum), 0)
    row_sum = tl.sum(shrink * thread_sum, 0)
    _, target_logit, _ = _load_target(row_start, targets, row, columns, row_max)
    log_sum = tl.log(row_sum)
    tl.store(logprobs + row, (target_logit - row_max) * inverse_temperature - log_sum)
    tl.store(entropy + row, log_sum - inverse_temperature * row_moment / row_sum)
    tl.store(row_maxima + row, row_max)
    tl.store(row_sums + row, row_sum)


@triton.jit
def _gradient(
    logits,
    columns,
    targets,
    slopes,
    bonuses,
    entropy,
    row_maxima,
    row_sums,
    inverse_temperature,
    UNITS: tl.constexpr,
    THREADS: tl.constexpr,
):
    """Overwrite a row's logits with slope ([j = target] - p_j) - bonus p_j (log p_j + entropy).

    Without an entropy bonus `bonuses` is None.
    """
    row = tl.program_id(0)
    width = tl.cdiv(columns, LANE) * LANE
    row_start = logits + row.to(tl.int64) * width
    rate = inverse_temperature * LOG2_E  # exp(x / temperature) = 2^(rate x)
    row_max = tl.load(row_maxima + row)
    row_sum = tl.load(row_sums + row)
    slope = tl.load(slopes + row)
    bonus = 0.0 if bonuses is None else tl.load(bonuses + row)
    # With z = x - max, the gradient is exp(z / temperature) (tilt z + level), plus the slope at
    # the target.
    surplus = tl.load(entropy + row) - tl.log(row_sum)
    level = -(bonus * surplus + slope) / row_sum
    tilt = -bonus * inverse_temperature / row_sum
    target, target_logit, exists = _load_target(
        row_start, targets, row, columns, row_max
    )
    # Every thread has read the target's logit before one overwrites it.
    tl.debug_barrier()
    first = _first_columns(row_start, UNITS, THREADS)
    for start in range(0, width, first.numel):
        at = start + first
        z = _load_logits(row_start, at, width) - row_max
        gradient = tl.exp2(rate * z) * level
        if bonuses is not None:
            gradient = tl.exp2(rate * z) * (tilt * z + level)
        tl.store(
            row_start + at,
            gradient.to(logits.dtype.element_ty),
            mask=at < width,
            eviction_policy="evict_first",
        )
    tl.debug_barrier()
    z = tl.maximum(target_logit - row_max, LOWEST, propagate_nan=tl.PropagateNan.ALL)
    gradient = tl.exp2(rate * z) * (tilt * z + level) + slope
    tl.store(row_start + target, gradient.to(logits.dtype.element_ty), mask=exists)


def launch_shape(columns: int, element_size: int) -> dict[str, int]:
    """Return the shape of a launch for rows of `columns` numbers of `element_size` bytes."""
    warps = FEWEST_WARPS
    for least_columns, row_warps in WARPS_BY_COLUMNS:
        if columns >= least_columns:
            warps = row_warps
            break
    threads = 32 * warps
    columns_per_load = threads * LOAD_BYTES // element_size
    units = 2 if columns >= 2 * columns_per_load else 1
    return {"UNITS": units, "THREADS": threads, "num_warps": warps}


class TritonRows(TorchRows):
    """Statistics and gradient of a chunk of logits, as two kernel launches.

    A target outside the vocabulary gets nan.
    """

    def __init__(self, hidden_TH: Tensor, rows: int, columns: int):
        """Allocate one buffer, with rows padded to whole groups of LANE columns."""
        padded_columns = triton.cdiv(columns, LANE.value) * LANE.value
        self.padded_CV = hidden_TH.new_empty(rows, padded_columns)
        self.logits_CV = self.padded_CV[:, :columns]

    def __call__(
        self,
        logits_CV: Tensor,
        tokens: TokenBatch,
        logprobs_C: Tensor,
        entropy_C: Tensor,
        gradient: bool,
    ) -> Tensor | None:
        """Fill in `logprobs_C` and `entropy_C`; overwrite the logits with their gradient."""
        rows, columns = logits_CV.shape
        self.padded_CV[:rows, columns:] = -torch.inf
        shared = {
            "logits": logits_CV,
            "columns": columns,
            "targets": tokens.targets_T.contiguous(),
            "entropy": entropy_C,
            "row_maxima": torch.empty_like(entropy_C),
            "row_sums": torch.empty_like(entropy_C),
            "inverse_temperature": 1 / tokens.temperature,
            **launch_shape(columns, logits_CV.element_size()),
        }
        with torch.cuda.device_of(logits_CV):
            _statistics[(rows,)](logprobs=logprobs_C, **shared)
            if not gradient:
                return None
            slopes_C, bonuses_C = tokens.logit_slopes(logprobs_C, entropy_C)
            _gradient[(rows,)](slopes=slopes_C, bonuses=bonuses_C, **shared)
        return logits_CV
