"""How far the threshold of matching moves after a measured deviation."""

from __future__ import annotations

import pytest

from nearsight.device.video.drift import DriftGuard


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
