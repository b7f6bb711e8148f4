"""Landscape subjects: hills, mountains, sea, forest, desert."""

from __future__ import annotations

import numpy as np

from nearsight.experiments.museum.art.canvas import Canvas
from nearsight.experiments.museum.art.colours import mix, shade, vary
from nearsight.experiments.museum.art.sky import house, sky, tree


def hills(c: Canvas) -> None:
    """Fields and hills under a sky, with trees, sometimes a river and a house."""
    horizon = c.uniform(0.3, 0.6)
    sky(c, horizon + 0.05)
    layers = c.count(3, 6)
    for layer in range(layers):
        depth = layer / max(layers - 1, 1)
        level = horizon + (0.95 - horizon) * depth * 0.8
        colour = vary(c.palette.tone(0.75 - 0.6 * depth), c.rng, 14)
        c.below(c.ridge(level, c.uniform(0.02, 0.09) * (1.2 - depth), c.count(2, 5)), colour)
        for _ in range(c.count(0, 7)):
            leaf = vary(c.palette.tone(0.5 - 0.4 * depth), c.rng, 12)
            tree(c, c.uniform(0, 1), level + c.uniform(0, 0.06), 0.06 + 0.2 * depth * c.uniform(0.5, 1), leaf)
        for _ in range(c.count(0, 12)):  # furrows
            start, end = c.uniform(0, 1), c.uniform(0, 1)
            c.line([(start, level + 0.1), (end, level + 0.3)], vary(shade(colour, 0.85), c.rng, 6), 0.003)
    if c.chance(0.5):
        _river(c, horizon)
    if c.chance(0.5):
        house(c, c.uniform(0.1, 0.8), horizon + c.uniform(0.12, 0.3), c.uniform(0.06, 0.14))


def _river(c: Canvas, horizon: float) -> None:
    y = np.linspace(horizon + 0.1, 1.02, 24)
    depth = (y - y[0]) / (y[-1] - y[0])
    x = c.uniform(0.25, 0.75) + 0.15 * np.sin(depth * c.uniform(2, 7) + c.uniform(0, 6)) * (0.4 + depth)
    half = 0.008 + 0.13 * depth**1.6
    outline = np.concatenate([np.stack([x - half, y], 1), np.stack([x + half, y], 1)[::-1]])
    water = c.palette.tone(0.85)
    c.polygon(outline, water)
    for _ in range(20):
        place = c.count(3, 23)
        middle = x[place] + c.uniform(-0.6, 0.6) * half[place]
        c.line(
            [(middle - half[place] * 0.2, y[place]), (middle + half[place] * 0.2, y[place])],
            shade(water, 0.8),
        )


def mountains(c: Canvas) -> None:
    """Jagged peaks with snow above a lake that mirrors them."""
    shore = c.uniform(0.55, 0.75)
    sky(c, shore)
    for layer in range(c.count(2, 4)):
        colour = vary(c.palette.tone(0.6 - 0.17 * layer), c.rng, 10)
        outline = c.ridge(c.uniform(0.25, 0.4) + 0.1 * layer, c.uniform(0.08, 0.16), c.count(3, 6))
        c.below(outline, colour)
        for place in c.rng.choice(len(outline) - 3, 14):
            x, y = outline[place]
            slope = c.uniform(0.03, 0.15)
            snow = mix(colour, c.palette.tone(1.0), c.uniform(0.3, 0.9))
            c.polygon([(x, y), (x + slope * 0.5, y + slope), (x + slope * 0.1, y + slope * 0.6)], snow)
    first = round(shore * c.height)
    mirror = c.image[max(0, 2 * first - c.height) : first][::-1]
    rows = min(len(mirror), c.height - first)
    tint = np.asarray(c.palette.tone(0.5))
    c.image[first : first + rows] = mirror[:rows] * 0.65 + tint * 0.35
    for _ in range(c.count(30, 70)):
        x, y = c.uniform(-0.05, 1), c.uniform(shore, 1)
        length = c.uniform(0.02, 0.15) * (0.3 + (y - shore) / (1 - shore))
        c.line([(x, y), (x + length, y)], vary(c.palette.tone(c.uniform(0.4, 1)), c.rng, 8), 0.003)


def seascape(c: Canvas) -> None:
    """Waves, sails and a coast."""
    horizon = c.uniform(0.35, 0.6)
    sky(c, horizon)
    c.gradient(c.palette.tone(0.55), c.palette.tone(0.15), horizon, 1)
    if c.chance(0.6):
        coast = c.ridge(horizon - c.uniform(0, 0.06), 0.04, 3)
        coast[:, 1] = np.minimum(coast[:, 1], horizon) if c.chance(0.5) else coast[:, 1]
        c.polygon(
            np.concatenate([coast, [[1.02, horizon + 0.01], [-0.02, horizon + 0.01]]]), c.palette.tone(0.35)
        )
    for row in np.linspace(horizon + 0.02, 1.0, c.count(9, 18)):
        depth = (row - horizon) / (1 - horizon)
        x = np.linspace(-0.02, 1.02, 60)
        swell = np.abs(np.sin(x * c.uniform(6, 14) / (0.3 + depth) + c.uniform(0, 6)))
        y = row - 0.06 * depth * swell + c.rng.normal(0, 0.004 * depth, 60)
        c.below(np.stack([x, y], 1), vary(c.palette.tone(0.6 - 0.5 * depth), c.rng, 14))
        c.line(np.stack([x, y], 1), vary(c.palette.tone(0.75), c.rng, 15), 0.003 + 0.005 * depth)
    for _ in range(c.count(1, 5)):
        _ship(c, c.uniform(0.1, 0.9), horizon + c.uniform(0.01, 0.25), c.uniform(0.06, 0.28))


