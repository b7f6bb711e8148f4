"""The circuit breaker: cool-down, probe and recovery of a tier."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import ConfigurationError
from nearsight.common.request.next_tiers import BreakerSettings, BreakerState, CircuitBreaker

SETTINGS = BreakerSettings(failures=3, cooldown_s=1.0, longest_cooldown_s=8.0)


def cooling_breaker(at_s: float = 0.0) -> CircuitBreaker:
    breaker = CircuitBreaker(SETTINGS)
    for _ in range(SETTINGS.failures):
        breaker.failed(breaker.acquire(at_s), at_s)
    assert breaker.state is BreakerState.COOLING
    return breaker


def test_a_tier_is_healthy_until_it_failed_three_times_in_a_row() -> None:
    breaker = CircuitBreaker(SETTINGS)
    for _ in range(5):
        breaker.failed(breaker.acquire(0.0), 0.0)
        breaker.failed(breaker.acquire(0.0), 0.0)
        breaker.succeeded()
    assert breaker.healthy(0.0)
    for _ in range(3):
        breaker.failed(breaker.acquire(0.0), 0.0)
    assert not breaker.healthy(0.999)


def test_after_the_cool_down_exactly_one_request_is_a_probe() -> None:
    breaker = cooling_breaker()
    assert not breaker.healthy(0.9)
    assert breaker.healthy(1.0)
    assert breaker.acquire(1.0).probe
    assert breaker.state is BreakerState.PROBING
    assert not breaker.healthy(1.0)
    assert not breaker.acquire(1.0).probe


def test_a_probe_that_succeeds_closes_the_breaker() -> None:
    breaker = cooling_breaker()
    breaker.acquire(1.0)
    breaker.succeeded()
    assert breaker.state is BreakerState.CLOSED
    assert breaker.healthy(1.0)


def test_each_failed_probe_doubles_the_cool_down_up_to_the_longest() -> None:
    breaker, now_s, lengths = cooling_breaker(), 0.0, []
    for _ in range(6):
        wait_s = next(s for s in (1.0, 2.0, 4.0, 8.0, 16.0) if breaker.healthy(now_s + s))
        lengths.append(wait_s)
        now_s += wait_s
        breaker.failed(breaker.acquire(now_s), now_s)
    assert lengths == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


def test_the_cool_down_is_short_again_after_a_recovery() -> None:
    breaker = cooling_breaker()
    breaker.failed(breaker.acquire(1.0), 1.0)
    breaker.acquire(3.0)
    breaker.succeeded()
    for _ in range(3):
        breaker.failed(breaker.acquire(5.0), 5.0)
    assert breaker.healthy(6.0)


def test_an_abandoned_probe_is_left_for_the_next_request() -> None:
    breaker = cooling_breaker()
    breaker.abandoned(breaker.acquire(1.0))
    assert breaker.healthy(1.0)
    assert breaker.acquire(1.0).probe


def test_many_requests_that_fail_together_are_one_outage() -> None:
    breaker = CircuitBreaker(SETTINGS)
    permits = [breaker.acquire(0.0) for _ in range(50)]
    for permit in permits:
        breaker.failed(permit, 5.0)
    assert breaker.healthy(6.0)


def test_failures_of_earlier_requests_do_not_count_after_a_success() -> None:
    breaker = CircuitBreaker(SETTINGS)
    stale = [breaker.acquire(0.0) for _ in range(20)]
    for permit in stale[:3]:
        breaker.failed(permit, 1.0)
    breaker.acquire(2.0)
    breaker.succeeded()
    for permit in stale[3:]:
        breaker.failed(permit, 3.0)
    assert breaker.state is BreakerState.CLOSED


def test_a_late_answer_of_a_cooling_tier_shows_that_it_is_alive() -> None:
    breaker = cooling_breaker()
    breaker.succeeded()
    assert breaker.healthy(0.0)


def test_one_permanent_failure_opens_the_breaker() -> None:
    breaker = CircuitBreaker(SETTINGS)
    breaker.failed(breaker.acquire(0.0), 0.0, at_once=True)
    assert not breaker.healthy(0.0)


def test_a_longest_cool_down_below_the_first_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="longest_cooldown_s"):
        BreakerSettings(cooldown_s=2.0, longest_cooldown_s=1.0)


@given(st.lists(st.sampled_from(["ok", "fail", "abandon", "wait"]), max_size=60))
def test_a_tier_is_always_healthy_after_the_longest_cool_down(events: list[str]) -> None:
    breaker, now_s = CircuitBreaker(SETTINGS), 0.0
    for event in events:
        permit = breaker.acquire(now_s)
        if event == "ok":
            breaker.succeeded()
        elif event == "fail":
            breaker.failed(permit, now_s)
        elif event == "abandon":
            breaker.abandoned(permit)
        else:
            breaker.abandoned(permit)
            now_s += 0.7
    assert breaker.healthy(now_s + SETTINGS.longest_cooldown_s)


@given(st.lists(st.floats(0, 10), min_size=2, max_size=40))
def test_there_is_at_most_one_probe_at_a_time(gaps_s: list[float]) -> None:
    breaker, now_s, probes = cooling_breaker(), 0.0, 0
    for gap_s in gaps_s:
        now_s += gap_s
        probes += breaker.acquire(now_s).probe
    assert probes <= 1
