"""The drawn photo: the outline is at the corners, and any label can be written."""

import cv2
import numpy as np
import pytest

from nearsight.common.errors import InvalidImage
from nearsight.common.recognition.results import Corners, RecognizedObject
from nearsight.device.drawing import draw_recognition
from nearsight.device.recognition import Recognition
from support.pictures import jpeg

GREY = jpeg(np.full((300, 400, 3), 128, np.uint8))
INSIDE: Corners = ((100, 100), (300, 100), (300, 250), (100, 250))


def drawn(corners: Corners | None, label: str = "A") -> np.ndarray:
    found = RecognizedObject("a", label, 1, 0.9, 20, corners) if corners else None
    png = draw_recognition(GREY, Recognition(found, "edge", 1.0))
    return cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_COLOR).astype(int)


def is_green(pixel: np.ndarray) -> bool:
    return bool(pixel[1] > pixel[0] + 60 and pixel[1] > pixel[2] + 60)


def test_the_outline_runs_through_the_corners_and_the_inside_stays_as_it_was() -> None:
    canvas = drawn(INSIDE)
    assert canvas.shape == (300, 400, 3)
    assert all(is_green(canvas[y, x]) for x, y in [(200, 100), (300, 180), (200, 250), (100, 180)])
    assert not is_green(canvas[180, 200])


def test_unknown_has_no_outline() -> None:
    canvas = drawn(None)
    assert is_green(canvas[:60].reshape(-1, 3)[np.argmax(canvas[:60, :, 1] - canvas[:60, :, 2])])
    assert np.ptp(canvas[100:]) < 10


@pytest.mark.parametrize("label", ["", "x" * 300, "Die Fußwaschung, Œuvre d'été 名画", "%s\n\x00"])
@pytest.mark.parametrize("corners", [INSIDE, ((-900, -900), (5000, -10), (1e9, 1e9), (-1e9, 7))])
def test_any_label_and_any_corners_can_be_drawn(label: str, corners: Corners) -> None:
    assert drawn(corners, label).shape == (300, 400, 3)


def test_a_tiny_photo_can_be_drawn() -> None:
    tiny = jpeg(np.zeros((1, 1, 3), np.uint8))
    assert draw_recognition(tiny, Recognition(None, "edge", 1.0))


@pytest.mark.parametrize("image", [b"", b"no image"])
def test_undecodable_images_are_refused(image: bytes) -> None:
    with pytest.raises(InvalidImage):
        draw_recognition(image, Recognition(None, "edge", 1.0))
