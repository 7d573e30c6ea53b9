"""The policy loss without a tensor of size T x V: the gradient is taken in the forward pass, chunk by chunk.

A chunk's logits are made, judged and overwritten by their own gradient before the next chunk's are made.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from coevolve.losses.reference import PolicyLoss, TokenBatch, raised


class TorchRows:
    """What happens to a chunk's logits, in torch. Made for hidden states, the most rows of a chunk, and a vocabulary.

    `logits_CV` is where the logits of a chunk are to be written. One more chunk is scratch, two if the logits are less
    precise than float32.
    """

    def __init__(self, hidden_TH: Tensor, rows: int, columns: int):
        self.logits_CV = hidden_TH.new_empty(rows, columns)
        self.dtype = raised(hidden_TH.dtype)
        self.exact = self.dtype == hidden_TH.dtype
        self.scratch = [hidden_TH.new_empty(rows, columns, dtype=self.dtype) for _ in range(1 if self.exact else 2)]

    def __call__(
        self, logits_CV: Tensor, tokens: TokenBatch, logprobs_C: Tensor, entropy_C: Tensor, gradient: bool
    ) -> Tensor | None:
        """Fill in log-probabilities and entropies; return the loss's gradient by the logits, in place, if wanted."""
        size, targets_C1 = len(logits_CV), tokens.targets_T[:, None]
        x_CV = logits_CV if self.exact else self.scratch[1][:size].copy_(logits_CV)
        if tokens.temperature != 1:
            x_CV.div_(tokens.temperature)
        x_CV.sub_(x_CV.amax(-1, keepdim=True))
        p_CV = torch.softmax(x_CV, -1, out=self.scratch[0][:size])
        total_C = -p_CV.amax(-1).log()  # of exp(x): the likeliest token's x is 0
        logprobs_C.copy_(x_CV.gather(-1, targets_C1)[:, 0] - total_C)
        px_CV = x_CV.mul_(p_CV)
        if not (mean_C := px_CV.sum(-1)).isfinite().all():
            mean_C = px_CV.masked_fill_(p_CV == 0, 0).sum(-1)  # 0 log 0 is 0
        entropy_C.copy_(total_C - mean_C)
        if not gradient:
            return None
        # d logprob / d logit_j = [j = target] - p_j and d entropy / d logit_j = -p_j (log p_j + entropy)
        slope_C, bonus_C = tokens.slopes(logprobs_C, entropy_C)
        if bonus_C is None:
            p_CV.mul_(-slope_C[:, None])
        else:
            p_CV.mul_((bonus_C * (total_C - entropy_C) - slope_C)[:, None]).sub_(px_CV.mul_(bonus_C[:, None]))
        p_CV.scatter_add_(-1, targets_C1, slope_C[:, None])
        return p_CV if self.exact else logits_CV.copy_(p_CV)


def run(hidden_TH: Tensor, head_VH: Tensor, tokens: TokenBatch, kind: type[TorchRows], chunk: int) -> PolicyLoss:
    """Return the loss, whose gradient is taken here and now, `chunk` tokens at a time.

    The head's gradient is summed up in float32 at least.
    """
    inputs, (T, V), dtype = (hidden_TH, head_VH), (len(hidden_TH), len(head_VH)), raised(hidden_TH.dtype)
    trained, head_trained = (torch.is_grad_enabled() and x.requires_grad for x in inputs)
    with torch.no_grad():
        logprobs_T, entropy_T = (hidden_TH.new_empty(T, dtype=dtype) for _ in range(2))
        grad_TH = torch.empty_like(hidden_TH) if trained else None
        grad_VH = torch.zeros_like(head_VH, dtype=dtype) if head_trained else None
        rows = kind(hidden_TH, min(chunk, T), V)
        for start in range(0, T, chunk):
            piece = slice(start, start + chunk)
            hidden_CH = hidden_TH[piece]
            logits_CV = torch.mm(hidden_CH, head_VH.T, out=rows.logits_CV[: len(hidden_CH)])
            known = tokens.part(piece), logprobs_T[piece], entropy_T[piece]
            grad_CV = rows(logits_CV, *known, gradient=trained or head_trained)
            if grad_CV is not None and grad_TH is not None:
                _product(grad_CV, head_VH, grad_TH[piece])
            if grad_CV is not None and grad_VH is not None:
                _add_product(grad_VH, grad_CV.T, hidden_CH)
        result = tokens.judge(logprobs_T, entropy_T)
    return replace(result, loss=ForwardGradient.apply(result.loss, *inputs, grad_TH, grad_VH))


def _product(a: Tensor, b: Tensor, out: Tensor) -> None:
    """Write a @ b to `out`, rounded once: cuBLAS may otherwise add up partial sums in bfloat16."""
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
    """A loss as one node of the graph, which holds the gradient ready."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, hidden_TH: Tensor, head_VH: Tensor, *gradients: Tensor | None) -> Tensor:
        """Return the loss as it is, differentiable in hidden states and head."""
        ctx.save_for_backward(*gradients)
        ctx.dtypes = hidden_TH.dtype, head_VH.dtype
        return loss.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        """Scale the gradients by the one that arrives; they are kept for a second backward pass."""
        pairs = zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        grads = [None if g is None else torch.mul(g, upstream, out=torch.empty_like(g, dtype=t)) for g, t in pairs]
        return None, *grads, None, None
