"""Counts the memory of fake tensors on `cuda:0`, and answers what they cannot."""

import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

GIB = 2**30
RANDOM = ("aten::uniform_", "aten::normal_", "aten::random_")


class Memory(TorchDispatchMode):
    """The bytes that live on the fake GPU, and the most that lived at once.

    Also counts operations, launches of Triton kernels by name, and calls of attention by kind:
    "causal", "masked", or "open" in both directions.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes_of: dict[int, int] = {}
        self.now = 0
        self.peak = 0
        self.operations = 0
        self.launches: Counter[str] = Counter()
        self.attention: Counter[str] = Counter()

    def reset_peak(self) -> None:
        """Start a new measurement."""
        self.peak = self.now

    def counts(self) -> dict[str, Any]:
        """Return what was counted beside bytes."""
        return {
            "operations": self.operations,
            "launches": dict(self.launches),
            "attention": dict(self.attention),
        }

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operation and count the tensors that it makes."""
        self.operations += 1
        result = _result(function, args, kwargs or {})
        for leaf in tree_leaves(result):
            if isinstance(leaf, FakeTensor) and leaf.device.type == "cuda":
                self._count(leaf)
        return result

    def _count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.bytes_of:
            return
        self.bytes_of[key] = storage.nbytes()
        self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self.now -= self.bytes_of.pop(key, 0)


def _result(function: Any, args: Any, kwargs: Any) -> Any:
    """Return the result of an operation, or a stand-in where it depends on values."""
    name = function._schema.name
    if name == "aten::_local_scalar_dense":
        return _one(args[0].dtype)
    if name in RANDOM:
        return args[0]
    if name == "aten::index" and _is_mask(args[1][0]):
        return args[0].clone()  # as if nothing were masked
    return function(*args, **kwargs)


def _one(dtype: torch.dtype) -> Any:
    if dtype is torch.bool:
        return True
    return 1.0 if dtype.is_floating_point else 1


def _is_mask(index: Any) -> bool:
    return index is not None and index.dtype == torch.bool


def attention(
    torch_attention: Callable[..., Tensor], kinds: Counter[str]
) -> Callable[..., Tensor]:
    """Return attention that takes the kernels which a GPU takes, and else torch's own.

    Counts its calls in `kinds`.
    """

    def attend(  # noqa: PLR0913
        q: Tensor,
        k: Tensor,
        v: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        kinds[_kind_of(attn_mask, is_causal)] += 1
        is_sampling = attn_mask is not None and not torch.is_grad_enabled()
        if q.device.type != "cuda" or is_sampling:
            shared = {"scale": scale, "enable_gqa": enable_gqa}
            return torch_attention(q, k, v, attn_mask, dropout_p, is_causal, **shared)
        groups = q.shape[1] // k.shape[1]
        if groups > 1:
            k = k.repeat_interleave(groups, 1)
            v = v.repeat_interleave(groups, 1)
        if attn_mask is None and q.dtype in (torch.bfloat16, torch.float16):
            flash = torch.ops.aten._scaled_dot_product_flash_attention
            return flash(q, k, v, dropout_p, is_causal, False, scale=scale)[0]
        efficient = torch.ops.aten._scaled_dot_product_efficient_attention
        bias = attn_mask
        if bias is not None:
            bias = bias.to(q.dtype).expand(*q.shape[:-1], k.shape[-2])
        return efficient(q, k, v, bias, True, dropout_p, is_causal, scale=scale)[0]

    return attend


def _kind_of(mask: Tensor | None, is_causal: bool) -> str:
    if mask is not None:
        return "masked"
    return "causal" if is_causal else "open"
