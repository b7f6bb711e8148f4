"""Plates of an atlas: maps, plants, machines, star charts."""

from __future__ import annotations

from itertools import pairwise

import cv2
import numpy as np

from nearsight.experiments.museum.art.canvas import Canvas, corners
from nearsight.experiments.museum.art.colours import Colour, fixed_palette, shade, vary
from nearsight.experiments.museum.art.tabletop import blossom, leaf
from nearsight.experiments.museum.art.textures import age, grain, noise
from nearsight.experiments.museum.art.writing import alphabet, lay_paper, mix_ink, write_line


def chart(c: Canvas) -> None:
    """A map: coasts, rivers, hills, towns with names, a compass and a frame."""
    lay_paper(c)
    shape = (c.height, c.width)
    relief = noise(c.rng, shape, c.uniform(2.5, 5), 5)
    level = float(np.quantile(relief, c.uniform(0.35, 0.6)))
    land = relief > level
    sea = np.asarray(fixed_palette("b9cfd0", "a8c3cf", "cfd8c6", "9fb7b0").any(c.rng))
    c.image[~land] = c.image[~land] * 0.4 + sea * 0.6
    ink = mix_ink(c)
    for offset, width in ((0.0, 2), (-0.025, 1), (-0.05, 1)):
        outlines, _ = cv2.findContours(
            (relief > level + offset).astype(np.uint8), cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE
        )
        cv2.drawContours(c.image, outlines, -1, ink, width, cv2.LINE_AA)
    provinces = noise(c.rng, shape, 4, 3)
    tint = (np.digitize(provinces, np.linspace(0.25, 0.75, 3)))[:, :, None]
    washes = np.array(
        [vary(fixed_palette("e2b8a0", "c9d4a0", "ead9a0", "d0bcd0").any(c.rng), c.rng, 8) for _ in range(4)]
    )
    c.image[land] = (c.image * 0.6 + washes[tint[:, :, 0]] * 0.4)[land].astype(np.uint8)
    letters = alphabet(c.rng)
    spots = np.argwhere(land)
    for y, x in spots[c.rng.integers(0, len(spots), c.count(25, 60))]:
        place = (x / c.width, y / c.height)
        if c.chance(0.45):  # a town and its name
            c.circle(place, 0.006, fixed_palette("a02818").any(c.rng))
            write_line(
                c,
                letters,
                (place[0] + 0.012, place[0] + c.uniform(0.08, 0.16), place[1] + 0.005),
                0.016,
                ink,
                0.002,
            )
        else:  # a hill
            c.line(
                [(place[0] - 0.014, place[1]), (place[0], place[1] - 0.022), (place[0] + 0.014, place[1])],
                ink,
                0.003,
            )
            c.line([(place[0], place[1] - 0.022), (place[0] + 0.005, place[1])], ink, 0.002)
    _compass(c, (c.uniform(0.12, 0.88), c.uniform(0.12, 0.88)), c.uniform(0.06, 0.13), ink)
    for edge, line in ((0.015, 0.004), (0.03, 0.008)):
        c.line(corners(edge, edge, 1 - edge, 1 - edge), ink, line, closed=True)
    age(c.rng, c.image, c.uniform(0.2, 0.9))


def _compass(c: Canvas, centre: tuple[float, float], size: float, ink: Colour) -> None:
    x, y = centre
    wide = size / c.aspect
    c.circle(centre, size, ink, 0.003)
    turn = c.uniform(0, 0.7)
    for point in range(16):
        angle = turn + point * np.pi / 8
        reach = 1.2 if point % 4 == 0 else 0.6
        tip = (x + wide * reach * np.cos(angle), y + size * reach * np.sin(angle))
        for side in (-0.2, 0.2):
            foot = (x + wide * 0.25 * np.cos(angle + side * 2), y + size * 0.25 * np.sin(angle + side * 2))
            c.polygon([centre, foot, tip], ink if side > 0 else c.palette.any(c.rng))
    for point in range(16):
        angle = turn + point * np.pi / 8
        c.line([centre, (x + 1.5 * np.cos(angle), y + 1.5 * np.sin(angle))], ink, 0.0015)


