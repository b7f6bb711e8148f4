"""Styles of crafts: mosaic, stained glass, tapestry.

Each function takes a canvas with a drawn subject and returns its picture in a style, (H, W, 3) uint8.
"""

from __future__ import annotations

import cv2
import numpy as np

from nearsight.experiments.museum.art.canvas import Canvas
from nearsight.experiments.museum.art.textures import (
    Image,
    as_field,
    as_image,
    cells,
    clipped,
    grain,
    noise,
    shift_brightness,
)


def mosaic(c: Canvas) -> Image:
    """Mosaic: stones of one colour each, with grout between them."""
    image, rng = c.image, c.rng
    shape = (image.shape[0], image.shape[1])
    labels, borders, centres = cells(
        rng, shape, int(rng.integers(900, 2600)), regular=float(rng.uniform(0.3, 0.75))
    )
    blurred = cv2.GaussianBlur(image, (0, 0), 3)
    colours = (
        blurred[centres[:, 1], centres[:, 0]]
        + rng.normal(0, 13, (len(centres), 1))
        + rng.normal(0, 5, (len(centres), 3))
    )
    result = as_image(clipped(colours)[labels])
    grout = np.asarray(c.palette.tone(float(rng.choice([0.05, 0.95]))), dtype=np.uint8)
    result[borders > 0] = grout
    grain(rng, result, rng.uniform(4, 10))
    return result


def stained_glass(c: Canvas) -> Image:
    """Stained glass: bright panes with lead between them."""
    image, rng = c.image, c.rng
    shape = (image.shape[0], image.shape[1])
    labels, borders, centres = cells(
        rng, shape, int(rng.integers(90, 320)), regular=float(rng.uniform(0, 0.5))
    )
    hsv = cv2.cvtColor(
        cv2.GaussianBlur(image, (0, 0), 4)[centres[:, 1], centres[:, 0]][None], cv2.COLOR_BGR2HSV
    )[0].astype(float)
    hsv[:, 0] = (hsv[:, 0] + rng.normal(0, 7, len(hsv))) % 180
    hsv[:, 1] = np.clip(hsv[:, 1] * 1.3 + 60, 0, 255)
    hsv[:, 2] = np.clip(hsv[:, 2] * 1.1 + rng.normal(0, 22, len(hsv)), 25, 255)
    colours = cv2.cvtColor(hsv.astype(np.uint8)[None], cv2.COLOR_HSV2BGR)[0]
    result = as_image(colours[labels])
    shift_brightness(result, (noise(rng, shape, 25) - 0.5) * 60)
    edges = cv2.Canny(cv2.GaussianBlur(image, (0, 0), 3), 60, 140)
    lead = cv2.dilate(np.maximum(borders, edges / 255).astype(np.uint8), np.ones((4, 4), np.uint8))
    result[lead > 0] = (22, 20, 20)
    return result


def tapestry(c: Canvas) -> Image:
    """Tapestry: coarse stitches in few colours, with a border."""
    image, rng = c.image, c.rng
    height, width = image.shape[:2]
    stitch = int(rng.integers(4, 8))
    small = cv2.resize(image, (width // stitch, height // stitch), interpolation=cv2.INTER_AREA)
    small = clipped(np.round((small + rng.normal(0, 7, small.shape)) / 32) * 32)
    border = max(2, min(small.shape[:2]) // int(rng.integers(9, 16)))
    for ring in range(border):
        ends = (small.shape[1] - 1 - ring, small.shape[0] - 1 - ring)
        cv2.rectangle(small, (ring, ring), ends, c.palette.any(rng) if ring % 2 else c.palette.tone(0.15), 1)
    result = as_image(cv2.resize(small, (width, height), interpolation=cv2.INTER_NEAREST))
    xs, ys = np.arange(width) % stitch, np.arange(height) % stitch
    slant = ((xs[None] + ys[:, None]) % stitch).astype(np.float32) / stitch - 0.5
    shift_brightness(result, as_field(slant * 38))
    grain(rng, result, rng.uniform(6, 14))
    return result
