"""Subjects on a table: still life and flowers."""

from __future__ import annotations

import numpy as np

from nearsight.experiments.museum.art.canvas import Canvas
from nearsight.experiments.museum.art.colours import Colour, shade, vary


def still_life(c: Canvas) -> None:
    """Fruit, bottles, bowls and a cloth on a table."""
    edge = c.uniform(0.55, 0.7)
    c.gradient(c.palette.tone(c.uniform(0.05, 0.8)), c.palette.tone(c.uniform(0.1, 0.6)))
    c.mottle(c.uniform(12, 30), c.count(2, 5))
    table = c.palette.any(c.rng)
    c.gradient(table, shade(table, 0.6), edge, 1)
    if c.chance(0.6):
        _cloth(c, edge)
    for _ in range(c.count(1, 3)):
        vessel(c, c.uniform(0.15, 0.85), edge + c.uniform(0.02, 0.12), c.uniform(0.25, 0.45))
    if c.chance(0.6):
        _bowl(c, c.uniform(0.3, 0.7), edge + c.uniform(0.12, 0.2), c.uniform(0.16, 0.24))
    for _ in range(c.count(3, 9)):
        fruit(c, c.uniform(0.08, 0.92), edge + c.uniform(0.06, 0.3), c.uniform(0.04, 0.085))


def _cloth(c: Canvas, edge: float) -> None:
    left, right = c.uniform(-0.05, 0.4), c.uniform(0.6, 1.05)
    cloth = vary(c.palette.tone(0.92), c.rng, 10)
    x = np.linspace(left, right, 16)
    hem = 0.85 + 0.05 * np.sin(np.arange(16) * c.uniform(0.7, 2)) + c.rng.normal(0, 0.015, 16)
    c.polygon(
        np.concatenate([[[left, edge + 0.03], [right, edge + 0.03]], np.stack([x, hem], 1)[::-1]]), cloth
    )
    for place in range(1, 15):
        c.line(
            [(x[place], hem[place]), (x[place] + c.rng.normal(0, 0.03), edge + 0.05)],
            shade(cloth, c.uniform(0.7, 0.95)),
            c.uniform(0.004, 0.02),
        )
    if c.chance(0.5):
        for row in range(1, 4):
            c.line(np.stack([x, edge + (hem - edge) * (row / 4 + 0.1)], 1), c.palette.any(c.rng), 0.006)


def vessel(c: Canvas, x: float, y: float, height: float) -> None:
    """Draw a bottle, jug or vase whose foot is at (x, y)."""
    glass = c.palette.any(c.rng)
    unit = height * c.unit / c.width
    levels = np.linspace(0, 1, 9)
    radii = np.array([0.2, 0.24, 0.26, 0.25, 0.2, 0.1, 0.08, 0.08, 0.1]) * c.rng.uniform(0.75, 1.3, 9)
    left, right = (
        np.stack([x - unit * radii, y - height * levels], 1),
        np.stack([x + unit * radii, y - height * levels], 1),
    )
    c.ellipse((x + unit * 0.3, y + 0.01), (height * 0.45, height * 0.08), shade(glass, 0.3))
    c.polygon(np.concatenate([left, right[::-1]]), glass)
    c.polygon(np.concatenate([right - (unit * 0.12, 0), right[::-1]]), shade(glass, 0.65))
    c.line(c.shifted(left[1:6], unit * 0.08, 0), shade(glass, 1.7), 0.012)
    c.ellipse((x, y - height), (height * float(radii[-1]), height * 0.03), shade(glass, 0.4))
    for level in c.rng.uniform(0.1, 0.6, c.count(0, 4)):
        half = unit * float(np.interp(level, levels, radii))
        c.line([(x - half, y - height * level), (x + half, y - height * level)], c.palette.any(c.rng), 0.01)


def _bowl(c: Canvas, x: float, y: float, size: float) -> None:
    clay = c.palette.any(c.rng)
    for _ in range(c.count(3, 7)):
        fruit(
            c, x + c.uniform(-0.6, 0.6) * size * c.unit / c.width, y - size * c.uniform(0.3, 0.7), size * 0.3
        )
    c.ellipse((x, y - size * 0.3), (size, size * 0.75), clay, arc=(0, 180))
    c.ellipse((x, y - size * 0.3), (size, size * 0.12), shade(clay, 1.3), arc=(0, 180), width=0.012)
    for place in np.linspace(-0.7, 0.7, c.count(3, 8)):
        c.circle((x + place * size * c.unit / c.width, y - size * 0.05), size * 0.05, c.palette.any(c.rng))


