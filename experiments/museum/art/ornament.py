"""Ornament: carpets, glazed tiles, mandalas, masks. All are regular, and each exhibit is different."""

from __future__ import annotations

import cv2
import numpy as np

from nearsight.experiments.museum.art.canvas import Canvas
from nearsight.experiments.museum.art.colours import shade, vary
from nearsight.experiments.museum.art.textures import Image, grain, noise, shift_brightness


def carpet(c: Canvas) -> None:
    """A knotted carpet: nested borders, a medallion and small motifs, mirrored in both directions."""
    knot = c.count(3, 5)
    height, width = c.height // knot // 2 + 1, c.width // knot // 2 + 1
    quarter = Canvas(np.zeros((height, width, 3), dtype=np.uint8), c.rng, c.palette)
    quarter.image[:] = c.palette.any(c.rng)
    for _ in range(c.count(10, 30)):
        place, size = (c.uniform(0.2, 1), c.uniform(0.2, 1)), c.uniform(0.03, 0.1)
        _motif(quarter, place, size)
    for ring in range(c.count(2, 5)):
        quarter.polygon(_diamond((1.0, 1.0), (0.62 - 0.13 * ring, 0.6 - 0.13 * ring)), c.palette.any(c.rng))
        for place in np.linspace(0.1, 0.9, c.count(2, 6)):
            reach = 0.55 - 0.13 * ring
            quarter.circle((1 - reach * place, 1 - reach * (1 - place)), 0.02, c.palette.any(c.rng))
    edge = 0.0
    for _ in range(c.count(3, 6)):
        band = c.uniform(0.03, 0.09)
        _border(quarter, edge, band)
        edge += band
    half = np.concatenate([quarter.image, quarter.image[:, ::-1]], axis=1)
    whole = np.concatenate([half, half[::-1]], axis=0)
    whole = np.clip(whole + c.rng.normal(0, 9, (*whole.shape[:2], 1)), 0, 255).astype(np.uint8)
    c.image[:] = cv2.resize(whole, (c.width, c.height), interpolation=cv2.INTER_NEAREST)
    shift_brightness(c.image, (noise(c.rng, (c.height, c.width), 4, 4) - 0.5) * c.uniform(30, 70))
    grain(c.rng, c.image, 10)


def _diamond(centre: tuple[float, float], reach: tuple[float, float]) -> list[tuple[float, float]]:
    x, y = centre
    return [(x - reach[0], y), (x, y - reach[1]), (x + reach[0], y), (x, y + reach[1])]


def _motif(c: Canvas, place: tuple[float, float], size: float) -> None:
    kind = c.count(0, 3)
    outer, inner = c.palette.any(c.rng), c.palette.any(c.rng)
    if kind == 0:
        c.polygon(_diamond(place, (size / c.aspect, size)), outer)
        c.polygon(_diamond(place, (size * 0.5 / c.aspect, size * 0.5)), inner)
    elif kind == 1:
        for angle in np.linspace(0, 2 * np.pi, c.count(4, 8), endpoint=False):
            c.circle(
                (place[0] + size * 0.7 * np.cos(angle) / c.aspect, place[1] + size * 0.7 * np.sin(angle)),
                size * 0.35,
                outer,
            )
        c.circle(place, size * 0.4, inner)
    elif kind == 2:
        c.line(
            [place, (place[0] + size, place[1] - size), (place[0] + size, place[1] + size * 0.4)], outer, 0.02
        )
    else:
        c.polygon(c.blob(place, size, 0.35, 10), outer)


def _border(c: Canvas, edge: float, band: float) -> None:
    colour, motif = c.palette.any(c.rng), c.palette.any(c.rng)
    wide = band * c.unit / c.width
    left = edge * c.unit / c.width
    c.box(left, edge, 1.02, edge + band, colour)
    c.box(left, edge, left + wide, 1.02, colour)
    repeats, size = c.count(5, 16), band * 0.38
    for step in range(repeats):
        share = (step + 0.5) / repeats
        for place in (
            (left + (1 - left) * share, edge + band / 2),
            (left + wide / 2, edge + (1 - edge) * share),
        ):
            c.polygon(_diamond(place, (size * c.unit / c.width, size)), motif)


