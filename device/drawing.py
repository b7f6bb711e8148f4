"""Draws a recognition into its photo: the outline of the object and its label."""

from __future__ import annotations

import unicodedata

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidImage
from nearsight.common.text import percent
from nearsight.device.recognition import Recognition

_INK = (60, 220, 60)
_PAPER = (30, 30, 30)

Pixels = NDArray[np.uint8]


def draw_recognition(image: bytes, recognition: Recognition) -> bytes:
    """The photo with the outline and the label, as a PNG file.

    Parameters
    ----------
    image : bytes
        The file that was recognised.
    recognition : Recognition
        Its answer, with corners in pixels of this image; "unknown" is written in the top left corner.

    Raises
    ------
    InvalidImage
        If the file cannot be decoded.
    """
    decoded = cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_COLOR) if image else None
    if decoded is None:
        raise InvalidImage("the photo cannot be decoded for drawing", advice="check the file")
    canvas = np.asarray(decoded, np.uint8)
    text_px = max(12, round(max(canvas.shape[:2]) / 36))
    if recognition.corners is None:
        write(canvas, "unknown", (text_px // 2, text_px // 2), text_px)
    else:
        outline = np.rint(np.clip(recognition.corners, -32_000, 32_000)).astype(np.int32)
        thickness = max(2, text_px // 7)
        cv2.polylines(canvas, [outline.reshape(-1, 1, 2)], True, _INK, thickness, cv2.LINE_AA)
        cv2.circle(canvas, outline[0].tolist(), thickness * 2, _INK, -1, cv2.LINE_AA)
        label = f"{percent(recognition.confidence)}  {recognition.label or recognition.object_id}"
        write(canvas, label, _label_place(outline, 2 * text_px), text_px)
    return cv2.imencode(".png", canvas)[1].tobytes()


def _label_place(outline: NDArray[np.int32], height_px: int) -> tuple[int, int]:
    """Position above the outline if there is room, else below."""
    left, top = (int(value) for value in outline.min(axis=0))
    bottom = int(outline[:, 1].max())
    return left, top - height_px if top >= height_px else bottom + height_px // 6


def write(canvas: Pixels, text: str, top_left: tuple[int, int], size_px: int) -> None:
    """Draw text on a dark band, moved into the image if it would not fit."""
    pad = size_px // 3
    text, width = _fitting(text, canvas.shape[1] - 2 * pad, size_px)
    x = max(0, min(top_left[0], canvas.shape[1] - width - 2 * pad))
    y = max(0, min(top_left[1], canvas.shape[0] - size_px - 2 * pad))
    cv2.rectangle(canvas, (x, y), (x + width + 2 * pad, y + size_px + 2 * pad), _PAPER, -1)
    origin = (x + pad, y + pad + round(0.85 * size_px))
    if hasattr(cv2, "FontFace"):
        cv2.putText(canvas, text, origin, _INK, cv2.FontFace("sans"), size_px)
    else:
        cv2.putText(
            canvas, _ascii(text), origin, cv2.FONT_HERSHEY_SIMPLEX, size_px / 32, _INK, 1, cv2.LINE_AA
        )


def _fitting(text: str, width_px: int, size_px: int) -> tuple[str, int]:
    """The text, shortened with an ellipsis until it fits, and its width in pixels."""
    shown = text
    while (width := _width(shown, size_px)) > width_px and len(shown) > 4:
        shown = shown[:-4].rstrip() + "..."
    return shown, width


def _width(text: str, size_px: int) -> int:
    if hasattr(cv2, "FontFace"):
        _, _, width, _ = cv2.getTextSize((1, 1), text, (0, 0), cv2.FontFace("sans"), size_px)
        return int(width)
    (width, _), _ = cv2.getTextSize(_ascii(text), cv2.FONT_HERSHEY_SIMPLEX, size_px / 32, 1)
    return int(width)


def _ascii(text: str) -> str:
    """The text without accents and other non-ASCII characters, which the fonts of OpenCV before 5 lack."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
