"""Packs completions of one prompt into a prefix tree, so that shared tokens are computed once.

A group of answers to one question then costs a fraction of its tokens. Knows only token ids.
Shapes: B sequences, S positions of a sequence, T target tokens, H hidden size.
"""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from os.path import commonprefix  # works on any sequences

import torch
from torch import Tensor

from coevolve.types import Reply, T

# Tokens of several completions in one sequence, at most. Their mask is dense, and attention looks
# at all pairs of tokens. Models that are trained on a GPU have longer prompts.
MAX_SHARED_SEQUENCE = 1024
MAX_SHARED_SEQUENCE_GPU = 4096
ALIGNED_WIDTH = 8  # of masks that a GPU's attention takes as they are
NEVER = sys.maxsize  # a token index beyond every sequence

Example = tuple[Sequence[int], Sequence[int]]  # prompt ids, completion ids


@dataclass(frozen=True)
class Bundle:
    """Examples that share one sequence."""

    tokens: int
    """Length of the sequence."""
    indices: list[int]
    """Which of all examples these are."""


@dataclass(frozen=True)
class PrefixTree:
    """Token sequences written as one, depth first: neighbours share their common prefix."""

    token_ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    """Position of each token in its own sequence."""
    hidden_from: list[int] = field(default_factory=list)
    """For each token, the index in the tree from which on it is hidden, or NEVER."""
    paths: list[list[int]] = field(default_factory=list)
    """For each sequence, the indices of its tokens in the tree."""


@dataclass(frozen=True)
class PackedExamples:
    """Examples as input of a model."""

    input_BS: Tensor
    attention: dict[str, Tensor]
    """Mask and position ids for the model; empty if attention is plainly causal."""
    target_positions_T: Tensor
    """Indices of the states that predict the targets, in the model's output of B * S states."""
    targets_T: Tensor


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


def greedy_batches(
    items: Iterable[T], fits: Callable[[list[T]], bool]
) -> Iterator[list[T]]:
    """Yield batches of neighbouring items, as long as `fits` allows; a misfit comes alone."""
    batch: list[T] = []
    for item in items:
        if batch and not fits([*batch, item]):
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch


def micro_batches(
    examples: Sequence[Example], max_tokens: int, max_shared: int
) -> Iterator[list[int]]:
    """Yield the examples' indices in micro-batches of at most `max_tokens` padded tokens.

    Lengths in a micro-batch are similar. A longer sequence is a micro-batch by itself. `max_shared`
    is that of `bundles`.
    """

    limit = min(max_shared, max_tokens)

    def fits(batch: list[Bundle]) -> bool:
        longest = batch[-1].tokens
        if longest > limit and any(len(bundle.indices) > 1 for bundle in batch):
            return False  # a mask would grow with the square of the long sequence
        return len(batch) * longest <= max_tokens

    packed = bundles(examples, limit)
    for batch in greedy_batches(packed, fits):
        indices: list[int] = []
        for bundle in batch:
            indices += bundle.indices
        yield indices


def bundles(examples: Sequence[Example], max_shared: int) -> list[Bundle]:
    """Return which examples share a sequence; short sequences come first.

    Examples of one prompt share sequences of at most `max_shared` tokens, in the order of their
    tokens. If it is 0, each has a sequence to itself.
    """
    inputs = [_input_ids(example) for example in examples]
    order = sorted(range(len(examples)), key=lambda i: (examples[i][0], inputs[i]))
    packed: list[Bundle] = []
    for i in order:
        if packed:
            latest = packed[-1]
            neighbour = latest.indices[-1]
            if examples[neighbour][0] == examples[i][0]:
                shared = len(commonprefix([inputs[neighbour], inputs[i]]))
                tokens = latest.tokens + len(inputs[i]) - shared
                if tokens <= max_shared:
                    packed[-1] = Bundle(tokens, [*latest.indices, i])
                    continue
        packed.append(Bundle(len(inputs[i]), [i]))
    return sorted(packed, key=lambda bundle: (bundle.tokens, bundle.indices))


