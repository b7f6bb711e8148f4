"""Heat maps of reused blocks."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument, SetupError
from nearsight.device.video.heat_map import HeatMap, HeatVideo
from nearsight.device.video.result import VideoResult
from support.disks import full_disk


def result_of(
    reused: NDArray[np.bool_], number: int = 0, window: tuple[float, float, float, float] = (0, 0, 1, 1)
) -> VideoResult:
    return VideoResult(number, {}, "", 1.0, 0.5, (0, 0), reused, 0.1, 2.0, None, window)


def frame_of(value: int, height: int = 100, width: int = 200) -> NDArray[np.uint8]:
    return np.full((height, width, 3), value, np.uint8)


LEFT = np.array([[True, False], [True, False]])


def test_blocks_that_were_reused_more_often_are_brighter() -> None:
    heat = HeatMap(block_px=10, size=(20, 20))
    for number in range(4):
        heat.add(frame_of(100), result_of(LEFT if number else ~LEFT, number))
    picture = heat.picture()
    assert picture.shape[1] == 480
    left, right = picture[100, 100].astype(int), picture[100, 380].astype(int)
    assert left.sum() > right.sum() + 30
    legend = picture[240:]
    assert legend.shape[0] > 40
    assert legend.std() > 10, "there is a scale"


def test_frames_that_change_size_are_drawn_over_the_first_size() -> None:
    heat = HeatMap(block_px=10, size=(20, 20))
    heat.add(frame_of(0), result_of(LEFT))
    heat.add(frame_of(200, 300, 100), result_of(LEFT))
    assert heat.picture().shape[1] == 480
    assert heat.frame(frame_of(200, 300, 100), result_of(LEFT), "1").shape == (240, 480, 3)


def test_in_a_frame_the_blocks_are_marked_that_were_computed_again() -> None:
    heat = HeatMap(block_px=10, size=(20, 20))
    drawn = heat.frame(frame_of(100), result_of(LEFT), "frame 1")
    assert (drawn[10, 100] == 100).all()
    blue, _, red = drawn[10, 380].astype(int)
    assert red > blue + 50


def test_blocks_of_a_window_are_drawn_at_its_position() -> None:
    heat = HeatMap(block_px=10, size=(20, 20))
    result = result_of(np.array([[True, True], [False, False]]), window=(0.0, 0.5, 1.0, 1.0))
    heat.add(frame_of(100), result)
    picture, drawn = heat.picture(), heat.frame(frame_of(100), result, "")
    assert (picture[100, 100] == 100).all(), "the network was not given it"
    assert picture[20, 400].astype(int).sum() > picture[220, 400].astype(int).sum() + 30
    assert (drawn[200, 100] == 100).all()
    assert drawn[200, 400, 2] > drawn[200, 400, 0] + 50
    assert (drawn[60, 240] == 255).all(), "a line is around it"


def test_a_map_without_frames_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="no frame"):
        HeatMap(10, (20, 20)).picture()


@pytest.mark.parametrize("ending", [".avi", ".mp4"])
def test_a_video_can_be_read_again(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"heat{ending}"
    video = HeatVideo(path, 10.0)
    for _ in range(5):
        video.add(frame_of(90, 64, 96))
    video.close()
    capture = cv2.VideoCapture(str(path))
    frames = [capture.read() for _ in range(5)]
    capture.release()
    assert all(whole and frame.shape == (64, 96, 3) for whole, frame in frames)


def test_a_video_needs_a_known_ending_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"use a name that ends in \.mp4 or \.avi"):
        HeatVideo(tmp_path / "heat.gif", 10.0)
    with pytest.raises(SetupError, match=r"heat\.avi cannot be written: No such file or directory"):
        HeatVideo(tmp_path / "nowhere" / "heat.avi", 10.0).add(frame_of(90))


def test_a_frame_rate_that_the_format_does_not_have_is_an_error_and_leaves_no_file(tmp_path: Path) -> None:
    video = HeatVideo(tmp_path / "heat.mp4", 90_000.0)
    with pytest.raises(SetupError, match=r"choose another folder, or \.avi"):
        video.add(frame_of(90))
    video.close()
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("suffix", [".avi", ".mp4"])
def test_a_video_that_does_not_fit_on_the_disk_is_an_error_and_leaves_the_folder_as_it_was(
    tmp_path: Path, suffix: str
) -> None:
    old = tmp_path / f"heat{suffix}"
    old.write_bytes(b"old")
    video = HeatVideo(old, 10.0)
    with full_disk():
        for value in range(20):
            video.add(np.random.default_rng(value).integers(0, 255, (240, 320, 3), dtype=np.uint8))
        with pytest.raises(SetupError, match="the disk may be full; free some space"):
            video.close()
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [(old.name, b"old")]


def test_a_video_appears_under_its_name_when_it_is_complete(tmp_path: Path) -> None:
    video = HeatVideo(tmp_path / "heat.avi", 10.0)
    video.add(frame_of(100))
    assert not (tmp_path / "heat.avi").exists()
    video.close()
    assert [path.name for path in tmp_path.iterdir()] == ["heat.avi"]
