"""Colours as people with and without colour blindness see them: coordinates in CAM02-UCS.

Luo, Cui and Li (2006) put the appearance model CIECAM02 into a space in which equal distances look
equally large. The viewing conditions are those of sRGB: an average surround, a dim office.
"""

import numpy as np
from matplotlib.colors import to_rgb

CLEARLY_DIFFERENT = 12  # a distance at which thin lines are told apart


def matrix(text: str) -> np.ndarray:
    """Return a matrix of three rows and three columns."""
    numbers = np.array(text.split(), dtype=float)
    return numbers.reshape(3, 3)


# Linear RGB as deuteranopes see it (Machado, Oliveira and Fernandes, 2009), and CIE's matrix.
DEUTERANOPE = matrix("""
     0.367322  0.860646 -0.227968
     0.280085  0.672501  0.047413
    -0.011820  0.042940  0.968881
""")
TO_XYZ = matrix("""
    0.4124 0.3576 0.1805
    0.2126 0.7152 0.0722
    0.0193 0.1192 0.9505
""")
# CIECAM02: light as the eye adapts to it (CAT02), and as cones take it up (Hunt, Pointer, Estevez).
TO_ADAPTED = matrix("""
     0.7328 0.4296 -0.1624
    -0.7036 1.6975  0.0061
     0.0030 0.0136  0.9834
""")
TO_CONES = matrix("""
     0.38971 0.68898 -0.07868
    -0.22981 1.18340  0.04641
     0.00000 0.00000  1.00000
""")
# Its opponent colours: red against green, yellow against blue, and how light a colour is.
TO_OPPONENTS = matrix("""
    1.00000000 -1.09090909  0.09090909
    0.11111111  0.11111111 -0.22222222
    2.00000000  1.00000000  0.05000000
""")
SUM = np.array([1, 1, 1.05])  # of the answers of the cones
NOISE = 0.305  # of an achromatic answer
WHITE = 100 * TO_XYZ.sum(axis=1)
LUMINANCE = 64 / np.pi / 5  # of the field of view, in cd/m2
BACKGROUND = 0.2  # its lightness, relative to white
# What follows from an average surround and this background.
SURROUND = 0.69
INDUCTION = 0.725 * BACKGROUND**-0.2
CONTRAST = (1.64 - 0.29**BACKGROUND) ** 0.73


def linear(colour: str) -> np.ndarray:
    """Return red, green and blue in proportion to their light, 0 to 1."""
    encoded = np.array(to_rgb(colour))
    curved = ((encoded + 0.055) / 1.055) ** 2.4
    return np.where(encoded <= 0.04045, encoded / 12.92, curved)


def seen_by_deuteranopes(colour: str) -> np.ndarray:
    """Return a colour's place in CAM02-UCS for eyes without the cones for medium waves."""
    return cam02_ucs(DEUTERANOPE @ linear(colour))


def seen_by_most(colour: str) -> np.ndarray:
    """Return a colour's place in CAM02-UCS for eyes with three kinds of cones."""
    return cam02_ucs(linear(colour))


def cam02_ucs(light: np.ndarray) -> np.ndarray:
    """Return lightness and two opponent colours (J', a', b') of linear RGB."""
    xyz = TO_XYZ @ light.clip(0, 1)
    responses = cone_responses(100 * xyz)
    lightness = lightness_of(responses)
    hue, chroma = hue_and_chroma(responses, lightness)
    colourfulness = chroma * adaptation() ** 0.25
    even = np.log(1 + 0.0228 * colourfulness) / 0.0228
    even_lightness = 1.7 * lightness / (1 + 0.007 * lightness)
    return np.array(
        [
            even_lightness,
            even * np.cos(hue),
            even * np.sin(hue),
        ]
    )


def lightness_of(responses: np.ndarray) -> float:
    """Return the lightness J of the answers of the cones, 100 for white."""
    *_, achromatic = TO_OPPONENTS @ responses
    *_, of_white = TO_OPPONENTS @ cone_responses(WHITE)
    relative = (achromatic - NOISE) / (of_white - NOISE)
    exponent = SURROUND * (1.48 + np.sqrt(BACKGROUND))
    return 100 * relative**exponent


def hue_and_chroma(responses: np.ndarray, lightness: float) -> tuple[float, float]:
    """Return the hue h, in radians, and the chroma C of the answers of the cones."""
    redness, yellowness, _ = TO_OPPONENTS @ responses
    hue = np.arctan2(yellowness, redness)
    eccentricity = (np.cos(hue + 2) + 3.8) / 4
    strength = np.hypot(redness, yellowness) / (SUM @ responses)
    relative = 50000 / 13 * INDUCTION * eccentricity * strength
    chroma = relative**0.9 * np.sqrt(lightness / 100)
    return hue, CONTRAST * chroma


def adaptation() -> float:
    """Return the factor F_L, by which cones adapt to the luminance."""
    five = 5 * LUMINANCE
    part = (1 / (five + 1)) ** 4
    dim = 0.2 * part * five
    bright = 0.1 * (1 - part) ** 2 * np.cbrt(five)
    return dim + bright


def cone_responses(xyz: np.ndarray) -> np.ndarray:
    """Return what three kinds of cones answer to light, once they are adapted to white."""
    degree = 1 - np.exp((-LUMINANCE - 42) / 92) / 3.6
    white = TO_ADAPTED @ WHITE
    gains = degree * 100 / white + 1 - degree
    adapted = gains * (TO_ADAPTED @ xyz)
    cones = TO_CONES @ np.linalg.solve(TO_ADAPTED, adapted)
    compressed = (adaptation() * cones.clip(0) / 100) ** 0.42
    return 400 * compressed / (compressed + 27.13) + 0.1
