"""Subjects with people, horses or birds."""

from __future__ import annotations

import numpy as np

from nearsight.experiments.museum.art.canvas import Canvas
from nearsight.experiments.museum.art.colours import fixed_palette, shade, vary
from nearsight.experiments.museum.art.portraits import SKINS


def gathering(c: Canvas) -> None:
    """Several people, standing or dancing, on a floor or in a field."""
    ground = c.uniform(0.45, 0.65)
    c.gradient(c.palette.tone(0.9), c.palette.tone(0.6), 0, ground)
    c.gradient(c.palette.tone(0.45), c.palette.tone(0.25), ground, 1)
    c.mottle(20, c.count(3, 8))
    people = c.count(2, 8)
    for place in np.sort(c.rng.uniform(0, 1, people)):
        _person(
            c, c.uniform(0.08, 0.92), ground + 0.3 * place + 0.08, c.uniform(0.35, 0.45) * (0.6 + 0.7 * place)
        )


def _person(c: Canvas, x: float, foot: float, height: float) -> None:
    skin = vary(fixed_palette(*SKINS).any(c.rng), c.rng, 6)
    unit = height / c.aspect
    cloth, trousers = c.palette.any(c.rng), c.palette.any(c.rng)
    hip, neck = foot - height * 0.48, foot - height * 0.82
    lean = c.rng.normal(0, unit * 0.06)
    if c.chance(0.45):  # a long dress
        c.tapered(x, (foot, unit * 0.2), (hip, unit * 0.07), cloth)
    else:
        for side in (-1, 1):
            knee = (x + side * unit * c.uniform(0.02, 0.12), (hip + foot) / 2)
            c.line([(x, hip), knee, (x + side * unit * c.uniform(0.04, 0.16), foot)], trousers, height * 0.08)
    c.tapered(x, (hip, unit * 0.09), (neck, unit * 0.13), shade(cloth, 1.1), lean)
    for side in (-1, 1):
        elbow = (x + lean + side * unit * c.uniform(0.15, 0.26), neck + height * c.uniform(-0.1, 0.2))
        hand = (elbow[0] + side * unit * c.uniform(-0.12, 0.14), elbow[1] + height * c.uniform(-0.2, 0.2))
        c.line(
            [(x + lean + side * unit * 0.1, neck + height * 0.03), elbow, hand],
            shade(cloth, 0.85),
            height * 0.055,
        )
        c.circle(hand, height * 0.03, skin)
    c.ellipse((x + lean, neck - height * 0.09), (height * 0.065, height * 0.085), skin)
    c.ellipse(
        (x + lean, neck - height * 0.12),
        (height * 0.075, height * 0.07),
        c.palette.tone(c.uniform(0, 0.6)),
        arc=(180, 360),
    )


def horse(c: Canvas) -> None:
    """One or two horses in a meadow."""
    ground = c.uniform(0.6, 0.75)
    c.gradient(c.palette.tone(0.95), c.palette.tone(0.7), 0, ground)
    c.mottle(18, 5)
    c.below(c.ridge(ground - 0.08, 0.04, 3), c.palette.tone(0.5))
    c.below(c.ridge(ground + 0.05, 0.02, 5), c.palette.tone(0.3))
    for place in range(c.count(1, 3)):
        size = c.uniform(0.22, 0.34)
        _quadruped(
            c,
            0.3 + 0.3 * place + c.uniform(-0.1, 0.1),
            ground + c.uniform(-0.02, 0.1),
            size,
            1 if c.chance(0.5) else -1,
        )
    for _ in range(c.count(50, 140)):
        x, y = c.uniform(0, 1), c.uniform(ground + 0.05, 1)
        c.line(
            [(x, y), (x + c.rng.normal(0, 0.01), y - c.uniform(0.02, 0.07))],
            vary(c.palette.tone(0.4), c.rng, 20),
            0.003,
        )


