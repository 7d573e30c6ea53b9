"""The policy loss and selective log-probabilities, by the fastest path that the device has.

"triton" on CUDA, "chunked" in torch anywhere, "reference" to compare with. The argument `path`, or
else the environment variable COEVOLVE_LOSS_PATH, forces one; `PolicyLoss.path` says which ran.
"""

import os
from dataclasses import replace
from importlib.util import find_spec

import torch
from torch import Tensor

from coevolve.losses.chunked import TorchRows, chunked_loss
from coevolve.losses.reference import LOSSES, PolicyLoss, TokenBatch, token_statistics
from coevolve.validation import check_choice

PATHS = ("reference", "chunked", "triton")
DTYPES = (torch.bfloat16, torch.float32, torch.float64)

# The tensors of a TokenBatch, all with one number per token.
PER_TOKEN = (
    "targets_T",
    "advantages_T",
    "weights_T",
    "old_logprobs_T",
    "reference_logprobs_T",
    "sampler_logprobs_T",
)

# Bytes of logits held at once. On CUDA as many as let the second product fill a large GPU once (at
# H = 2,048 and V = 151,936: 2,048 tokens, 594 MiB, 16 x 8 tiles of 128 x 256 for 132
# multiprocessors). On a CPU enough for products that read the whole head, and few enough for the
# caches.
CUDA_LOGIT_BYTES = 600 * 2**20
CPU_LOGIT_BYTES = 32 * 2**20
TILE = 128  # rows of logits that a matrix product computes together


def policy_loss(
    hidden_TH: Tensor,
    head_VH: Tensor,
    tokens: TokenBatch,
    chunk: int | None = None,
    path: str | None = None,
) -> PolicyLoss:
    """Return the loss of `tokens`, as `TokenBatch.loss_and_stats` defines it.

    Logits are hidden_TH @ head_VH.T over the temperature. Differentiable in hidden_TH, and in
    head_VH if it requires a gradient. A weight of 0 masks a token, whatever its advantage and old
    log-probability are; any other input that is not finite makes the loss not finite. `chunk` is
    the number of tokens whose logits are held at once (default: what suits the device). Raises
    ValueError naming an argument that is not allowed.
    """
    _check_arguments(hidden_TH, head_VH, tokens)
    path = choose_path(path, hidden_TH)
    if path == "reference":
        logprobs_T, entropy_T = token_statistics(
            hidden_TH, head_VH, tokens.targets_T, tokens.temperature
        )
        return tokens.loss_and_stats(logprobs_T, entropy_T)
    rows_class = TorchRows
    if path == "triton":
        from coevolve.losses.kernels import (
            TritonRows,
        )  # loads triton, which not every machine has

        rows_class = TritonRows
    chunk = chunk or chunk_size(hidden_TH, head_VH)
    result = chunked_loss(hidden_TH, head_VH, tokens, rows_class, chunk)
    return replace(result, path=path)


@torch.no_grad()
def selective_logprobs(
    hidden_TH: Tensor, head_VH: Tensor, targets_T: Tensor, temperature: float = 1.0
) -> Tensor:
    """Return the targets' log-probabilities (T,), in float32 at least and without a gradient.

    For old and reference log-probabilities. `temperature` must be above 0. Arguments and errors
    as for `policy_loss`.
    """
    zeros_T = torch.zeros_like(targets_T, dtype=hidden_TH.dtype)
    tokens = TokenBatch(
        targets_T=targets_T,
        advantages_T=zeros_T,
        weights_T=zeros_T,
        temperature=temperature,
    )
    return policy_loss(hidden_TH, head_VH, tokens).logprobs_T


def choose_path(path: str | None, hidden_TH: Tensor) -> str:
    """Return the path that is asked for or fastest; ValueError if it cannot be taken."""
    reason = why_not_triton(hidden_TH)
    fastest = "triton" if hidden_TH.is_cuda and not reason else "chunked"
    name = path or os.environ.get("COEVOLVE_LOSS_PATH") or fastest
    check_choice("path of the loss", name, PATHS)
    if name == "triton" and reason:
        raise ValueError(f"path of the loss 'triton' {reason}")
    return name


def why_not_triton(hidden_TH: Tensor) -> str:
    """Return why the Triton kernels cannot take these hidden states; "" if they can."""
    if hidden_TH.dtype not in (torch.bfloat16, torch.float32):
        return f"takes bfloat16 or float32, got {hidden_TH.dtype}"
    if not hidden_TH.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        return f"needs tensors on a CUDA device (or TRITON_INTERPRET=1), got {hidden_TH.device}"
    if hidden_TH.is_cuda:
        capability = torch.cuda.get_device_capability(hidden_TH.device)
        if torch.version.hip or capability < (8, 0):
            return "needs an NVIDIA GPU of compute capability 8.0 or later"
    if find_spec("triton") is None:
        return "needs the package triton, which is not installed"
    return ""


def chunk_size(hidden_TH: Tensor, head_VH: Tensor) -> int:
    """Return how many tokens' logits to hold at once, in chunks of similar size."""
    tokens = max(len(hidden_TH), 1)
    bytes_per_token = len(head_VH) * hidden_TH.element_size()
    budget = CUDA_LOGIT_BYTES if hidden_TH.is_cuda else CPU_LOGIT_BYTES
    most = max(1, budget // bytes_per_token)
    step = TILE if most >= TILE else 1
    most -= most % step
    chunks = _divide_up(tokens, most)
    even = _divide_up(tokens, chunks)
    return min(most, _divide_up(even, step) * step)


def _divide_up(total: int, part: int) -> int:
    return -(-total // part)


def _check_arguments(hidden_TH: Tensor, head_VH: Tensor, tokens: TokenBatch) -> None:
    """Raise ValueError naming the first argument that is not allowed."""
    check_choice("loss", tokens.config.loss, LOSSES)
    if hidden_TH.dtype not in DTYPES or hidden_TH.dtype != head_VH.dtype:
        raise ValueError(
            "hidden_TH and head_VH must both be bfloat16, float32 or float64, "
            f"got {hidden_TH.dtype} and {head_VH.dtype}"
        )
    for name in PER_TOKEN:
        values_T = getattr(tokens, name)
        if values_T is not None and values_T.shape != hidden_TH.shape[:1]:
            raise ValueError(
                f"{name} must have shape ({len(hidden_TH)},), got {tuple(values_T.shape)}"
            )
