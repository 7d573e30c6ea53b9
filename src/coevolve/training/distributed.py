"""Several processes as one run: each plays its share of the episodes and sums its share of the gradient.

Started by `accelerate launch`; in a process of its own nothing here does anything. All ranks hold the same
samples and end every step with the same weights. Knows neither methods nor losses.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object, reduce
from torch import nn

from coevolve.rollout.engine import Engine
from coevolve.rollout.scheduler import play
from coevolve.types import Episode, Outcome, T


class Distributed:
    """This process among those of its run."""

    def __init__(self) -> None:
        """Join the process group, if the environment names one."""
        self.state = PartialState(cpu=not torch.cuda.is_available())
        self.count, self.index = self.state.num_processes, self.state.process_index
        self.first = self.index == 0  # this process writes the run's files

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """Every count-th item, beginning with this rank's."""
        return items[self.index :: self.count]

    def gather(self, items: list[T]) -> list[T]:
        """All ranks' items, those of the first rank first."""
        return list(gather_object(items))

    def play(self, episodes: Sequence[Episode], engine: Engine, key: tuple[int, ...] = ()) -> list[Outcome]:
        """Play this rank's share and return the outcomes of all episodes, in order; see `driver.play`."""
        mine = self.share(range(len(episodes)))
        outcomes = play([episodes[i] for i in mine], engine, key, numbers=mine)
        numbered = self.gather(list(zip(mine, outcomes, strict=True)))
        return [outcome for _, outcome in sorted(numbered, key=lambda pair: pair[0])]

    def totals(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Every number's sum over the ranks, which all hold the same names."""
        each = self.gather([numbers])
        return {name: float(sum(one[name] for one in each)) for name in numbers}

    def add_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sum the gradients over the ranks; a rank without samples of its own adds zeros."""
        if self.count == 1:
            return
        for parameter in parameters:
            own = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad = reduce(own, reduction="sum")

    def alone(self, function: Callable[[], Any]) -> None:
        """Let the first rank write files, for which the others wait; OSError, in one line, where that fails."""
        if self.first:
            try:
                function()
            except Exception as error:  # torch, tokenizers and safetensors have their own, which do not say why
                raise OSError(f"a file could not be written, is the disk full? {error}") from error
        self.state.wait_for_everyone()
