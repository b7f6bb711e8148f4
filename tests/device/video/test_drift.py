"""How far the threshold of matching moves after a measured deviation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nearsight.device.video.drift import DriftGuard, deviation_of


@pytest.mark.parametrize(
    ("deviation", "moved_db"), [(0.3, 3.0), (0.15, 0.0), (0.09, -3.0), (0.04, -6.0), (float("nan"), 3.0)]
)
def test_the_threshold_moves_by_the_distance_of_the_deviation_from_its_bound(
    deviation: float, moved_db: float
) -> None:
    guard = DriftGuard(most_deviation=0.2)
    guard.note(deviation)
    assert guard.adjustment_db == moved_db
    assert guard.settled is (moved_db == 0.0)


@pytest.mark.parametrize(
    ("found", "deviation"),
    [
        ([3.0, 4.0, -math.inf, math.nan], 0.0),
        ([3.0, 9.0, -math.inf, math.nan], 1.0),
        ([3.0, 4.0, 0.0, math.nan], math.inf),
        ([math.nan, 4.0, -math.inf, math.nan], math.inf),
    ],
)
def test_infinite_and_undefined_elements_deviate_only_where_they_differ(
    found: list[float], deviation: float
) -> None:
    expected = {"scores": np.array([3.0, 4.0, -math.inf, math.nan], np.float32)}
    assert deviation_of({"scores": np.array(found, np.float32)}, expected) == pytest.approx(deviation)


def test_outputs_of_different_sizes_deviate_by_the_elements_that_one_of_them_lacks() -> None:
    boxes, fewer = np.array([[3.0, 4.0], [0.0, 5.0]], np.float32), np.zeros((0, 2), np.float32)
    assert deviation_of({"boxes": boxes}, {"boxes": boxes[:1]}) == pytest.approx(1.0)
    assert deviation_of({"boxes": boxes[:1]}, {"boxes": boxes}) == pytest.approx(0.5**0.5)
    assert deviation_of({"boxes": fewer}, {"boxes": boxes}) == pytest.approx(1.0)
    assert deviation_of({"boxes": fewer}, {"boxes": fewer}) == 0.0
