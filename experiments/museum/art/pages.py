"""Written and printed pages: manuscripts, calligraphy, scores, posters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearsight.experiments.museum.art.canvas import Canvas, corners
from nearsight.experiments.museum.art.colours import Colour, fixed_palette, vary
from nearsight.experiments.museum.art.tabletop import blossom, leaf
from nearsight.experiments.museum.art.textures import age, grain
from nearsight.experiments.museum.art.writing import alphabet, lay_paper, mix_ink, write_line


def manuscript(c: Canvas) -> None:
    """Lines of writing around a large painted initial, with ornaments in the margin."""
    lay_paper(c)
    letters, ink = alphabet(c.rng), mix_ink(c)
    columns = c.count(1, 2)
    size = c.uniform(0.018, 0.034)
    red = fixed_palette("9c2a1a", "1f4e8c", "2e6b3a").any(c.rng)
    for column in range(columns):
        left = 0.12 + column * 0.8 / columns
        right = left + 0.8 / columns - 0.05
        initial = c.uniform(0.1, 0.2)
        row = 0.1
        while row < 0.93:
            start = left + (initial * 1.15 / c.aspect if row < 0.1 + initial else 0)
            end = right if c.chance(0.85) else c.uniform((start + right) / 2, right)
            write_line(c, letters, (start, end, row + size), size, red if c.chance(0.1) else ink, size * 0.09)
            row += size * 1.9
        _initial(c, (left, 0.095), initial, letters)
    for _ in range(c.count(4, 18)):  # vines in the margin
        place = (
            (c.uniform(0.01, 0.1), c.uniform(0.05, 0.95))
            if c.chance(0.6)
            else (c.uniform(0.1, 0.9), c.uniform(0.945, 0.985))
        )
        if c.chance(0.5):
            leaf(c, place, c.uniform(0.04, 0.08), c.uniform(0, 360), c.palette.any(c.rng))
        else:
            blossom(c, place, c.uniform(0.015, 0.035), c.palette.any(c.rng))
    age(c.rng, c.image, c.uniform(0.1, 0.7))


def _initial(
    c: Canvas, corner: tuple[float, float], size: float, letters: list[list[NDArray[np.float64]]]
) -> None:
    x, y = corner
    wide = size / c.aspect
    box = corners(x, y, x + wide, y + size)
    c.polygon(box, c.palette.any(c.rng))
    for _ in range(c.count(10, 22)):
        spot = (x + wide * c.uniform(0.1, 0.9), y + size * c.uniform(0.1, 0.9))
        c.polygon(c.blob(spot, size * c.uniform(0.03, 0.1), 0.3, 9), c.palette.any(c.rng))
    for stroke in letters[c.count(0, len(letters) - 1)] + letters[c.count(0, len(letters) - 1)]:
        c.line(
            stroke * (wide * 0.7, size * 0.7) + (x + wide * 0.15, y + size * 0.15),
            fixed_palette("d8a92a", "f3ead2").any(c.rng),
            size * 0.1,
        )
    c.line(box, mix_ink(c), 0.008, closed=True)


def calligraphy(c: Canvas) -> None:
    """Large characters written with a brush, smaller columns and red seals."""
    lay_paper(c)
    ink = (22.0, 18.0, 18.0)
    columns, rows = c.count(1, 3), c.count(1, 4)
    for column in range(columns):
        for row in range(rows):
            box = (0.08 + 0.7 * column / columns, 0.06 + 0.88 * row / rows, 0.7 / columns, 0.88 / rows)
            for _ in range(c.count(4, 9)):
                _brush(c, box, ink)
    letters = alphabet(c.rng)
    for column_x in np.linspace(0.82, 0.94, c.count(1, 3)):
        for row_y in np.arange(0.1, c.uniform(0.5, 0.9), 0.045):
            write_line(c, letters, (column_x, column_x + 0.035, row_y), 0.03, ink, 0.004)
    for _ in range(c.count(1, 3)):
        x, y, size = c.uniform(0.05, 0.9), c.uniform(0.6, 0.9), c.uniform(0.04, 0.07)
        wide = size / c.aspect
        c.box(x, y, x + wide, y + size, (40, 40, 185))
        for stroke in letters[c.count(0, 21)] + letters[c.count(0, 21)]:
            c.line(
                stroke * (wide * 0.7, size * 0.7) + (x + wide * 0.15, y + size * 0.15),
                (215, 225, 235),
                size * 0.08,
            )
    age(c.rng, c.image, c.uniform(0, 0.6))


def _brush(c: Canvas, box: tuple[float, float, float, float], ink: Colour) -> None:
    left, top, width, height = box
    knots = c.rng.uniform(0.08, 0.92, (3, 2)) * (width, height) + (left, top)
    t = np.linspace(0, 1, 70)[:, None]
    path = knots[0] * (1 - t) ** 2 + 2 * knots[1] * t * (1 - t) + knots[2] * t**2
    thick = min(width * c.aspect, height) * c.uniform(0.05, 0.13)
    swell = 0.35 + 0.65 * np.abs(np.sin(np.linspace(c.uniform(0, 1.5), c.uniform(2, 4), 70)))
    for place, size in zip(path, swell, strict=True):
        c.ellipse((float(place[0]), float(place[1])), (thick * size, thick * size * 0.7), ink, angle=35)
    paper = tuple(float(v) for v in c.image[2, 2])
    for _ in range(c.count(3, 9)):  # dry bristles at the end
        drift = c.rng.normal(0, thick * 0.45, 2) / (c.aspect, 1)
        c.line(c.shifted(path[c.count(40, 55) :], *drift), paper, 0.002)  # type: ignore[arg-type]


def score(c: Canvas) -> None:
    """A page of music."""
    lay_paper(c)
    ink, letters = mix_ink(c), alphabet(c.rng)
    write_line(c, letters, (0.3, 0.7, 0.075), 0.035, ink, 0.004)
    systems = c.count(5, 9)
    gap = 0.011 + c.uniform(0, 0.003)
    for top in np.linspace(0.12, 0.9, systems):
        for line in range(5):
            c.line([(0.06, top + line * gap), (0.94, top + line * gap)], ink, 0.0015)
        x = 0.06
        c.ellipse((0.085, top + 2 * gap), (gap * 0.9, gap * 2.6), ink, width=0.003, angle=15)
        for bar in np.cumsum(c.rng.uniform(0.15, 0.28, 4)) + 0.08:
            if bar < 0.94:
                c.line([(bar, top), (bar, top + 4 * gap)], ink, 0.002)
        x = 0.13
        while x < 0.92:
            heads = [(x + 0.02 * note, top + gap * c.count(-1, 9) / 2) for note in range(c.count(1, 4))]
            up = 1 if c.chance(0.5) else -1
            stem = min(y for _, y in heads) - gap * 3 if up == 1 else max(y for _, y in heads) + gap * 3
            for head in heads:
                c.ellipse(head, (gap * 0.62, gap * 0.45), ink, angle=-25)
                c.line([(head[0] + 0.004 * up, head[1]), (head[0] + 0.004 * up, stem)], ink, 0.0018)
            if len(heads) > 1:
                c.line([(heads[0][0] + 0.004 * up, stem), (heads[-1][0] + 0.004 * up, stem)], ink, 0.006)
            x = heads[-1][0] + c.uniform(0.02, 0.055)
        if c.chance(0.6):
            write_line(c, letters, (0.1, 0.9, top + gap * 6.4), 0.013, ink, 0.0015)
    age(c.rng, c.image, c.uniform(0, 0.7))


def poster(c: Canvas) -> None:
    """A printed poster: flat shapes, a large title in an invented script, small print."""
    c.image[:] = c.palette.any(c.rng)
    hero = c.palette.any(c.rng)
    centre = (c.uniform(0.3, 0.7), c.uniform(0.3, 0.55))
    rays, turn = c.count(8, 22), c.uniform(0, 1)
    if c.chance(0.6):
        for ray in range(rays):
            a, b = turn + 2 * np.pi * ray / rays, turn + 2 * np.pi * (ray + 0.5) / rays
            c.polygon(
                [
                    centre,
                    (centre[0] + 1.5 * np.cos(a), centre[1] + 1.5 * np.sin(a)),
                    (centre[0] + 1.5 * np.cos(b), centre[1] + 1.5 * np.sin(b)),
                ],
                vary(hero, c.rng, 6),
            )
    for ring in range(c.count(2, 5)):
        c.polygon(c.blob(centre, 0.34 - 0.07 * ring, c.uniform(0, 0.12), 40), c.palette.any(c.rng))
    for _ in range(c.count(3, 10)):
        c.polygon(c.rng.normal(0, 0.12, (c.count(3, 5), 2)) + centre, c.palette.any(c.rng))
    letters = alphabet(c.rng)
    ink = c.palette.tone(0.0) if c.chance(0.5) else c.palette.tone(1.0)
    size = c.uniform(0.07, 0.13)
    row = c.uniform(0.72, 0.8) if c.chance(0.7) else c.uniform(0.12, 0.18)
    for line in range(c.count(1, 2)):
        write_line(c, letters, (0.07, 0.95, row + size * 1.25 * line), size, ink, size * 0.16)
    for line in range(c.count(1, 4)):
        write_line(c, letters, (0.07, c.uniform(0.5, 0.94), 0.975 - 0.028 * line), 0.018, ink, 0.0025)
    grain(c.rng, c.image, 7)
