"""Blocks under a time budget: waiting blocks, strict blocks, and renewal of all blocks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nearsight.common.video.composite import Composite
from nearsight.common.video.matching import Blocks, Match, Offset
from nearsight.common.video.regions import Rectangle, covering
from nearsight.common.video.time_budget import LOOSEST_DB, TimeBudget

HEIGHT, WIDTH, BLOCK_PX = 45, 60, 10
T_DB = 20.0
Mask = NDArray[np.bool_]


def area_ms(changed: Sequence[Rectangle], offset: Offset) -> float:
    """A network that takes 1 ms for a whole frame, a third of it for the smallest crop."""
    area = sum(one.area for one in changed) / (HEIGHT * WIDTH)
    return 1 / 3 + 2 / 3 * area if area else 0.0


def grid() -> Blocks:
    return Blocks(HEIGHT, WIDTH, BLOCK_PX)


def errors_at(psnr_db: NDArray[np.floating]) -> NDArray[np.float32]:
    return (3 * grid().pixels * 255**2 / 10 ** (psnr_db / 10)).astype(np.float32)


def chosen(
    budget: TimeBudget, psnr_db: NDArray[np.floating], budget_ms: float, strict: Mask | None = None
) -> Mask:
    """Which blocks are computed."""
    found = np.zeros(psnr_db.shape, np.bool_)
    strict = found.copy() if strict is None else strict
    match = Match((0, 0), psnr_db > T_DB)
    for box in budget.choose(match, errors_at(psnr_db), strict, budget_ms, area_ms):
        found[box.top : box.bottom, box.left : box.right] = True
    budget.note(found)
    return found


psnrs_db = st.builds(
    lambda seed, share, low: np.where(
        np.random.default_rng(seed).random((5, 6)) < share,
        np.random.default_rng(seed + 1).uniform(low, T_DB, (5, 6)),
        30.0,
    ),
    st.integers(0, 1000),
    st.floats(0, 1),
    st.sampled_from([5.0, 15.0]),
)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(psnrs_db, st.integers(-1, 1), st.integers(-1, 1)), min_size=25, max_size=40),
    st.integers(2, 12),
    st.sampled_from([0.0, 0.5, 0.8, 2.0]),
)
def test_every_pixel_is_from_one_of_the_last_n_frames(
    frames: list[tuple[NDArray[np.float64], int, int]], expiry: int, budget_ms: float
) -> None:
    budget, composite = TimeBudget(grid(), expiry, 4), Composite()
    composite.restart(np.zeros((HEIGHT, WIDTH, 3), np.uint8))
    for number, (psnr_db, down, right) in enumerate(frames, start=1):
        errors, offset = errors_at(psnr_db), (8 * down, 8 * right)
        errors[~grid()._inside(offset)] = np.inf
        match = Match(offset, errors < errors_at(np.float64(T_DB)))
        boxes = budget.choose(match, errors, np.zeros((5, 6), np.bool_), budget_ms, area_ms)
        computed = np.zeros((5, 6), np.bool_)
        for box in boxes:
            computed[box.top : box.bottom, box.left : box.right] = True
        budget.note(computed)
        # The colour of a frame is its number.
        frame = np.full((HEIGHT, WIDTH, 3), number, np.uint8)
        pixels = composite.update(frame, offset, [grid().region(box) for box in boxes])
        assert pixels.min() > number - expiry


@given(psnrs_db, psnrs_db, st.floats(0, 1))
def test_a_waiting_block_is_above_the_loosest_threshold_and_outside_of_strict_blocks(
    psnr_db: NDArray[np.float64], other: NDArray[np.float64], budget_ms: float
) -> None:
    strict = other < T_DB
    waits = ~chosen(TimeBudget(grid(), 10, 4), psnr_db, budget_ms, strict) & (psnr_db <= T_DB)
    assert (psnr_db[waits] >= LOOSEST_DB).all()
    assert not (waits & strict).any()


@given(psnrs_db)
def test_with_enough_time_the_same_blocks_are_computed_as_without_a_budget(
    psnr_db: NDArray[np.float64],
) -> None:
    expected = np.zeros(psnr_db.shape, np.bool_)
    for box in covering(psnr_db <= T_DB, 4):
        expected[box.top : box.bottom, box.left : box.right] = True
    assert (chosen(TimeBudget(grid(), 10, 4), psnr_db, 2.0) == expected).all()


def test_the_most_different_blocks_are_computed_first() -> None:
    psnr_db = np.full((5, 6), 30.0)
    psnr_db[0, :], psnr_db[4, :] = 15.0, 19.0
    found = chosen(TimeBudget(grid(), 10, 4), psnr_db, 0.5)
    assert found[0].all()
    assert not found[4].any()


def test_fewer_blocks_are_computed_if_frames_take_longer_than_expected() -> None:
    budget, psnr_db = TimeBudget(grid(), 10, 4), np.full((5, 6), 15.0)
    assert chosen(budget, psnr_db, 1.0).all()
    for _ in range(10):
        budget.note_time(measured_ms=2.0, expected_ms=1.0)
    assert not chosen(budget, psnr_db, 1.0).all()


def test_a_static_picture_is_renewed_in_parts_within_the_budget_and_only_when_needed() -> None:
    budget = TimeBudget(grid(), 10, 4)
    noisy_db = np.full((5, 6), 35.0)
    shares = [float(chosen(budget, noisy_db, 0.8).mean()) for _ in range(100)]
    assert max(shares) <= 0.6
    assert sum(shares) <= 100 / 7
    whole = [float(chosen(budget, noisy_db, 2.0).mean()) for _ in range(30)]
    assert set(whole) >= {0.0, 1.0}, "a whole frame is computed at once if the budget permits"


def test_blocks_equal_to_the_frame_never_expire() -> None:
    budget = TimeBudget(grid(), 3, 4)
    assert not any(chosen(budget, np.full((5, 6), np.inf), 0.5).any() for _ in range(10))


def test_the_loosest_threshold_is_adjustable() -> None:
    budget = TimeBudget(grid(), 10, 4)
    budget.loosest_db = 18.0
    assert chosen(budget, np.full((5, 6), 17.0), 0.0).all()


def test_a_grid_of_one_row_has_a_budget() -> None:
    grid = Blocks(BLOCK_PX, WIDTH, BLOCK_PX)
    budget = TimeBudget(grid, expiry=2, regions=4)
    errors = np.full((1, grid.columns), 1e9, np.float32)
    match = Match((0, 0), errors < 0)
    for _ in range(5):
        boxes = budget.choose(match, errors, errors < 0, 0.01, area_ms)
        assert sum(one.area for one in boxes) == grid.columns, "they differ too much to wait"
