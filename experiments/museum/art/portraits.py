"""Portraits: head and shoulders before a background."""

from __future__ import annotations

import numpy as np

from nearsight.experiments.museum.art.canvas import Canvas, corners
from nearsight.experiments.museum.art.colours import Colour, fixed_palette, mix, shade, vary

SKINS = ("f1d0b0", "e0ac7e", "c68a5b", "9a643c", "6b4226", "f5dcc8", "d8a878")
"""Skin colours."""


def portrait(c: Canvas) -> None:
    """Head and shoulders before a background."""
    _backdrop(c)
    skin = vary(fixed_palette(*SKINS).any(c.rng), c.rng, 6)
    x, y = c.uniform(0.42, 0.58), c.uniform(0.36, 0.44)
    size = c.uniform(0.15, 0.22)
    half = size * c.unit / c.width
    turn = c.uniform(-0.5, 0.5)
    hair = c.palette.tone(c.uniform(0, 0.45)) if c.chance(0.7) else c.palette.any(c.rng)
    if c.chance(0.5):  # long hair falls behind the shoulders
        c.polygon(c.blob((x, y + size * 0.5), size * c.uniform(1.4, 1.8), 0.12), shade(hair, 0.8))
    _shoulders(c, x, y, size)
    c.tapered(x, (y + size * 0.7, half * 0.4), (y + size * 1.6, half * 0.5), shade(skin, 0.8))
    c.ellipse((x, y), (size * c.uniform(0.72, 0.85), size * c.uniform(1.0, 1.15)), skin)
    c.ellipse(
        (x + half * 0.45 * np.sign(turn + 1e-9), y + size * 0.1),
        (size * 0.35, size * 0.85),
        shade(skin, 0.88),
    )
    _hair_cap(c, (x, y), size, hair)
    _face(c, (x + half * turn * 0.35, y), size, skin)
    if c.chance(0.3):
        _hat(c, x, y, size)
    if c.chance(0.15):
        c.circle((x, y), size * c.uniform(1.4, 1.7), fixed_palette("d9a520", "f0d060").any(c.rng), 0.02)


def _backdrop(c: Canvas) -> None:
    kind = c.count(0, 3)
    c.gradient(c.palette.tone(c.uniform(0.1, 0.9)), c.palette.tone(c.uniform(0.1, 0.7)))
    c.mottle(c.uniform(12, 35), c.count(2, 6))
    if kind == 0:  # curtain
        for fold in np.linspace(-0.05, c.uniform(0.3, 1.0), c.count(6, 14)):
            sway = c.uniform(-0.05, 0.05)
            colour = vary(c.palette.tone(c.uniform(0.15, 0.5)), c.rng, 12)
            c.polygon(
                [(fold, -0.02), (fold + 0.06, -0.02), (fold + 0.05 + sway, 1.02), (fold + sway, 1.02)], colour
            )
    elif kind == 1:  # window onto a landscape
        left, top = c.uniform(0.02, 0.1), c.uniform(0.05, 0.12)
        right, low = c.uniform(0.28, 0.36), c.uniform(0.4, 0.55)
        c.box(left, top, right, low, c.palette.tone(0.95))
        for layer in range(3):
            level = top + (low - top) * (0.4 + 0.2 * layer)
            bumps = np.linspace(left, right, 9)
            heights = np.clip(level + c.rng.normal(0, 0.02, 9), top, low)
            points = np.concatenate([np.stack([bumps, heights], 1), [[right, low], [left, low]]])
            c.polygon(points, vary(c.palette.tone(0.7 - 0.2 * layer), c.rng, 8))
        c.line(corners(left, top, right, low), c.palette.tone(0.2), 0.015, closed=True)
    elif kind == 2:  # wallpaper
        columns, rows = c.count(5, 10), c.count(6, 11)
        motif = c.palette.any(c.rng)
        for column in range(columns):
            for row in range(rows):
                place = ((column + 0.5 * (row % 2)) / columns, (row + 0.5) / rows)
                c.polygon(c.blob(place, 0.02, 0.4, 8), vary(motif, c.rng, 10))


