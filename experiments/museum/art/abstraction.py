"""Abstract pictures: planes, grids, circles, drips, waves, colour fields, collages and shards."""

from __future__ import annotations

from itertools import pairwise

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsight.experiments.museum.art.canvas import Canvas
from nearsight.experiments.museum.art.colours import fixed_palette, shade, vary
from nearsight.experiments.museum.art.textures import cells, grain, noise, shift_brightness, weave


def planes(c: Canvas) -> None:
    """Tilted bars, discs, triangles and arcs on a pale ground."""
    c.image[:] = vary(c.palette.tone(c.uniform(0.85, 1.0)), c.rng, 5)
    lean = c.uniform(0, np.pi)
    for _ in range(c.count(14, 38)):
        x, y = c.uniform(0.05, 0.95), c.uniform(0.05, 0.95)
        colour, size = c.palette.any(c.rng), c.uniform(0.03, 0.3) ** 1.2
        kind = c.count(0, 5)
        if kind <= 2:
            angle = lean + (c.uniform(-0.1, 0.1) if c.chance(0.7) else c.uniform(0, np.pi))
            along = np.array([np.cos(angle) / c.aspect, np.sin(angle)]) * size * c.uniform(0.5, 2.2)
            across = np.array([-np.sin(angle) / c.aspect, np.cos(angle)]) * size * c.uniform(0.06, 0.5)
            centre = np.array([x, y])
            c.polygon(
                [
                    centre - along - across,
                    centre + along - across,
                    centre + along + across,
                    centre - along + across,
                ],
                colour,
            )
        elif kind == 3:
            c.circle((x, y), size * 0.6, colour, 0.0 if c.chance(0.6) else c.uniform(0.005, 0.03))
        elif kind == 4:
            c.ellipse(
                (x, y),
                (size, size),
                colour,
                arc=(c.uniform(0, 180), c.uniform(190, 350)),
                width=c.uniform(0.005, 0.025),
            )
        else:
            c.polygon(c.rng.uniform(-size, size, (3, 2)) + np.array([x, y]), colour)
    for _ in range(c.count(3, 14)):
        c.line(c.rng.uniform(0, 1, (2, 2)), c.palette.tone(0.02), c.uniform(0.002, 0.012))
    weave(c.rng, c.image, c.uniform(3, 8))
    grain(c.rng, c.image, 5)


def grid(c: Canvas) -> None:
    """Black bars that divide a white ground into unequal fields, some of them coloured."""
    c.image[:] = (228, 236, 238)
    black = c.uniform(0.008, 0.03)

    def divide(left: float, top: float, right: float, low: float, depth: int) -> None:
        wide = (right - left) * c.aspect > low - top
        if depth == 0 or (depth < 4 and c.chance(0.15)) or max((right - left) * c.aspect, low - top) < 0.12:
            if c.chance(0.42):
                c.box(left, top, right, low, c.palette.any(c.rng))
            return
        share = c.uniform(0.22, 0.78)
        if wide:
            middle = left + (right - left) * share
            divide(left, top, middle, low, depth - 1)
            divide(middle, top, right, low, depth - 1)
            c.line([(middle, top), (middle, low)], (18, 18, 18), black * c.uniform(0.6, 1.3))
        else:
            middle = top + (low - top) * share
            divide(left, top, right, middle, depth - 1)
            divide(left, middle, right, low, depth - 1)
            c.line([(left, middle), (right, middle)], (18, 18, 18), black * c.uniform(0.6, 1.3))

    divide(0, 0, 1, 1, c.count(4, 6))
    shift_brightness(c.image, (noise(c.rng, (c.height, c.width), 60, 2) - 0.5) * 22)
    weave(c.rng, c.image, c.uniform(3, 9))


def circles(c: Canvas) -> None:
    """Concentric discs of different colours, in rows or scattered."""
    c.image[:] = c.palette.any(c.rng)
    regular = c.chance(0.5)
    columns = c.count(2, 5)
    rows = max(1, round(columns / c.aspect))
    places = [((i + 0.5) / columns, (j + 0.5) / rows) for i in range(columns) for j in range(rows)]
    if not regular:
        places = [(c.uniform(0, 1), c.uniform(0, 1)) for _ in range(c.count(9, 30))]
    for x, y in places:
        if regular:
            half = 0.5 / columns, 0.5 / rows
            c.box(x - half[0], y - half[1], x + half[0], y + half[1], c.palette.any(c.rng))
        radius = 0.5 / columns * c.width / c.unit * c.uniform(0.8, 1) if regular else c.uniform(0.04, 0.22)
        rings = c.count(3, 7)
        for ring in range(rings):
            size = radius * (1 - ring / rings)
            c.polygon(c.blob((x, y), size, 0.05 if regular else 0.01, 40), c.palette.any(c.rng))
    shift_brightness(c.image, (noise(c.rng, (c.height, c.width), 40, 3) - 0.5) * 40)
    weave(c.rng, c.image, c.uniform(3, 9))


