"""Load of the edge: balancing, the bound of the cache, and the expected time of a photo."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.clock import ManualClock
from nearsight.common.errors import InvalidArgument
from nearsight.common.object_cache.profile import RollingMean
from nearsight.edge.load import (
    LONGEST_INTERVAL_MS,
    PRESENT_S,
    RECOGNIZE,
    LoadControl,
    edge_probability,
    expected_compute_ms,
    largest_cache,
)
from nearsight.edge.settings import LoadSettings
from support.caching import profile_of_table_3_2

PAPER_LOOKUP_MS = profile_of_table_3_2().curves(400).lookup_ms
LATER_S = 2 * PRESENT_S


@given(every_ms=st.floats(0.1, 5000), compute_ms=st.floats(0.1, 5000))
def test_the_edge_gets_the_share_of_requests_that_it_can_compute(every_ms: float, compute_ms: float) -> None:
    assert edge_probability(every_ms, compute_ms, 1.0) == pytest.approx(min(1.0, every_ms / compute_ms))


@pytest.mark.parametrize(
    ("share", "servers", "expected"), [(1.0, 1, "0.20"), (0.5, 1, "0.10"), (0.5, 2, "0.20"), (1.0, 2, "0.40")]
)
def test_share_and_servers_multiply_what_the_edge_can_compute(
    share: float, servers: int, expected: str
) -> None:
    settings = LoadSettings(share=share, interarrival_seed_ms=20.0, compute_seed_ms=100.0)
    load = LoadControl("load-balanced", settings, servers, ManualClock())
    assert f"P(edge) = {expected}" in load.why()


def test_simultaneous_requests_go_to_the_cloud_unless_they_take_no_time() -> None:
    assert edge_probability(0.0, 100.0, 1.0) == 0.0
    assert edge_probability(0.0, 0.0, 1.0) == 1.0


def test_before_the_first_measurement_the_configured_values_are_used() -> None:
    for seed_ms, expected in ((200.0, "1.00"), (20.0, "0.40")):
        settings = LoadSettings(share=1.0, interarrival_seed_ms=seed_ms, compute_seed_ms=50.0)
        assert f"P(edge) = {expected}" in LoadControl("load-balanced", settings, 1, ManualClock()).why()


def load_with(clock: ManualClock, arrivals: int, every_s: float, seed_ms: float = 200.0) -> LoadControl:
    """A load of this many requests, after 100 assumed intervals."""
    load = LoadControl("none", LoadSettings(window=100, interarrival_seed_ms=seed_ms), 1, clock)
    for number in range(arrivals):
        clock.advance(every_s if number else 0.0)
        load.arrived(RECOGNIZE)
    return load


def test_configured_values_lose_weight_as_the_window_fills() -> None:
    assert load_with(ManualClock(), 51, 0.1).why().startswith("a request every 150.0 ms (50 of 100 measured)")


def test_a_long_interval_without_requests_is_limited() -> None:
    expected = (99 * 200 + LONGEST_INTERVAL_MS) / 100
    assert load_with(ManualClock(), 2, 50_000.0).why().startswith(f"a request every {expected:.1f} ms")


def test_the_time_before_the_first_request_is_no_interval() -> None:
    clock = ManualClock()
    load = load_with(clock, 0, 0.0)
    clock.advance(5.0)
    load.arrived(RECOGNIZE)
    assert load.why().startswith("a request every 200.0 ms (assumed)")


def test_the_edge_is_idle_since_its_last_request_or_since_its_start() -> None:
    clock = ManualClock()
    load = load_with(clock, 0, 0.0)
    clock.advance(5.0)
    assert load.idle_s() == 5.0
    load.arrived(RECOGNIZE)
    clock.advance(2.0)
    assert load.idle_s() == 2.0


def test_an_empty_window_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        RollingMean(0, 1.0)


@given(
    steps=st.lists(st.floats(0, 50), max_size=60),
    interarrival_ms=st.floats(0, 3000),
    capacity=st.floats(0.1, 4),
)
def test_the_bound_is_the_largest_cache_that_is_fast_enough(
    steps: list[float], interarrival_ms: float, capacity: float
) -> None:
    lookup_ms = np.concatenate([[0.0], np.cumsum(steps)])
    bound = largest_cache(lookup_ms, interarrival_ms, capacity)
    assert bound.k_max == max(k for k in range(len(lookup_ms)) if lookup_ms[k] <= capacity * interarrival_ms)
    assert bound.lookup_ms <= bound.allowed_ms
    assert bound.binding == (bound.k_max < len(steps))


def test_the_bound_is_rounded_down() -> None:
    """51.14 + 1.87 k = 200 at k = 79.6."""
    bound = largest_cache(PAPER_LOOKUP_MS, 200.0, 1.0)
    assert bound.k_max == 79
    assert "k <= 79" in bound.why


def test_the_bound_is_0_if_one_object_is_too_slow() -> None:
    assert largest_cache(PAPER_LOOKUP_MS, 50.0, 1.0).k_max == 0
    assert largest_cache(np.array([5.0, 6.0]), 1.0, 1.0).k_max == 0


def test_the_network_time_of_an_empty_cache_is_no_load() -> None:
    assert largest_cache(np.array([120.0, 6.0]), 10.0, 1.0).k_max == 1


def test_without_load_the_size_is_not_bounded() -> None:
    bound = largest_cache(PAPER_LOOKUP_MS, 1e6, 1.0)
    assert (bound.k_max, bound.binding) == (400, False)
    assert "no size up to 400" in bound.why


def test_a_size_beyond_one_that_is_too_slow_is_not_allowed() -> None:
    assert largest_cache(np.array([0.0, 5.0, 20.0, 10.0]), 15.0, 1.0).k_max == 1


def test_before_the_first_photo_no_time_is_expected() -> None:
    assert expected_compute_ms([], 1, 0.0) is None


def test_during_a_crowd_the_measured_time_is_expected() -> None:
    assert expected_compute_ms([(0.0, 0.08)] * 4, 1, 1.0) == pytest.approx(80.0)


@pytest.mark.parametrize(("servers", "alone_ms"), [(1, 20.0), (2, 40.0), (8, 80.0)])
def test_after_a_crowd_the_expected_time_is_that_of_a_photo_alone(servers: int, alone_ms: float) -> None:
    assert expected_compute_ms([(0.0, 0.08)] * 4, servers, LATER_S) == pytest.approx(alone_ms)


def test_sequential_photos_keep_their_time() -> None:
    one_by_one = [(0.1 * number, 0.1 * number + 0.09) for number in range(5)]
    assert expected_compute_ms(one_by_one, 1, LATER_S) == pytest.approx(90.0)


def test_the_last_seconds_determine_the_expected_time() -> None:
    work = [(0.0, 0.5)] * 10 + [(20.0, 20.01)]
    assert expected_compute_ms(work, 1, 20.1) == pytest.approx(10.0)


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(1e-4, 5)), min_size=1, max_size=30), st.floats(0, 100))
def test_the_expected_time_is_at_most_the_longest_measured(
    photos: list[tuple[float, float]], later_s: float
) -> None:
    work = sorted(((begin, begin + length) for begin, length in photos), key=lambda one: one[1])
    expected_ms = expected_compute_ms(work, 1, work[-1][1] + later_s)
    assert expected_ms is not None
    assert 0 < expected_ms <= 1e3 * max(length for _, length in photos) + 1e-6


def test_the_answer_to_a_report_contains_the_expected_time_of_a_photo() -> None:
    load = LoadControl("none", LoadSettings(), 1, ManualClock())
    assert load.answer_ms(7.0, size=3) == 0.0, "before the first photo"
    load.computed(12.0)
    assert load.answer_ms(7.0, size=3) == pytest.approx(19.0)
    assert load.answer_ms(7.0, size=0) == 0.0, "there are no lookups in an empty cache"


def test_photos_that_are_passed_on_take_no_time() -> None:
    clock = ManualClock()
    load = LoadControl("load-balanced", LoadSettings(share=1.0, interarrival_seed_ms=10.0), 1, clock)
    for _ in range(100):
        load.computed(40.0)
    assert load.compute_ms() == pytest.approx(10.0)
