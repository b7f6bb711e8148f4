"""Palettes: the few colours that belong together in one picture.

Colours are blue, green, red in [0, 255], OpenCV's order.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

Colour = tuple[float, float, float]

_LUMINANCE = np.array([0.114, 0.587, 0.299], dtype=np.float32)

# Hue offsets in degrees from the base hue, range of saturation, range of value.
_HARMONIES: tuple[tuple[str, tuple[float, ...], tuple[float, float], tuple[float, float]], ...] = (
    ("analogous", (0, 18, 36, -20), (0.35, 0.85), (0.12, 0.97)),
    ("complementary", (0, 12, 180, 196), (0.35, 0.9), (0.15, 0.98)),
    ("triad", (0, 120, 240), (0.45, 0.95), (0.15, 0.97)),
    ("split", (0, 150, 210, 20), (0.3, 0.8), (0.15, 0.95)),
    ("muted", (0, 40, 170, 200), (0.08, 0.35), (0.12, 0.93)),
    ("night", (0, 25, 180), (0.35, 0.9), (0.04, 0.75)),
    ("pale", (0, 60, 180, 240), (0.1, 0.4), (0.45, 1.0)),
    ("vivid", (0, 72, 144, 216, 288), (0.7, 1.0), (0.25, 1.0)),
)


@dataclass(frozen=True, slots=True, eq=False)
class Palette:
    """Colours of one picture, from dark to light.

    Attributes
    ----------
    colours : ndarray, (N, 3) float32
        Blue, green, red in [0, 255].
    """

    colours: NDArray[np.float32]

    def tone(self, lightness: float) -> Colour:
        """The colour at ``lightness`` in [0, 1] between the darkest and the lightest, interpolated."""
        position = float(np.clip(lightness, 0, 1)) * (len(self.colours) - 1)
        low = min(int(position), len(self.colours) - 2)
        return mix(_triple(self.colours[low]), _triple(self.colours[low + 1]), position - low)

    def any(self, rng: np.random.Generator) -> Colour:
        """One of the colours, slightly varied."""
        return vary(_triple(self.colours[int(rng.integers(len(self.colours)))]), rng, 10)

    def ramp(self, steps: int = 256) -> NDArray[np.uint8]:
        """Colours by lightness, (steps, 3): a lookup table for grey images."""
        positions = np.linspace(0, len(self.colours) - 1, steps)
        knots = np.arange(len(self.colours))
        ramp = [np.interp(positions, knots, self.colours[:, channel]) for channel in range(3)]
        return np.stack(ramp, axis=1).round().astype(np.uint8)


def draw_palette(rng: np.random.Generator, size: int = 7) -> Palette:
    """A palette in one of several harmonies."""
    _, offsets, saturation, value = _HARMONIES[int(rng.integers(len(_HARMONIES)))]
    hues = (rng.uniform(0, 360) + rng.choice(offsets, size) + rng.normal(0, 6, size)) % 360
    values = np.linspace(*value, size) + rng.normal(0, 0.02, size)
    hsv = np.stack([hues, rng.uniform(*saturation, size), np.clip(values, 0, 1)], axis=1)
    bgr = cv2.cvtColor(hsv.astype(np.float32)[None], cv2.COLOR_HSV2BGR)[0] * 255
    return Palette(bgr[np.argsort(bgr @ _LUMINANCE)].astype(np.float32))


def fixed_palette(*colours: str) -> Palette:
    """A palette of given colours, written ``rrggbb``."""
    bgr = np.array([[int(text[i : i + 2], 16) for i in (4, 2, 0)] for text in colours], dtype=np.float32)
    return Palette(bgr[np.argsort(bgr @ _LUMINANCE)])


def mix(first: Colour, second: Colour, share: float) -> Colour:
    """``share`` of the second colour in the first."""
    b, g, r = (a + (b - a) * share for a, b in zip(first, second, strict=True))
    return b, g, r


def vary(colour: Colour, rng: np.random.Generator, spread: float) -> Colour:
    """The colour, a little lighter, darker or shifted: standard deviation ``spread``."""
    shift = rng.normal(0, spread) + rng.normal(0, spread / 2, 3)
    b, g, r = np.clip(np.asarray(colour) + shift, 0, 255)
    return float(b), float(g), float(r)


def shade(colour: Colour, factor: float) -> Colour:
    """The colour in another light: below 1 darker, above 1 lighter."""
    b, g, r = (min(255.0, channel * factor) for channel in colour)
    return b, g, r


def _triple(colour: NDArray[np.float32]) -> Colour:
    return float(colour[0]), float(colour[1]), float(colour[2])
