"""Length normalisers: one weight per token, by which the losses sum up."""

from collections.abc import Sequence

import torch
from torch import Tensor

from coevolve.checks import LENGTH_NORMS, among


def weights(lengths: Sequence[int], kind: str, constant: float | None = None) -> Tensor:
    """Return one weight per token (sum of lengths,) in float64 for sequences of these lengths.

    "token_mean": every token counts the same and all sum to 1. "sequence_mean": every sequence does.
    "constant": 1 / (sequences * constant), the length-free mean of DrGRPO. "token_sum": 1 each.
    """
    among("length_norm", kind, LENGTH_NORMS)
    if kind == "constant" and not (constant and constant > 0):
        raise ValueError(f"length_constant must be positive with length_norm='constant', got {constant}")
    divisors = {  # of each token, given the length of the token's sequence
        "token_mean": lambda length: sum(lengths),
        "sequence_mean": lambda length: len(lengths) * length,
        "constant": lambda length: len(lengths) * (constant or 0),
        "token_sum": lambda length: 1.0,
    }
    return torch.tensor([1 / divisors[kind](n) for n in lengths for _ in range(n)], dtype=torch.float64)