def fruit(c: Canvas, x: float, y: float, radius: float) -> None:
    """Draw an apple, a lemon or a bunch of grapes at (x, y)."""
    skin = c.palette.any(c.rng)
    unit = radius * c.unit / c.width
    c.ellipse((x + unit * 0.4, y + radius * 0.85), (radius * 1.1, radius * 0.3), shade(skin, 0.25))
    if c.chance(0.25):
        for _ in range(c.count(9, 16)):
            spot = (x + c.rng.normal(0, unit * 0.55), y + c.rng.normal(0, radius * 0.45))
            c.circle(spot, radius * 0.32, vary(skin, c.rng, 12))
            c.circle((spot[0] - unit * 0.1, spot[1] - radius * 0.1), radius * 0.08, shade(skin, 2))
        return
    stretch = c.uniform(0.8, 1.25)
    for step, light in enumerate((0.6, 0.85, 1.0, 1.2)):
        shift = step * 0.09
        c.ellipse(
            (x - unit * shift, y - radius * shift),
            (radius * (1 - 0.22 * step), radius * stretch * (1 - 0.22 * step)),
            shade(skin, light),
            angle=c.uniform(-12, 12),
        )
    c.circle((x - unit * 0.4, y - radius * 0.45), radius * 0.12, shade(skin, 2.2))
    c.line(
        [(x, y - radius * stretch * 0.8), (x + c.uniform(-0.3, 0.3) * unit, y - radius * stretch * 1.3)],
        c.palette.tone(0.1),
        0.008,
    )


def flowers(c: Canvas) -> None:
    """A bunch of flowers in a vase."""
    c.gradient(c.palette.tone(c.uniform(0, 0.95)), c.palette.tone(c.uniform(0, 0.7)))
    c.mottle(c.uniform(10, 28), c.count(2, 6))
    c.below(c.ridge(c.uniform(0.8, 0.88), 0.004, 2), c.palette.any(c.rng))
    x, y = c.uniform(0.42, 0.58), c.uniform(0.88, 0.95)
    height = c.uniform(0.3, 0.4)
    spread = c.uniform(0.14, 0.24)
    heads = [(x + c.rng.normal(0, spread), c.uniform(0.12, 0.55)) for _ in range(c.count(6, 20))]
    stem = vary(c.palette.tone(0.35), c.rng, 14)
    for head in heads:
        middle = ((x + head[0]) / 2 + c.rng.normal(0, 0.03), (y - height + head[1]) / 2)
        c.line([(x, y - height * 0.8), middle, head], vary(stem, c.rng, 10), 0.008)
        for _ in range(c.count(0, 3)):
            leaf(c, middle, c.uniform(0.04, 0.09), c.uniform(0, 360), vary(stem, c.rng, 18))
    vessel(c, x, y, height)
    for head in heads:
        blossom(c, head, c.uniform(0.035, 0.085), c.palette.any(c.rng))


def leaf(c: Canvas, place: tuple[float, float], size: float, angle: float, colour: Colour) -> None:
    """Draw a pointed leaf with a midrib; ``angle`` in degrees."""
    t = np.linspace(0, 1, 10)
    half = 0.28 * np.sin(np.pi * t) * (1 - 0.4 * t)
    outline = np.concatenate([np.stack([t, half], 1), np.stack([t, -half], 1)[::-1]]) * size * c.unit
    turn = np.radians(angle)
    rotation = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    points = outline @ rotation / (c.width, c.height) + place
    c.polygon(points, colour)
    c.line([place, tuple(points[9])], shade(colour, 0.65), 0.003)


def blossom(c: Canvas, place: tuple[float, float], size: float, colour: Colour) -> None:
    """Draw a flower seen from the front: rings of petals around a centre."""
    petals, turn = c.count(5, 13), c.uniform(0, 360)
    for ring in range(c.count(1, 3)):
        reach = size * (1 - 0.3 * ring)
        for petal in range(petals):
            angle = turn + 20 * ring + 360 * petal / petals
            dx, dy = np.cos(np.radians(angle)) * reach * 0.6, np.sin(np.radians(angle)) * reach * 0.6
            centre = (place[0] + dx * c.unit / c.width, place[1] + dy * c.unit / c.height)
            c.ellipse(
                centre,
                (reach * 0.55, reach * 2.2 / petals),
                vary(shade(colour, 1 + 0.15 * ring), c.rng, 12),
                angle=angle,
            )
    c.circle(place, size * 0.22, c.palette.any(c.rng))
