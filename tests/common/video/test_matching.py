import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from nearsight.common.video.matching import Blocks, Frame, Offset, ShiftMatcher
from nearsight.common.video.regions import Rectangle


def noise(height: int, width: int, seed: int) -> Frame:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def scene(size: int, seed: int = 0) -> Frame:
    """Smooth blobs with texture everywhere, so that a shift by one pixel changes every block."""
    blurred = cv2.GaussianBlur(noise(size, size, seed) - 127.5, (0, 0), 2)
    return np.asarray(np.clip(128 + 60 * blurred / blurred.std(), 0, 255), np.uint8)


def view(of: Frame, top: int, left: int, size: int = 97) -> Frame:
    return of[top : top + size, left : left + size].copy()


def errors_by_definition(
    frame: Frame, reference: Frame, offset: Offset, block_px: int
) -> NDArray[np.float64]:
    height, width, _ = frame.shape
    rows, columns = -(-height // block_px), -(-width // block_px)
    errors = np.full((rows, columns), np.inf)
    for row in range(rows):
        for column in range(columns):
            top, left = row * block_px, column * block_px
            block = frame[top : top + block_px, left : left + block_px].astype(int)
            top, left = top + offset[0], left + offset[1]
            bottom, right = top + block.shape[0], left + block.shape[1]
            if top >= 0 and left >= 0 and bottom <= height and right <= width:
                errors[row, column] = ((block - reference[top:bottom, left:right]) ** 2).sum()
    return errors


def test_the_last_row_and_column_of_blocks_may_be_smaller() -> None:
    blocks = Blocks(227, 230, 10)
    assert (blocks.rows, blocks.columns) == (23, 23)
    assert blocks.region(Rectangle(1, 2, 2, 3)) == (10, 20, 20, 30)
    assert blocks.region(Rectangle(22, 22, 23, 23)) == (220, 220, 227, 230)
    assert blocks.region(Rectangle(21, 0, 23, 2)) == (210, 0, 227, 20)
    assert blocks.pixels[0, 0] == 100
    assert blocks.pixels[22, 0] == 70
    assert blocks.pixels.sum() == 227 * 230


@given(
    st.integers(1, 25),
    st.integers(1, 25),
    st.integers(1, 9),
    st.tuples(st.integers(-12, 12), st.integers(-12, 12)),
    st.integers(0, 99),
)
def test_errors_are_those_of_each_block_including_borders(
    height: int, width: int, block_px: int, offset: Offset, seed: int
) -> None:
    frame, reference = noise(height, width, seed), noise(height, width, seed + 1)
    blocks = Blocks(height, width, block_px)
    for at in ((0, 0), offset):
        found = blocks.squared_errors(frame, reference, at)
        assert np.array_equal(found, errors_by_definition(frame, reference, at, block_px))


@given(st.integers(1, 25), st.integers(1, 25), st.integers(1, 9), st.integers(0, 99))
def test_a_glance_is_the_mean_difference_of_the_middle_row_of_each_block(
    height: int, width: int, block_px: int, seed: int
) -> None:
    frame, reference = noise(height, width, seed), noise(height, width, seed + 1)
    blocks = Blocks(height, width, block_px)
    apart = np.abs(frame.astype(int) - reference).sum(axis=2)
    expected = np.zeros((blocks.rows, blocks.columns))
    for number, row in enumerate(apart[block_px // 2 :: block_px]):
        sums = [row[at : at + block_px].sum() for at in range(0, width, block_px)]
        expected[number] = np.array(sums) / (3 * block_px)
    for _ in range(2):
        assert np.allclose(blocks.glance(frame, reference), expected)


@pytest.mark.parametrize(
    ("rows", "brighter", "at_a_glance", "all_match"),
    [(slice(20, 30), 60, 1, False), (slice(20, 30), 10, 0, True), (slice(20, 23), 200, 0, False)],
    ids=["all rows", "little", "not in the middle row"],
)
def test_most_changes_show_at_a_glance(rows: slice, brighter: int, at_a_glance: int, all_match: bool) -> None:
    reference = np.zeros((40, 40, 3), np.uint8)
    frame, blocks = reference.copy(), Blocks(40, 40, 10)
    frame[rows, 10:20] += np.uint8(brighter)
    assert blocks.changed_at_a_glance(frame, reference, 20.0) == at_a_glance
    assert blocks.all_match(frame, reference, 20.0) is all_match


def test_a_block_is_matched_only_above_the_threshold() -> None:
    black, white = np.zeros((10, 10, 3), np.uint8), np.full((10, 10, 3), 255, np.uint8)
    # A mean squared error of 255^2 is a PSNR of 0 dB.
    assert not ShiftMatcher(threshold_db=0).match(black, white).matched.any()
    white[0, 0, 0] = 254
    assert ShiftMatcher(threshold_db=0).match(black, white).matched.all()


@given(st.integers(20, 32), st.floats(16, 24), st.integers(0, 99))
def test_small_differences_match_as_the_definition_says(largest: int, threshold_db: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    reference = rng.integers(0, 200, (23, 31, 3), np.uint8)
    frame = reference + rng.integers(largest - 3, largest, reference.shape, np.uint8, endpoint=True)
    blocks = Blocks(23, 31, 10)
    for offset in ((0, 0), (0, 1)):
        errors = errors_by_definition(frame, reference, offset, 10)
        expected = errors < blocks.limits(threshold_db)
        assert np.array_equal(blocks.matched(frame, reference, threshold_db, offset), expected)


@pytest.mark.parametrize(("difference", "matched"), [(25, True), (26, False)])
def test_twenty_decibels_are_a_difference_of_a_tenth_of_full_scale(difference: int, matched: bool) -> None:
    frame = np.full((33, 33, 3), 100, np.uint8)
    assert ShiftMatcher().match(frame, frame + np.uint8(difference)).matched.all() == matched


@pytest.mark.parametrize("moved", [(0, 0), (2, 1), (-3, 5), (12, -7), (-20, -20)])
def test_the_offset_of_a_moved_picture_is_found(moved: Offset) -> None:
    wall = scene(160)
    match = ShiftMatcher().match(view(wall, 30 + moved[0], 30 + moved[1]), view(wall, 30, 30))
    assert match.offset == moved
    inside = np.isfinite(Blocks(97, 97, 10).squared_errors(view(wall, 0, 0), view(wall, 0, 0), moved))
    assert np.array_equal(match.matched, inside)


@pytest.mark.parametrize(("moved", "offset"), [((16, -8), (16, -8)), ((15, -9), (16, -8)), ((3, 2), (0, 0))])
def test_offsets_are_multiples_of_the_stride(moved: Offset, offset: Offset) -> None:
    wall = cv2.GaussianBlur(scene(160), (0, 0), 3)
    found = ShiftMatcher(stride=8).match(view(wall, 30 + moved[0], 30 + moved[1]), view(wall, 30, 30))
    assert found.offset == offset
    assert found.matched.any()


def test_blocks_with_their_own_motion_are_not_matched() -> None:
    wall = scene(160)
    frame, reference = view(wall, 34, 30), view(wall, 30, 30)
    frame[40:60, 40:60] = 255 - frame[40:60, 40:60]
    match = ShiftMatcher().match(frame, reference)
    assert match.offset == (4, 0)
    assert not match.matched[4:6, 4:6].any()
    assert match.matched[:4].all()


@given(st.integers(0, 50), st.sampled_from([1, 4]), st.floats(5, 30))
def test_matched_blocks_are_above_the_threshold_and_at_least_as_many_as_without_an_offset(
    seed: int, stride: int, threshold_db: float
) -> None:
    wall = scene(90, seed)
    rng = np.random.default_rng(seed)
    frame, reference = view(wall, *rng.integers(0, 20, 2), 61), view(wall, 10, 10, 61)
    match = ShiftMatcher(7, threshold_db, stride).match(frame, reference)
    values = 3 * Blocks(61, 61, 7).pixels
    with np.errstate(divide="ignore"):
        psnr_db = 10 * np.log10(255**2 * values / errors_by_definition(frame, reference, match.offset, 7))
        unmoved_db = 10 * np.log10(255**2 * values / errors_by_definition(frame, reference, (0, 0), 7))
    assert np.array_equal(match.matched, psnr_db > threshold_db)
    assert match.matched.sum() >= (unmoved_db > threshold_db).sum()
    assert match.offset[0] % stride == match.offset[1] % stride == 0


def test_after_unsuccessful_searches_motion_is_searched_less_often_but_still_found() -> None:
    wall, matcher = scene(160), ShiftMatcher(backs_off=True)
    for seed in range(24):
        assert matcher.match(noise(97, 97, seed), view(wall, 30, 30)).offset == (0, 0)
    found = [matcher.match(view(wall, 34, 30), view(wall, 30, 30)).offset for _ in range(20)]
    first = found.index((4, 0))
    assert 0 < first <= 7
    assert set(found[first:]) == {(4, 0)}


def test_frames_may_change_their_size_between_two_matches() -> None:
    matcher = ShiftMatcher()
    for size in (64, 97, 64):
        frame = scene(size)
        assert matcher.match(frame, frame).matched.all()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 40])
def test_very_small_pictures_are_supported(size: int) -> None:
    black, white = np.zeros((size, size, 3), np.uint8), np.full((size, size, 3), 255, np.uint8)
    assert ShiftMatcher().match(black, black).matched.all()
    assert not ShiftMatcher().match(black, white).matched.any()
    assert not ShiftMatcher().match(noise(size, size, 0), white).matched.any()