def _input_ids(example: Example) -> tuple[int, ...]:
    """Return an example's tokens but the last, whose state predicts no target."""
    prompt, completion = example
    return (*prompt, *completion[:-1])


def _prefix_tree(sequences: Iterable[tuple[int, ...]]) -> PrefixTree:
    tree = PrefixTree()
    previous: tuple[int, ...] = ()
    path: list[int] = []
    for sequence in sequences:
        branch_start = len(tree.token_ids)
        shared = len(commonprefix([previous, sequence]))
        for index in path[
            shared:
        ]:  # the new branch must not see the rest of the previous one
            tree.hidden_from[index] = branch_start
        tree.token_ids.extend(sequence[shared:])
        tree.positions.extend(range(shared, len(sequence)))
        tree.hidden_from.extend([NEVER] * (len(sequence) - shared))
        path = [*path[:shared], *range(branch_start, len(tree.token_ids))]
        tree.paths.append(path)
        previous = sequence
    return tree


def pack_prefix_tree(
    examples: Sequence[Example], max_shared: int, like: Tensor
) -> PackedExamples:
    """Lay examples out as padded sequences; targets come in the order of the examples.

    `max_shared` is that of `bundles`. The additive attention mask has the dtype of `like`, and all
    tensors are on its device.
    """
    packed = bundles(examples, max_shared)
    trees = []
    for bundle in packed:
        trees.append(_prefix_tree(_input_ids(examples[i]) for i in bundle.indices))
    width = max((len(tree.token_ids) for tree in trees), default=1)
    has_mask = len(packed) < len(examples)
    if has_mask and like.is_cuda:  # attention would pad another mask in every layer
        width = ALIGNED_WIDTH * math.ceil(width / ALIGNED_WIDTH)

    def padded(rows: list[list[int]], padding: int) -> Tensor:
        rows = [row + [padding] * (width - len(row)) for row in rows]
        return torch.tensor(rows, dtype=torch.long, device=like.device).view(-1, width)

    targets: list[int] = []
    for _, completion in examples:
        targets += completion
    target_positions = _target_positions(examples, packed, trees, width)
    target_positions_T = torch.tensor(
        target_positions, dtype=torch.long, device=like.device
    )
    targets_T = torch.tensor(targets, dtype=torch.long, device=like.device)
    input_BS = padded([tree.token_ids for tree in trees], 0)
    if not has_mask:  # causal attention never sees padding on the right
        return PackedExamples(input_BS, {}, target_positions_T, targets_T)
    position_BS = padded([tree.positions for tree in trees], 0)
    hidden_from_BS = padded([tree.hidden_from for tree in trees], NEVER)
    attention = {
        "attention_mask": _attention_mask(hidden_from_BS, like),
        "position_ids": position_BS,
    }
    return PackedExamples(input_BS, attention, target_positions_T, targets_T)


def _target_positions(
    examples: Sequence[Example],
    packed: list[Bundle],
    trees: list[PrefixTree],
    width: int,
) -> list[int]:
    """Return the index of the state before each target token, in the order of the examples."""
    positions_of_example: dict[int, list[int]] = {}
    for row, (bundle, tree) in enumerate(zip(packed, trees, strict=True)):
        for i, path in zip(bundle.indices, tree.paths, strict=True):
            prompt, completion = examples[i]
            start = len(prompt) - 1  # the prompt's last token predicts the first target
            predicting = path[start : start + len(completion)]
            positions_of_example[i] = [row * width + index for index in predicting]
    target_positions: list[int] = []
    for i in range(len(examples)):
        target_positions += positions_of_example[i]
    return target_positions


def _attention_mask(hidden_from_BS: Tensor, like: Tensor) -> Tensor:
    """Return the additive mask (B, 1, S, S): -inf where a query must not see a key."""
    index_S = torch.arange(hidden_from_BS.shape[1], device=like.device)
    on_other_branch_BSS = index_S[:, None] >= hidden_from_BS[:, None]
    later_SS = index_S > index_S[:, None]
    mask_BSS = like.new_zeros(on_other_branch_BSS.shape)
    mask_BSS.masked_fill_(on_other_branch_BSS | later_SS, -torch.inf)
    return mask_BSS[:, None]
