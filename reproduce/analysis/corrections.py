"""Corrections for many tests: Holm's, and Benjamini and Hochberg's.

Both take the p-values of a family of tests, in any order; nan is no test and stays nan.
`adjusted` p-values are compared with 5 %. `levels` are the other view of the same decision: the
level that a p-value itself has to reach, the other p-values being what they are.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from reproduce.analysis.stats import LEVEL, Array

ALPHA = 1 - LEVEL


@dataclass(frozen=True)
class Correction:
    """A way to correct a family of tests: its name, adjusted p-values, and levels."""

    name: str
    adjusted: Callable[[ArrayLike], Array]
    levels: Callable[[ArrayLike], Array]


def _of_tests(p: ArrayLike, function: Callable[[Array], Array]) -> Array:
    """Apply a function to the p-values that are no nan."""
    values = np.asarray(p, dtype=float)
    is_test = ~np.isnan(values)
    result = np.full(values.shape, np.nan)
    result[is_test] = function(values[is_test])
    return result


def holm(p: ArrayLike) -> Array:
    """Return Holm's adjusted p-values: max over j <= i of (m - j + 1) p_(j), at most 1."""
    return _of_tests(p, _holm)


def _holm(p: Array) -> Array:
    tests = len(p)
    order = np.argsort(p, kind="stable")
    hypotheses_left = tests - np.arange(tests)
    increasing = np.maximum.accumulate(p[order] * hypotheses_left)
    adjusted = np.empty(tests)
    adjusted[order] = np.minimum(increasing, 1)
    return adjusted


def benjamini_hochberg(p: ArrayLike) -> Array:
    """Return Benjamini and Hochberg's adjusted p-values: min over j >= i of m p_(j) / j."""
    return _of_tests(p, _benjamini_hochberg)


def _benjamini_hochberg(p: Array) -> Array:
    tests = len(p)
    order = np.argsort(p, kind="stable")
    ranks = 1 + np.arange(tests)
    from_the_largest = (p[order] * tests / ranks)[::-1]
    adjusted = np.empty(tests)
    adjusted[order] = np.minimum.accumulate(from_the_largest)[::-1]
    return adjusted


def holm_levels(p: ArrayLike) -> Array:
    """Return alpha / (m - j) for each test, where j other tests are rejected before it."""
    return _of_tests(p, lambda values: _levels(values, _holm_level))


def _holm_level(others: Array) -> float:
    """Return the level of a test beside the sorted p-values of the other tests."""
    tests = len(others) + 1
    rejected = 0
    while rejected < len(others) and others[rejected] <= ALPHA / (tests - rejected):
        rejected += 1
    return ALPHA / (tests - rejected)


def benjamini_hochberg_levels(p: ArrayLike) -> Array:
    """Return k alpha / m for each test: the largest k of which k - 1 other tests stay below."""
    return _of_tests(p, lambda values: _levels(values, _benjamini_hochberg_level))


def _benjamini_hochberg_level(others: Array) -> float:
    """Return the level of a test beside the sorted p-values of the other tests."""
    tests = len(others) + 1
    for rank in range(tests, 1, -1):
        level = rank * ALPHA / tests
        if (others <= level).sum() >= rank - 1:
            return level
    return ALPHA / tests


def _levels(p: Array, level_beside: Callable[[Array], float]) -> Array:
    levels = []
    for i in range(len(p)):
        others = np.sort(np.delete(p, i))
        levels.append(level_beside(others))
    return np.array(levels)


HOLM = Correction("Holm", holm, holm_levels)
BENJAMINI_HOCHBERG = Correction(
    "Benjamini and Hochberg", benjamini_hochberg, benjamini_hochberg_levels
)
