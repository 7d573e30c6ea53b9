"""Completions of one prompt as one sequence, a tree: what several begin with is computed once, for all of them.

Groups of answers to one question cost a fraction of their tokens this way. Knows token ids only.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from os.path import commonprefix  # of any sequences
from typing import NamedTuple

import torch
from torch import Tensor

from coevolve.types import Reply, T

SPAN = 1024  # most tokens of one sequence of several completions, whose attention mask is dense

Example = tuple[Sequence[int], Sequence[int]]  # prompt ids, ids of the completion


class Packed(NamedTuple):
    """Examples as a model's input, and where among its outputs (flattened) the states that predict the targets lie."""

    input_BS: Tensor
    attention: dict[str, Tensor]  # the model's arguments that say who sees what; none where it is plainly causal
    places_T: Tensor
    targets_T: Tensor


def runs(items: Iterable[T], fits: Callable[[list[T]], bool]) -> Iterator[list[T]]:
    """Yield neighbouring items together as long as `fits` allows it; an item that never fits comes alone."""
    run: list[T] = []
    for item in items:
        if run and not fits([*run, item]):
            yield run
            run = []
        run.append(item)
    if run:
        yield run


def micro_batches(examples: Sequence[Example], micro_tokens: int, share: bool) -> Iterator[list[int]]:
    """Yield the examples' indices in batches of similar size, which keep within `micro_tokens` once they are padded.

    A sequence that is longer by itself is a batch of its own.
    """
    for batch in runs(bundles(examples, share, micro_tokens), lambda run: len(run) * run[-1][0] <= micro_tokens):
        yield [i for _, bundle in batch for i in bundle]


def bundles(examples: Sequence[Example], share: bool, most: int = SPAN) -> list[tuple[int, list[int]]]:
    """Return how many tokens each sequence has, and the indices of its examples; short ones come first.

    Examples of one prompt go together while they keep within SPAN, in the order of their tokens; or each goes alone.
    """
    found: list[tuple[int, list[int]]] = []
    fed = [(*prompt, *ids[:-1]) for prompt, ids in examples]  # no state after the last token is looked at
    for i in sorted(range(len(fed)), key=lambda i: (examples[i][0], fed[i])):
        if share and found and examples[(latest := found[-1][1])[-1]][0] == examples[i][0]:
            size = found[-1][0] + len(fed[i]) - len(commonprefix([fed[latest[-1]], fed[i]]))
            if size <= min(SPAN, most):
                found[-1] = size, [*latest, i]
                continue
        found.append((len(fed[i]), [i]))
    return sorted(found)


def _tree(sequence: Iterable[tuple[int, ...]]) -> tuple[list[list[int]], list[list[int]]]:
    """Write token sequences down as a tree, depth first, in which neighbours share what they begin with.

    Returns of each place its token, its position and the first place that does not see it any more, and of each
    sequence its places.
    """
    tree: list[list[int]] = []
    paths: list[list[int]] = [[]]
    for before, tokens in pairwise([(), *sequence]):
        same, start = len(commonprefix([before, tokens])), len(tree)
        for place in paths[-1][same:]:
            tree[place][2] = start
        tree += [[token, position, sys.maxsize] for position, token in enumerate(tokens[same:], same)]
        paths.append([*paths[-1][:same], *range(start, len(tree))])
    return tree, paths[1:]


def pack(examples: Sequence[Example], share: bool, like: Tensor) -> Packed:
    """Lay examples out as padded sequences; targets and places come in the order of the examples.

    The attention mask, which is added, has the type of `like`, and everything lies on its device.
    """
    sequences, device = [bundle for _, bundle in bundles(examples, share)], like.device
    fed = [(*prompt, *ids[:-1]) for prompt, ids in examples]
    trees = [_tree(fed[i] for i in sequence) for sequence in sequences]
    width = max((len(tree) for tree, _ in trees), default=1)
    where: dict[int, list[int]] = {}  # example: places of the states that predict its targets
    for number, (sequence, (_, paths)) in enumerate(zip(sequences, trees, strict=True)):
        for i, path in zip(sequence, paths, strict=True):
            prompt, ids = examples[i]
            where[i] = [number * width + place for place in path[len(prompt) - 1 :][: len(ids)]]
    places_T = torch.tensor([at for i in range(len(examples)) for at in where[i]], dtype=torch.long, device=device)
    targets_T = torch.tensor([token for _, ids in examples for token in ids], dtype=torch.long, device=device)
    lines = [[*tree, *[[0, 0, sys.maxsize]] * (width - len(tree))] for tree, _ in trees]
    input_BS, position_BS, closed_BS = (
        torch.tensor(lines, dtype=torch.long, device=device).view(-1, width, 3).unbind(-1)
    )
    if len(sequences) == len(examples):  # padding on the right is never seen by causal attention
        return Packed(input_BS, {}, places_T, targets_T)
    at_S = torch.arange(width, device=device)
    hidden_BSS = (at_S[:, None] >= closed_BS[:, None]) | (at_S > at_S[:, None])
    mask = like.new_zeros(hidden_BSS.shape).masked_fill_(hidden_BSS, -torch.inf)[:, None]
    return Packed(input_BS, {"attention_mask": mask, "position_ids": position_BS}, places_T, targets_T)


@dataclass(frozen=True)
class MicroBatch:
    """Replies that went through the model together."""

    indices: list[int]
    """Which of all replies these are."""
    replies: list[Reply]
    hidden_TH: Tensor
    """Differentiable states that predict the targets, times the scale of the logits."""
    targets_T: Tensor

    def at_sampling_temperature(self) -> tuple[Tensor, float]:
        """Return states (T, H) and the one temperature for their logits.

        Where temperatures differ, each reply's states are divided by its own, which has the same
        effect on the logits.
        """
        temperatures = {reply.temperature for reply in self.replies}
        if len(temperatures) == 1:
            return self.hidden_TH, temperatures.pop()
        temperature_T = []
        for reply in self.replies:
            temperature_T += [reply.temperature] * len(reply.completion_ids)
        return self.hidden_TH / self.hidden_TH.new_tensor(temperature_T)[:, None], 1.0
