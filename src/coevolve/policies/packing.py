"""Completions of one prompt as one sequence: the prompt is computed once, and each sees the prompt and itself alone.

Groups of answers to one question cost a fraction of their tokens this way. Knows token ids only.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
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
    ordered = sorted(bundles(examples, share, micro_tokens), key=partial(size, examples))
    for batch in runs(ordered, lambda batch: len(batch) * size(examples, batch[-1]) <= micro_tokens):
        yield list(chain.from_iterable(batch))


def bundles(examples: Sequence[Example], share: bool, most: int = SPAN) -> list[list[int]]:
    """Return the examples' indices by sequence: those of one prompt together while they keep within SPAN, or alone."""
    found: list[list[int]] = []
    latest: dict[tuple[int, ...], list[int]] = {}
    for i, (prompt, ids) in enumerate(examples):
        bundle = latest.get(tuple(prompt)) if share else None
        if bundle is None or size(examples, bundle) + len(ids) > min(SPAN, most):
            bundle = latest[tuple(prompt)] = []
            found.append(bundle)
        bundle.append(i)
    return found


def size(examples: Sequence[Example], bundle: Sequence[int]) -> int:
    """Return how many tokens a sequence of these examples has."""
    return len(examples[bundle[0]][0]) + sum(len(examples[i][1]) for i in bundle)


def pack(examples: Sequence[Example], share: bool, device: torch.device) -> Packed:
    """Lay examples out as padded sequences; targets and places come in the order of the examples."""
    sequences = bundles(examples, share)
    inputs, positions, owners = [], [], []
    where: dict[int, list[tuple[int, int]]] = {}  # example: sequence and place of each state that predicts a target
    for number, bundle in enumerate(sequences):
        prompt = examples[bundle[0]][0]
        line, place, owner = list(prompt), [*range(len(prompt))], [0] * len(prompt)
        for own, i in enumerate(bundle, 1):
            ids = examples[i][1]
            fed = ids[:-1]  # no state after the last token is looked at
            states = [len(prompt) - 1, *range(len(line), len(line) + len(fed))]
            where[i] = [(number, at) for at in states[: len(ids)]]
            line += fed
            place += range(len(prompt), len(prompt) + len(fed))
            owner += [own] * len(fed)
        inputs.append(line)
        positions.append(place)
        owners.append(owner)
    width = max(map(len, inputs), default=1)

    def padded(lines: list[list[int]], fill: int) -> Tensor:
        return torch.tensor([[*line, *[fill] * (width - len(line))] for line in lines], device=device)

    places = [number * width + at for i in range(len(examples)) for number, at in where[i]]
    places_T = torch.tensor(places, dtype=torch.long, device=device)
    targets_T = torch.tensor([token for _, ids in examples for token in ids], dtype=torch.long, device=device)
    if len(sequences) == len(examples):  # padding on the right is never seen by causal attention
        return Packed(padded(inputs, 0), {}, places_T, targets_T)
    owner_BS = padded(owners, -1)
    seen_BSS = (owner_BS[:, :, None] == owner_BS[:, None]) | (owner_BS[:, None] == 0)
    attention = {"attention_mask": seen_BSS.tril()[:, None], "position_ids": padded(positions, 0)}
    return Packed(padded(inputs, 0), attention, places_T, targets_T)


def divide_by_temperature(hidden_TH: Tensor, replies: Sequence[Reply]) -> tuple[Tensor, float]:
    """Return states and the one temperature for their logits, given the replies whose tokens they predict.

    Where temperatures differ, each reply's states are divided by the reply's own, which is the same to the logits.
    """
    temperatures = {reply.temperature for reply in replies}
    if len(temperatures) == 1:
        return hidden_TH, temperatures.pop()
    each_T = [reply.temperature for reply in replies for _ in reply.ids]
    return hidden_TH / hidden_TH.new_tensor(each_T)[:, None], 1.0
