"""The window that moves with the picture, so that its content stays in the same cells."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nearsight.common.video.composite import Composite
from nearsight.common.video.matching import Blocks, Match
from nearsight.common.video.regions import Rectangle
from nearsight.common.video.window import MovingWindow, Window

SIDE, BLOCK = 60, 10
sides = st.integers(16, 80)
margins = st.floats(0, 1)
motions = st.tuples(st.integers(-90, 90), st.integers(-90, 90))
strides = st.sampled_from([1, 4, 8, 16, 32])


def textured(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


@given(sides, sides, margins, st.lists(motions, min_size=1, max_size=5), strides)
def test_content_moves_only_by_multiples_of_the_stride_and_the_window_stays_in_the_frame(
    height: int, width: int, margin: float, moves: list[tuple[int, int]], stride: int
) -> None:
    window = Window.centred((height, width), margin)
    for motion in moves:
        found = window.moved_by(motion, stride)
        if found is None:
            assert min(window.room) < stride - 1
            continue
        for before, after, moved, offset in zip(window[3:], found[0][3:], motion, found[1], strict=True):
            assert offset % stride == 0
            # A point at row p of the window now, before at p + motion, is then at p + motion - offset.
            assert after == before - moved + offset
        window = found[0]
        assert all(0 <= at <= room for at, room in zip(window[3:], window.room, strict=True))
        assert window.cut(np.zeros((*window.frame_size, 3), np.uint8)).shape == (height, width, 3)


@given(motions, strides)
def test_a_window_jumps_only_at_the_edge_of_the_frame(motion: tuple[int, int], stride: int) -> None:
    window = Window.centred((100, 100), 1.0)
    found = window.moved_by(motion, stride)
    assert found is not None
    assert all(
        offset == 0
        for at, moved, offset in zip((50, 50), motion, found[1], strict=True)
        if 0 <= at - moved <= 100
    )


@given(sides, sides, margins)
def test_a_new_window_is_centred_and_without_a_margin_equals_the_frame(
    height: int, width: int, margin: float
) -> None:
    top, left, bottom, right = Window.centred((height, width), margin).shares
    assert abs(top - (1 - bottom)) <= 1 / height
    assert abs(left - (1 - right)) <= 1 / width
    assert 0 <= top < bottom <= 1
    assert 0 <= left < right <= 1
    assert Window.centred((height, width), 0.0).shares == (0, 0, 1, 1)


@given(margins, st.integers(1, 300), st.integers(1, 300))
def test_the_whole_frame_reaches_beyond_the_window_by_the_margin(
    margin: float, height: int, width: int
) -> None:
    window = Window.centred((60, 50), margin)
    frame = window.in_window(Rectangle(0, 0, height, width), (height, width))
    assert frame[:2] == (-window.top, -window.left)
    assert np.subtract(frame[2:], frame[:2]) == pytest.approx(window.frame_size, abs=1)


@given(
    st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=1, max_size=5),
    st.sampled_from([4, 8, 16]),
    st.integers(0, 3),
)
@example(
    [(1, 0), (4, 0), (4, 0), (4, 0)], 4, 0
)  # at the edge of the frame it jumps back to its earlier place
@settings(max_examples=40)
def test_while_the_camera_pans_over_a_static_scene_the_reference_keeps_its_pixels(
    pans: list[tuple[int, int]], stride: int, seed: int
) -> None:
    blocks, scene, place = Blocks(SIDE, SIDE, BLOCK), textured(160, 160, seed), np.array([40, 40])
    moving, composite = MovingWindow(blocks, stride, 0.4, 50.0), Composite()
    rows, columns = moving.at.frame_size
    composite.restart(moving.at.cut(scene[40 : 40 + rows, 40 : 40 + columns]))
    for pan in pans:
        place += pan
        frame = scene[place[0] : place[0] + rows, place[1] : place[1] + columns]
        assert composite.pixels is not None
        still = Match((0, 0), blocks.squared_errors(moving.at.cut(frame), composite.pixels) < 1)
        found = moving.follow(frame, composite.pixels, still, 20.0)
        changed = [
            blocks.region(Rectangle(row, column, row + 1, column + 1))
            for row, column in np.argwhere(~found.matched)
        ]
        shown = composite.update(moving.at.cut(frame), found.offset, changed)
        assert (shown == moving.at.cut(frame)).all()
        assert found.matched.mean() > 0.3


def follow(moving: MovingWindow, frame: np.ndarray, reference: np.ndarray) -> Match:
    return moving.follow(frame, reference, Match((0, 0), np.zeros((6, 6), bool)), 20.0)


def moving_window(margin: float = 0.2, whole_ms: float = 50.0) -> MovingWindow:
    return MovingWindow(Blocks(SIDE, SIDE, BLOCK), 8, margin, whole_ms)


def test_the_window_follows_a_picture_that_moved_by_a_few_pixels() -> None:
    moving = moving_window()
    scene = textured(80, 80)
    reference = moving.at.cut(scene[4:76, 4:76]).copy()
    found = follow(moving, scene[1:73, 6:78], reference)
    assert (moving.at.top, moving.at.left) == (6 + 3, 6 - 2)
    assert found.offset == (0, 0)
    assert found.matched.all()


def test_at_the_edge_of_the_frame_the_window_jumps_by_the_stride() -> None:
    moving = moving_window()
    scene = textured(80, 90)
    reference = moving.at.cut(scene[:72, :72]).copy()
    found = follow(moving, scene[:72, 10:82], reference)
    assert moving.at.left == 6 - 10 + 8
    assert found.offset == (0, 8)
    assert found.matched[:, :-1].all()


@pytest.mark.parametrize(("margin", "whole_ms", "seed"), [(0.2, 50.0, 1), (0.2, 0.5, 0), (0.0, 50.0, 0)])
def test_the_window_does_not_move_without_a_match_a_saving_or_a_margin(
    margin: float, whole_ms: float, seed: int
) -> None:
    moving = moving_window(margin, whole_ms)
    before, (rows, columns) = moving.at, moving.at.frame_size
    reference = before.cut(textured(80, 80)[4 : 4 + rows, 4 : 4 + columns])
    frame = textured(80, 80, seed)[1 : 1 + rows, 6 : 6 + columns]
    assert not follow(moving, frame, reference).matched.any()
    assert moving.at == before


def test_unsuccessful_searches_become_less_frequent() -> None:
    moving = moving_window()
    reference, searches = textured(SIDE, SIDE), 0
    search = moving._motions.match

    def counted(frame: np.ndarray, other: np.ndarray) -> Match:
        nonlocal searches
        searches += 1
        return search(frame, other)

    moving._motions.match = counted  # type: ignore[method-assign]
    for number in range(60):
        follow(moving, textured(72, 72, number + 1), reference)
    assert 15 <= searches <= 30
