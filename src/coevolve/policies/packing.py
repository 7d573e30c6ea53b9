"""Completions of one prompt as one sequence: the prompt is computed once, and each sees the prompt and itself alone.

Groups of answers to one question cost a fraction of their tokens this way. Knows token ids only.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

SPAN = 1024  # most tokens of one sequence of several completions, whose attention mask is dense

Row = tuple[Sequence[int], Sequence[int]]  # prompt ids, ids of the completion


class Packed(NamedTuple):
    """Rows as a model's input, and where among its outputs (flattened) the states that predict the targets lie."""

    input_BS: Tensor
    positions_BS: Tensor | None  # None, like the mask: plainly causal
    mask_B1SS: Tensor | None  # true where a token is seen
    places_T: Tensor
    targets_T: Tensor

    @property
    def shared(self) -> bool:
        """Whether any prompt is shared, so that the model has to be told who sees what."""
        return self.mask_B1SS is not None


def micro_batches(rows: Sequence[Row], micro_tokens: int, share: bool) -> Iterator[list[int]]:
    """Yield the rows' indices in batches of similar size, which keep within `micro_tokens` once they are padded.

    A sequence that is longer by itself is a batch of its own.
    """
    batch: list[list[int]] = []
    for bundle in sorted(bundles(rows, share, micro_tokens), key=partial(size, rows)):
        if batch and (len(batch) + 1) * size(rows, bundle) > micro_tokens:
            yield [i for its in batch for i in its]
            batch = []
        batch.append(bundle)
    if batch:
        yield [i for its in batch for i in its]


def bundles(rows: Sequence[Row], share: bool, most: int = SPAN) -> list[list[int]]:
    """Return the rows' indices by sequence: rows of one prompt together while they keep within SPAN, or each alone."""
    found: list[list[int]] = []
    latest: dict[tuple[int, ...], list[int]] = {}
    for i, (prompt, ids) in enumerate(rows):
        bundle = latest.get(tuple(prompt)) if share else None
        if bundle is None or size(rows, bundle) + len(ids) > min(SPAN, most):
            bundle = latest[tuple(prompt)] = []
            found.append(bundle)
        bundle.append(i)
    return found


def size(rows: Sequence[Row], bundle: Sequence[int]) -> int:
    """Return how many tokens a sequence of these rows has."""
    return len(rows[bundle[0]][0]) + sum(len(rows[i][1]) for i in bundle)


def pack(rows: Sequence[Row], share: bool, device: torch.device) -> Packed:
    """Lay rows out as padded sequences; targets and places come in the order of the rows."""
    sequences = bundles(rows, share)
    inputs, positions, owners = [], [], []
    where: dict[int, tuple[int, int]] = {}  # row: its sequence, and where the inputs after its prompt begin
    for number, bundle in enumerate(sequences):
        prompt = rows[bundle[0]][0]
        line, place, owner = list(prompt), [*range(len(prompt))], [0] * len(prompt)
        for own, i in enumerate(bundle, 1):
            where[i] = number, len(line)
            fed = rows[i][1][:-1]  # the last token predicts nothing that is looked at
            line += fed
            place += range(len(prompt), len(prompt) + len(fed))
            owner += [own] * len(fed)
        inputs.append(line), positions.append(place), owners.append(owner)
    width = max(map(len, inputs), default=1)

    def padded(lines: list[list[int]], fill: int) -> Tensor:
        return torch.tensor([[*line, *[fill] * (width - len(line))] for line in lines], device=device)

    places = []
    for i, (prompt, ids) in enumerate(rows):
        number, first = where[i]
        after = (first + j for j in range(len(ids) - 1))
        places += [number * width + at for at in (len(prompt) - 1, *after)][: len(ids)]
    long = {"dtype": torch.long, "device": device}
    ends = torch.tensor(places, **long), torch.tensor([token for _, ids in rows for token in ids], **long)
    if len(sequences) == len(rows):  # padding on the right is never seen by causal attention
        return Packed(padded(inputs, 0), None, None, *ends)
    owner_BS = padded(owners, -1)
    seen_BSS = (owner_BS[:, :, None] == owner_BS[:, None]) | (owner_BS[:, None] == 0)
    return Packed(padded(inputs, 0), padded(positions, 0), seen_BSS.tril()[:, None], *ends)


def heated(hidden_TH: Tensor, temperatures: Sequence[float], lengths: Sequence[int]) -> tuple[Tensor, float]:
    """Return states and the one temperature for their logits, given each row's temperature and number of tokens.

    Rows of several temperatures have their states divided by their own, which is the same to the logits.
    """
    if len(set(temperatures)) == 1:
        return hidden_TH, temperatures[0]
    own = [heat for heat, length in zip(temperatures, lengths, strict=True) for _ in range(length)]
    return hidden_TH / hidden_TH.new_tensor(own)[:, None], 1.0
