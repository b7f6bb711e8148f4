"""The largest cache that keeps up with the requests."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import InvalidArgument
from nearsight.edge.compute_bound import ComputeBound
from support.caching import profile_of_table_3_2


@given(
    steps=st.lists(st.floats(0, 50), max_size=60),
    interarrival_ms=st.floats(0, 3000),
    share=st.floats(0.1, 1),
    servers=st.integers(1, 4),
)
def test_the_bound_is_the_largest_size_that_is_fast_enough(
    steps: list[float], interarrival_ms: float, share: float, servers: int
) -> None:
    lookup_ms = np.concatenate([[0.0], np.cumsum(steps)])
    bound = ComputeBound(share, servers).bound(lookup_ms, interarrival_ms)
    assert bound.k_max == max(
        k for k in range(len(lookup_ms)) if lookup_ms[k] <= share * servers * interarrival_ms
    )
    assert bound.lookup_ms <= bound.allowed_ms
    assert bound.binding == (bound.k_max < len(steps))


def test_the_floor_is_taken_of_the_size_at_which_the_paper_s_line_meets_the_time_between_requests() -> None:
    """51.14 + 1.87 k = 200 at k = 79.6."""
    bound = ComputeBound().bound(profile_of_table_3_2().curves(400).lookup_ms, 200.0)
    assert bound.k_max == 79
    assert "k <= 79" in bound.why


def test_where_one_object_is_too_slow_the_cache_is_empty() -> None:
    assert ComputeBound().bound(profile_of_table_3_2().curves(400).lookup_ms, 50.0).k_max == 0
    assert ComputeBound().bound(np.array([5.0, 6.0]), 1.0).k_max == 0


def test_without_load_nothing_is_bounded() -> None:
    bound = ComputeBound().bound(profile_of_table_3_2().curves(400).lookup_ms, 1e6)
    assert (bound.k_max, bound.binding) == (400, False)
    assert "no size up to 400" in bound.why


def test_a_lookup_time_that_falls_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        ComputeBound().bound(np.array([0.0, 2.0, 1.0]), 10.0)


@pytest.mark.parametrize("wrong", [(0.0, 1), (1.5, 1), (1.0, 0)])
def test_settings_that_cannot_work_are_refused(wrong: tuple[float, int]) -> None:
    with pytest.raises(InvalidArgument):
        ComputeBound(*wrong)


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        ComputeBound().bound(np.zeros(2), float("nan"))
