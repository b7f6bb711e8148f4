import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import InvalidArgument
from nearsight.common.video.composite import Composite
from nearsight.common.video.matching import Blocks, Frame, ShiftMatcher
from nearsight.common.video.regions import Rectangle, covering


def flat(value: int, height: int = 20, width: int = 20) -> Frame:
    return np.full((height, width, 3), value, np.uint8)


def numbered(height: int, width: int) -> Frame:
    return np.arange(height * width * 3, dtype=np.uint8).reshape(height, width, 3)


def test_the_composite_replaces_only_changed_regions() -> None:
    reference = Composite()
    reference.restart(flat(10))
    fed = reference.update(flat(20), (0, 0), [Rectangle(0, 0, 10, 5), Rectangle(15, 15, 20, 20)])
    expected = flat(10)
    expected[:10, :5] = expected[15:, 15:] = 20
    assert np.array_equal(fed, expected)
    assert reference.pixels is not None
    assert np.array_equal(reference.pixels, expected)


@given(st.integers(-8, 8), st.integers(-8, 8))
def test_reused_pixels_move_by_the_offset(down: int, right: int) -> None:
    old, new = numbered(6, 7), np.full((6, 7, 3), 255, np.uint8)
    reference = Composite()
    reference.restart(old)
    fed = reference.update(new, (down, right), [Rectangle(2, 2, 4, 4)])
    for row in range(6):
        for column in range(7):
            recomputed = 2 <= row < 4 and 2 <= column < 4
            inside = 0 <= row + down < 6 and 0 <= column + right < 7
            from_old = inside and not recomputed
            expected = old[row + down, column + right] if from_old else new[row, column]
            assert np.array_equal(fed[row, column], expected)


def test_a_slow_fade_stays_within_the_threshold_of_the_composite_but_not_of_the_last_frame() -> None:
    blocks, matcher = Blocks(20, 20, 10), ShiftMatcher(threshold_db=20)
    farthest = {}
    for composite in (True, False):
        reference = Composite()
        computed = flat(0)  # the pixels that the network received, block by block
        reference.restart(flat(0))
        distances = []
        for value in range(5, 200, 5):
            frame = flat(value)
            assert reference.pixels is not None
            match = matcher.match(frame, reference.pixels)
            changed = [blocks.region(one) for one in covering(~match.matched, 4)]
            fed = reference.update(frame, match.offset, changed) if composite else reference.restart(frame)
            for top, left, bottom, right in changed:
                computed[top:bottom, left:right] = fed[top:bottom, left:right]
            distances.append(np.abs(computed.astype(int) - frame).max())
        farthest[composite] = max(distances)
    assert farthest == {True: 25, False: 195}  # 20 dB are a difference of 25.5


@given(
    st.integers(0, 99), st.lists(st.tuples(st.integers(0, 24), st.integers(0, 24)), min_size=1, max_size=6)
)
def test_each_block_of_the_composite_is_within_the_threshold_of_the_frame(
    seed: int, path: list[tuple[int, int]]
) -> None:
    rng = np.random.default_rng(seed)
    wall = np.repeat(np.repeat(rng.integers(0, 256, (20, 20, 3), np.uint8), 4, 0), 4, 1)
    blocks, matcher, reference = Blocks(43, 43, 8), ShiftMatcher(8), Composite()
    reference.restart(wall[:43, :43])
    for top, left in path:
        frame = wall[top : top + 43, left : left + 43] + rng.integers(0, 9, (43, 43, 3), np.uint8)
        assert reference.pixels is not None
        match = matcher.match(frame, reference.pixels)
        changed = [blocks.region(one) for one in covering(~match.matched, 3)]
        fed = reference.update(frame, match.offset, changed)
        assert (blocks.squared_errors(frame, fed) < blocks.limits(20)).all()


def test_frame_and_reference_do_not_share_pixels() -> None:
    reference, frame = Composite(), flat(10)
    reference.restart(frame)
    frame[:] = 99
    reference.update(flat(20), (0, 0), [Rectangle(0, 0, 5, 5)])
    assert (frame == 99).all()
    assert reference.pixels is not None
    assert not (reference.pixels == 99).any()


def test_a_first_frame_and_one_of_another_size_need_a_whole_execution() -> None:
    reference = Composite()
    assert reference.pixels is None
    with pytest.raises(InvalidArgument, match="of this shape, got none"):
        reference.update(flat(1), (0, 0), [])
    reference.restart(flat(1))
    with pytest.raises(InvalidArgument, match="requires a previous frame of this shape, got one of"):
        reference.update(flat(1, 10, 20), (0, 0), [])
