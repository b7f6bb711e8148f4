"""Styles of painting: oil, dabs, dots, facets, watercolour, fresco, chalk.

Each function takes a canvas with a drawn subject and returns its picture in a style, (H, W, 3) uint8.
"""

from __future__ import annotations

import cv2
import numpy as np

from nearsight.experiments.museum.art.canvas import Canvas
from nearsight.experiments.museum.art.colours import fixed_palette
from nearsight.experiments.museum.art.textures import (
    Image,
    age,
    as_image,
    cells,
    clipped,
    craquelure,
    grain,
    noise,
    shift_brightness,
    weave,
)
from nearsight.experiments.museum.art.tone import stripes, tone_of


def oil(c: Canvas) -> Image:
    """Oil on canvas: visible bristles, weave, varnish, often cracks."""
    image, rng = c.image, c.rng
    result = as_image(cv2.medianBlur(image, 5)) if rng.random() < 0.5 else image.copy()
    height, width = result.shape[:2]
    bristles = noise(rng, (height, width), float(rng.uniform(90, 200)), 2) - 0.5
    length = int(rng.integers(7, 17))
    kernel = np.zeros((length, length), dtype=np.float32)
    cv2.line(kernel, (0, int(rng.integers(length))), (length - 1, int(rng.integers(length))), 1.0)
    shift_brightness(
        result, cv2.filter2D(bristles, -1, kernel / kernel.sum()) * np.float32(rng.uniform(12, 70))
    )
    weave(rng, result, rng.uniform(3, 12))
    if rng.random() < 0.6:
        craquelure(rng, result, rng.uniform(20, 60))
    age(rng, result, rng.uniform(0, 0.8))
    return result


def dabs(c: Canvas) -> Image:
    """Short strokes of broken colour that follow a swirling field."""
    image, rng = c.image, c.rng
    height, width = image.shape[:2]
    result = as_image(cv2.GaussianBlur(image, (0, 0), 6))
    flow = noise(rng, (height, width), rng.uniform(1.5, 5), 2) * (2 * np.pi) + rng.uniform(0, np.pi)
    for size, count in ((float(rng.uniform(12, 20)), 500), (float(rng.uniform(6, 10)), 1500)):
        xs, ys = rng.integers(0, width, count), rng.integers(0, height, count)
        angles = flow[ys, xs]
        lengths = size * rng.uniform(0.6, 1.4, count)
        colours = np.clip(
            image[ys, xs] + rng.normal(0, 16, (count, 1)) + rng.normal(0, 9, (count, 3)), 0, 255
        )
        dx, dy = np.cos(angles) * lengths, np.sin(angles) * lengths
        starts = np.stack([xs - dx / 2, ys - dy / 2], 1).astype(int).tolist()
        ends = np.stack([xs + dx / 2, ys + dy / 2], 1).astype(int).tolist()
        thickness = max(2, round(size / 3.2))
        for start, end, colour in zip(starts, ends, colours.tolist(), strict=True):
            cv2.line(result, start, end, colour, thickness, cv2.LINE_AA)
    weave(rng, result, rng.uniform(2, 8))
    return result


def dots(c: Canvas) -> Image:
    """Pointillism: small dots of pure colour on a pale ground."""
    image, rng = c.image, c.rng
    height, width = image.shape[:2]
    result = np.full_like(image, c.palette.tone(0.95))
    blurred = cv2.GaussianBlur(image, (0, 0), 2)
    radius = int(rng.integers(3, 6))
    pitch = radius * 1.5
    columns, rows = int(width / pitch), int(height / pitch)
    grid = np.stack(np.meshgrid(np.arange(columns), np.arange(rows)), -1).reshape(-1, 2) * pitch
    places = np.clip(grid + rng.uniform(0, pitch, grid.shape), 0, (width - 1, height - 1)).astype(int)
    rng.shuffle(places)
    colours = blurred[places[:, 1], places[:, 0]] + rng.normal(0, 26, (len(places), 3))
    for place, colour in zip(places.tolist(), np.clip(colours, 0, 255).tolist(), strict=True):
        cv2.circle(result, place, radius, colour, -1, cv2.LINE_AA)
    return result


