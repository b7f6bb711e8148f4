"""Elements of landscapes: sky, trees, a house."""

from __future__ import annotations

import numpy as np

from nearsight.experiments.museum.art.canvas import Canvas
from nearsight.experiments.museum.art.colours import Colour, mix, shade, vary


def sky(c: Canvas, horizon: float) -> None:
    """Draw a sky down to the horizon: light, clouds, sun or moon."""
    top, bottom = c.palette.tone(c.uniform(0.5, 0.9)), c.palette.tone(c.uniform(0.75, 1.0))
    c.gradient(top, bottom, 0, horizon)
    if c.chance(0.6):
        light = c.palette.tone(1.0)
        c.circle((c.uniform(0.1, 0.9), c.uniform(0.1, horizon * 0.9)), c.uniform(0.03, 0.1), light)
    for _ in range(c.count(0, 6)):
        x, y, radius = c.uniform(0, 1), c.uniform(0.05, horizon * 0.7), c.uniform(0.02, 0.07)
        colour = vary(mix(bottom, c.palette.tone(1.0), 0.5), c.rng, 8)
        for _ in range(c.count(4, 9)):
            centre = (x + c.rng.normal(0, radius * 1.4), y + c.rng.normal(0, radius * 0.35))
            c.ellipse(centre, (radius * c.uniform(0.6, 1.5), radius * c.uniform(0.3, 0.7)), colour)
    c.mottle(c.uniform(8, 26), c.count(3, 9), 0, horizon)


def tree(c: Canvas, x: float, ground: float, height: float, colour: Colour) -> None:
    """Draw a broad-leaved tree or a conifer whose foot is at (x, ground)."""
    trunk = shade(c.palette.tone(0.1), 0.8)
    c.line([(x, ground), (x + c.uniform(-0.01, 0.01), ground - height * 0.6)], trunk, height * 0.05)
    if c.chance(0.3):  # a conifer
        for step in range(4):
            y, half = ground - height * (0.2 + 0.2 * step), height * 0.22 * (1 - step * 0.2) / c.aspect
            c.polygon([(x - half, y), (x, y - height * 0.35), (x + half, y)], shade(colour, 0.8 + step * 0.1))
        return
    for _ in range(c.count(8, 16)):
        centre = (
            x + c.rng.normal(0, height * 0.15) / c.aspect,
            ground - height * 0.7 + c.rng.normal(0, height * 0.14),
        )
        c.polygon(c.blob(centre, height * c.uniform(0.08, 0.17), 0.25, 14), vary(colour, c.rng, 16))


def house(c: Canvas, x: float, y: float, size: float) -> None:
    """Draw a house with a gable, windows and a chimney; (x, y) is its lower left corner."""
    width, height = size * c.uniform(0.8, 1.6), size * c.uniform(0.6, 1.0)
    wall, roof = vary(c.palette.tone(0.85), c.rng, 10), c.palette.any(c.rng)
    c.polygon([(x, y), (x, y - height), (x + width, y - height), (x + width, y)], wall)
    peak = (x + width * c.uniform(0.3, 0.7), y - height * c.uniform(1.5, 2.0))
    c.polygon([(x - 0.01, y - height), peak, (x + width + 0.01, y - height)], shade(roof, 0.7))
    for place in np.linspace(0.15, 0.75, c.count(1, 3)):
        left, low = x + width * place, y - height * 0.35
        right, high = left + width * 0.12, low - height * 0.3
        c.polygon([(left, low), (left, high), (right, high), (right, low)], c.palette.tone(0.1))
