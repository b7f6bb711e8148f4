"""Subjects indoors: still life, flowers, rooms, arcades."""

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
    """A bottle, jug or vase that stands at (x, y)."""
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
    """An apple, lemon or bunch of grapes at (x, y)."""
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
    """A pointed leaf with a midrib."""
    t = np.linspace(0, 1, 10)
    half = 0.28 * np.sin(np.pi * t) * (1 - 0.4 * t)
    outline = np.concatenate([np.stack([t, half], 1), np.stack([t, -half], 1)[::-1]]) * size * c.unit
    turn = np.radians(angle)
    rotation = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    points = outline @ rotation / (c.width, c.height) + place
    c.polygon(points, colour)
    c.line([place, tuple(points[9])], shade(colour, 0.65), 0.003)


def blossom(c: Canvas, place: tuple[float, float], size: float, colour: Colour) -> None:
    """A flower seen from the front: petals in rings around an eye."""
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


def room(c: Canvas) -> None:
    """A room in perspective: tiled floor, window, door, picture on the wall, someone's chair."""
    left, right, top, low = (
        c.uniform(0.15, 0.3),
        c.uniform(0.65, 0.85),
        c.uniform(0.12, 0.22),
        c.uniform(0.55, 0.68),
    )
    walls = [vary(c.palette.tone(light), c.rng, 8) for light in (0.8, 0.65, 0.9)]
    c.polygon([(-0.02, -0.02), (left, top), (left, low), (-0.02, 1.02)], walls[0])
    c.polygon([(1.02, -0.02), (right, top), (right, low), (1.02, 1.02)], walls[1])
    c.polygon([(left, top), (right, top), (right, low), (left, low)], walls[2])
    c.polygon([(-0.02, -0.02), (1.02, -0.02), (right, top), (left, top)], shade(walls[2], 0.85))
    _tiles(c, (left, right, low))
    c.mottle(8, 4)
    glow = c.palette.tone(1.0)
    for side, (near, far) in enumerate(((0.02, left), (0.98, right))):
        if c.chance(0.7):
            a, b = near + (far - near) * c.uniform(0.2, 0.3), near + (far - near) * c.uniform(0.7, 0.85)
            share = [(x - (0 if side == 0 else 1)) / (far - (0 if side == 0 else 1)) for x in (a, b)]
            upper, lower = (
                [top * s + 0.12 * (1 - s) + 0.1 for s in share],
                [low * s + (1 - s) * 0.85 - 0.14 for s in share],
            )
            quad = [(a, upper[0]), (b, upper[1]), (b, lower[1]), (a, lower[0])]
            c.polygon(quad, glow)
            c.line(quad, c.palette.tone(0.2), 0.014, closed=True)
            c.line([((a + b) / 2, sum(upper) / 2), ((a + b) / 2, sum(lower) / 2)], c.palette.tone(0.2), 0.01)
    for _ in range(c.count(1, 3)):
        x, y, width = (
            c.uniform(left + 0.02, right - 0.15),
            c.uniform(top + 0.03, low - 0.25),
            c.uniform(0.08, 0.14),
        )
        frame = [(x, y), (x + width, y), (x + width, y + 0.14), (x, y + 0.14)]
        c.polygon(frame, c.palette.any(c.rng))
        for _ in range(4):
            c.polygon(
                c.blob((x + width * c.uniform(0.3, 0.7), y + 0.14 * c.uniform(0.3, 0.7)), 0.025, 0.3, 8),
                c.palette.any(c.rng),
            )
        c.line(frame, c.palette.tone(0.15), 0.012, closed=True)
    _chair(c, c.uniform(0.2, 0.7), c.uniform(0.78, 0.95), c.uniform(0.16, 0.28))
    if c.chance(0.6):
        vessel(c, c.uniform(0.2, 0.8), c.uniform(0.75, 0.95), c.uniform(0.15, 0.3))


