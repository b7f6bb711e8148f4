"""Clips of a hand-held phone: determined by their seed and liveliness, with correct labels."""

from collections.abc import Sequence
from itertools import pairwise

import cv2
import numpy as np
import pytest

from nearsight.common.errors import InvalidArgument
from nearsight.experiments.museum.art.exhibit import render_reference
from nearsight.experiments.museum.camera.handheld import Filming, Frame, Stay, film

SMALL = (240, 180)


@pytest.fixture(scope="module")
def stays() -> list[Stay]:
    return [Stay(name, render_reference(4, index), 2.0) for index, name in ((5, "five"), (6, None))]


def _clip(stays: Sequence[Stay], liveliness: float, seed: int = 1, frames_per_s: float = 5) -> list[Frame]:
    return list(film(stays, Filming(liveliness, frames_per_s, SMALL, difficulty=0.3), seed))


def test_the_same_seed_gives_the_same_clip(stays: list[Stay]) -> None:
    first, again, other = (_clip(stays, 0.5, seed) for seed in (1, 1, 2))
    assert [frame.image.tobytes() for frame in first] == [frame.image.tobytes() for frame in again]
    assert not any(np.array_equal(a.image, b.image) for a, b in zip(first, other, strict=True))


def test_frames_have_one_size_and_follow_each_other(stays: list[Stay]) -> None:
    clip = _clip(stays, 0.5)
    assert {(frame.image.shape, frame.image.dtype) for frame in clip} == {((180, 240, 3), np.dtype(np.uint8))}
    assert [frame.at_s for frame in clip] == pytest.approx([number / 5 for number in range(36)])


def test_a_frame_has_the_id_of_its_object_and_none_for_a_wall(stays: list[Stay]) -> None:
    shown = [frame.object_id for frame in _clip(stays, 0.5)]
    standing = shown[5:13]  # the phone turns for 0.8 s before and after
    assert standing == ["five"] * 8
    assert shown[0] is None and shown[17] is None
    assert set(shown[18:]) == {None}, "the second exhibit is not in the catalogue"


def test_a_frame_has_the_corners_of_the_picture(stays: list[Stay]) -> None:
    sliding = [frame.corners for frame in _clip(stays[:1], 0.0, frames_per_s=10)]
    lefts = [float(corners[0, 0]) for corners in sliding if corners is not None]
    assert len(lefts) == len(sliding)
    assert lefts[0] > SMALL[0] and lefts[-1] < lefts[10] < lefts[0], "the picture moves from right to left"
    assert all(a >= b - 1 for a, b in pairwise(lefts))


def test_frames_differ_more_with_more_liveliness(stays: list[Stay]) -> None:
    def change(liveliness: float) -> float:
        images = [
            cv2.GaussianBlur(frame.image, (0, 0), 3).astype(np.float32)
            for frame in _clip(stays[:1], liveliness)[5:13]
        ]
        return float(np.mean([np.abs(a - b).mean() for a, b in pairwise(images)]))

    still, held, lively = change(0.0), change(0.5), change(1.0)
    assert still < 1
    assert held > 2 * still
    assert lively > 1.5 * held


def test_the_frame_rate_does_not_change_the_movement(stays: list[Stay]) -> None:
    def blurred(frames_per_s: float) -> list[np.ndarray]:
        clip = _clip(stays[:1], 0.5, frames_per_s=frames_per_s)
        return [cv2.GaussianBlur(frame.image, (0, 0), 4).astype(np.float32) for frame in clip]

    slow, fast = blurred(5), blurred(10)
    assert max(np.abs(a - b).mean() for a, b in zip(slow, fast[::2], strict=True)) < 1


@pytest.mark.parametrize(
    "wrong", [{"liveliness": 1.5}, {"difficulty": -1}, {"frames_per_s": 0}, {"size": (640, 8)}]
)
def test_numbers_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidArgument, match="got"):
        Filming(**wrong)  # type: ignore[arg-type]


def test_a_seed_is_not_negative(stays: list[Stay]) -> None:
    with pytest.raises(InvalidArgument, match="-1"):
        next(film(stays, Filming(), -1))
