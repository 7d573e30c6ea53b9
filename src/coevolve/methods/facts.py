"""Means and agreements for an episode's facts, where None stands for what nobody knows."""

from collections.abc import Iterable, Sequence

from coevolve.worlds import World


def mean_known(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values; None when none is known."""
    known = [float(value) for value in values if value is not None]
    return sum(known) / len(known) if known else None


def as_float(value: bool | None) -> float | None:
    """Return a verdict as 1.0 or 0.0, None as it is."""
    return None if value is None else float(value)


def complement(share: float | None) -> float | None:
    """Return 1 - a share, None where it is not known."""
    return None if share is None else 1 - share


def agrees(score: float, truth: bool | None) -> float | None:
    """Say whether a score above one half agrees with the oracle: 1.0 or 0.0, None where it has no answer."""
    return None if truth is None else float((score > 0.5) == truth)


def pool_levels(world: World, questions: Sequence[str]) -> dict[str, float | None]:
    """Return the shares of a pool that are ill-formed and, of the rest, of level 3; None where there is no oracle."""
    known = [level for level in map(world.level, questions) if level is not None]
    ill_formed = 1 - len(known) / len(questions) if known else None
    return {"pool_ill_formed": ill_formed, "pool_level_3": mean_known([level == 3 for level in known])}
