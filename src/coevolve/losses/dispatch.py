"""The policy loss and selective log-probabilities, computed the fastest way that the device has.

"triton" on CUDA, "chunked" in torch anywhere, "reference" to compare with. The argument `path`, or else the
environment variable COEVOLVE_LOSS_PATH, forces one; `PolicyLoss.path` says which it was.
"""

import os
from dataclasses import replace
from importlib.util import find_spec

import torch
from torch import Tensor

from coevolve.losses.chunked import TorchRows, run
from coevolve.losses.reference import LOSSES, PolicyLoss, TokenBatch, statistics
from coevolve.validation import among

# Logits held at once. On CUDA as many as let the second product fill a large GPU once (at H = 2,048, V = 151,936:
# 2,048 tokens, 594 MiB, 16 x 8 tiles of 128 x 256 for 132 multiprocessors); on a CPU, enough for
# products that read the whole head, and few enough for the caches.
CUDA_BYTES, CPU_BYTES, TILE = 600 * 2**20, 32 * 2**20, 128


def policy_loss(
    hidden_TH: Tensor, head_VH: Tensor, tokens: TokenBatch, chunk: int | None = None, path: str | None = None
) -> PolicyLoss:
    """Return the loss of `tokens`, as `TokenBatch.judge` defines it.

    Logits are hidden_TH @ head_VH.T over the temperature. Differentiable in hidden_TH, and in head_VH if it
    requires a gradient. A weight of 0 masks a token, whatever its advantage and old log-probability are.
    `chunk` is the number of tokens whose logits are held at once (default: what suits the device). What else
    is not finite in the inputs makes the loss not finite. Raises ValueError naming an argument that is not
    allowed.
    """
    _check(hidden_TH, head_VH, tokens)
    path = _choose(path, hidden_TH)
    if path == "reference":
        return tokens.judge(*statistics(hidden_TH, head_VH, tokens.targets_T, tokens.temperature))
    rows = TorchRows
    if path == "triton":
        from coevolve.losses import kernels  # loads triton, which not every machine has

        rows = kernels.TritonRows
    result = run(hidden_TH, head_VH, tokens, rows, chunk or _chunk(hidden_TH, head_VH))
    return replace(result, path=path)


@torch.no_grad()
def selective_logprobs(hidden_TH: Tensor, head_VH: Tensor, targets_T: Tensor, temperature: float = 1.0) -> Tensor:
    """Return the targets' log-probabilities (T,) at a temperature > 0, in float32 at least and without a gradient.

    For old and reference log-probabilities. Arguments and errors as for `policy_loss`.
    """
    nothing_T = torch.zeros_like(targets_T, dtype=hidden_TH.dtype)
    return policy_loss(hidden_TH, head_VH, TokenBatch(targets_T, nothing_T, None, nothing_T, temperature)).logprobs_T


def _choose(path: str | None, hidden_TH: Tensor) -> str:
    reason = _no_triton(hidden_TH)
    best = "triton" if hidden_TH.is_cuda and not reason else "chunked"
    name = path or os.environ.get("COEVOLVE_LOSS_PATH") or best
    among("path of the loss", name, ("reference", "chunked", "triton"))
    if name == "triton" and reason:
        raise ValueError(f"path of the loss 'triton' {reason}")
    return name


def _no_triton(hidden_TH: Tensor) -> str:
    """Say why the Triton kernels cannot take these hidden states; nothing when they can."""
    if hidden_TH.dtype not in (torch.bfloat16, torch.float32):
        return f"takes bfloat16 or float32, got {hidden_TH.dtype}"
    if not hidden_TH.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        return f"needs tensors on a CUDA device (or TRITON_INTERPRET=1), got {hidden_TH.device}"
    if hidden_TH.is_cuda and (torch.version.hip or torch.cuda.get_device_capability(hidden_TH.device) < (8, 0)):
        return "needs an NVIDIA GPU of compute capability 8.0 or later"
    if find_spec("triton") is None:
        return "needs the package triton, which is not installed"
    return ""


def _chunk(hidden_TH: Tensor, head_VH: Tensor) -> int:
    """Return how many tokens' logits to hold at once, in pieces of similar size."""
    tokens, row = max(len(hidden_TH), 1), len(head_VH) * hidden_TH.element_size()
    most = max(1, (CUDA_BYTES if hidden_TH.is_cuda else CPU_BYTES) // row)
    step = TILE if most >= TILE else 1
    most -= most % step
    even = -(-tokens // -(-tokens // most))
    return min(most, -(-even // step) * step)


def _check(hidden_TH: Tensor, head_VH: Tensor, tokens: TokenBatch) -> None:
    """Raise ValueError naming the first argument that is not allowed."""
    among("kind", tokens.kind, LOSSES)
    if hidden_TH.dtype not in (torch.bfloat16, torch.float32, torch.float64) or hidden_TH.dtype != head_VH.dtype:
        got = f"{hidden_TH.dtype} and {head_VH.dtype}"
        raise ValueError(f"hidden_TH and head_VH must both be bfloat16, float32 or float64, got {got}")
    for name in ("targets_T", "advantages_T", "old_logprobs_T", "weights_T"):
        values_T = getattr(tokens, name)
        if values_T is not None and values_T.shape != hidden_TH.shape[:1]:
            raise ValueError(f"{name} must have shape ({len(hidden_TH)},), got {tuple(values_T.shape)}")