def botanical(c: Canvas) -> None:
    """A plant with root, leaves and blossoms, its seeds and a caption."""
    lay_paper(c)
    ink, green = mix_ink(c), vary(fixed_palette("4d6b34", "6b7d3a", "37553f", "7c8a4f").any(c.rng), c.rng, 8)
    for _ in range(c.count(1, 3)):
        x, y, angle = c.uniform(0.35, 0.65), 0.82, -np.pi / 2 + c.uniform(-0.25, 0.25)
        for step in range(c.count(8, 13)):
            angle += c.rng.normal(0, 0.14)
            end = (x + 0.065 * np.cos(angle) / c.aspect, y + 0.065 * np.sin(angle))
            c.line([(x, y), end], shade(green, 0.8), 0.008)
            for side in (-1, 1):
                if c.chance(0.75):
                    leaf(
                        c,
                        end,
                        c.uniform(0.08, 0.24) * (1 - step * 0.05),
                        -np.degrees(angle) + side * c.uniform(30, 75),
                        vary(green, c.rng, 14),
                    )
            x, y = end
            if step > 4 and c.chance(0.45):
                tip = (x + c.uniform(-0.12, 0.12), y - c.uniform(0.02, 0.09))
                c.line([end, tip], green, 0.005)
                blossom(c, tip, c.uniform(0.03, 0.07), c.palette.any(c.rng))
        blossom(c, (x, y), c.uniform(0.05, 0.11), c.palette.any(c.rng))
    for _ in range(c.count(4, 10)):
        root = np.cumsum(
            np.concatenate([[[0.5, 0.82]], c.rng.normal((0, 0.018), (0.02, 0.006), (5, 2))]), axis=0
        )
        c.line(root, (60, 90, 120), 0.003)
    for place in np.linspace(0.1, 0.9, c.count(2, 5)):
        spot = (float(place), c.uniform(0.86, 0.9))
        c.polygon(c.blob(spot, c.uniform(0.015, 0.03), 0.15, 12), c.palette.any(c.rng))
    letters = alphabet(c.rng)
    write_line(c, letters, (0.28, 0.75, 0.955), 0.026, ink, 0.003)
    write_line(c, letters, (0.05, 0.2, 0.05), 0.02, ink, 0.002)
    age(c.rng, c.image, c.uniform(0, 0.6))


def machine(c: Canvas) -> None:
    """A drawing of wheels, rods and levers with dimensions; ink on paper or white on blue."""
    blue = c.chance(0.45)
    if blue:
        c.image[:] = fixed_palette("1d3f73", "24507a", "163058").any(c.rng)
        grain(c.rng, c.image, 12)
    else:
        lay_paper(c)
    ink = (225.0, 225.0, 215.0) if blue else mix_ink(c)
    for place in np.arange(0.04, 1, 0.06):
        faint = vary(tuple(float(v) for v in c.image[4, 4]), c.rng, 3)  # type: ignore[arg-type]
        c.line([(place, 0), (place, 1)], shade(faint, 1.12 if blue else 0.93), 0.002)
        c.line([(0, place), (1, place)], shade(faint, 1.12 if blue else 0.93), 0.002)
    wheels = [
        (c.uniform(0.12, 0.88), c.uniform(0.12, 0.85), c.uniform(0.05, 0.2)) for _ in range(c.count(3, 7))
    ]
    for x, y, radius in wheels:
        _wheel(c, (x, y), radius, ink)
    for first, second in pairwise(wheels):
        for side in (-0.012, 0.012):
            c.line([(first[0] + side, first[1]), (second[0] + side, second[1] + side)], ink, 0.003)
    letters = alphabet(c.rng)
    for _ in range(c.count(6, 14)):
        x, y = c.uniform(0.03, 0.8), c.uniform(0.05, 0.97)
        write_line(c, letters, (x, x + c.uniform(0.06, 0.2), y), c.uniform(0.014, 0.026), ink, 0.002)
    for _ in range(c.count(3, 8)):
        start, end = c.rng.uniform(0.05, 0.95, (2, 2))
        c.line([start, end], ink, 0.002)
        c.circle((float(end[0]), float(end[1])), 0.008, ink)


