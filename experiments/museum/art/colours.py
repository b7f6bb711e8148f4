"""Palettes: the colours of one picture, and operations on colours.

Colours are blue, green, red in [0, 255], the order of OpenCV.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

Colour = tuple[float, float, float]

_LUMINANCE = np.array([0.114, 0.587, 0.299], dtype=np.float32)

# Palettes of schools of painting, each from dark to light, as rrggbb.
_SCHOOLS = (
    "1a120b 3c2415 6b3e1d a0622d c99a4b e8d09a",  # umber and ochre
    "0d1b2a 1b3a4b 3f6c7a 84a59d d9c7a0 f4ead5",  # northern sea
    "22223b 4a4e69 9a8c98 c9ada7 e6d5c3 f2e9e4",  # dusk
    "1f2f16 3e5622 7a8b3a b5a642 d98e32 f0e0b0",  # late summer
    "2b0f0e 6e1f1a a63d2f d9774b e9b872 f5e6c8",  # vermilion
    "0b132b 1c2541 3a506b 5bc0be c9e4de f7f3e3",  # aquamarine
    "14213d 2f4858 d1495b edae49 e9d8a6 f8f4e3",  # festival
    "2d1e2f 5c374c 985277 ce6a85 f0b7a4 fbe9d7",  # roses
    "10251f 1f4d3a 4f7d5c 9cb380 d8d4a0 f3efda",  # woodland
    "191716 440d0f 84732b af9b46 e6e1c6 f4f1e4",  # brocade
    "20131b 4b2840 31708e 5085a5 8fc1e3 f7f9fb",  # cobalt
    "261c15 5b3a29 b08968 ddb892 ede0d4 f8f3ec",  # parchment
    "0f1c2e 27476e 6d8ea0 c7b299 e4cfa1 f6eddc",  # harbour
    "1c1a27 3d3a5c 7d5a7e c58c85 ecb390 fcf0dd",  # evening
    "1e2119 46503a 7c7f65 a9a283 cfc6a5 eee6d0",  # olive grove
    "240a0a 7c1f17 c6401f e98a15 f3c969 fbf0cf",  # fire
    "0a2239 176087 1d84b5 53a2be e5c687 f5efe0",  # lagoon
    "1d2021 3c4a4f 6f8283 a7b1ac d4d6cd f2f1eb",  # fog
    "28190e 593d1c 3e6259 5b8e7d bfd7b5 f4f1de",  # marsh
    "181425 3a2a55 6f4a8e b07bac e7c6d8 faf3ee",  # violets
    "1b1b1e 373f51 58a4b0 a9bcd0 daa49a f1e3d8",  # winter light
    "2a1a0c 7a4419 d4a017 e8c547 5c8001 f4f0d9",  # sunflowers
    "13202d 3b5249 519872 a4b494 d9b08c f6ebd9",  # garden wall
    "300a24 5e1742 962e40 c9463d ff9f1c fde8c9",  # carnival
)

# Hue offsets in degrees from the base hue, range of saturation, range of value.
_HARMONIES: tuple[tuple[tuple[float, ...], tuple[float, float], tuple[float, float]], ...] = (
    ((0, 18, 36, -20), (0.25, 0.65), (0.12, 0.95)),
    ((0, 12, 180, 196), (0.25, 0.7), (0.15, 0.96)),
    ((0, 120, 240), (0.3, 0.75), (0.15, 0.95)),
    ((0, 150, 210, 20), (0.2, 0.65), (0.15, 0.94)),
    ((0, 40, 170, 200), (0.06, 0.3), (0.12, 0.93)),
    ((0, 25, 180), (0.25, 0.7), (0.05, 0.72)),
    ((0, 60, 180, 240), (0.08, 0.35), (0.4, 0.98)),
    ((0, 72, 144, 216, 288), (0.55, 0.9), (0.25, 0.98)),
)
_SCHOOL_SHARE = 0.6


@dataclass(frozen=True, slots=True, eq=False)
class Palette:
    """Colours of one picture, from dark to light."""

    colours: NDArray[np.float32]
    """(N, 3) float32: blue, green, red in [0, 255]."""

    def tone(self, lightness: float) -> Colour:
        """The colour at ``lightness``: 0 is the darkest, 1 the lightest, interpolated between neighbours."""
        position = float(np.clip(lightness, 0, 1)) * (len(self.colours) - 1)
        low = min(int(position), len(self.colours) - 2)
        return mix(_triple(self.colours[low]), _triple(self.colours[low + 1]), position - low)

    def any(self, rng: np.random.Generator) -> Colour:
        """One of the colours, slightly varied."""
        return vary(_triple(self.colours[int(rng.integers(len(self.colours)))]), rng, 10)

    def ramp(self, steps: int = 256) -> NDArray[np.uint8]:
        """Colours by lightness, (steps, 3) uint8: a lookup table for grey images."""
        positions = np.linspace(0, len(self.colours) - 1, steps)
        knots = np.arange(len(self.colours))
        ramp = [np.interp(positions, knots, self.colours[:, channel]) for channel in range(3)]
        return np.stack(ramp, axis=1).round().astype(np.uint8)


def draw_palette(rng: np.random.Generator, size: int = 7) -> Palette:
    """A random palette: of a school of painting, or of hues in a colour harmony."""
    if rng.random() < _SCHOOL_SHARE:
        school = fixed_palette(*_SCHOOLS[int(rng.integers(len(_SCHOOLS)))].split())
        return _sorted(np.clip(school.colours + rng.normal(0, 9, school.colours.shape), 0, 255))
    offsets, saturation, value = _HARMONIES[int(rng.integers(len(_HARMONIES)))]
    hues = (rng.uniform(0, 360) + rng.choice(offsets, size) + rng.normal(0, 6, size)) % 360
    values = np.linspace(*value, size) + rng.normal(0, 0.02, size)
    hsv = np.stack([hues, rng.uniform(*saturation, size), np.clip(values, 0, 1)], axis=1)
    return _sorted(cv2.cvtColor(hsv.astype(np.float32)[None], cv2.COLOR_HSV2BGR)[0] * 255)


def _sorted(colours: ArrayLike) -> Palette:
    bgr = np.asarray(colours, dtype=np.float32)
    return Palette(bgr[np.argsort(bgr @ _LUMINANCE, kind="stable")])


def fixed_palette(*colours: str) -> Palette:
    """A palette of the given colours, each written ``rrggbb``."""
    return _sorted([[int(text[i : i + 2], 16) for i in (4, 2, 0)] for text in colours])


def mix(first: Colour, second: Colour, share: float) -> Colour:
    """Mix two colours; ``share`` in [0, 1] is the share of the second."""
    b, g, r = (a + (b - a) * share for a, b in zip(first, second, strict=True))
    return b, g, r


def vary(colour: Colour, rng: np.random.Generator, spread: float) -> Colour:
    """Vary a colour at random in brightness and hue: standard deviation ``spread`` [grey levels]."""
    shift = rng.normal(0, spread) + rng.normal(0, spread / 2, 3)
    b, g, r = np.clip(np.asarray(colour) + shift, 0, 255)
    return float(b), float(g), float(r)


def shade(colour: Colour, factor: float) -> Colour:
    """Multiply a colour by ``factor``: below 1 darker, above 1 lighter."""
    b, g, r = (min(255.0, channel * factor) for channel in colour)
    return b, g, r


def _triple(colour: NDArray[np.float32]) -> Colour:
    return float(colour[0]), float(colour[1]), float(colour[2])
