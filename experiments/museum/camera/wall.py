"""The wall of a gallery: paint, light from above, the framed picture, its shadow, neighbours and label."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import xxhash
from numpy.typing import NDArray

from nearsight.experiments.museum.art.canvas import Canvas
from nearsight.experiments.museum.art.colours import Colour, draw_palette, fixed_palette, shade, vary
from nearsight.experiments.museum.art.textures import Field, Image, as_field, as_image, clipped, noise
from nearsight.experiments.museum.art.writing import alphabet, write_line

_PAINTS = (
    "e8e6e1",
    "d8d5cf",
    "c9c8c6",
    "efece4",
    "7b2b2b",
    "2f4a45",
    "33405a",
    "8a8f8a",
    "b8a88c",
    "5d5550",
    "a34a3a",
)

_GILT = ("b08d3c", "8f6a2a", "c9a95a", "a37c34", "7d5a28")
_WOOD = ("3a2517", "5a3a22", "7a5632", "1d1512", "95703f", "2a2422")
_PLAIN = ("151515", "e9e7e2", "6b6b68", "8d8578", "b5b0a6", "2c3440")
_MOULDINGS = {"thin": ((0.015, 0.035), _PLAIN), "gilt": ((0.06, 0.14), _GILT), "wood": ((0.04, 0.09), _WOOD)}
"""Least and largest width, relative to the picture's shorter side, and colours of each kind."""


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """A part of the wall with the picture, seen straight on."""

    image: Image
    """(H, W, 3) uint8."""
    corners: NDArray[np.float64]
    """Corners of the picture without frame, (4, 2) float64.

    Order: top left, top right, bottom right, bottom left; x and y in pixels.
    """


def hang(reference: Image, picture_width: float, half_size: tuple[float, float]) -> Scene:
    """Hang a picture on a wall. Wall, frame, neighbours and label depend on its pixels alone.

    Parameters
    ----------
    reference : ndarray, (H, W, 3) uint8
    picture_width : float
        Width of the picture in the scene, in pixels.
    half_size : (float, float)
        Half width and half height of the wall around the picture's middle, in pixels.
    """
    belongs = np.random.default_rng(xxhash.xxh64_intdigest(reference.tobytes()))
    for_frame, for_paint, for_neighbours, for_label = belongs.spawn(4)
    scale = picture_width / reference.shape[1]
    method = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    picture = as_image(cv2.resize(reference, None, fx=scale, fy=scale, interpolation=method))
    framed, frame = _add_frame(picture, for_frame)
    height, width = framed.shape[:2]
    around_x, around_y = (
        max(4, round(half - side / 2)) for half, side in zip(half_size, (width, height), strict=True)
    )
    box = _Box(around_x, around_y, around_x + width, around_y + height)
    wall = _paint(for_paint, (height + 2 * around_y, width + 2 * around_x), box)
    _neighbours(wall, for_neighbours, box, max(picture.shape[:2]))
    wall[box.top : box.low, box.left : box.right] = framed
    _label(wall, for_label, box, max(picture.shape[:2]))
    left, top, right, low = box.left + frame, box.top + frame, box.right - frame - 1, box.low - frame - 1
    return Scene(wall, np.array([(left, top), (right, top), (right, low), (left, low)], dtype=np.float64))


@dataclass(frozen=True, slots=True)
class _Box:
    """Pixels of the wall that the frame covers; ``right`` and ``low`` are exclusive."""

    left: int
    top: int
    right: int
    low: int


