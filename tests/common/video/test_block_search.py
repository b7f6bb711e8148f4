from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from nearsight.common.video.block_search import (
    Candidates,
    HistogramMatcher,
    Offsets,
    Search,
    SearchMatcher,
    diamond,
    exhaustive,
    three_step,
)
from nearsight.common.video.matching import BlockMatcher, Blocks, Frame, Offset, ShiftMatcher

SEARCHES = (diamond, three_step, exhaustive)


def bowl(top: int, left: int, size: int = 40) -> Frame:
    """Rows in the first colour and columns in the second, three steps a pixel.

    A block at an offset of (y, x) from its true place differs by 9 (y^2 + x^2) in each pixel.
    """
    rows, columns = np.mgrid[top : top + size, left : left + size]
    return np.stack([3 * rows, 3 * columns, 0 * rows], axis=-1).astype(np.uint8)


def searched(
    search: Search, moved: Offset, start: Offset = (0, 0), reuse: bool = False
) -> tuple[Offset, int]:
    """The found offset of a block in the middle, and the number of comparisons."""
    frame, reference = bowl(20 + moved[0], 20 + moved[1]), bowl(20, 20)
    candidates = Candidates(frame, reference, np.array([[15, 15]]), 10, start, reuse)
    (offset,), (error,) = search(candidates)
    assert error == 900 * ((offset - moved) ** 2).sum()
    return (int(offset[0]), int(offset[1])), candidates.comparisons


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("moved", [(0, 0), (1, 0), (-2, 1), (3, -2), (-4, -3)])
def test_a_search_finds_the_place_of_a_block(search: Search, moved: Offset) -> None:
    assert searched(search, moved)[0] == moved


@pytest.mark.parametrize("search", SEARCHES)
def test_a_search_reaches_seven_pixels(search: Search) -> None:
    assert searched(search, (7, 0))[0] == (7, 0)
    assert searched(search, (8, 0))[0] == (7, 0)
    assert searched(search, (12, 0), start=(6, 0))[0] == (12, 0)


@pytest.mark.parametrize("reuse", [False, True])
def test_comparisons_of_the_diamond_search(reuse: bool) -> None:
    # The start, the large diamond and the small one.
    assert searched(diamond, (0, 0), reuse=reuse) == ((0, 0), 1 + 8 + 4)
    # The large diamond moves to (2, 0), where three of its points are known, and stays there.
    assert searched(diamond, (2, 0), reuse=reuse) == ((2, 0), 1 + 8 + (5 if reuse else 8) + 4)


def test_comparisons_of_the_other_searches() -> None:
    assert searched(three_step, (3, 3))[1] == 1 + 3 * 8
    assert searched(exhaustive, (3, 3))[1] == 15 * 15


@pytest.mark.parametrize("search", SEARCHES)
def test_a_flat_block_stays_at_its_start(search: Search) -> None:
    flat = np.full((40, 40, 3), 7, np.uint8)
    (offset,), _ = search(Candidates(flat, flat, np.array([[15, 15]]), 10, (2, -1), False))
    assert offset.tolist() == [2, -1]


@pytest.mark.parametrize("search", SEARCHES)
def test_blocks_at_the_border_are_not_searched_beyond_it(search: Search) -> None:
    frame = bowl(20, 20, 10)
    (offset,), (error,) = search(Candidates(frame, bowl(24, 20, 10), np.array([[0, 0]]), 10, (0, 0), True))
    assert (offset.tolist(), error) == ([0, 0], 900 * 16)


class ScriptedSearch:
    """A search with given results, which records its starts and the number of blocks."""

    def __init__(self, *motions: Offset, errors: Sequence[float] = ()) -> None:
        self.starts: list[list[int]] = []
        self.count = 0
        self._motions = motions
        self._errors = errors or [0.0] * len(motions)

    def __call__(self, candidates: Candidates) -> tuple[Offsets, NDArray[np.float32]]:
        self.starts.append(candidates.start.tolist())
        self.count = candidates.count
        return np.array(self._motions), np.array(self._errors, np.float32)


@pytest.mark.parametrize(
    ("motions", "mean"),
    [
        ([(1, 0), (2, 0), (2, -4)], (2, -1)),  # 1.67, -1.33
        ([(0, 1), (1, 2)], (0, 2)),  # halves to even: 0.5, 1.5
        ([(0, -1), (-1, -2)], (0, -2)),
    ],
)
def test_the_mean_motion_is_rounded_to_whole_pixels(motions: list[Offset], mean: Offset) -> None:
    frame = bowl(20, 20)
    assert SearchMatcher(ScriptedSearch(*motions)).match(frame, frame).offset == mean


