"""Picture frames: none, a moulding, a gilded moulding, or a white mat. All photos show the same frame."""

from __future__ import annotations

import cv2
import numpy as np

from nearsight.experiments.museum.art.colours import Colour, fixed_palette, shade, vary
from nearsight.experiments.museum.art.textures import Image, as_image, clipped, noise

_GILT = ("b08d3c", "8f6a2a", "c9a95a", "a37c34", "7d5a28")
_WOOD = ("3a2517", "5a3a22", "7a5632", "1d1512", "95703f", "2a2422")
_PLAIN = ("151515", "e9e7e2", "6b6b68", "8d8578", "b5b0a6", "2c3440")
_MOULDINGS = {"thin": ((0.015, 0.035), _PLAIN), "gilt": ((0.06, 0.14), _GILT), "wood": ((0.04, 0.09), _WOOD)}
"""Least and largest width, relative to the picture's shorter side, and colours of each kind."""


def add_frame(picture: Image, rng: np.random.Generator) -> tuple[Image, int]:
    """Put a frame around a picture.

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
