"""Several processes as one run: each plays a shard of the episodes and adds to the gradient.

`accelerate launch` starts them; with a single process all of this is a no-op. All processes hold
the same samples and end every step with the same weights. Knows neither methods nor losses.
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
        """Join the process group, if the environment defines one."""
        self.state = PartialState(cpu=not torch.cuda.is_available())
        self.world_size = self.state.num_processes
        self.rank = self.state.process_index
        self.is_main_process = self.rank == 0  # the one that writes the run's files

    def shard(self, items: Sequence[T]) -> Sequence[T]:
        """Return every world_size-th item, beginning with this process's."""
        return items[self.rank :: self.world_size]

    def gather(self, items: list[T]) -> list[T]:
        """Return the items of all processes, in the order of their ranks."""
        return list(gather_object(items))

    def play(
        self, episodes: Sequence[Episode], engine: Engine, key: tuple[int, ...] = ()
    ) -> list[Outcome]:
        """Play this process's shard; return the outcomes of all episodes, in order."""
        indices = self.shard(range(len(episodes)))
        shard = [episodes[i] for i in indices]
        outcomes = play(shard, engine, key, indices=indices)
        numbered = self.gather(list(zip(indices, outcomes, strict=True)))
        numbered.sort(key=lambda pair: pair[0])
        return [outcome for _, outcome in numbered]

    def all_reduce_sum(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return each value's sum over the processes, which all hold the same names."""
        values_of_ranks = self.gather([values])
        sums = {}
        for name in values:
            sums[name] = float(sum(of_rank[name] for of_rank in values_of_ranks))
        return sums

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sum the gradients over the processes; one without samples adds zeros."""
        if self.world_size == 1:
            return
        for parameter in parameters:
            gradient = parameter.grad
            if gradient is None:
                gradient = torch.zeros_like(parameter)
            parameter.grad = reduce(gradient, reduction="sum")

    def on_main_process(self, write: Callable[[], Any]) -> None:
        """Let the main process write files while the others wait.

        Raises OSError if writing fails for any reason.
        """
        if self.is_main_process:
            try:
                write()
            # torch, tokenizers and safetensors raise their own errors, which do not say why.
            except Exception as error:
                raise OSError(
                    f"a file could not be written, is the disk full? {error}"
                ) from error
        self.state.wait_for_everyone()
