"""The link's latency and rate are found from transfers of different sizes."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.caching.link_estimate import LinkEstimate
from nearsight.common.errors import InvalidArgument


@given(
    latency_ms=st.floats(1, 300),
    mbps=st.floats(0.5, 200),
    assumed_mbps=st.floats(1, 100),
    seed=st.integers(0, 100),
)
def test_transfers_of_two_sizes_reveal_latency_and_rate(
    latency_ms: float, mbps: float, assumed_mbps: float, seed: int
) -> None:
    link = LinkEstimate(mbps=assumed_mbps)
    rng = np.random.default_rng(seed)
    for size in rng.choice([8_000, 60_000], 200).tolist():
        link.observe(size, latency_ms + 8e-3 / mbps * size)
    for size in (8_000, 60_000):
        assert link.transfer_ms(size) == pytest.approx(latency_ms + 8e-3 / mbps * size, rel=0.25, abs=6)


def test_before_the_first_transfer_the_assumption_counts() -> None:
    link = LinkEstimate(latency_ms=30.0, mbps=10.0)
    assert link.transfer_ms(12_500) == pytest.approx(40.0)
    assert (link.latency_ms, link.mbps) == (30.0, 10.0)


def test_a_network_that_changes_is_followed() -> None:
    link = LinkEstimate()
    for transfer_ms in [50.0] * 100 + [500.0] * 60:
        link.observe(30_000, transfer_ms)
    assert link.transfer_ms(30_000) == pytest.approx(500.0, rel=0.1)


@given(
    transfers=st.lists(st.tuples(st.floats(0, 1e7), st.floats(-10, 1e5)), max_size=50),
    size=st.floats(0, 1e7),
)
def test_an_estimate_is_never_negative_and_never_falls_with_size(
    transfers: list[tuple[float, float]], size: float
) -> None:
    link = LinkEstimate()
    for bytes_, transfer_ms in transfers:
        link.observe(bytes_, transfer_ms)
    assert 0 <= link.transfer_ms(0) <= link.transfer_ms(size) < math.inf
    assert link.mbps > 0


def test_larger_messages_that_were_faster_mean_that_size_makes_no_difference() -> None:
    link = LinkEstimate()
    for _ in range(50):
        link.observe(1_000, 100.0)
        link.observe(100_000, 10.0)
    assert link.mbps == math.inf
    assert link.transfer_ms(1_000) == link.transfer_ms(100_000)


@pytest.mark.parametrize("transfer_ms", [0.0, -3.0, math.nan, math.inf])
def test_what_is_no_time_is_ignored(transfer_ms: float) -> None:
    link = LinkEstimate()
    link.observe(1_000, transfer_ms)
    assert link.transfer_ms(1_000) == LinkEstimate().transfer_ms(1_000)


@pytest.mark.parametrize("wrong", [{"latency_ms": 0.0}, {"mbps": 0.0}, {"mbps": math.inf}, {"window": 1}])
def test_assumptions_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidArgument):
        LinkEstimate(**wrong)  # type: ignore[arg-type]
