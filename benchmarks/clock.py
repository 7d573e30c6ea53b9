"""Clock of `benchmarks/step.py`: processor seconds and matrix products by phase."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

Size = tuple[int, int, int, int]  # of a matrix product: batch, rows, inner, columns
REST = "bookkeeping"  # the phase outside all others


@dataclass
class OpenPhase:
    """A phase that has begun, and the seconds that phases inside it took."""

    name: str
    inner_seconds: float = 0.0


class Clock:
    """Seconds and sizes of matrix products by phase, without those of phases inside it."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.products: Counter[tuple[str, Size]] = Counter()
        self.open_phases = [OpenPhase(REST)]

    def timed(self, phase: str, function: Callable) -> Callable:
        """Return the function, timed as a part of a phase."""

        def call(*args: object, **kwargs: object) -> object:
            self.open_phases.append(OpenPhase(phase))
            start = time.process_time()
            value = function(*args, **kwargs)
            elapsed = time.process_time() - start
            self.seconds[phase] += elapsed - self.open_phases.pop().inner_seconds
            self.open_phases[-1].inner_seconds += elapsed
            return value

        return call

    def note_product(self, a: Tensor, b: Tensor, count: int = 1) -> None:
        """Count the product of two matrices for the current phase."""
        batch = a.shape[:-2].numel()
        size = (batch, *a.shape[-2:], b.shape[-1])
        self.products[self.open_phases[-1].name, size] += count


class Products(TorchDispatchMode):
    """Notes the size of every matrix product for the current phase of a clock."""

    def __init__(self, clock: Clock):
        super().__init__()
        self.clock = clock

    def __torch_dispatch__(
        self,
        func: Callable,
        types: object,
        args: tuple = (),
        kwargs: dict | None = None,
    ) -> object:
        name = func._schema.name.removeprefix("aten::").rstrip("_")
        if name in ("mm", "bmm"):
            self.clock.note_product(args[0], args[1])
        elif name in ("addmm", "baddbmm"):
            self.clock.note_product(args[1], args[2])
        elif name.startswith("_scaled_dot_product"):
            self.note_attention(args, backward=name.endswith("backward"))
        return func(*args, **(kwargs or {}))

    def note_attention(self, args: tuple, backward: bool) -> None:
        """Count the products of attention: q k^T, and one (backward: three) with the values."""
        q, k = args[1:3] if backward else args[:2]
        self.clock.note_product(q, k.mT)
        self.clock.note_product(q @ k.mT, k, 3 if backward else 1)