def facets(c: Canvas) -> Image:
    """Cubism: the picture divided into shifted and shaded facets."""
    image, rng = c.image, c.rng
    height, width = image.shape[:2]
    labels, borders, centres = cells(rng, (height, width), int(rng.integers(25, 90)))
    shifts = rng.normal(0, min(height, width) * 0.05, centres.shape)
    angles = rng.uniform(0, 2 * np.pi, len(centres))
    ys, xs = np.mgrid[0:height, 0:width].astype(np.float32)
    offset = shifts[labels].astype(np.float32)
    xs_from, ys_from = xs + offset[..., 0], ys + offset[..., 1]
    result = as_image(cv2.remap(image, xs_from, ys_from, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT))
    local = (xs - centres[labels, 0]) * np.cos(angles)[labels] + (ys - centres[labels, 1]) * np.sin(angles)[
        labels
    ]
    shift_brightness(result, (local * rng.uniform(0.6, 1.3)).astype(np.float32))
    shift_brightness(
        result, -cv2.dilate(borders, np.ones((2, 2), np.uint8)) * np.float32(rng.uniform(20, 110))
    )
    weave(rng, result, rng.uniform(3, 9))
    age(rng, result, rng.uniform(0, 0.5))
    return result


def watercolour(c: Canvas) -> Image:
    """Watercolour: thin washes with dark rims; the edge of the paper stays white."""
    image, rng = c.image, c.rng
    shape = (image.shape[0], image.shape[1])
    soft = cv2.bilateralFilter(
        cv2.resize(image, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA), 7, 60, 5
    )
    soft = cv2.resize(soft, shape[::-1], interpolation=cv2.INTER_LINEAR)
    rims = cv2.GaussianBlur(cv2.Canny(soft, 40, 100).astype(np.float32), (0, 0), 1.1)
    thin = noise(rng, shape, rng.uniform(3, 8), 4)
    wash = 255 - (255 - soft.astype(np.float32)) * (0.45 + 0.5 * thin[:, :, None])
    wash -= rims[:, :, None] * 0.35
    ys, xs = np.mgrid[0 : shape[0], 0 : shape[1]].astype(np.float32)
    edge = np.minimum(np.minimum(xs, shape[1] - xs), np.minimum(ys, shape[0] - ys)) / min(shape)
    inside = np.clip((edge - 0.05 + (noise(rng, shape, 9) - 0.5) * 0.07) * 60, 0, 1)[:, :, None]
    result = clipped(wash * inside + np.array([236, 243, 246]) * (1 - inside))
    grain(rng, result, rng.uniform(4, 10))
    return result


def fresco(c: Canvas) -> Image:
    """Fresco: faded colours, plaster stains, cracks, missing patches."""
    image, rng = c.image, c.rng
    shape = (image.shape[0], image.shape[1])
    faded = image.astype(np.float32) * 0.65 + np.array([150, 175, 190]) * 0.35
    lost = np.clip((noise(rng, shape, rng.uniform(4, 8), 5) - rng.uniform(0.66, 0.8)) * 40, 0, 1)[:, :, None]
    plaster = np.asarray(fixed_palette("d8cdb8", "c9bfa8", "e4dccb").any(rng))
    result = clipped(faded * (1 - lost) + plaster * lost)
    grain(rng, result, rng.uniform(14, 28), 9)
    craquelure(rng, result, rng.uniform(50, 90))
    return result


def charcoal(c: Canvas) -> Image:
    """Charcoal, chalk or sanguine on toned paper."""
    image, rng = c.image, c.rng
    shape = (image.shape[0], image.shape[1])
    tone = tone_of(image)
    tooth = noise(rng, shape, 140, 2)
    strokes = stripes(shape, rng, rng.uniform(4, 8), rng.uniform(0.4, 1.2))
    edges = cv2.GaussianBlur(cv2.Canny(image, 50, 130).astype(np.float32) / 255, (0, 0), 1.3) * 2.2
    dark = np.clip((0.6 - tone) * 1.6, 0, 1) * np.clip(tooth * 0.9 + strokes * 0.5, 0, 1) + edges
    paper = np.asarray(fixed_palette("cdbb9a", "b9b4a8", "a9b3b8", "d9c8a4", "e8e2d4").any(rng))
    stick = np.asarray(fixed_palette("1b1a1a", "7a2e1c", "2b2320").any(rng))
    share = np.clip(dark, 0, 0.95)[:, :, None]
    chalk = (np.clip((tone - 0.78) * 3, 0, 1) * tooth)[:, :, None]
    result = paper * (1 - share) + stick * share
    drawing = clipped(result * (1 - chalk) + 245 * chalk)
    grain(rng, drawing, 9)
    return drawing
