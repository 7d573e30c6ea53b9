"""Means, agreements and fractions for the facts of episodes; None stands for an unknown value."""

from collections.abc import Iterable, Sequence

from coevolve.worlds import World

BELIEF_THRESHOLD = 0.5


def mean_known(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None; None if there is none."""
    known_values = [float(value) for value in values if value is not None]
    if not known_values:
        return None
    return sum(known_values) / len(known_values)


def as_float(verdict: bool | None) -> float | None:
    """Return a verdict as 1.0 or 0.0; None stays None."""
    return None if verdict is None else float(verdict)


def complement(fraction: float | None) -> float | None:
    """Return 1 - the fraction; None stays None."""
    return None if fraction is None else 1 - fraction


def agrees(score: float, truth: bool | None) -> float | None:
    """Return whether a score above one half agrees with the oracle, as 1.0 or 0.0.

    None where the oracle has no answer.
    """
    if truth is None:
        return None
    believed = score > BELIEF_THRESHOLD
    return float(believed == truth)


def pool_levels(world: World, questions: Sequence[str]) -> dict[str, float | None]:
    """Return the fraction of a pool that is ill-formed, and of the rest the fraction of level 3.

    None where there is no oracle, and where every question is ill-formed.
    """
    levels = []
    for question in questions:
        level = world.level(question)
        if level is not None:
            levels.append(level)
    ill_formed = 1 - len(levels) / len(questions) if levels else None
    return {
        "pool_ill_formed": ill_formed,
        "pool_level_3": mean_known(level == 3 for level in levels),
    }
