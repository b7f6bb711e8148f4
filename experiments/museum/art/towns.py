"""Towns: skylines of high houses, villages on a slope."""

from __future__ import annotations

import numpy as np

from nearsight.experiments.museum.art.canvas import Canvas
from nearsight.experiments.museum.art.colours import Colour, shade, vary
from nearsight.experiments.museum.art.sky import house, sky, tree


def city(c: Canvas) -> None:
    """A skyline of houses with lit windows, by day or at night."""
    sky(c, 0.9)
    layers = c.count(2, 4)
    for layer in range(layers):
        depth = (layer + 1) / layers
        x = -0.05
        while x < 1:
            width = c.uniform(0.05, 0.15)
            top = c.uniform(0.12, 0.6) + 0.2 * depth
            wall = vary(c.palette.tone(0.6 - 0.5 * depth), c.rng, 12)
            c.box(x, top, x + width, 1.02, wall)
            _roof(c, x, top, width, wall)
            _windows(c, (x, top, x + width, 1.0), wall)
            x += width + c.uniform(-0.02, 0.03)
    if c.chance(0.5):
        c.below(c.ridge(c.uniform(0.88, 0.95), 0.005, 3), c.palette.tone(0.1))


def _roof(c: Canvas, x: float, top: float, width: float, wall: Colour) -> None:
    kind = c.count(0, 4)
    if kind == 0:
        c.polygon(
            [(x, top), (x + width / 2, top - c.uniform(0.03, 0.12)), (x + width, top)], shade(wall, 0.7)
        )
    elif kind == 1:
        c.ellipse(
            (x + width / 2, top), (width / 2 * c.width / c.unit, 0.06), shade(wall, 1.2), arc=(180, 360)
        )
    elif kind == 2:
        c.line([(x + width / 2, top), (x + width / 2, top - c.uniform(0.05, 0.15))], wall, 0.006)


def _windows(c: Canvas, box: tuple[float, float, float, float], wall: Colour) -> None:
    left, top, right, bottom = box
    columns, rows = c.count(2, 5), c.count(5, 14)
    lit = c.palette.tone(0.97)
    step_x, step_y = (right - left) / columns, (bottom - top) / rows
    glass = c.uniform(0.35, 0.65)
    for row in range(rows):
        for column in range(columns):
            colour = lit if c.chance(0.4) else shade(wall, 0.55)
            x, y = left + (column + 0.25) * step_x, top + (row + 0.25) * step_y
            c.box(x, y, x + step_x * 0.5, y + step_y * glass, colour)


def village(c: Canvas) -> None:
    """Rows of houses on a slope, with a tower above them."""
    sky(c, 0.5)
    c.below(c.ridge(0.45, 0.05, 3), c.palette.tone(0.45))
    tower_x = c.uniform(0.2, 0.7)
    _tower(c, tower_x, c.uniform(0.5, 0.6), c.uniform(0.3, 0.45))
    for row in np.linspace(0.5, 1.02, c.count(4, 7)):
        size = 0.05 + 0.11 * row
        x = c.uniform(-0.1, 0)
        while x < 1:
            house(c, x, row + c.rng.normal(0, 0.015), size * c.uniform(0.8, 1.2))
            x += size * c.uniform(0.9, 1.9)
        for _ in range(c.count(0, 4)):
            tree(c, c.uniform(0, 1), row + 0.02, size * 1.3, vary(c.palette.tone(0.3), c.rng, 12))


def _tower(c: Canvas, x: float, y: float, height: float) -> None:
    width = height * c.uniform(0.15, 0.28)
    wall, edge = c.palette.tone(0.8), x + width * 0.3
    c.polygon([(x, y), (x, y - height), (x + width, y - height), (x + width, y)], wall)
    c.polygon([(x, y), (x, y - height), (edge, y - height), (edge, y)], shade(wall, 0.8))
    c.polygon(
        [(x - 0.01, y - height), (x + width / 2, y - height * 1.5), (x + width + 0.01, y - height)],
        c.palette.tone(0.2),
    )
    c.ellipse((x + width / 2, y - height * 0.75), (width * 0.2, width * 0.2), c.palette.tone(0.1))
