"""Laws of the link's schedule, in virtual time."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.clock import ManualClock
from nearsight.common.errors import ConfigurationError
from nearsight.experiments.links.link import LinkDirection, LinkShape

chunks = st.lists(
    st.tuples(st.integers(1, 100_000), st.floats(0, 0.2, allow_nan=False)), min_size=1, max_size=60
)
rates = st.floats(0.5, 1000)
delays = st.floats(0, 0.5)
jitters = st.floats(0, 0.05)


def schedule(
    arrivals: list[tuple[int, float]], delay_s: float, rate_mbps: float, jitter_s: float = 0.0
) -> list[tuple[float, int, float]]:
    """(arrival, size, exit) of each chunk; arrivals are given as gaps."""
    clock = ManualClock()
    link = LinkDirection(np.random.default_rng(1))
    link.reshape(delay_s, rate_mbps, jitter_s)
    passed = []
    for size_bytes, gap_s in arrivals:
        clock.advance(gap_s)
        now_s = clock.monotonic()
        passed.append((now_s, size_bytes, link.admit(size_bytes, now_s)))
    return passed


@given(chunks, delays, rates)
def test_no_chunk_leaves_before_its_serialisation_and_the_delay(
    arrivals: list[tuple[int, float]], delay_s: float, rate_mbps: float
) -> None:
    for now_s, size_bytes, exit_s in schedule(arrivals, delay_s, rate_mbps):
        assert exit_s >= now_s + size_bytes * 8 / (rate_mbps * 1e6) + delay_s - 1e-9


@given(chunks, delays, rates, jitters)
def test_chunks_keep_their_order_with_any_jitter(
    arrivals: list[tuple[int, float]], delay_s: float, rate_mbps: float, jitter_s: float
) -> None:
    exits = [exit_s for _, _, exit_s in schedule(arrivals, delay_s, rate_mbps, jitter_s)]
    assert exits == sorted(exits)


@given(chunks, delays, rates)
def test_no_window_carries_more_than_the_rate(
    arrivals: list[tuple[int, float]], delay_s: float, rate_mbps: float
) -> None:
    passed = schedule(arrivals, delay_s, rate_mbps)
    for first in range(len(passed)):
        sent_bytes = 0
        for _, size_bytes, exit_s in passed[first + 1 :]:
            sent_bytes += size_bytes
            window_s = exit_s - passed[first][2]
            assert sent_bytes * 8 <= window_s * rate_mbps * 1e6 * (1 + 1e-6) + 1e-3


@given(chunks, delays, rates)
def test_an_idle_link_adds_exactly_serialisation_and_delay(
    arrivals: list[tuple[int, float]], delay_s: float, rate_mbps: float
) -> None:
    size_bytes, gap_s = arrivals[0]
    now_s, _, exit_s = schedule([(size_bytes, gap_s)], delay_s, rate_mbps)[0]
    assert exit_s == pytest.approx(now_s + size_bytes * 8 / (rate_mbps * 1e6) + delay_s)


@given(chunks, delays)
def test_a_rate_of_zero_means_unlimited(arrivals: list[tuple[int, float]], delay_s: float) -> None:
    for now_s, _, exit_s in schedule(arrivals, delay_s, 0.0):
        assert exit_s == pytest.approx(now_s + delay_s)


def test_a_chunk_waits_for_the_serialisation_of_the_one_before() -> None:
    passed = schedule([(15_000, 0.0), (15_000, 0.0)], 0.015, 15.0)  # 8 ms each
    assert [exit_s for _, _, exit_s in passed] == pytest.approx([0.023, 0.031])


@pytest.mark.parametrize("size", [1, 25])
@pytest.mark.parametrize("rate_mbps", [0.0, 15.0])
def test_jitter_is_the_standard_deviation_of_the_delay_of_a_message(size: int, rate_mbps: float) -> None:
    message = [(8192, 1.0), *[(8192, 0.0001)] * (size - 1)]  # a second apart: order never interferes
    steady, jittered = (schedule(2000 * message, 0.1, rate_mbps, jitter_s) for jitter_s in (0.0, 0.01))
    last = slice(size - 1, None, size)
    added_s = [late[2] - early[2] for early, late in zip(steady[last], jittered[last], strict=True)]
    assert np.mean(added_s) == pytest.approx(0.0, abs=0.001)
    assert np.std(added_s) == pytest.approx(0.01, rel=0.1)


@pytest.mark.parametrize("wrong", [{"rtt_ms": -1}, {"up_mbps": math.inf}, {"down_mbps": math.nan}])
def test_an_invalid_shape_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        LinkShape(**wrong)


def test_a_new_shape_applies_to_later_chunks_and_keeps_the_order() -> None:
    link = LinkDirection(np.random.default_rng(1))
    link.reshape(0.1, 0, 0.0)
    slow = link.admit(1000, 0.0)
    link.reshape(0.01, 0, 0.0)
    assert link.admit(1000, 0.001) == slow == pytest.approx(0.1)
    assert link.admit(1000, 1.0) == pytest.approx(1.01)
    link.reshape(0.01, 8.0, 0.0)
    assert link.admit(1000, 2.0) == pytest.approx(2.011)
