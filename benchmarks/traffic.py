"""Counter of torch's operations and of the bytes they move, for `benchmarks/kernels.py`."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Operations that move no contents.
FREE = {
    "empty",
    "new_empty",
    "empty_like",
    "empty_strided",
    "detach",
    "lift_fresh",
    "_unsafe_view",
}
# Operations that write their first argument, or a tensor like it, without reading it.
BLANK = {
    "copy_",
    "fill_",
    "zero_",
    "zeros_like",
    "ones_like",
    "new_zeros",
    "new_ones",
    "full_like",
}


@dataclass(frozen=True)
class Operation:
    """An operation of torch: arithmetic operations of a matrix product (else 0), and bytes."""

    arithmetic: int
    bytes: int


class Traffic(TorchDispatchMode):
    """Counts torch's operations, each with its least traffic: inputs read once, outputs written.

    Values that depend on contents are those of a batch without masked tokens.
    """

    def __init__(self) -> None:
        super().__init__()
        self.products: list[Operation] = []
        self.others: list[Operation] = []

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        name = func._schema.name.removeprefix("aten::")
        kwargs = kwargs or {}
        if name == "_local_scalar_dense":
            return 1
        if (
            name == "index" and args[1][0].dtype == torch.bool
        ):  # a mask that selects all
            return args[0].clone()
        result = func(*args, **kwargs)
        if not (func.is_view or name in FREE or func.namespace == "prim"):
            self.count(name, args, kwargs, result)
        return result

    def count(self, name: str, args: tuple, kwargs: dict, result: object) -> None:
        """Add one operation to the products or to the others."""
        inputs = {key: value for key, value in kwargs.items() if key != "out"}
        read = list(tree_leaves((args, inputs)))
        written = tree_leaves(result)
        if name in BLANK:
            read = read[1:]
        if name in ("gather", "scatter_add"):  # moves only the indexed entries
            read = read[2:] * 2
            written = []
        moved = sum(map(size, read)) + sum(map(size, written))
        if name == "mm":
            self.products.append(Operation(product_operations(*args[:2]), moved))
        elif name in ("addmm", "addmm_"):
            self.products.append(Operation(product_operations(*args[1:3]), moved))
        else:
            self.others.append(Operation(0, moved))


def product_operations(a: Tensor, b: Tensor) -> int:
    """Return the arithmetic operations of a matrix product."""
    return 2 * a.shape[0] * a.shape[1] * b.shape[1]


def size(x: object) -> int:
    """Return the bytes of a tensor, expanded dimensions counted once; 0 for anything else."""
    if not isinstance(x, Tensor):
        return 0
    dimensions = zip(x.shape, x.stride(), strict=True)
    return x.element_size() * math.prod(n for n, stride in dimensions if stride)
