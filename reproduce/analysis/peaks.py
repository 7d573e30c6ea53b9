"""Does a curve pass a peak? Other units say where it would be, and each unit says how high.

A noisy rise that levels off has its highest value somewhere before the end, and a parabola fitted
to it turns down. So no unit is both asked where the peak is and how high it is. Axes are U units
and L looks, which are measurements during training.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from reproduce.analysis import crossed
from reproduce.analysis.stats import Array, Effect

LEAST_LOOKS = 10
# The first and the last fifth of the looks are compared with as many at the peak.
PARTS = 5


@dataclass(frozen=True)
class Peak:
    """How far the peak is above the beginning, and how far above the end."""

    rise: Effect
    fall: Effect

    @property
    def sides(self) -> dict[str, Effect]:
        """The two effects by name."""
        return {"rise": self.rise, "fall": self.fall}

    @property
    def weaker_side(self) -> str:
        """The name of the side with the weaker evidence."""
        return min(self.sides, key=lambda name: self.sides[name].evidence)

    @property
    def weaker(self) -> Effect:
        """The side with the weaker evidence: a peak needs both."""
        return self.sides[self.weaker_side]


def measure(curves_UL: ArrayLike) -> Peak:
    """Return rise and fall at the peak, over at least two units and ten looks.

    The place is where the parabola of the other units is highest, at least a fifth away from both
    ends. There the unit itself is compared with its own beginning and end.
    """
    curves = np.asarray(curves_UL, dtype=float)
    looks = curves.shape[1]
    window = looks // PARTS
    rises = []
    falls = []
    for unit, curve_L in enumerate(curves):
        others_L = np.delete(curves, unit, axis=0).mean(axis=0)
        place = _place(others_L, window)
        means_W = moving_mean(curve_L, window)
        rises.append(means_W[place] - means_W[0])
        falls.append(means_W[place] - means_W[-1])
    return Peak(
        rise=crossed.mean_of_units(rises),
        fall=crossed.mean_of_units(falls),
    )


def _place(curve_L: Array, window: int) -> int:
    """Return where a window of looks begins in which the curve's parabola is highest."""
    looks = np.arange(len(curve_L))
    parabola = np.polynomial.Polynomial.fit(looks, curve_L, deg=2)
    means_W = moving_mean(parabola(looks), window)
    inside = means_W[window:-window]
    return window + int(np.argmax(inside))


def moving_mean(values_L: Array, window: int) -> Array:
    """Return the mean of every `window` neighbours, from the first ones to the last."""
    return np.convolve(values_L, np.full(window, 1 / window), mode="valid")