def _shoulders(c: Canvas, x: float, y: float, size: float) -> None:
    half = size * c.unit / c.width
    cloth = c.palette.any(c.rng)
    width, top = half * c.uniform(1.8, 2.6), y + size * c.uniform(1.3, 1.5)
    outline = [
        (x - width * 1.15, 1.02),
        (x - width, top + size * 0.6),
        (x - half * 0.5, top),
        (x + half * 0.5, top),
        (x + width, top + size * 0.6),
        (x + width * 1.15, 1.02),
    ]
    c.polygon(outline, cloth)
    for _ in range(c.count(6, 16)):  # folds
        start = (x + c.uniform(-1, 1) * width, c.uniform(top + size * 0.5, 1))
        end = (start[0] + c.rng.normal(0, 0.04), start[1] + c.uniform(0.05, 0.3))
        c.line([start, end], shade(cloth, c.uniform(0.6, 1.35)), c.uniform(0.004, 0.02))
    kind = c.count(0, 3)
    light = vary(c.palette.tone(0.95), c.rng, 8)
    if kind == 0:  # collar
        c.polygon(
            [(x - half * 0.8, top), (x, top + size * 0.9), (x + half * 0.8, top), (x, top + size * 0.25)],
            light,
        )
    elif kind == 1:  # ruff
        for angle in np.linspace(0, 2 * np.pi, 22, endpoint=False):
            c.ellipse(
                (x + half * 0.8 * np.cos(angle), top - size * 0.05 + size * 0.25 * np.sin(angle)),
                (size * 0.22, size * 0.14),
                vary(light, c.rng, 9),
                angle=float(np.degrees(angle)),
            )
    elif kind == 2:  # buttons and chain
        for place in np.linspace(top + size * 0.4, 0.98, c.count(3, 6)):
            c.circle((x, place), 0.012, light)
        c.ellipse((x, top + size * 0.1), (size * 0.8, size * 0.9), light, arc=(10, 170), width=0.008)


def _hair_cap(c: Canvas, centre: tuple[float, float], size: float, hair: Colour) -> None:
    x, y = centre
    c.ellipse(
        (x, y - size * 0.35), (size * c.uniform(0.85, 1.0), size * c.uniform(0.75, 0.9)), hair, arc=(175, 365)
    )
    half = size * c.unit / c.width
    for _ in range(c.count(15, 45)):
        angle = c.uniform(np.pi * 1.02, np.pi * 1.98)
        start = (x + half * 0.85 * np.cos(angle), y - size * 0.3 + size * 0.85 * np.sin(angle))
        drop = c.uniform(0.0, 0.5) * size
        end = (start[0] + c.rng.normal(0, half * 0.12), start[1] + drop)
        c.line([start, end], vary(hair, c.rng, 16), 0.01)


def _face(c: Canvas, centre: tuple[float, float], size: float, skin: Colour) -> None:
    x, y = centre
    half = size * c.unit / c.width
    dark, gap = shade(skin, 0.35), half * c.uniform(0.3, 0.4)
    iris = c.palette.any(c.rng)
    gaze = c.uniform(-0.05, 0.05) * half
    brow = c.uniform(-0.06, 0.06) * size
    for side in (-1, 1):
        eye = (x + side * gap, y - size * 0.12)
        c.ellipse(eye, (size * 0.15, size * c.uniform(0.06, 0.09)), (235, 240, 240))
        c.circle((eye[0] + gaze, eye[1]), size * 0.065, shade(iris, 0.7))
        c.circle((eye[0] + gaze, eye[1]), size * 0.03, (15, 15, 15))
        c.ellipse(eye, (size * 0.16, size * 0.1), dark, arc=(190, 350), width=0.006)
        c.line(
            [
                (eye[0] - half * 0.17, eye[1] - size * 0.2 + side * brow),
                (eye[0] + half * 0.17, eye[1] - size * 0.2 - side * brow),
            ],
            dark,
            0.01,
        )
        c.circle((x + side * gap * 1.2, y + size * 0.3), size * 0.14, mix(skin, (90, 90, 220), 0.18))
    tip = x + half * c.uniform(-0.15, 0.15)
    c.line(
        [(x, y - size * 0.1), (tip, y + size * 0.25), (x + half * 0.08, y + size * 0.28)],
        shade(skin, 0.65),
        0.008,
    )
    lips = mix(shade(skin, 0.7), (60, 50, 190), c.uniform(0.3, 0.8))
    mouth = (x, y + size * 0.55)
    c.ellipse(
        mouth, (size * c.uniform(0.18, 0.3), size * c.uniform(0.05, 0.09)), lips, angle=c.uniform(-5, 5)
    )
    c.line(
        [
            (x - half * 0.22, mouth[1]),
            (x, mouth[1] + c.uniform(-0.03, 0.03) * size),
            (x + half * 0.22, mouth[1]),
        ],
        shade(lips, 0.5),
        0.005,
    )
    if c.chance(0.25):  # beard
        for _ in range(60):
            start = (x + c.rng.normal(0, half * 0.3), y + size * c.uniform(0.55, 0.95))
            c.line(
                [start, (start[0] + c.rng.normal(0, half * 0.08), start[1] + size * 0.25)],
                shade(dark, c.uniform(0.7, 1.6)),
                0.006,
            )


def _hat(c: Canvas, x: float, y: float, size: float) -> None:
    half = size * c.unit / c.width
    felt, tilt = c.palette.any(c.rng), c.uniform(-14, 14)
    c.polygon(c.blob((x, y - size * 1.05), size * 0.85, 0.08), felt)
    c.ellipse((x, y - size * 0.65), (size * c.uniform(1.2, 1.7), size * 0.25), shade(felt, 0.7), angle=tilt)
    c.line([(x - half * 0.8, y - size * 0.85), (x + half * 0.8, y - size * 0.85)], c.palette.tone(0.9), 0.015)
