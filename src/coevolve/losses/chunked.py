"""The policy loss without a tensor of size T x V: its gradient is taken chunk by chunk.

In the forward pass, a chunk's logits are computed, used, and overwritten by their own gradient
before the next chunk's are computed. C counts the tokens of a chunk.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from coevolve.losses.reference import PolicyLoss, TokenBatch, at_least_float32


class TorchRows:
    """Statistics and gradient of a chunk of logits, in torch.

    `logits_CV` is the buffer that a chunk's logits are written to. One more buffer of its size is
    scratch, two if the logits are less precise than float32.
    """

    def __init__(self, hidden_TH: Tensor, rows: int, columns: int):
        """Allocate buffers for chunks of at most `rows` tokens and `columns` logits each."""
        self.logits_CV = hidden_TH.new_empty(rows, columns)
        self.dtype = at_least_float32(hidden_TH.dtype)
        self.exact = self.dtype == hidden_TH.dtype
        buffers = 1 if self.exact else 2
        self.scratch = [
            hidden_TH.new_empty(rows, columns, dtype=self.dtype) for _ in range(buffers)
        ]

    def __call__(
        self,
        logits_CV: Tensor,
        tokens: TokenBatch,
        logprobs_C: Tensor,
        entropy_C: Tensor,
        gradient: bool,
    ) -> Tensor | None:
        """Fill in `logprobs_C` and `entropy_C`; return the loss's gradient by the logits (C, V).

        The gradient takes the place of the logits. None unless `gradient`.
        """
        size = len(logits_CV)
        targets_C1 = tokens.targets_T[:, None]
        x_CV = logits_CV if self.exact else self.scratch[1][:size].copy_(logits_CV)
        if tokens.temperature != 1:
            x_CV.div_(tokens.temperature)
        x_CV.sub_(x_CV.amax(-1, keepdim=True))
        p_CV = torch.softmax(x_CV, -1, out=self.scratch[0][:size])
        log_total_C = -p_CV.amax(
            -1
        ).log()  # of sum exp(x): the likeliest token's x is 0
        logprobs_C.copy_(x_CV.gather(-1, targets_C1)[:, 0] - log_total_C)
        px_CV = x_CV.mul_(p_CV)
        mean_C = px_CV.sum(-1)
        if not mean_C.isfinite().all():
            mean_C = px_CV.masked_fill_(p_CV == 0, 0).sum(-1)  # 0 log 0 is 0
        entropy_C.copy_(log_total_C - mean_C)
        if not gradient:
            return None

        # d logprob / d logit_j = [j = target] - p_j
        # d entropy / d logit_j = -p_j (log p_j + entropy)
        slope_C, bonus_C = tokens.logit_slopes(logprobs_C, entropy_C)
        if bonus_C is None:
            p_CV.mul_(-slope_C[:, None])
        else:
            factor_C = bonus_C * (log_total_C - entropy_C) - slope_C
            p_CV.mul_(factor_C[:, None])
            p_CV.sub_(px_CV.mul_(bonus_C[:, None]))
        p_CV.scatter_add_(-1, targets_C1, slope_C[:, None])
        return p_CV if self.exact else logits_CV.copy_(p_CV)


def chunked_loss(
    hidden_TH: Tensor,
    head_VH: Tensor,
    tokens: TokenBatch,
    rows_class: type[TorchRows],
    chunk: int,
) -> PolicyLoss:
    """Return the loss, with its gradient taken right away, `chunk` tokens at a time.

    The head's gradient is summed in float32 at least.
    """
    T = len(hidden_TH)
    V = len(head_VH)
    dtype = at_least_float32(hidden_TH.dtype)
    hidden_trained = torch.is_grad_enabled() and hidden_TH.requires_grad
    head_trained = torch.is_grad_enabled() and head_VH.requires_grad
    with torch.no_grad():
        logprobs_T = hidden_TH.new_empty(T, dtype=dtype)
        entropy_T = hidden_TH.new_empty(T, dtype=dtype)
        grad_TH = torch.empty_like(hidden_TH) if hidden_trained else None
        grad_VH = torch.zeros_like(head_VH, dtype=dtype) if head_trained else None
        rows = rows_class(hidden_TH, min(chunk, T), V)
        for start in range(0, T, chunk):
            piece = slice(start, start + chunk)
            hidden_CH = hidden_TH[piece]
            logits_CV = rows.logits_CV[: len(hidden_CH)]
            torch.mm(hidden_CH, head_VH.T, out=logits_CV)
            grad_CV = rows(
                logits_CV,
                tokens.chunk(piece),
                logprobs_T[piece],
                entropy_T[piece],
                gradient=hidden_trained or head_trained,
            )
            if grad_CV is not None and grad_TH is not None:
                _write_product(grad_CV, head_VH, out=grad_TH[piece])
            if grad_CV is not None and grad_VH is not None:
                _add_product(grad_VH, grad_CV.T, hidden_CH)
        result = tokens.loss_and_stats(logprobs_T, entropy_T)
    loss = ForwardGradient.apply(result.loss, hidden_TH, head_VH, grad_TH, grad_VH)
    return replace(result, loss=loss)


def _write_product(a: Tensor, b: Tensor, out: Tensor) -> None:
    """Write a @ b to `out`, rounded once: cuBLAS may otherwise add partial sums in bfloat16."""
    if out.is_cuda and out.dtype == torch.bfloat16:
        out.copy_(torch.mm(a, b, out_dtype=torch.float32))
    else:
        torch.mm(a, b, out=out)


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a @ b to `total`, which may be of a higher precision."""
    if a.dtype == total.dtype:
        total.addmm_(a, b)
    elif total.is_cuda:
        torch.addmm(total, a, b, out_dtype=total.dtype, out=total)
    else:
        total += a @ b


class ForwardGradient(torch.autograd.Function):
    """A loss as one node of the graph that already holds its gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        loss: Tensor,
        hidden_TH: Tensor,
        head_VH: Tensor,
        *gradients: Tensor | None,
    ) -> Tensor:
        """Return the loss, differentiable in hidden states and head."""
        ctx.save_for_backward(*gradients)
        ctx.dtypes = hidden_TH.dtype, head_VH.dtype
        return loss.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        """Scale the gradients by the one that arrives; they stay for a second backward pass."""
        scaled: list[Tensor | None] = []
        for gradient, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True):
            if gradient is None:
                scaled.append(None)
            else:
                out = torch.empty_like(gradient, dtype=dtype)
                scaled.append(torch.mul(gradient, upstream, out=out))
        return None, *scaled, None, None
