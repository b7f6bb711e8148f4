"""A canvas with relative coordinates: (0, 0) top left, (1, 1) bottom right; lengths by the shorter side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsight.experiments.museum.art.colours import Colour, Palette
from nearsight.experiments.museum.art.textures import noise

_SHIFT = 4  # OpenCV draws in 1/16 px
Points = Sequence[tuple[float, float] | NDArray[np.float64]] | NDArray[np.float64]
"""x, y pairs."""


@dataclass(slots=True, eq=False)
class Canvas:
    """What a subject is drawn on."""

    image: NDArray[np.uint8]
    """(H, W, 3) uint8: blue, green, red."""
    rng: np.random.Generator
    """All randomness of the picture."""
    palette: Palette
    """Its colours."""

    @property
    def height(self) -> int:
        """Pixels from top to bottom."""
        return int(self.image.shape[0])

    @property
    def width(self) -> int:
        """Pixels from left to right."""
        return int(self.image.shape[1])

    @property
    def unit(self) -> int:
        """Pixels of the shorter side: what lengths are relative to."""
        return min(self.height, self.width)

    @property
    def aspect(self) -> float:
        """Width by height."""
        return self.width / self.height

    def uniform(self, low: float, high: float) -> float:
        """A random number."""
        return float(self.rng.uniform(low, high))

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return bool(self.rng.random() < probability)

    def count(self, low: int, high: int) -> int:
        """A random whole number, both ends included."""
        return int(self.rng.integers(low, high + 1))

    def pixels(self, points: Points) -> NDArray[np.int32]:
        """Relative points as fixed-point pixels."""
        scaled = np.asarray(points, dtype=np.float64) * (self.width, self.height) * (1 << _SHIFT)
        return np.asarray(scaled.round(), dtype=np.int32)

    def thickness(self, width: float) -> int:
        """Pixels of a relative line width, at least 1."""
        return max(1, round(width * self.unit))

    def polygon(self, points: Points, colour: Colour) -> None:
        """A filled polygon."""
        cv2.fillPoly(self.image, [self.pixels(points)], colour, cv2.LINE_AA, _SHIFT)

    def box(self, left: float, top: float, right: float, low: float, colour: Colour) -> None:
        """A filled rectangle."""
        self.polygon(corners(left, top, right, low), colour)

    def tapered(
        self,
        x: float,
        first: tuple[float, float],
        second: tuple[float, float],
        colour: Colour,
        lean: float = 0.0,
    ) -> None:
        """A filled shape between two heights, (y, half its width there) each; ``lean`` shifts the second."""
        (y, half), (end, half_end) = first, second
        self.polygon(
            [(x - half, y), (x + half, y), (x + lean + half_end, end), (x + lean - half_end, end)], colour
        )

    def line(self, points: Points, colour: Colour, width: float = 0.004, *, closed: bool = False) -> None:
        """Lines from point to point."""
        pixels = self.pixels(points)
        cv2.polylines(self.image, [pixels], closed, colour, self.thickness(width), cv2.LINE_AA, _SHIFT)

    def circle(self, centre: tuple[float, float], radius: float, colour: Colour, width: float = 0.0) -> None:
        """A disc, or a ring of the given line width."""
        self.ellipse(centre, (radius, radius), colour, width=width)

    def ellipse(
        self,
        centre: tuple[float, float],
        radii: tuple[float, float],
        colour: Colour,
        *,
        angle: float = 0.0,
        width: float = 0.0,
        arc: tuple[float, float] = (0.0, 360.0),
    ) -> None:
        """An ellipse whose radii are relative to the shorter side; filled unless a line width is given."""
        x, y = (int(value) for value in self.pixels([centre])[0])
        axes = tuple(max(1, round(radius * self.unit * (1 << _SHIFT))) for radius in radii)
        thickness = self.thickness(width) if width else -1
        cv2.ellipse(self.image, (x, y), axes, angle, *arc, colour, thickness, cv2.LINE_AA, _SHIFT)

    def gradient(self, top: Colour, bottom: Colour, y0: float = 0.0, y1: float = 1.0) -> None:
        """A vertical run of colour between two heights."""
        first, last = (round(np.clip(y, 0, 1) * self.height) for y in (y0, y1))
        if last > first:
            share = np.linspace(0, 1, last - first)[:, None]
            self.image[first:last] = (np.asarray(top) * (1 - share) + np.asarray(bottom) * share)[:, None]

    def mottle(self, strength: float, cells: int = 6, y0: float = 0.0, y1: float = 1.0) -> None:
        """Uneven light and dark between two heights, as hand-laid paint has."""
        first, last = (round(np.clip(y, 0, 1) * self.height) for y in (y0, y1))
        if last <= first:
            return
        part = self.image[first:last]
        field = (noise(self.rng, part.shape[:2], cells) - 0.5) * (2 * strength)
        part[:] = np.clip(part + field[:, :, None], 0, 255)

    def blob(
        self, centre: tuple[float, float], radius: float, roughness: float = 0.15, corners: int = 24
    ) -> NDArray[np.float64]:
        """Outline of an irregular round shape, (corners, 2)."""
        angles = np.linspace(0, 2 * np.pi, corners, endpoint=False)
        wobble = self.rng.normal(0, roughness, corners)
        wobble = (wobble + np.roll(wobble, 1) + np.roll(wobble, -1)) / 2
        radii = radius * self.unit * np.clip(1 + wobble, 0.2, 2)
        return np.stack(
            [
                centre[0] + radii * np.cos(angles) / self.width,
                centre[1] + radii * np.sin(angles) / self.height,
            ],
            axis=1,
        )

    def ridge(self, level: float, roughness: float, knots: int) -> NDArray[np.float64]:
        """A rough horizontal outline, (P, 2), from left to right around the height ``level``."""
        x = np.linspace(-0.02, 1.02, 64)
        y = np.full(64, level)
        amplitude = roughness
        for octave in range(4):
            places = np.linspace(-0.02, 1.02, knots * 2**octave + 1)
            y += np.interp(x, places, self.rng.normal(0, amplitude, len(places)))
            amplitude /= 2.2
        return np.stack([x, y], axis=1)

    def shifted(self, outline: NDArray[np.float64], dx: float, dy: float) -> NDArray[np.float64]:
        """The outline moved."""
        moved: NDArray[np.float64] = outline + np.array([dx, dy])
        return moved

    def below(self, outline: NDArray[np.float64], colour: Colour) -> None:
        """Fill everything below an outline."""
        self.polygon(np.concatenate([outline, [[1.02, 1.02], [-0.02, 1.02]]]), colour)


def corners(left: float, top: float, right: float, low: float) -> list[tuple[float, float]]:
    """Of a rectangle, in their order around it."""
    return [(left, top), (right, top), (right, low), (left, low)]
