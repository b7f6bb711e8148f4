"""Manners: the same kind of subject in oil, in dabs, in facets, cut in wood, set in stone or woven.

Each function takes a canvas with a drawn subject and returns its picture, (H, W, 3) uint8, in another manner.
"""

from __future__ import annotations

import cv2
import numpy as np

from nearsight.experiments.museum.art.canvas import Canvas
from nearsight.experiments.museum.art.colours import Palette, draw_palette, fixed_palette
from nearsight.experiments.museum.art.textures import (
    Field,
    Image,
    age,
    as_field,
    as_image,
    cells,
    clipped,
    craquelure,
    grain,
    noise,
    shift_brightness,
    weave,
)


def oil(c: Canvas) -> Image:
    """Oil on canvas: visible bristles, weave, varnish, often cracks."""
    image, rng = c.image, c.rng
    result = as_image(cv2.medianBlur(image, 5)) if rng.random() < 0.5 else image.copy()
    height, width = result.shape[:2]
    bristles = noise(rng, (height, width), float(rng.uniform(50, 120)), 2) - 0.5
    length = int(rng.integers(9, 25))
    kernel = np.zeros((length, length), dtype=np.float32)
    cv2.line(kernel, (0, int(rng.integers(length))), (length - 1, int(rng.integers(length))), 1.0)
    shift_brightness(
        result, cv2.filter2D(bristles, -1, kernel / kernel.sum()) * np.float32(rng.uniform(60, 160))
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
    """Cubism: the view broken into shifted, shaded facets."""
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


def mosaic(c: Canvas) -> Image:
    """Tesserae: one colour a stone, grout between them."""
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
    """Glowing panes in lead."""
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


def _stripes(shape: tuple[int, int], rng: np.random.Generator, spacing: float, angle: float) -> Field:
    """Wavering parallel lines: 0 in the middle of a line, 1 between two lines."""
    height, width = shape
    ys, xs = np.mgrid[0:height, 0:width].astype(np.float32)
    along = (
        xs * np.float32(np.cos(angle))
        + ys * np.float32(np.sin(angle))
        + noise(rng, shape, 5) * np.float32(spacing * 4)
    )
    return as_field(np.abs((along / np.float32(spacing)) % 1 - 0.5) * 2)


def _grey(image: Image) -> Field:
    grey = cv2.equalizeHist(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY))
    return as_field(cv2.GaussianBlur(grey, (0, 0), 1.2)) / np.float32(255)


def woodcut(c: Canvas) -> Image:
    """Bold cut lines that swell with the shadow, dark ink on paper, sometimes a second block of colour."""
    image, rng = c.image, c.rng
    shape = (image.shape[0], image.shape[1])
    tone = _grey(image)
    ink = _stripes(shape, rng, rng.uniform(6, 10), rng.uniform(0, np.pi)) > tone * 1.5 - 0.2
    edges = cv2.dilate(cv2.Canny(image, 70, 160), np.ones((2, 2), np.uint8)) > 0
    paper = fixed_palette("efe6d0", "f5f0e4", "e4d6b8", "dfe3dd").any(rng)
    result = np.full_like(image, paper)
    if rng.random() < 0.45:
        result[(tone > 0.35) & (tone < 0.75)] = c.palette.any(rng)
    result[ink | edges] = fixed_palette("141210", "1c2a44", "4a1512", "20331f").any(rng)
    grain(rng, result, rng.uniform(5, 12))
    return _margin(result, rng, paper)


def etching(c: Canvas) -> Image:
    """Fine cross-hatching that follows the shadow."""
    image, rng = c.image, c.rng
    shape = (image.shape[0], image.shape[1])
    tone = _grey(image)
    angle, spacing = rng.uniform(0, np.pi), rng.uniform(4, 6)
    light = np.ones(shape, dtype=np.float32)
    for turn, limit in ((0.0, 0.85), (1.1, 0.6), (2.2, 0.35)):
        lines = _stripes(shape, rng, spacing, angle + turn)
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
    """Leave the sheet's border unprinted."""
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
    """Pop art: flat loud colours and halftone dots, one picture or a grid of them."""
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
    tone = _grey(image)
    levels = len(palette.colours)
    index = np.clip((tone * levels).astype(int), 0, levels - 1)
    result = as_image(clipped(palette.colours)[index])
    pitch = float(rng.uniform(5, 9))
    ys, xs = np.mgrid[0 : image.shape[0], 0 : image.shape[1]].astype(np.float32)
    dot = np.hypot((xs + ys) % pitch - pitch / 2, (xs - ys) % pitch - pitch / 2) / pitch
    result[(dot < 0.55 * (1 - tone)) & (tone < 0.7)] = palette.tone(0.0)
    result[cv2.dilate(cv2.Canny(image, 60, 150), np.ones((3, 3), np.uint8)) > 0] = palette.tone(0.0)
    return result


def watercolour(c: Canvas) -> Image:
    """Thin washes with dark rims that leave the paper's edge white."""
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


def tapestry(c: Canvas) -> Image:
    """Woven picture: coarse stitches in few colours, with a border."""
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


def fresco(c: Canvas) -> Image:
    """Faded wall painting: plaster stains, cracks, patches fallen off."""
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
    tone = _grey(image)
    tooth = noise(rng, shape, 140, 2)
    strokes = _stripes(shape, rng, rng.uniform(4, 8), rng.uniform(0.4, 1.2))
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


def photograph_print(c: Canvas) -> Image:
    """An old toned photograph."""
    image, rng = c.image, c.rng
    tone = _grey(image) * 0.85 + 0.06
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