def _wheel(c: Canvas, centre: tuple[float, float], radius: float, ink: Colour) -> None:
    x, y = centre
    teeth, spokes = c.count(12, 36), c.count(3, 9)
    angles = np.linspace(0, 2 * np.pi, teeth * 4, endpoint=False)
    reach = radius * np.where(np.arange(teeth * 4) % 4 < 2, 1.0, 1.1)
    rim = np.stack(
        [x + reach * np.cos(angles) * c.unit / c.width, y + reach * np.sin(angles) * c.unit / c.height], 1
    )
    c.line(rim, ink, 0.003, closed=True)
    for share in (0.85, 0.25, 0.12):
        c.circle(centre, radius * share, ink, 0.003)
    turn = c.uniform(0, 6)
    for spoke in range(spokes):
        angle = turn + 2 * np.pi * spoke / spokes
        d = np.array([np.cos(angle) * c.unit / c.width, np.sin(angle) * c.unit / c.height]) * radius
        c.line([(x, y) + d * 0.25, (x, y) + d * 0.85], ink, c.uniform(0.003, 0.009))


def stars(c: Canvas) -> None:
    """A star chart: circles, stars of several sizes, figures of constellations."""
    night = c.chance(0.6)
    if night:
        c.image[:] = fixed_palette("101a3a", "0c0f1e", "1b1030", "0e2430").any(c.rng)
        c.mottle(16, 5)
    else:
        lay_paper(c)
    ink = fixed_palette("f2e2b0", "e8eef2", "d8b660").any(c.rng) if night else mix_ink(c)
    centre, radius = (0.5 + c.uniform(-0.06, 0.06), 0.5), c.uniform(0.4, 0.47)
    for share in np.linspace(1, 0.2, c.count(3, 6)):
        c.circle(centre, radius * share, shade(ink, 0.7), 0.003)
    for angle in np.linspace(0, np.pi, c.count(4, 9), endpoint=False):
        d = np.array([np.cos(angle) * c.unit / c.width, np.sin(angle) * c.unit / c.height]) * radius
        c.line([centre - d, centre + d], shade(ink, 0.55), 0.002)
    letters = alphabet(c.rng)
    for _ in range(c.count(7, 14)):
        start = c.rng.uniform(0.15, 0.85, 2)
        chain = start + np.cumsum(c.rng.normal(0, 0.055, (c.count(4, 8), 2)), axis=0)
        c.line(chain, c.palette.tone(0.7) if night else ink, 0.003)
        for x, y in chain:
            _star(c, (float(x), float(y)), c.uniform(0.008, 0.02), ink)
        write_line(
            c, letters, (float(start[0]), float(start[0]) + 0.1, float(start[1]) - 0.02), 0.016, ink, 0.002
        )
    for _ in range(c.count(90, 260)):
        c.circle((c.uniform(0, 1), c.uniform(0, 1)), c.uniform(0.001, 0.0045), ink)
    if c.chance(0.6):
        for _ in range(c.count(1, 4)):
            c.polygon(
                c.blob((c.uniform(0.05, 0.95), c.uniform(0.05, 0.95)), c.uniform(0.02, 0.05), 0.05, 30),
                c.palette.any(c.rng),
            )
    grain(c.rng, c.image, 7)


def _star(c: Canvas, centre: tuple[float, float], size: float, colour: Colour) -> None:
    angles = np.linspace(0, 2 * np.pi, 10, endpoint=False) + c.uniform(0, 1)
    reach = size * np.where(np.arange(10) % 2, 0.4, 1.0)
    c.polygon(
        np.stack(
            [
                centre[0] + reach * np.cos(angles) * c.unit / c.width,
                centre[1] + reach * np.sin(angles) * c.unit / c.height,
            ],
            1,
        ),
        colour,
    )