def _tiles(c: Canvas, back: tuple[float, float, float]) -> None:
    left, right, low = back
    columns, rows = c.count(5, 10), c.count(5, 9)
    pair = (c.palette.tone(c.uniform(0.1, 0.4)), c.palette.tone(c.uniform(0.6, 0.95)))

    def corner(u: float, v: float) -> tuple[float, float]:
        depth = v**2
        return (left * (1 - depth) - 0.02 * depth) * (1 - u) + (
            right * (1 - depth) + 1.02 * depth
        ) * u, low + (1.02 - low) * depth

    for row in range(rows):
        for column in range(columns):
            us, vs = (column / columns, (column + 1) / columns), (row / rows, (row + 1) / rows)
            quad = [corner(us[0], vs[0]), corner(us[1], vs[0]), corner(us[1], vs[1]), corner(us[0], vs[1])]
            c.polygon(quad, vary(pair[(row + column) % 2], c.rng, 7))


def _chair(c: Canvas, x: float, y: float, size: float) -> None:
    wood, half = c.palette.tone(c.uniform(0.05, 0.4)), size * 0.5 / c.aspect
    for dx, dy in ((-1, 0), (1, 0), (-0.7, -0.12), (0.7, -0.12)):
        c.line([(x + half * dx, y + size * dy), (x + half * dx, y - size * 0.5)], wood, 0.014)
    c.polygon(
        [
            (x - half, y - size * 0.45),
            (x + half, y - size * 0.45),
            (x + half * 0.7, y - size * 0.6),
            (x - half * 0.7, y - size * 0.6),
        ],
        c.palette.any(c.rng),
    )
    for rail in np.linspace(-0.7, 0.7, c.count(2, 5)):
        c.line([(x + half * rail, y - size * 0.6), (x + half * rail, y - size * 1.25)], wood, 0.012)
    c.line([(x - half * 0.75, y - size * 1.25), (x + half * 0.75, y - size * 1.25)], wood, 0.02)


def arcade(c: Canvas) -> None:
    """Columns and arches one behind the other, with statues and long shadows."""
    floor = c.uniform(0.62, 0.78)
    c.gradient(c.palette.tone(0.75), c.palette.tone(0.95), 0, floor)
    c.gradient(c.palette.tone(0.6), c.palette.tone(0.4), floor, 1)
    c.mottle(10, 4)
    stone = c.palette.tone(c.uniform(0.7, 0.95))
    bays, x, width = c.count(3, 6), c.uniform(-0.15, 0.05), c.uniform(0.2, 0.32)
    shrink = c.uniform(0.75, 1.0)
    for bay in range(bays):
        scale = shrink**bay
        top, foot = floor - 0.55 * scale, floor + 0.2 * scale
        c.polygon(
            [(x, top), (x + width * scale, top), (x + width * scale, foot), (x, foot)],
            shade(stone, 0.95 - 0.05 * bay),
        )
        inner, dark = width * scale * 0.3, c.palette.tone(c.uniform(0.0, 0.3))
        middle = x + width * scale / 2
        c.polygon(
            [
                (middle - inner, foot),
                (middle - inner, top + 0.25 * scale),
                (middle + inner, top + 0.25 * scale),
                (middle + inner, foot),
            ],
            dark,
        )
        c.ellipse(
            (middle, top + 0.25 * scale), (inner * c.width / c.unit, 0.15 * scale), dark, arc=(180, 360)
        )
        for course in np.linspace(top, foot, 9):
            c.line([(x, course), (middle - inner, course)], shade(stone, 0.7), 0.003)
            c.line([(middle + inner, course), (x + width * scale, course)], shade(stone, 0.7), 0.003)
        c.polygon(
            [
                (x, foot),
                (x + width * scale, foot),
                (x + width * scale + 0.3, foot + 0.2),
                (x + 0.25, foot + 0.2),
            ],
            shade(c.palette.tone(0.4), 0.7),
        )
        x += width * scale
    for _ in range(c.count(1, 3)):
        vessel(c, c.uniform(0.1, 0.9), c.uniform(floor + 0.05, 0.95), c.uniform(0.2, 0.4))
