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
"""Pairs of x and y."""


@dataclass(slots=True, eq=False)
class Canvas:
    """The image of one exhibit while it is drawn, with its random stream and palette."""

    image: NDArray[np.uint8]
    """(H, W, 3) uint8: blue, green, red."""
    rng: np.random.Generator
    """Source of all randomness of the picture."""
    palette: Palette
    """Colours of the picture."""

    @property
    def height(self) -> int:
        """Height in pixels."""
        return int(self.image.shape[0])

    @property
    def width(self) -> int:
        """Width in pixels."""
        return int(self.image.shape[1])

    @property
    def unit(self) -> int:
        """Length of the shorter side in pixels; lengths are relative to it."""
        return min(self.height, self.width)

    @property
    def aspect(self) -> float:
        """Width divided by height."""
        return self.width / self.height

    def uniform(self, low: float, high: float) -> float:
        """Draw a number from the uniform distribution over [low, high)."""
        return float(self.rng.uniform(low, high))

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return bool(self.rng.random() < probability)

    def count(self, low: int, high: int) -> int:
        """Draw an integer from the uniform distribution over [low, high], both ends included."""
        return int(self.rng.integers(low, high + 1))

    def pixels(self, points: Points) -> NDArray[np.int32]:
        """Convert relative points to pixels in fixed point, (N, 2) int32."""
        scaled = np.asarray(points, dtype=np.float64) * (self.width, self.height) * (1 << _SHIFT)
        return np.asarray(scaled.round(), dtype=np.int32)

    def thickness(self, width: float) -> int:
        """Convert a relative line width to pixels, at least 1."""
        return max(1, round(width * self.unit))

    def polygon(self, points: Points, colour: Colour) -> None:
        """Draw a filled polygon."""
        cv2.fillPoly(self.image, [self.pixels(points)], colour, cv2.LINE_AA, _SHIFT)

    def box(self, left: float, top: float, right: float, low: float, colour: Colour) -> None:
        """Draw a filled rectangle."""
        self.polygon(corners(left, top, right, low), colour)

    def tapered(
        self,
        x: float,
        first: tuple[float, float],
        second: tuple[float, float],
        colour: Colour,
        lean: float = 0.0,
    ) -> None:
        """Draw a filled trapezium between two (y, half width); ``lean`` shifts the second horizontally."""
        (y, half), (end, half_end) = first, second
        self.polygon(
            [(x - half, y), (x + half, y), (x + lean + half_end, end), (x + lean - half_end, end)], colour
        )

    def line(self, points: Points, colour: Colour, width: float = 0.004, *, closed: bool = False) -> None:
        """Draw a line through the points."""
        pixels = self.pixels(points)
        cv2.polylines(self.image, [pixels], closed, colour, self.thickness(width), cv2.LINE_AA, _SHIFT)

    def circle(self, centre: tuple[float, float], radius: float, colour: Colour, width: float = 0.0) -> None:
        """Draw a disc, or a ring if a line width is given."""
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
        """Draw an ellipse with radii relative to the shorter side; filled unless a line width is given."""
        x, y = (int(value) for value in self.pixels([centre])[0])
        axes = tuple(max(1, round(radius * self.unit * (1 << _SHIFT))) for radius in radii)
        thickness = self.thickness(width) if width else -1
        cv2.ellipse(self.image, (x, y), axes, angle, *arc, colour, thickness, cv2.LINE_AA, _SHIFT)

    def gradient(self, top: Colour, bottom: Colour, y0: float = 0.0, y1: float = 1.0) -> None:
        """Fill the rows between two heights with a vertical colour gradient."""
        first, last = (round(np.clip(y, 0, 1) * self.height) for y in (y0, y1))
        if last > first:
            share = np.linspace(0, 1, last - first)[:, None]
            self.image[first:last] = (np.asarray(top) * (1 - share) + np.asarray(bottom) * share)[:, None]

    def mottle(self, strength: float, cells: int = 6, y0: float = 0.0, y1: float = 1.0) -> None:
        """Add smooth brightness noise of amplitude ``strength`` [grey levels] between two heights."""
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
        """Outline of a rough horizontal line around the height ``level``, from left to right, (P, 2)."""
        x = np.linspace(-0.02, 1.02, 64)
        y = np.full(64, level)
        amplitude = roughness
        for octave in range(4):
            places = np.linspace(-0.02, 1.02, knots * 2**octave + 1)
            y += np.interp(x, places, self.rng.normal(0, amplitude, len(places)))
            amplitude /= 2.2
        return np.stack([x, y], axis=1)

    def shifted(self, outline: NDArray[np.float64], dx: float, dy: float) -> NDArray[np.float64]:
        """The outline moved by (dx, dy)."""
        moved: NDArray[np.float64] = outline + np.array([dx, dy])
        return moved

    def below(self, outline: NDArray[np.float64], colour: Colour) -> None:
        """Fill the area below an outline."""
        self.polygon(np.concatenate([outline, [[1.02, 1.02], [-0.02, 1.02]]]), colour)


def corners(left: float, top: float, right: float, low: float) -> list[tuple[float, float]]:
    """Corners of a rectangle: top left, top right, bottom right, bottom left."""
    return [(left, top), (right, top), (right, low), (left, low)]
