"""The edge keeps what it can compute in time, and gives the rest away."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import InvalidArgument
from nearsight.common.object_cache.rolling_mean import InterArrivalTime, RollingMean
from nearsight.edge.load_balancing import LoadBalancer


def balancer(every_ms: float, compute_ms: float, **settings: float) -> LoadBalancer:
    """After 150 requests."""
    interarrival = InterArrivalTime()
    made = LoadBalancer(interarrival, **settings)  # type: ignore[arg-type]
    for number in range(151):
        interarrival.observe(number * every_ms / 1e3)
        made.observe_compute(compute_ms)
    return made


@given(every_ms=st.floats(0.1, 5000), compute_ms=st.floats(0.1, 5000))
def test_the_edge_gets_the_share_that_it_can_compute(every_ms: float, compute_ms: float) -> None:
    expected = min(1.0, every_ms / compute_ms)
    assert balancer(every_ms, compute_ms).edge_probability == pytest.approx(expected, rel=1e-3)


def test_the_share_of_requests_that_stay_is_the_probability() -> None:
    made = balancer(30.0, 100.0)
    rng = np.random.default_rng(1)
    stays = np.mean([made.route(rng).to_edge for _ in range(5000)])
    assert stays == pytest.approx(0.3, abs=0.03)


def test_an_edge_that_is_fast_enough_keeps_every_request() -> None:
    made = balancer(100.0, 99.0)
    rng = np.random.default_rng(1)
    assert all(made.route(rng).to_edge for _ in range(1000))


def test_before_anything_is_measured_the_configured_values_count() -> None:
    assert LoadBalancer(InterArrivalTime(seed_ms=200.0), compute_seed_ms=50.0).edge_probability == 1.0
    assert LoadBalancer(InterArrivalTime(seed_ms=20.0), compute_seed_ms=50.0).edge_probability == 0.4


def test_configured_values_fade_as_the_window_fills() -> None:
    interarrival = InterArrivalTime(window=100, seed_ms=200.0)
    for number in range(51):
        interarrival.observe(number * 0.1)
    assert interarrival.mean_ms == pytest.approx(150.0)


def test_a_used_share_below_one_leaves_room() -> None:
    assert balancer(100.0, 100.0, share=0.9).edge_probability == pytest.approx(0.9)


def test_an_edge_with_two_servers_keeps_twice_as_much() -> None:
    assert balancer(30.0, 100.0, servers=2).edge_probability == pytest.approx(0.6)


def test_a_quiet_night_does_not_hide_the_crowd_after_it() -> None:
    interarrival = InterArrivalTime(longest_ms=1000.0)
    for now_s in (0.0, 50_000.0):
        interarrival.observe(now_s)
    assert interarrival.mean_ms == pytest.approx((99 * 200 + 1000) / 100)


def test_arrivals_reported_in_the_wrong_order_do_not_make_time_negative() -> None:
    interarrival = InterArrivalTime(window=1)
    for now_s in (2.0, 1.0):
        interarrival.observe(now_s)
    assert interarrival.mean_ms == 0.0


def test_a_crowd_at_one_instant_goes_to_the_cloud() -> None:
    assert balancer(0.0, 100.0).edge_probability == 0.0


def test_a_route_says_why() -> None:
    assert "P(edge) = 0.30" in balancer(30.0, 100.0).route(np.random.default_rng(1)).why


@pytest.mark.parametrize("wrong", [{"share": 0.0}, {"share": 1.1}, {"servers": 0}, {"window": 0}])
def test_settings_that_cannot_work_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidArgument):
        balancer(1.0, 1.0, **wrong)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_a_value_that_is_no_measurement_is_refused(value: float) -> None:
    with pytest.raises(InvalidArgument):
        RollingMean(10, 1.0).observe(value)
