"""Several processes as one run: each plays its share of the episodes and sums its share of the gradient.

Started by `accelerate launch`; in a process of its own nothing here does anything. All ranks hold the same
samples and end every step with the same weights. Knows neither protocols nor losses.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from coevolve.driver import Engine, play
from coevolve.types import Episode, Outcome


class Ranks:
    """This process among those of its run."""

    def __init__(self, count: int | None = None) -> None:
        """Read from the environment how many there are, unless `count` says that this process is alone."""
        self.count = int(os.environ.get("WORLD_SIZE", "1")) if count is None else count
        self.index = int(os.environ.get("RANK", "0")) if self.count > 1 else 0
        if self.count > 1:
            self.state  # noqa: B018  every rank joins the group here, before any of them is busy

    @cached_property
    def state(self) -> Any:
        """Accelerate's state of the process group."""
        from accelerate import PartialState

        return PartialState(cpu=not torch.cuda.is_available())

    @property
    def first(self) -> bool:
        """Whether this process writes the run's files."""
        return self.index == 0

    def share(self, rows: Sequence) -> Sequence:
        """Every count-th row, beginning with this rank's."""
        return rows[self.index :: self.count]

    def play(self, episodes: Sequence[Episode], engine: Engine, key: tuple[int, ...] = ()) -> list[Outcome]:
        """Play this rank's share and return the outcomes of all episodes, in order; see `play.play`."""
        mine = self.share(range(len(episodes)))
        outcomes = play([episodes[i] for i in mine], engine, key, numbers=mine)
        if self.count == 1:
            return outcomes
        from accelerate.utils import gather_object

        numbered = gather_object(list(zip(mine, outcomes, strict=True)))
        return [outcome for _, outcome in sorted(numbered, key=lambda pair: pair[0])]

    def add(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its sum over the ranks."""
        if self.count > 1:
            from accelerate.utils import reduce

            for tensor in tensors:  # NCCL takes what lies on the GPU only
                tensor.copy_(reduce(tensor.to(self.state.device), reduction="sum"))

    def totals(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Every number's sum over the ranks, which all hold the same names."""
        sums = torch.tensor([*numbers.values()], dtype=torch.float64)
        if numbers:
            self.add([sums])
        return dict(zip(numbers, sums.tolist(), strict=True))

    def most(self, number: float) -> float:
        """The highest of the ranks' numbers."""
        numbers = torch.zeros(self.count, dtype=torch.float64)
        numbers[self.index] = number
        self.add([numbers])
        return float(numbers.max())

    def add_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sum the gradients over the ranks; a rank without rows of its own adds zeros."""
        if self.count > 1:
            for parameter in parameters:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                self.add([parameter.grad])

    def wait(self) -> None:
        """Go on when all ranks are here."""
        if self.count > 1:
            self.state.wait_for_everyone()

    def alone(self, function: Callable[[], Any]) -> None:
        """Let the first rank do something that the others wait for (write files)."""
        if self.first:
            function()
        self.wait()