def drips(c: Canvas) -> None:
    """Action painting: thrown and dripped paint in loops and spatters."""
    c.image[:] = c.palette.tone(c.uniform(0.6, 1))
    c.mottle(20, 6)
    for _ in range(c.count(30, 70)):
        colour = (
            c.palette.any(c.rng) if c.chance(0.7) else ((12, 12, 14) if c.chance(0.6) else (240, 244, 245))
        )
        steps = c.count(30, 90)
        turn = np.cumsum(c.rng.normal(0, 0.35, steps)) + c.uniform(0, 6.3)
        walk = np.cumsum(
            np.stack([np.cos(turn), np.sin(turn)], 1) * c.uniform(0.012, 0.035), axis=0
        ) + c.rng.uniform(0, 1, 2)
        thick = c.uniform(0.002, 0.014)
        for part in range(0, steps - 8, 8):
            c.line(walk[part : part + 9], colour, thick * c.uniform(0.4, 1.5))
        for spot in walk[c.rng.integers(0, steps, c.count(4, 14))]:
            c.polygon(
                c.blob(tuple(spot + c.rng.normal(0, 0.02, 2)), c.uniform(0.003, 0.018), 0.3, 10), colour
            )
    for _ in range(c.count(100, 260)):
        c.circle((c.uniform(0, 1), c.uniform(0, 1)), c.uniform(0.001, 0.006), c.palette.any(c.rng))
    weave(c.rng, c.image, 6)


def waves(c: Canvas) -> None:
    """Op art: stripes or squares that seem to swell."""
    shape = (c.height, c.width)
    ys, xs = np.mgrid[0 : c.height, 0 : c.width].astype(np.float32) / c.unit
    bend = noise(c.rng, shape, c.uniform(1.5, 4), 1) * c.uniform(0.3, 0.9)
    swell = noise(c.rng, shape, c.uniform(1.5, 3), 1) * c.uniform(0.2, 0.6)
    pitch = c.uniform(12, 26)
    kind = c.count(0, 2)
    if kind == 0:
        on = np.sin((xs + bend) * 2 * np.pi * pitch / 2) > 0
    elif kind == 1:
        on = (np.sin((xs + bend) * np.pi * pitch) > 0) ^ (np.sin((ys + swell) * np.pi * pitch) > 0)
    else:
        centre = (c.uniform(0.3, 0.7) * c.width / c.unit, c.uniform(0.3, 0.7) * c.height / c.unit)
        on = np.sin((np.hypot(xs - centre[0], ys - centre[1]) + bend * 0.4) * np.pi * pitch) > 0
    ground = np.array((240.0, 240.0, 240.0) if c.chance(0.4) else c.palette.tone(1.0))
    # Shapes that swap the two colours and areas of different ink make each part of the picture distinct.
    for _ in range(c.count(1, 4)):
        swap = np.zeros(shape, dtype=np.uint8)
        outline = c.pixels(
            c.blob((c.uniform(0.15, 0.85), c.uniform(0.15, 0.85)), c.uniform(0.1, 0.3), 0.12, 30)
        )
        cv2.fillPoly(swap, [outline], 1, cv2.LINE_8, 4)
        on = on ^ (swap > 0)
    areas, _, centres = cells(c.rng, shape, c.count(6, 60))
    inks = np.array([c.palette.any(c.rng) for _ in range(len(centres))])
    if c.chance(0.35):
        inks = np.clip(c.rng.normal(26, 16, (len(centres), 1)), 5, 90) * np.ones(3)
    c.image[:] = np.where(on[:, :, None], ground, inks[areas])
    grain(c.rng, c.image, 7)