def _ship(c: Canvas, x: float, y: float, size: float) -> None:
    half = size * 0.5 / c.aspect
    hull = [
        (x - half, y - size * 0.1),
        (x + half, y - size * 0.12),
        (x + half * 0.7, y + size * 0.06),
        (x - half * 0.7, y + size * 0.06),
    ]
    c.polygon(hull, c.palette.tone(0.08))
    for mast in np.linspace(-0.5, 0.5, c.count(1, 3)):
        foot = x + half * mast
        top = y - size * c.uniform(0.7, 1.1)
        c.line([(foot, y), (foot, top)], c.palette.tone(0.05), 0.004)
        sail = vary(c.palette.tone(0.95), c.rng, 12)
        lean = half * c.uniform(0.3, 0.7)
        c.polygon([(foot, top), (foot + lean, y - size * 0.2), (foot, y - size * 0.15)], sail)
        c.polygon(
            [(foot, top + size * 0.1), (foot - lean * 0.7, y - size * 0.2), (foot, y - size * 0.15)],
            shade(sail, 0.85),
        )


def forest(c: Canvas) -> None:
    """Rows of tree trunks at several distances, with foliage and light between them."""
    c.gradient(c.palette.tone(0.9), c.palette.tone(0.55))
    c.mottle(30, c.count(4, 9))
    ground = c.uniform(0.7, 0.85)
    layers = c.count(3, 5)
    for layer in range(layers):
        depth = (layer + 1) / layers
        for _ in range(c.count(3, 8)):
            x, width = c.uniform(0, 1), (0.008 + 0.05 * depth**2) * c.uniform(0.6, 1.3)
            lean, foot = c.rng.normal(0, 0.04), ground + 0.2 * depth * c.uniform(0.3, 1)
            colour = vary(c.palette.tone(0.65 - 0.55 * depth), c.rng, 12)
            c.tapered(x, (foot, width), (-0.02, width * 0.6), colour, lean)
            for _ in range(c.count(1, 4)):
                y = c.uniform(0.05, 0.6)
                reach = c.uniform(-0.2, 0.2)
                middle = x + lean * (1 - y)
                c.line(
                    [(middle, y), (middle + reach * 0.6, y - 0.06), (middle + reach, y - 0.15)],
                    colour,
                    width * 0.35,
                )
            for _ in range(c.count(2, 8)):
                leaf = vary(c.palette.tone(0.75 - 0.5 * depth), c.rng, 18)
                c.polygon(
                    c.blob((x + c.rng.normal(0, 0.1), c.uniform(0, 0.45)), c.uniform(0.02, 0.09), 0.3, 12),
                    leaf,
                )
    c.below(c.ridge(ground + 0.1, 0.03, 4), c.palette.tone(0.2))
    for _ in range(c.count(60, 160)):
        x, y = c.uniform(0, 1), c.uniform(ground, 1)
        c.line(
            [(x, y), (x + c.rng.normal(0, 0.012), y - c.uniform(0.02, 0.06))],
            vary(c.palette.tone(0.4), c.rng, 22),
            0.003,
        )


def desert(c: Canvas) -> None:
    """Dunes with sharp crests, a large sun or moon and a caravan."""
    sky(c, 0.7)
    c.circle(
        (c.uniform(0.2, 0.8), c.uniform(0.12, 0.4)), c.uniform(0.06, 0.2), c.palette.tone(c.uniform(0.9, 1.0))
    )
    for layer in range(c.count(3, 6)):
        level = 0.5 + 0.1 * layer
        crest = c.ridge(level, 0.05, c.count(1, 3))
        colour = vary(c.palette.tone(0.75 - 0.1 * layer), c.rng, 10)
        c.below(crest, colour)
        for _ in range(c.count(3, 7)):
            place = c.count(4, 50)
            shadow = np.concatenate(
                [crest[place : place + 10], c.shifted(crest[place : place + 10][::-1], 0.06, 0.14)]
            )
            c.polygon(shadow, shade(colour, c.uniform(0.55, 0.8)))
    base = c.uniform(0.62, 0.85)
    for place in np.linspace(c.uniform(0.05, 0.3), c.uniform(0.6, 0.95), c.count(3, 9)):
        size = c.uniform(0.025, 0.045)
        dark = c.palette.tone(0.03)
        y = base + 0.02 * np.sin(place * 9)
        c.ellipse((place, y), (size, size * 0.5), dark)
        c.ellipse((place - size * 0.1, y - size * 0.5), (size * 0.3, size * 0.5), dark)
        for leg in (-0.7, -0.3, 0.3, 0.7):
            c.line([(place + leg * size, y), (place + leg * size, y + size * 1.6)], dark, 0.004)
        c.line(
            [(place + size, y), (place + size * 1.5, y - size), (place + size * 1.9, y - size * 0.9)],
            dark,
            0.007,
        )
