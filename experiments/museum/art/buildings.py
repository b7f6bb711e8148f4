"""Architectural subjects: rooms in perspective, arcades on a square."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from nearsight.experiments.museum.art.canvas import Canvas, corners
from nearsight.experiments.museum.art.colours import Colour, shade, vary
from nearsight.experiments.museum.art.tabletop import vessel


def room(c: Canvas) -> None:
    """A room in perspective: tiled floor, windows, pictures on the wall, chairs."""
    left, right, top, low = (
        c.uniform(*span) for span in ((0.15, 0.3), (0.65, 0.85), (0.12, 0.22), (0.55, 0.68))
    )
    walls = [vary(c.palette.tone(light), c.rng, 8) for light in (0.8, 0.65, 0.9)]
    c.polygon([(-0.02, -0.02), (left, top), (left, low), (-0.02, 1.02)], walls[0])
    c.polygon([(1.02, -0.02), (right, top), (right, low), (1.02, 1.02)], walls[1])
    c.box(left, top, right, low, walls[2])
    c.polygon([(-0.02, -0.02), (1.02, -0.02), (right, top), (left, top)], shade(walls[2], 0.85))
    _wallpaper(c, (left, right, top, low))
    _tiles(c, (left, right, low))
    c.mottle(c.uniform(8, 20), c.count(4, 9))
    for near, far in ((0.0, left), (1.0, right)):
        if c.chance(0.7):
            _window(c, near, far, (top, low))
    for _ in range(c.count(1, 4)):
        _picture(c, (c.uniform(left + 0.02, right - 0.15), c.uniform(top + 0.03, low - 0.25)))
    for _ in range(c.count(1, 3)):
        _chair(c, c.uniform(0.15, 0.85), c.uniform(0.75, 0.97), c.uniform(0.14, 0.28))
    for _ in range(c.count(0, 3)):
        vessel(c, c.uniform(0.1, 0.9), c.uniform(0.75, 0.97), c.uniform(0.15, 0.35))


def _wallpaper(c: Canvas, wall: tuple[float, float, float, float]) -> None:
    left, right, top, low = wall
    if c.chance(0.35):
        return
    columns, rows = c.count(5, 12), c.count(4, 9)
    colours = [c.palette.any(c.rng) for _ in range(c.count(1, 3))]
    size = 0.3 * min((right - left) / columns, (low - top) / rows)
    for row in range(rows):
        for column in range(columns):
            x = left + (right - left) * (column + 0.25 + 0.5 * (row % 2)) / columns
            y = top + (low - top) * (row + 0.5) / rows
            colour = vary(colours[(row + column) % len(colours)], c.rng, 12)
            c.polygon(c.blob((x, y), size * c.uniform(0.6, 1.1), 0.35, 9), colour)


def _window(c: Canvas, near: float, far: float, heights: tuple[float, float]) -> None:
    """Draw a window in a side wall that extends from the image's edge ``near`` to the back wall ``far``."""
    top, low = heights
    shares = (c.uniform(0.15, 0.35), c.uniform(0.65, 0.9))
    lift, drop = c.uniform(0.06, 0.14), c.uniform(0.1, 0.2)
    xs = [near + (far - near) * share for share in shares]
    upper = [top * share + 0.1 * (1 - share) + lift for share in shares]
    lower = [low * share + 0.85 * (1 - share) - drop for share in shares]
    quad = [(xs[0], upper[0]), (xs[1], upper[1]), (xs[1], lower[1]), (xs[0], lower[0])]
    frame = c.palette.tone(c.uniform(0, 0.3))
    c.polygon(quad, c.palette.tone(1.0))
    for share in np.linspace(0, 1, c.count(2, 4))[1:-1]:
        x = xs[0] + (xs[1] - xs[0]) * share
        ends = [(x, upper[0] + (upper[1] - upper[0]) * share), (x, lower[0] + (lower[1] - lower[0]) * share)]
        c.line(ends, frame, 0.008)
    c.line(quad, frame, c.uniform(0.008, 0.02), closed=True)


def _picture(c: Canvas, corner: tuple[float, float]) -> None:
    x, y = corner
    width, height = c.uniform(0.07, 0.15), c.uniform(0.09, 0.18)
    frame = corners(x, y, x + width, y + height)
    c.polygon(frame, c.palette.any(c.rng))
    for _ in range(c.count(3, 8)):
        spot = (x + width * c.uniform(0.25, 0.75), y + height * c.uniform(0.25, 0.75))
        c.polygon(c.blob(spot, c.uniform(0.01, 0.03), 0.3, 8), c.palette.any(c.rng))
    c.line(frame, c.palette.tone(0.15), 0.012, closed=True)


def _tiles(c: Canvas, back: tuple[float, float, float]) -> None:
    """Draw a tiled floor that extends to the back wall; some tiles are inlaid."""
    left, right, low = back
    columns, rows = c.count(4, 10), c.count(4, 9)
    pair = (c.palette.tone(c.uniform(0.1, 0.4)), c.palette.tone(c.uniform(0.6, 0.95)))
    inlay, inlaid = c.palette.any(c.rng), c.uniform(0, 0.6)

    def corner(u: float, v: float) -> tuple[float, float]:
        depth = v**2
        near_left, near_right = left * (1 - depth) - 0.02 * depth, right * (1 - depth) + 1.02 * depth
        return near_left * (1 - u) + near_right * u, low + (1.02 - low) * depth

    for row in range(rows):
        for column in range(columns):
            us, vs = (column / columns, (column + 1) / columns), (row / rows, (row + 1) / rows)
            quad = [corner(us[0], vs[0]), corner(us[1], vs[0]), corner(us[1], vs[1]), corner(us[0], vs[1])]
            c.polygon(quad, vary(pair[(row + column) % 2], c.rng, 14))
            if c.chance(inlaid):
                middle = np.mean(quad, axis=0)
                c.polygon(middle + (np.array(quad) - middle) * c.uniform(0.3, 0.7), vary(inlay, c.rng, 14))