def tiles(c: Canvas) -> None:
    """A panel of glazed tiles: patterns in four rotations, some tiles exchanged or chipped."""
    columns = c.count(3, 5)
    side = c.width // columns + 1
    patterns = [_tile(c, side) for _ in range(c.count(1, 3))]
    for row in range(c.height // side + 1):
        for column in range(columns):
            tile = np.rot90(
                patterns[c.count(0, len(patterns) - 1) if c.chance(0.4) else (row + column) % len(patterns)],
                (row % 2) * 2 + column % 2 if c.chance(0.9) else c.count(0, 3),
            )
            part = c.image[row * side : (row + 1) * side, column * side : (column + 1) * side]
            lit = np.clip(tile * c.uniform(0.85, 1.08) + c.rng.normal(0, 4), 0, 255)
            part[:] = lit[: part.shape[0], : part.shape[1]]
    for place in range(0, max(c.width, c.height), side):
        cv2.line(c.image, (place, 0), (place, c.height), (150, 160, 165), 2)
        cv2.line(c.image, (0, place), (c.width, place), (150, 160, 165), 2)
    for _ in range(c.count(3, 14)):
        c.polygon(
            c.blob((c.uniform(0, 1), c.uniform(0, 1)), c.uniform(0.005, 0.03), 0.4, 9),
            vary((150, 175, 190), c.rng, 12),
        )
    shift_brightness(c.image, (noise(c.rng, (c.height, c.width), 8, 4) - 0.5) * 50)
    grain(c.rng, c.image, 6)


def _tile(c: Canvas, side: int) -> Image:
    tile = Canvas(np.zeros((side, side, 3), dtype=np.uint8), c.rng, c.palette)
    tile.image[:] = c.palette.tone(c.uniform(0.8, 1))
    for ring in range(c.count(1, 3)):
        tile.circle((0, 0), 0.9 - 0.22 * ring, c.palette.any(c.rng), 0.0 if c.chance(0.5) else 0.07)
    for _ in range(c.count(3, 7)):
        _motif(tile, (c.uniform(0.1, 0.9), c.uniform(0.1, 0.9)), c.uniform(0.06, 0.2))
    tile.line([(0, 0), (c.uniform(0.5, 1), c.uniform(0.5, 1))], c.palette.tone(0.1), 0.03)
    return tile.image


def mandala(c: Canvas) -> None:
    """Rings of petals, dots and arches around a centre."""
    c.image[:] = c.palette.any(c.rng)
    for _ in range(c.count(30, 90)):
        c.circle((c.uniform(0, 1), c.uniform(0, 1)), c.uniform(0.003, 0.02), c.palette.any(c.rng))
    for corner in ((0, 0), (1, 0), (0, 1), (1, 1)):
        for ring in range(3):
            c.circle(corner, 0.2 - 0.06 * ring, c.palette.any(c.rng))
    radius = 0.49
    while radius > 0.06:
        band = c.uniform(0.05, 0.11)
        c.circle((0.5, 0.5), radius, c.palette.any(c.rng))
        count, kind, colour, turn = c.count(6, 26), c.count(0, 3), c.palette.any(c.rng), c.uniform(0, 1)
        for step in range(count):
            angle = turn + 2 * np.pi * step / count
            reach = radius - band / 2
            place = (
                0.5 + reach * np.cos(angle) * c.unit / c.width,
                0.5 + reach * np.sin(angle) * c.unit / c.height,
            )
            size = min(band / 2, np.pi * reach / count)
            if kind == 0:
                c.circle(place, size, colour)
                c.circle(place, size * 0.5, c.palette.tone(1.0))
            elif kind == 1:
                c.ellipse(place, (band / 2, size * 0.6), colour, angle=float(np.degrees(angle)))
            elif kind == 2:
                c.ellipse(
                    place,
                    (size, band / 2),
                    vary(colour, c.rng, 12),
                    angle=float(np.degrees(angle)),
                    width=0.008,
                )
            else:
                c.polygon(c.blob(place, size, 0.3, 8), vary(colour, c.rng, 10))
        radius -= band
    _motif(c, (0.5, 0.5), 0.06)
    shift_brightness(c.image, (noise(c.rng, (c.height, c.width), 6, 4) - 0.5) * 44)
    grain(c.rng, c.image, 8)


def mask(c: Canvas) -> None:
    """A carved and painted mask, symmetric about its vertical axis."""
    c.gradient(c.palette.tone(c.uniform(0, 0.9)), c.palette.tone(c.uniform(0, 0.6)))
    c.mottle(24, c.count(3, 8))
    wood = c.palette.any(c.rng)
    levels = np.linspace(0.06, 0.95, 14)
    half = 0.3 * np.sin(np.linspace(0.5, 2.9, 14)) * c.rng.uniform(0.85, 1.15, 14) * c.unit / c.width
    c.polygon(
        np.concatenate([np.stack([0.5 - half, levels], 1), np.stack([0.5 + half, levels], 1)[::-1]]), wood
    )
    for _ in range(c.count(9, 22)):  # painted bands, the same on both sides
        y = c.uniform(0.12, 0.9)
        reach = float(np.interp(y, levels, half)) * c.uniform(0.2, 0.95)
        bend, width, colour = c.uniform(-0.08, 0.08), c.uniform(0.006, 0.025), c.palette.any(c.rng)
        start = c.uniform(0, reach * 0.7)
        for side in (-1, 1):
            c.line(
                [
                    (0.5 + side * start, y),
                    (0.5 + side * (start + reach) / 2, y + bend),
                    (0.5 + side * reach, y + bend * 0.3),
                ],
                colour,
                width,
            )
    eye = (c.uniform(0.09, 0.14) * c.unit / c.width, c.uniform(0.32, 0.42))
    size, slant = c.uniform(0.04, 0.07), c.uniform(-30, 30)
    for side in (-1, 1):
        centre = (0.5 + side * eye[0], eye[1])
        c.ellipse(centre, (size * 1.5, size), c.palette.tone(0.95), angle=side * slant)
        c.ellipse(centre, (size * 1.1, size * 0.6), (12, 12, 12), angle=side * slant)
    c.polygon([(0.5, eye[1] - 0.05), (0.5 - 0.05, 0.6), (0.5 + 0.05, 0.6)], shade(wood, 0.65))
    mouth, wide = c.uniform(0.7, 0.78), c.uniform(0.06, 0.16)
    c.ellipse((0.5, mouth), (wide, c.uniform(0.02, 0.07)), (14, 12, 40))
    for tooth in np.linspace(-0.7, 0.7, c.count(3, 8)):
        c.polygon(
            [
                (0.5 + (tooth - 0.1) * wide, mouth - 0.03),
                (0.5 + (tooth + 0.1) * wide, mouth - 0.03),
                (0.5 + tooth * wide, mouth + 0.02),
            ],
            c.palette.tone(1.0),
        )
    for _ in range(c.count(0, 40)):
        x, y = c.uniform(0, 0.24), c.uniform(0.1, 0.9)
        for side in (-1, 1):
            c.circle((0.5 + side * x, y), 0.007, c.palette.tone(0.9))
    shift_brightness(c.image, (noise(c.rng, (c.height, c.width), 14, 4) - 0.5) * 50)
    grain(c.rng, c.image, 8)
