"""The gate: equal scenes, equal pictures, and frames that are blurred within their stream."""

import numpy as np
import pytest

from nearsight.device.video.gate import SAME_PICTURE, SAME_SCENE, BlurGate, glance_at
from support.camera import blurred, frame, gray


def _likeness(one: np.ndarray, other: np.ndarray) -> float:
    return glance_at(gray(one).pixels).correlation(glance_at(gray(other).pixels))


def _flat(level: int) -> np.ndarray:
    return np.full((240, 320, 3), level, np.uint8)


def test_a_frame_equals_itself_also_in_other_light() -> None:
    darker = (frame() * 0.8).astype(np.uint8)
    assert _likeness(frame(), frame()) == pytest.approx(1)
    assert _likeness(frame(), darker) >= SAME_PICTURE


def test_camera_shake_keeps_the_scene_and_another_picture_changes_it() -> None:
    assert SAME_SCENE <= _likeness(frame(), frame(left=64)) < SAME_PICTURE
    assert _likeness(frame(1), frame(2)) < SAME_SCENE
    assert _likeness(frame(), frame(left=200)) < SAME_SCENE


def test_black_frames_are_alike_and_are_no_picture_and_no_bright_wall() -> None:
    assert _likeness(_flat(0), _flat(3)) == 1
    assert _likeness(_flat(0), frame()) == 0
    assert _likeness(_flat(0), _flat(200)) == 0


def test_a_frame_is_blurred_if_it_is_less_sharp_than_those_before_it() -> None:
    gate, sharp, dull = BlurGate(), glance_at(gray(frame()).pixels), glance_at(gray(blurred(frame())).pixels)
    assert not gate.blurred(sharp, 0.0)
    assert gate.blurred(dull, 0.1)
    assert not gate.blurred(sharp, 0.2)


def test_a_stream_that_stays_dull_is_taken_as_it_is() -> None:
    gate, sharp, dull = BlurGate(), glance_at(gray(frame()).pixels), glance_at(gray(blurred(frame())).pixels)
    gate.blurred(sharp, 0.0)
    assert gate.blurred(dull, 0.1)
    assert not gate.blurred(dull, 10.0)


def test_repeated_black_frames_stop_counting_as_blurred() -> None:
    gate, black = BlurGate(), glance_at(np.zeros((240, 320), np.uint8))
    assert not gate.blurred(black, 0.0)
    assert not gate.blurred(black, 0.1)
    gate.blurred(glance_at(gray(frame()).pixels), 0.2)
    assert gate.blurred(black, 0.3)
    assert not gate.blurred(black, 10.0)
