"""Visitors who hide a part of the picture: heads and shoulders at the lower edge, out of focus."""

from __future__ import annotations

import cv2
import numpy as np

from nearsight.experiments.museum.art.colours import fixed_palette, shade, vary
from nearsight.experiments.museum.camera.optics import View

_HAIR = ("1a1512", "3b2a1c", "6a4a2a", "a88a58", "8f8f8c", "2a1a14", "d0c8b8")
_CLOTHES = ("22262e", "4a5568", "7a2f2f", "394a3a", "b0a890", "1c1c1c", "30476a", "d8d4cc")


def add_head(view: View, rng: np.random.Generator, reach: float, place: float | None = None) -> None:
    """Draw one visitor from behind, in place.

    Parameters
    ----------
    view : ndarray, (H, W, 3) float32
    rng : Generator
        Determines the visitor's appearance.
    reach : float
        Height of the head above the lower edge, as a share of the photo's height, in [0, 1].
    place : float, optional
        Horizontal position as a share of the photo's width; 0 and 1 are its edges. Random by default.
    """
    height, width = view.shape[:2]
    small = (width // 2, height // 2)
    layer = np.zeros((small[1], small[0], 3), dtype=np.uint8)
    cover = np.zeros((small[1], small[0]), dtype=np.uint8)
    radius = rng.uniform(0.09, 0.15) * small[0]
    x, top = rng.uniform(0.05, 0.95) * small[0], small[1] * (1 - reach)
    x = x if place is None else place * small[0]
    hair = vary(fixed_palette(*_HAIR).any(rng), rng, 5)
    cloth = vary(fixed_palette(*_CLOTHES).any(rng), rng, 5)
    skin = vary(fixed_palette("e0ac7e", "c68a5b", "8a5a3a", "f1d0b0").any(rng), rng, 5)
    head = (round(x), round(top + radius * 1.2))
    ear = (round(radius * 0.18), round(radius * 0.3))
    parts = (
        ((round(x), round(top + radius * 4.6)), (round(radius * 2.3), round(radius * 2.4)), cloth),
        ((round(x), round(top + radius * 2.2)), (round(radius * 0.5), round(radius * 0.9)), skin),
        ((round(x - radius * 0.85), round(top + radius * 1.3)), ear, skin),
        ((round(x + radius * 0.85), round(top + radius * 1.3)), ear, skin),
        (head, (round(radius * 0.85), round(radius * 1.15)), hair),
    )
    for centre, axes, colour in parts:
        cv2.ellipse(layer, centre, axes, 0, 0, 360, colour, -1)
        cv2.ellipse(cover, centre, axes, 0, 0, 360, 255, -1)
    for _ in range(24):  # strands
        angle = rng.uniform(0, 2 * np.pi)
        end = (round(head[0] + radius * 0.8 * np.cos(angle)), round(head[1] + radius * 1.1 * np.sin(angle)))
        cv2.line(layer, (head[0], round(head[1] - radius * 0.5)), end, shade(hair, rng.uniform(0.7, 1.5)), 1)
    soft = cv2.GaussianBlur(cover, (0, 0), 2.0)
    layer = cv2.GaussianBlur(layer, (0, 0), 1.6)
    alpha = cv2.resize(soft, (width, height), interpolation=cv2.INTER_LINEAR)[:, :, None] * np.float32(
        1 / 255
    )
    full = cv2.resize(layer, (width, height), interpolation=cv2.INTER_LINEAR)
    view *= 1 - alpha
    view += full * alpha
