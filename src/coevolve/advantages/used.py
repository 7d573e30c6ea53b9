"""Which samples have an advantage other than zero: only these move the policy."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from coevolve.advantages.inputs import Advantages
from coevolve.advantages.segments import owners, segments, unmasked
from coevolve.types import Sample

# Prefix of the metrics.
USED = "used/"
# A smaller advantage is a rounding error: standardised rewards have advantages of about 1.
NEGLIGIBLE = 1e-6


def used_shares(samples: Sequence[Sample], advantages: Advantages) -> dict[str, float]:
    """Return the share of each reward's samples with an advantage, named used/ROLE[/SEGMENT].

    `advantages` are those of the samples' tokens. The share is Kish's effective one,
    (sum of |A|)^2 / (n sum of A^2) over n samples: k/n where k samples have equally large
    advantages and the others none, and less where few advantages outweigh the rest. One reward of
    96 that differs gives all 96 an advantage, and its share is 0.04. A masked segment (reward
    None) counts as a sample without an advantage; a reward that is masked everywhere is left out.
    """
    sizes_of_owner: dict[str, list[float]] = defaultdict(list)
    paid_owners: set[str] = set()
    for sample, row in zip(samples, advantages, strict=True):
        size_of_segment = _advantage_sizes(sample, row)
        for segment, reward in segments(sample).items():
            owner = f"{sample.role}/{segment}" if segment else sample.role
            size = size_of_segment.get(segment, 0.0)
            sizes_of_owner[owner].append(size)
            if reward is not None:
                paid_owners.add(owner)
    shares = {}
    for owner, sizes in sizes_of_owner.items():
        if owner in paid_owners:
            shares[USED + owner] = effective_share(sizes)
    return shares


def _advantage_sizes(
    sample: Sample, row: Sequence[float | None]
) -> dict[str | None, float]:
    """Return the mean |advantage| of each segment's tokens; none for a segment without tokens."""
    sizes_of_segment: dict[str | None, list[float]] = defaultdict(list)
    for segment, advantage in zip(_segment_by_token(sample), row, strict=True):
        if advantage is not None:
            sizes_of_segment[segment].append(abs(advantage))
    return {name: fmean(sizes) for name, sizes in sizes_of_segment.items()}


def _segment_by_token(sample: Sample) -> Sequence[str | None]:
    """Return the segment of each token that has an advantage."""
    rewarded = [*unmasked(sample)]
    if len(rewarded) == 1:  # cheaper, and the other tokens have no advantage
        return rewarded * len(sample.reply.completion_ids)
    return owners(sample)


def effective_share(sizes: Sequence[float]) -> float:
    """Return (sum of sizes)^2 / (n sum of their squares) of n sizes; 0 if all are negligible."""
    total = 0.0
    squares = 0.0
    for size in sizes:
        if size > NEGLIGIBLE:
            total += size
            squares += size**2
    if squares == 0:
        return 0.0
    return total**2 / (len(sizes) * squares)