def _quadruped(c: Canvas, x: float, y: float, size: float, facing: int) -> None:
    hide = vary(c.palette.tone(c.uniform(0.05, 0.95)), c.rng, 12)
    unit = size * c.unit / c.width * facing
    body = y - size * 0.35
    for leg in (-0.75, -0.55, 0.5, 0.72):
        knee = (x + unit * (leg + c.uniform(-0.08, 0.08)), y - size * 0.02)
        c.line(
            [(x + unit * leg, body), knee, (x + unit * (leg + c.uniform(-0.1, 0.1)), y + size * 0.35)],
            shade(hide, 0.8),
            size * 0.12,
        )
    c.ellipse((x, body), (size * 0.9, size * 0.38), hide)
    neck = [
        (x + unit * 0.5, body - size * 0.25),
        (x + unit * 0.85, body + size * 0.1),
        (x + unit * 1.3, body - size * 0.65),
        (x + unit * 1.05, body - size * 0.85),
    ]
    c.polygon(neck, shade(hide, 0.95))
    c.ellipse((x + unit * 1.35, body - size * 0.72), (size * 0.3, size * 0.14), hide, angle=35 * facing)
    c.circle((x + unit * 1.3, body - size * 0.78), size * 0.025, (10, 10, 10))
    mane = shade(hide, 0.45)
    for _ in range(22):
        share = c.uniform(0, 1)
        root = (x + unit * (0.55 + 0.55 * share), body - size * (0.25 + 0.62 * share))
        c.line(
            [root, (root[0] - unit * c.uniform(0.1, 0.28), root[1] + size * c.uniform(0, 0.2))],
            vary(mane, c.rng, 8),
            0.007,
        )
    c.line(
        [
            (x - unit * 0.85, body - size * 0.1),
            (x - unit * 1.05, body + size * 0.1),
            (x - unit * 1.08, body + size * 0.5),
        ],
        mane,
        size * 0.07,
    )
    for _ in range(c.count(0, 9)):
        c.polygon(
            c.blob(
                (x + unit * c.uniform(-0.7, 0.7), body + size * c.uniform(-0.25, 0.25)),
                size * c.uniform(0.03, 0.12),
                0.3,
                10,
            ),
            shade(hide, c.uniform(0.6, 1.4)),
        )


def birds(c: Canvas) -> None:
    """Birds on blossoming twigs."""
    c.gradient(c.palette.tone(0.98), c.palette.tone(c.uniform(0.65, 0.95)))
    c.mottle(12, 4)
    for _ in range(c.count(2, 4)):
        _twig(c, (c.uniform(-0.05, 0.3), c.uniform(0.2, 1)), c.uniform(-0.5, 0.3), 0)
    for _ in range(c.count(1, 4)):
        _bird(c, c.uniform(0.2, 0.8), c.uniform(0.2, 0.8), c.uniform(0.07, 0.15), 1 if c.chance(0.5) else -1)


def _twig(c: Canvas, start: tuple[float, float], angle: float, depth: int) -> None:
    x, y = start
    bark = c.palette.tone(0.1)
    for _ in range(c.count(4, 7)):
        angle += c.rng.normal(0, 0.25)
        end = (x + 0.12 * np.cos(angle) / (1 + depth), y + 0.12 * np.sin(angle) / (1 + depth))
        c.line([(x, y), end], bark, 0.014 / (1 + depth))
        x, y = end
        if depth < 2 and c.chance(0.5):
            _twig(c, end, angle + c.uniform(-1.1, 1.1), depth + 1)
        for _ in range(c.count(0, 3)):
            spot = (x + c.rng.normal(0, 0.02), y + c.rng.normal(0, 0.02))
            c.polygon(c.blob(spot, c.uniform(0.008, 0.022), 0.3, 9), c.palette.any(c.rng))


def _bird(c: Canvas, x: float, y: float, size: float, facing: int) -> None:
    unit = size * c.unit / c.width * facing
    body, wing = c.palette.any(c.rng), c.palette.any(c.rng)
    c.polygon(
        [
            (x - unit * 0.6, y + size * 0.1),
            (x - unit * 2.1, y + size * 0.9),
            (x - unit * 1.8, y + size * 1.1),
            (x - unit * 0.3, y + size * 0.5),
        ],
        shade(wing, 0.7),
    )
    c.ellipse((x, y), (size, size * 0.6), body, angle=-25 * facing)
    c.ellipse((x - unit * 0.15, y + size * 0.05), (size * 0.7, size * 0.35), wing, angle=-40 * facing)
    for place in np.linspace(-0.4, 0.4, 6):
        c.line(
            [(x + unit * place, y - size * place * 0.5), (x + unit * (place - 0.5), y + size * 0.4)],
            shade(wing, 0.6),
            0.005,
        )
    head = (x + unit * 0.8, y - size * 0.6)
    c.circle(head, size * 0.42, shade(body, 1.15))
    c.polygon(
        [
            (head[0] + unit * 0.35, head[1] - size * 0.1),
            (head[0] + unit * 0.85, head[1] + size * 0.08),
            (head[0] + unit * 0.32, head[1] + size * 0.18),
        ],
        c.palette.tone(0.1),
    )
    c.circle((head[0] + unit * 0.12, head[1] - size * 0.05), size * 0.08, (10, 10, 10))
    for leg in (-0.1, 0.2):
        c.line([(x + unit * leg, y + size * 0.5), (x + unit * leg, y + size)], c.palette.tone(0.1), 0.006)