def _chair(c: Canvas, x: float, y: float, size: float) -> None:
    wood, half = c.palette.tone(c.uniform(0.05, 0.4)), size * 0.5 / c.aspect
    for dx, dy in ((-1, 0), (1, 0), (-0.7, -0.12), (0.7, -0.12)):
        c.line([(x + half * dx, y + size * dy), (x + half * dx, y - size * 0.5)], wood, 0.014)
    seat = [(-1, 0.45), (1, 0.45), (0.7, 0.6), (-0.7, 0.6)]
    c.polygon([(x + half * dx, y - size * dy) for dx, dy in seat], c.palette.any(c.rng))
    back = size * c.uniform(1.1, 1.4)
    for rail in np.linspace(-0.7, 0.7, c.count(2, 6)):
        c.line([(x + half * rail, y - size * 0.6), (x + half * rail, y - back)], wood, 0.012)
    c.line([(x - half * 0.75, y - back), (x + half * 0.75, y - back)], wood, 0.02)


def arcade(c: Canvas) -> None:
    """A row of arches of worn masonry in perspective, with jars and long shadows."""
    floor = c.uniform(0.62, 0.78)
    c.gradient(c.palette.tone(0.75), c.palette.tone(0.95), 0, floor)
    c.mottle(c.uniform(10, 30), c.count(3, 7), 0, floor)
    c.gradient(c.palette.tone(0.6), c.palette.tone(0.4), floor, 1)
    for _ in range(c.count(20, 70)):  # paving
        x, y = c.uniform(-0.1, 1), c.uniform(floor, 1)
        c.line(
            [(x, y), (x + c.uniform(0.05, 0.3), y + c.rng.normal(0, 0.015))],
            vary(c.palette.tone(0.35), c.rng, 12),
        )
    stone, opening = c.palette.tone(c.uniform(0.6, 0.95)), c.palette.tone(c.uniform(0.0, 0.3))
    x, width, shrink = c.uniform(-0.15, 0.1), c.uniform(0.18, 0.32), c.uniform(0.72, 1.0)
    height, rise, pier = c.uniform(0.38, 0.62), c.uniform(0.06, 0.18), c.uniform(0.2, 0.36)
    courses = c.count(6, 14)
    for bay in range(c.count(3, 6)):
        scale = shrink**bay
        box = (x, floor - height * scale, x + width * scale, floor + 0.2 * scale)
        _masonry(c, box, shade(stone, 0.98 - 0.06 * bay), courses)
        _arch(c, box, (pier, rise * scale), opening)
        x = box[2]
    for _ in range(c.count(1, 4)):
        vessel(c, c.uniform(0.08, 0.92), c.uniform(floor + 0.05, 0.97), c.uniform(0.18, 0.42))


def _masonry(c: Canvas, box: tuple[float, float, float, float], stone: Colour, courses: int) -> None:
    left, top, right, low = box
    c.box(left, top, right, low, stone)
    edges = np.linspace(top, low, courses + 1) + np.concatenate(
        [[0], c.rng.normal(0, 0.006, courses - 1), [0]]
    )
    for upper, lower in pairwise(edges):
        joints = np.sort(c.rng.uniform(left, right, c.count(1, 4)))
        for start, end in zip([left, *joints], [*joints, right], strict=True):
            block = corners(start, upper, end, lower)
            c.polygon(block, vary(stone, c.rng, 13))
            c.line(block, shade(stone, 0.72), 0.003, closed=True)
    c.box(left, top, right, top - 0.02, shade(stone, 1.1))


def _arch(
    c: Canvas, box: tuple[float, float, float, float], form: tuple[float, float], opening: Colour
) -> None:
    left, top, right, low = box
    inner, rise = (right - left) * form[0], form[1]
    middle, spring = (left + right) / 2, top + rise + (low - top) * 0.16
    across = inner * c.width / c.unit
    keystones = shade(opening, 2.2)
    c.ellipse((middle, spring), (across * 1.15, rise * 1.2), keystones, arc=(180, 360))
    c.polygon(
        [(middle - inner, low), (middle - inner, spring), (middle + inner, spring), (middle + inner, low)],
        opening,
    )
    c.ellipse((middle, spring), (across, rise), opening, arc=(180, 360))
    if c.chance(0.4):  # light from the far side
        foot, half = middle + c.uniform(-0.4, 0.4) * inner, inner * 0.4
        c.polygon([(foot - half, low), (foot, spring), (foot + half, low)], c.palette.tone(0.85))
    if c.chance(0.35):  # a person
        c.ellipse((middle, low - 0.1), (across * 0.3, 0.09), c.palette.any(c.rng))
        c.circle((middle, low - 0.21), across * 0.18, c.palette.any(c.rng))
