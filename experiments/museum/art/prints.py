"""Styles of prints: woodcut, etching, screen print, photograph.

Each function takes a canvas with a drawn subject and returns its picture in a style, (H, W, 3) uint8.
"""

from __future__ import annotations

import cv2
import numpy as np

from nearsight.experiments.museum.art.canvas import Canvas
from nearsight.experiments.museum.art.colours import Palette, draw_palette, fixed_palette
from nearsight.experiments.museum.art.textures import Image, age, as_image, clipped, grain
from nearsight.experiments.museum.art.tone import stripes, tone_of


def woodcut(c: Canvas) -> Image:
    """Woodcut: bold lines that are wider in shadow, dark ink on paper, sometimes a second colour."""
    image, rng = c.image, c.rng
    shape = (image.shape[0], image.shape[1])
    tone = tone_of(image)
    ink = stripes(shape, rng, rng.uniform(6, 10), rng.uniform(0, np.pi)) > tone * 1.5 - 0.2
    edges = cv2.dilate(cv2.Canny(image, 70, 160), np.ones((2, 2), np.uint8)) > 0
    paper = fixed_palette("efe6d0", "f5f0e4", "e4d6b8", "dfe3dd").any(rng)
    result = np.full_like(image, paper)
    if rng.random() < 0.45:
        result[(tone > 0.35) & (tone < 0.75)] = c.palette.any(rng)
    result[ink | edges] = fixed_palette("141210", "1c2a44", "4a1512", "20331f").any(rng)
    grain(rng, result, rng.uniform(5, 12))
    return _margin(result, rng, paper)


def etching(c: Canvas) -> Image:
    """Etching: fine cross-hatching, denser in shadow."""
    image, rng = c.image, c.rng
    shape = (image.shape[0], image.shape[1])
    tone = tone_of(image)
    angle, spacing = rng.uniform(0, np.pi), rng.uniform(4, 6)
    light = np.ones(shape, dtype=np.float32)
    for turn, limit in ((0.0, 0.85), (1.1, 0.6), (2.2, 0.35)):
        lines = stripes(shape, rng, spacing, angle + turn)
        light = np.where(
            tone < limit, np.minimum(light, np.clip((lines - 0.35 + tone * 0.4) * 3, 0, 1)), light
        )
    edges = cv2.Canny(image, 60, 150).astype(np.float32) / 255
    light = np.minimum(light, 1 - cv2.GaussianBlur(edges, (0, 0), 0.7) * 1.4)
    paper = fixed_palette("f0e8d6", "e8dcc0", "f4f0e8", "d9cfb4").any(rng)
    ink = np.asarray(fixed_palette("1a1614", "3a2212", "24303a").any(rng))
    share = np.clip(light, 0, 1)[:, :, None]
    result = (np.asarray(paper) * share + ink * (1 - share)).astype(np.uint8)
    grain(rng, result, rng.uniform(5, 14))
    return _margin(result, rng, paper)


def _margin(image: Image, rng: np.random.Generator, paper: tuple[float, float, float]) -> Image:
    """Leave the border of the sheet unprinted."""
    height, width = image.shape[:2]
    edge = round(min(height, width) * rng.uniform(0.03, 0.08))
    low = edge + round(height * rng.uniform(0, 0.05))
    result = np.full_like(image, paper)
    grain(rng, result, 6)
    result[edge : height - low, edge : width - edge] = cv2.resize(
        image, (width - 2 * edge, height - edge - low), interpolation=cv2.INTER_AREA
    )
    return result


def pop(c: Canvas) -> Image:
    """Pop art: flat bright colours and halftone dots, one picture or a grid of variants."""
    image, rng = c.image, c.rng
    height, width = image.shape[:2]
    panels = int(rng.choice([1, 1, 2]))
    small = cv2.resize(image, (width // panels, height // panels), interpolation=cv2.INTER_AREA)
    result = np.empty_like(image)
    for row in range(panels):
        for column in range(panels):
            y, x = row * (height // panels), column * (width // panels)
            bottom = height if row == panels - 1 else y + height // panels
            right = width if column == panels - 1 else x + width // panels
            panel = _halftone(as_image(small), rng, draw_palette(rng, int(rng.integers(4, 7))))
            result[y:bottom, x:right] = cv2.resize(
                panel, (right - x, bottom - y), interpolation=cv2.INTER_NEAREST
            )
    return result


def _halftone(image: Image, rng: np.random.Generator, palette: Palette) -> Image:
    tone = tone_of(image)
    levels = len(palette.colours)
    index = np.clip((tone * levels).astype(int), 0, levels - 1)
    result = as_image(clipped(palette.colours)[index])
    pitch = float(rng.uniform(5, 9))
    ys, xs = np.mgrid[0 : image.shape[0], 0 : image.shape[1]].astype(np.float32)
    dot = np.hypot((xs + ys) % pitch - pitch / 2, (xs - ys) % pitch - pitch / 2) / pitch
    result[(dot < 0.55 * (1 - tone)) & (tone < 0.7)] = palette.tone(0.0)
    result[cv2.dilate(cv2.Canny(image, 60, 150), np.ones((3, 3), np.uint8)) > 0] = palette.tone(0.0)
    return result


def photograph_print(c: Canvas) -> Image:
    """An old toned photograph."""
    image, rng = c.image, c.rng
    tone = tone_of(image) * 0.85 + 0.06
    tint = (
        fixed_palette("1c130c", "6d5238", "c9ab80", "f3e6cc")
        if rng.random() < 0.7
        else fixed_palette("0d1016", "4b5560", "aab4ba", "f0f2ee")
    )
    result = as_image(tint.ramp()[(tone * 255).astype(np.uint8)])
    for _ in range(int(rng.integers(4, 20))):
        x, y = rng.integers(0, image.shape[1]), rng.integers(0, image.shape[0])
        end = (int(x + rng.normal(0, 40)), int(y + rng.normal(0, 40)))
        cv2.line(result, (int(x), int(y)), end, (220, 230, 235), 1, cv2.LINE_AA)
    grain(rng, result, rng.uniform(8, 16))
    age(rng, result, rng.uniform(0.2, 1))
    return _margin(result, rng, (222, 233, 238))
