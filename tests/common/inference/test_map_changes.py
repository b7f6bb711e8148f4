"""Recomputed cells of a feature map count as changed if they differ by more than a threshold."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray

from nearsight.common.inference.map_changes import changed_cells, variance_of
from nearsight.common.inference.segments import Layout
from nearsight.common.video.regions import Rectangle
from support.regions import rectangles

SIZE = (30, 33)
PITCH = (Fraction(8), Fraction(8))
LAYOUTS = {
    "channels first": Layout((1, 16, *SIZE), 2, 0, PITCH),
    "channels last": Layout((1, *SIZE, 16), 1, 0, PITCH),
    "blocks of channels": Layout((1, 16, *SIZE), 2, 8, PITCH),
}

CHANNELS = dict(zip(LAYOUTS.values(), ((1, 16, 1, 1), (1, 1, 1, 16), (2, 1, 1, 8)), strict=True))


def values(layout: Layout, size: tuple[int, int] = SIZE) -> NDArray[np.float32]:
    return np.random.default_rng(0).normal(0, 1, layout.stored(*size)).astype(np.float32)


def cells(tensor: NDArray[np.float32], layout: Layout, of: Rectangle) -> NDArray[np.float32]:
    inside = np.s_[of.top : of.bottom, of.left : of.right]
    return tensor[:, *inside] if layout.stored_axis == 1 else tensor[:, :, *inside]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@given(part=rectangles(SIZE), inner=rectangles(SIZE))
def test_what_changed_much_is_covered_and_what_did_not_is_not_stored(
    layout: Layout, part: Rectangle, inner: Rectangle
) -> None:
    cached = values(layout, (part.height, part.width))
    computed, changed = cached + np.float32(1e-3), inner.intersection(part)
    if changed.area:
        cells(computed, layout, changed.moved(-part.top, -part.left))[...] += 10.0
    found = changed_cells(cached, computed, layout, 0.25, part)
    held = np.zeros(SIZE, bool)
    for one in found:
        assert one.intersection(part) == one
        held[one.top : one.bottom, one.left : one.right] = True
    assert held[changed.top : changed.bottom, changed.left : changed.right].all()
    assert bool(found) == bool(changed.area)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_single_changed_cell_stores_only_cells_near_it(layout: Layout) -> None:
    whole, cell = Rectangle(0, 0, *SIZE), Rectangle(20, 7, 21, 8)
    cached = values(layout)
    computed = cached.copy()
    cells(computed, layout, cell)[...] += 10.0
    (found,) = changed_cells(cached, computed, layout, 0.25, whole)
    assert found.intersection(cell) == cell
    assert found.area <= 9


def test_the_smaller_blocks_at_the_border_have_the_same_threshold() -> None:
    layout = LAYOUTS["channels first"]
    part = Rectangle(0, 0, 5, 5)
    cached = values(layout, (5, 5))
    computed = cached.copy()
    computed[..., 4, 4] += 0.6
    assert changed_cells(cached, computed, layout, 0.25, part) == (Rectangle(4, 4, 5, 5),)
    computed[..., 4, 4] = cached[..., 4, 4] + 0.4
    assert changed_cells(cached, computed, layout, 0.25, part) == ()


def test_values_that_are_not_numbers_have_changed() -> None:
    layout, part = LAYOUTS["channels first"], Rectangle(0, 0, 4, 4)
    cached = values(layout, (4, 4))
    computed = cached.copy()
    computed[..., 3, 3] = np.nan
    assert changed_cells(cached, computed, layout, 0.25, part) == (Rectangle(2, 2, 4, 4),)
    assert changed_cells(cached, cached + 1, layout, float("nan"), part) == (part,)


def test_maps_of_bytes_are_compared_without_overflow() -> None:
    layout = Layout((1, 16, *SIZE), 2, 0, PITCH, "uint8")
    cached = np.full(layout.stored(4, 4), 250, np.uint8)
    computed = np.full_like(cached, 2)
    part = Rectangle(0, 0, 4, 4)
    assert changed_cells(cached, computed, layout, 200.0**2, part) == (part,)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_the_variance_is_that_over_cells_whatever_the_level_of_each_channel(layout: Layout) -> None:
    levels = np.arange(16, dtype=np.float32) * 100
    constant = np.broadcast_to(levels.reshape(CHANNELS[layout]), layout.stored(*SIZE))
    assert variance_of(constant, layout) == 0
    assert variance_of(constant + 2 * values(layout), layout) == pytest.approx(4, rel=0.2)