def test_only_blocks_above_the_threshold_are_in_the_mean() -> None:
    limit = 100 * 3 * 255**2 / 100  # the squared errors of a block at 20 dB
    search = ScriptedSearch((2, 0), (6, 6), errors=[limit - 1, limit])
    assert SearchMatcher(search).match(bowl(20, 20), bowl(20, 20)).offset == (2, 0)


def test_without_a_matched_block_the_offset_is_zero() -> None:
    search = ScriptedSearch((2, 0), errors=[np.inf])
    assert SearchMatcher(search).match(bowl(20, 20), bowl(20, 20)).offset == (0, 0)


def test_only_whole_blocks_in_every_kth_row_and_column_are_searched() -> None:
    frame = np.zeros((227, 107, 3), np.uint8)
    for skip, blocks in ((1, 22 * 10), (2, 11 * 5), (3, 8 * 4)):
        search = ScriptedSearch((0, 0))
        SearchMatcher(search, skip=skip).match(frame, frame)
        assert search.count == blocks


@pytest.mark.parametrize(("follow", "second"), [(True, [2, 1]), (False, [0, 0])])
def test_a_search_starts_from_the_last_motion(follow: bool, second: list[int]) -> None:
    search = ScriptedSearch((2, 1))
    matcher = SearchMatcher(search, follow=follow)
    for _ in range(2):
        matcher.match(bowl(20, 20), bowl(20, 20))
    assert search.starts == [[0, 0], second]


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize(("skip", "reuse"), [(1, False), (2, True)])
def test_all_blocks_are_compared_at_the_mean_motion(search: Search, skip: int, reuse: bool) -> None:
    frame, reference = bowl(23, 18, 45), bowl(20, 20, 45)
    frame[20:30, 20:30] = 255
    match = SearchMatcher(search, skip=skip, reuse=reuse).match(frame, reference)
    blocks = Blocks(45, 45, 10)
    errors = blocks.squared_errors(frame, reference, match.offset)
    assert match.offset != (0, 0)
    assert np.array_equal(match.matched, errors < blocks.limits(20))
    assert not match.matched[2, 2]


def test_a_frame_smaller_than_a_block_is_compared_without_an_offset() -> None:
    frame = bowl(20, 20, 7)
    match = SearchMatcher().match(frame, frame)
    assert (match.offset, match.matched.tolist()) == ((0, 0), [[True]])


def test_histograms_do_not_depend_on_the_places_of_colours_in_a_block() -> None:
    frame = np.zeros((10, 20, 3), np.uint8)
    frame[:5, :10] = 255
    frame[:, 10:] = 128
    match = HistogramMatcher().match(frame, frame[::-1].copy())
    assert match.matched.tolist() == [[True, True]]
    assert ShiftMatcher().match(frame, frame[::-1].copy()).matched.tolist() == [[False, True]]


def test_the_distance_of_two_histograms() -> None:
    black, half = np.zeros((10, 10, 3), np.uint8), np.zeros((10, 10, 3), np.uint8)
    half[:5] = 255
    # n = 300 values: (150^2 / 450 + 150^2 / 150) / 600 = 1 / 3.
    assert not HistogramMatcher(limit=0.333).match(half, black).matched.any()
    assert HistogramMatcher(limit=0.334).match(half, black).matched.all()
    assert not HistogramMatcher(limit=1).match(black, ~black).matched.any()


def test_the_histogram_of_a_block_excludes_its_neighbours() -> None:
    frame, reference = np.zeros((17, 23, 3), np.uint8), np.zeros((17, 23, 3), np.uint8)
    frame[10:, 20:] = 255
    expected = np.ones((2, 3), bool)
    expected[1, 2] = False
    assert np.array_equal(HistogramMatcher().match(frame, reference).matched, expected)


@pytest.mark.parametrize("matcher", [SearchMatcher(), HistogramMatcher(), ShiftMatcher()])
def test_every_matcher_matches_a_frame_with_itself(matcher: BlockMatcher) -> None:
    for size in (33, 50):
        match = matcher.match(bowl(0, 0, size), bowl(0, 0, size))
        assert match.offset == (0, 0)
        assert match.matched.all()
