"""An outline follows its picture, and is dropped when the picture is not visible."""

import numpy as np
import pytest

from nearsight.device.video.tracking import OutlineTracker
from support.camera import corners, frame, gray


def _tracker(**place: float) -> OutlineTracker:
    return OutlineTracker(gray(frame(**place)).pixels, np.array(corners(**place), np.float32))


def test_the_outline_follows_a_picture_that_moves_and_turns() -> None:
    tracker = _tracker()
    for step in range(1, 31):
        place = {"left": 60 + 3.0 * step, "top": 50 - step, "turned": 0.01 * step}
        outline = tracker.follow(gray(frame(1, **place)).pixels)
        assert outline is not None
        assert outline == pytest.approx(np.array(corners(**place)), abs=2)


def test_it_may_skip_frames() -> None:
    outline = _tracker().follow(gray(frame(left=80, top=60)).pixels)
    assert outline == pytest.approx(np.array(corners(left=80, top=60)), abs=2)


def test_it_is_followed_beyond_the_border_of_the_frame() -> None:
    tracker = _tracker()
    for left in range(50, -51, -10):
        outline = tracker.follow(gray(frame(left=left)).pixels)
    assert outline == pytest.approx(np.array(corners(left=-50)), abs=4)


@pytest.mark.parametrize(
    "then",
    [frame(2), np.zeros((240, 320, 3), np.uint8), frame(left=2000)],
    ids=["another picture", "black", "gone"],
)
def test_it_is_lost_with_its_picture_and_stays_lost(then: np.ndarray) -> None:
    tracker = _tracker()
    assert tracker.follow(gray(frame()).pixels) is not None
    assert tracker.follow(gray(then).pixels) is None
    assert tracker.follow(gray(then).pixels) is None


def test_a_picture_without_texture_cannot_be_tracked() -> None:
    flat = np.full((240, 320), 128, np.uint8)
    assert OutlineTracker(flat, np.array(corners(), np.float32)).follow(flat) is None


@pytest.mark.parametrize("left", [5e3, 1e12])
def test_an_outline_outside_the_frame_cannot_be_tracked(left: float) -> None:
    still = gray(frame()).pixels
    assert OutlineTracker(still, np.array(corners(left=left), np.float32)).follow(still) is None
