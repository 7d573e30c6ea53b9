"""Colours as people with and without colour blindness see them."""

import numpy as np
from matplotlib.colors import to_rgb

# Linear RGB as deuteranopes see it (Machado, Oliveira and Fernandes, 2009), and CIE's matrix.
DEUTERANOPE = np.array(
    [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ]
)
TO_XYZ = np.array(
    [
        [0.4124, 0.3576, 0.1805],
        [0.2126, 0.7152, 0.0722],
        [0.0193, 0.1192, 0.9505],
    ]
)


def linear(colour: str) -> np.ndarray:
    """Return red, green and blue in proportion to their light, 0 to 1."""
    encoded = np.array(to_rgb(colour))
    curved = ((encoded + 0.055) / 1.055) ** 2.4
    return np.where(encoded <= 0.04045, encoded / 12.92, curved)


def seen_by_deuteranopes(colour: str) -> np.ndarray:
    """Return CIELAB coordinates, in which equal distances look equally large."""
    return cielab(DEUTERANOPE @ linear(colour))


def seen_by_most(colour: str) -> np.ndarray:
    """Return CIELAB coordinates for eyes with three kinds of cones."""
    return cielab(linear(colour))


def cielab(light: np.ndarray) -> np.ndarray:
    """Return the CIELAB coordinates of linear RGB."""
    white = TO_XYZ.sum(axis=1)
    relative = TO_XYZ @ light.clip(0, 1) / white
    x, y, z = np.cbrt(relative)
    return np.array(
        [
            116 * y - 16,
            500 * (x - y),
            200 * (y - z),
        ]
    )
