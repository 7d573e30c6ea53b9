"""Several processes as one run: each plays its share of the episodes and sums its share of the gradient.

Started by `accelerate launch`; in a process of its own nothing here does anything. All ranks hold the same
samples and end every step with the same weights. Knows neither methods nor losses.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from coevolve.driver import Engine, play
from coevolve.types import Episode, Outcome

T = TypeVar("T")


class Ranks:
    """This process among those of its run."""

    def __init__(self, count: int | None = None) -> None:
        """Read from the environment how many there are, unless `count` says that this process is alone."""
        self.count = int(os.environ.get("WORLD_SIZE", "1")) if count is None else count
        self.index, self.state = 0, None
        if self.count > 1:
            from accelerate import PartialState

            self.state = PartialState(cpu=not torch.cuda.is_available())  # joins the process group
            self.index = self.state.process_index

    @property
    def first(self) -> bool:
        """Whether this process writes the run's files."""
        return self.index == 0

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """Every count-th item, beginning with this rank's."""
        return items[self.index :: self.count]

    def play(self, episodes: Sequence[Episode], engine: Engine, key: tuple[int, ...] = ()) -> list[Outcome]:
        """Play this rank's share and return the outcomes of all episodes, in order; see `driver.play`."""
        mine = self.share(range(len(episodes)))
        outcomes = play([episodes[i] for i in mine], engine, key, numbers=mine)
        if self.count == 1:
            return outcomes
        from accelerate.utils import gather_object

        numbered = gather_object(list(zip(mine, outcomes, strict=True)))
        return [outcome for _, outcome in sorted(numbered, key=lambda pair: pair[0])]

    def add(self, tensor: Tensor) -> None:
        """Replace a tensor by its sum over the ranks."""
        if self.state:
            from accelerate.utils import reduce

            tensor.copy_(reduce(tensor.to(self.state.device), reduction="sum"))  # NCCL takes what is on the GPU only

    def add_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sum the gradients over the ranks; a rank without samples of its own adds zeros."""
        for parameter in parameters if self.state else ():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            self.add(parameter.grad)

    def totals(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Every number's sum over the ranks, which all hold the same names."""
        sums = torch.tensor([*numbers.values()], dtype=torch.float64)
        if numbers:
            self.add(sums)
        return dict(zip(numbers, sums.tolist(), strict=True))

    def highest(self, number: float) -> float:
        """The highest of the ranks' numbers."""
        numbers = torch.zeros(self.count, dtype=torch.float64)
        numbers[self.index] = number
        self.add(numbers)
        return float(numbers.max())

    def wait(self) -> None:
        """Go on when all ranks are here."""
        if self.state:
            self.state.wait_for_everyone()

    def alone(self, function: Callable[[], Any]) -> None:
        """Let the first rank do something that the others wait for (write files)."""
        if self.first:
            function()
        self.wait()
