"""An invented script, paper and ink."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsight.experiments.museum.art.canvas import Canvas
from nearsight.experiments.museum.art.colours import Colour, fixed_palette
from nearsight.experiments.museum.art.textures import grain

_PAPERS = ("efe3c6", "e6d5ad", "f4ecd8", "d9c79c", "e9e2d2", "f1e9dc")
_INKS = ("1d1712", "3b2413", "22283a", "4a1a12", "14201c")


def lay_paper(c: Canvas) -> None:
    """Cover the canvas with old paper."""
    c.image[:] = fixed_palette(*_PAPERS).any(c.rng)
    grain(c.rng, c.image, c.uniform(9, 20))


def mix_ink(c: Canvas) -> Colour:
    """A random ink, mostly brown or black."""
    return fixed_palette(*_INKS).any(c.rng)


def alphabet(rng: np.random.Generator, letters: int = 22) -> list[list[NDArray[np.float64]]]:
    """Invented letters: each has 1 to 3 strokes, (N, 2) in the unit square."""
    curved = rng.random() < 0.5
    result = []
    for _ in range(letters):
        strokes = []
        for _ in range(int(rng.integers(1, 4))):
            knots = rng.integers(0, 4, (int(rng.integers(2, 4)), 2)) / 3.0
            if curved and len(knots) == 3:
                t = np.linspace(0, 1, 6)[:, None]
                knots = knots[0] * (1 - t) ** 2 + 2 * knots[1] * t * (1 - t) + knots[2] * t**2
            strokes.append(knots)
        result.append(strokes)
    return result


def write_line(
    c: Canvas,
    letters: list[list[NDArray[np.float64]]],
    box: tuple[float, float, float],
    size: float,
    ink: Colour,
    width: float,
) -> None:
    """Fill a line from left to right with words in an invented script; ``box`` is left, right, baseline."""
    left, right, baseline = box
    step = size * 0.7 * c.unit / c.width
    strokes, x = [], left
    while x < right - step:
        for _ in range(min(c.count(2, 9), int((right - x) / step))):
            wobble = c.rng.normal(0, 0.03, 2)
            for stroke in letters[c.count(0, len(letters) - 1)]:
                points = (stroke + wobble) * (step * 0.8, -size * c.unit / c.height) + (x, baseline)
                strokes.append(c.pixels(points))
            x += step
        x += step * 0.7
    cv2.polylines(c.image, strokes, False, ink, c.thickness(width), cv2.LINE_AA, 4)