def fields(c: Canvas) -> None:
    """Broad fields of colour with soft edges, one above the other, scraped and overpainted."""
    ground = c.palette.any(c.rng)
    c.image[:] = ground
    levels = np.sort(c.rng.uniform(0.05, 0.95, c.count(2, 5)))
    edges = np.concatenate([[0.04], levels, [0.96]])
    for top, low in pairwise(edges):
        if low - top > 0.04:
            upper = c.ridge(top + 0.012, 0.006, 6)
            lower = c.ridge(low - 0.012, 0.006, 6)
            outline = np.clip(np.concatenate([upper, lower[::-1]]), 0.05, 0.95)
            c.polygon(outline, c.palette.any(c.rng))
    for _ in range(c.count(40, 140)):
        x, y = c.uniform(0, 1), c.uniform(0, 1)
        place = (min(c.height - 1, int(y * c.height)), min(c.width - 1, int(x * c.width)))
        colour = vary(tuple(float(v) for v in c.image[place]), c.rng, 14)  # type: ignore[arg-type]
        c.line(
            [(x, y), (x + c.rng.normal(0, 0.2), y + c.rng.normal(0, 0.012))], colour, c.uniform(0.004, 0.03)
        )
    c.mottle(22, 12)
    grain(c.rng, c.image, 8)
    weave(c.rng, c.image, c.uniform(4, 11))


def collage(c: Canvas) -> None:
    """Overlapping pieces of torn and cut paper, printed and plain."""
    c.image[:] = fixed_palette("d8c8a4", "b8ab92", "e6dcc6", "5c5348").any(c.rng)
    c.mottle(20, 8)
    for _ in range(c.count(9, 18)):
        centre, size = (c.uniform(0.1, 0.9), c.uniform(0.1, 0.9)), c.uniform(0.1, 0.3)
        outline = c.blob(centre, size, 0.2 if c.chance(0.5) else 0.5, c.count(4, 16))
        c.polygon(c.shifted(outline, 0.008, 0.01), shade(c.palette.tone(0.0), 0.5))
        c.polygon(outline, c.palette.any(c.rng))
        if c.chance(0.75):
            _print_on(c, outline)
    grain(c.rng, c.image, 8)


def _print_on(c: Canvas, outline: NDArray[np.float64]) -> None:
    """Print text lines, stripes or checks on the piece of paper with this outline."""
    paper = np.zeros((c.height, c.width), dtype=np.uint8)
    cv2.fillPoly(paper, [c.pixels(outline)], 1, cv2.LINE_8, 4)
    x0, y0, width, height = cv2.boundingRect(paper)
    part = (slice(y0, y0 + height), slice(x0, x0 + width))
    ys, xs = np.mgrid[part].astype(np.float32)
    angle, pitch, kind = c.uniform(0, np.pi), c.count(8, 22), c.count(0, 2)
    u = (xs * np.float32(np.cos(angle)) + ys * np.float32(np.sin(angle))).astype(np.int32)
    v = (ys * np.float32(np.cos(angle)) - xs * np.float32(np.sin(angle))).astype(np.int32)
    if kind == 0:  # text lines: words of random length, different in each line
        words, starts = c.rng.random(509) < 0.55, c.rng.integers(0, 509, 256)
        ink = (v % 9 < 4) & words[(np.abs(u) // 5 + starts[np.abs(v) // 9 % 256]) % 509]
    elif kind == 1:
        ink = u % pitch < pitch // 2
    else:
        ink = (u // pitch + v // pitch) % 2 == 0
    colour = c.palette.tone(c.uniform(0, 0.4)) if kind == 0 else c.palette.any(c.rng)
    c.image[part][ink & (paper[part] > 0)] = colour


def shards(c: Canvas) -> None:
    """Crystalline colour: shaded cells within larger cells."""
    shape = (c.height, c.width)
    labels, borders, centres = cells(c.rng, shape, c.count(30, 110))
    fine, fine_borders, _ = cells(c.rng, shape, c.count(200, 500))
    colours = np.array([c.palette.any(c.rng) for _ in range(len(centres))])
    lights = c.rng.normal(0, 22, int(fine.max()) + 1)
    c.image[:] = np.clip(colours[labels] + lights[fine][:, :, None], 0, 255)
    edge = c.uniform(-120, 160)
    shift_brightness(
        c.image,
        (cv2.dilate(borders, np.ones((3, 3), np.uint8)) * edge + fine_borders * edge * 0.3).astype(
            np.float32
        ),
    )
    weave(c.rng, c.image, c.uniform(3, 9))