def _paint(rng: np.random.Generator, shape: tuple[int, int], box: _Box) -> Image:
    """Paint the wall with the light of a lamp and the frame's shadow."""
    height, width = shape
    colour = fixed_palette(*_PAINTS).any(rng)
    coarse = (height // 2, width // 2)
    ys, xs = (np.linspace(-1, 1, count, dtype=np.float32) for count in coarse)
    lamp = 0.95 - 0.14 * ys[:, None] - 0.16 * (xs[None] - np.float32(rng.uniform(-0.5, 0.5))) ** 2
    rough = noise(rng, coarse, float(rng.uniform(60, 120)), 2) - 0.5
    light = lamp * (1 + rough * np.float32(rng.uniform(0.02, 0.1))) * _shadow(rng, coarse, box)
    field = cv2.resize(light, (width, height), interpolation=cv2.INTER_LINEAR)
    wall = as_image(cv2.merge([cv2.convertScaleAbs(field, alpha=channel) for channel in colour]))
    if rng.random() < 0.15:  # panelling or brick
        pitch, groove = round(height / rng.uniform(7, 14)), shade(colour, 0.75)
        for row in range(0, height, pitch):
            cv2.line(wall, (0, row), (width, row), groove, 1, cv2.LINE_AA)
            for column in range((row // pitch % 2) * pitch, width, pitch * 2):
                cv2.line(wall, (column, row), (column, row + pitch), groove, 1, cv2.LINE_AA)
    return wall


def _shadow(rng: np.random.Generator, coarse: tuple[int, int], box: _Box) -> Field:
    """Share of the light that reaches the wall beside the frame, at half the wall's resolution."""
    unit = max(box.right - box.left, box.low - box.top)
    dx, dy = unit * rng.uniform(-0.03, 0.03), unit * rng.uniform(0.015, 0.05)
    light = np.ones(coarse, dtype=np.float32)
    corners = [
        (round((x + dx) / 2), round((y + dy) / 2)) for x, y in ((box.left, box.top), (box.right, box.low))
    ]
    cv2.rectangle(light, corners[0], corners[1], 1 - float(rng.uniform(0.35, 0.6)), -1)
    return as_field(cv2.GaussianBlur(light, (0, 0), max(0.6, unit * float(rng.uniform(0.004, 0.014)))))


def _neighbours(wall: Image, rng: np.random.Generator, box: _Box, unit: int) -> None:
    """Draw other pictures beside this one, mostly cut off by the edge of the photo."""
    for side in (-1, 1):
        if rng.random() < 0.45:
            continue
        width, height = round(unit * rng.uniform(0.45, 1)), round(unit * rng.uniform(0.45, 0.9))
        framed, _ = _add_frame(_sketch(rng, (max(8, height), max(8, width))), rng)
        gap = round(unit * rng.uniform(0.18, 0.45))
        x = box.left - gap - framed.shape[1] if side < 0 else box.right + gap
        y = (box.top + box.low) // 2 - framed.shape[0] // 2 + round(unit * rng.uniform(-0.1, 0.1))
        _paste(wall, framed, x, y)


def _sketch(rng: np.random.Generator, shape: tuple[int, int]) -> Image:
    """Paint a simple picture, for the neighbours."""
    c = Canvas(np.zeros((*shape, 3), dtype=np.uint8), rng, draw_palette(rng))
    c.gradient(c.palette.tone(c.uniform(0.4, 1)), c.palette.tone(c.uniform(0.2, 0.8)))
    for _ in range(c.count(4, 14)):
        c.polygon(
            c.blob((c.uniform(0, 1), c.uniform(0, 1)), c.uniform(0.05, 0.3), 0.3, 14), c.palette.any(c.rng)
        )
    if c.chance(0.6):
        for level in np.linspace(0.5, 0.95, c.count(2, 4)):
            c.below(c.ridge(float(level), 0.05, 3), c.palette.any(c.rng))
    return c.image


def _paste(wall: Image, picture: Image, x: int, y: int) -> None:
    x0, y0 = max(x, 0), max(y, 0)
    x1, y1 = min(x + picture.shape[1], wall.shape[1]), min(y + picture.shape[0], wall.shape[0])
    if x1 > x0 and y1 > y0:
        cv2.rectangle(wall, (x0 + 2, y0 + 3), (x1 + 2, y1 + 4), shade((60, 60, 60), 0.8), -1)
        wall[y0:y1, x0:x1] = picture[y0 - y : y1 - y, x0 - x : x1 - x]


def _label(wall: Image, rng: np.random.Generator, box: _Box, unit: int) -> None:
    """Draw the label with title and artist, right of the picture or below it."""
    width, height = round(unit * 0.15), round(unit * 0.09)
    x, y = (
        (box.right + round(unit * 0.07), box.low - height)
        if rng.random() < 0.7
        else (box.right - width, box.low + round(unit * 0.06))
    )
    if width < 12 or y + height > wall.shape[0] or x + width > wall.shape[1]:
        return
    plate = Canvas(wall[y : y + height, x : x + width], rng, draw_palette(rng))
    plate.image[:] = vary((236, 240, 242), rng, 4)
    letters = alphabet(rng, 12)
    for row in range(4):
        end = float(rng.uniform(0.5, 0.92))
        write_line(
            plate, letters, (0.08, end, 0.27 + 0.2 * row), 0.13 if row == 0 else 0.09, (60, 60, 60), 0.02
        )


def _add_frame(picture: Image, rng: np.random.Generator) -> tuple[Image, int]:
    """Put a frame around a picture: none, a moulding, a gilded moulding, or a white mat.

    Parameters
    ----------
    picture : ndarray, (H, W, 3) uint8
    rng : Generator
        Selects the frame.

    Returns
    -------
    framed : ndarray, (H + 2 m, W + 2 m, 3) uint8
    margin : int
        m, the width of the frame in pixels.
    """
    unit = min(picture.shape[:2])
    kind = rng.choice(["none", "thin", "gilt", "wood", "mat"], p=[0.12, 0.22, 0.26, 0.2, 0.2])
    if kind == "none":
        margin = max(1, round(unit * 0.008))
        return _surround(picture, margin, fixed_palette("d8d2c4").any(rng)), margin
    if kind == "mat":
        mat = max(3, round(unit * rng.uniform(0.05, 0.12)))
        picture = _surround(picture, mat, vary((232, 238, 240), rng, 5))
        cv2.rectangle(
            picture, (mat - 1, mat - 1), (picture.shape[1] - mat, picture.shape[0] - mat), (190, 195, 198), 1
        )
        thin = max(2, round(unit * rng.uniform(0.015, 0.03)))
        return _moulding(picture, thin, fixed_palette(*_PLAIN, *_WOOD).any(rng), rng, 0.0), mat + thin
    share, colours = _MOULDINGS[str(kind)]
    width = max(2, round(unit * rng.uniform(*share)))
    carving = float(rng.uniform(0.15, 0.45)) if kind == "gilt" else float(rng.uniform(0, 0.15))
    return _moulding(picture, width, fixed_palette(*colours).any(rng), rng, carving), width


def _surround(picture: Image, margin: int, colour: Colour) -> Image:
    return as_image(
        cv2.copyMakeBorder(picture, margin, margin, margin, margin, cv2.BORDER_CONSTANT, value=colour)
    )


def _moulding(picture: Image, width: int, colour: Colour, rng: np.random.Generator, carving: float) -> Image:
    """Add a frame with a profile; its four sides reflect the light from above differently."""
    framed = _surround(picture, width, colour)
    height, wide = framed.shape[:2]
    steps = np.linspace(0, 1, width)
    profile = 0.85 + 0.35 * np.sin(steps * np.pi * rng.uniform(1, 3) + rng.uniform(0, 2)) * rng.uniform(
        0.3, 1
    )
    for ring in range(width):
        top, low = framed[ring, ring : wide - ring], framed[height - 1 - ring, ring : wide - ring]
        left, right = framed[ring : height - ring, ring], framed[ring : height - ring, wide - 1 - ring]
        for side, light in ((top, 1.12), (left, 1.0), (right, 0.88), (low, 0.78)):
            side[:] = shade(colour, float(profile[ring]) * light)
    if carving > 0:
        relief = 1 + (noise(rng, (height, wide), rng.uniform(30, 70), 2) - 0.5) * np.float32(2 * carving)
        relief[width : height - width, width : wide - width] = 1
        framed = clipped(framed * relief[:, :, None])
    inner = (width - 1, width - 1), (wide - width, height - width)
    cv2.rectangle(framed, *inner, shade(colour, 0.4), 1)
    return framed
