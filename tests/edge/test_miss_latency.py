"""The cost of a miss is always defined."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import InvalidArgument
from nearsight.edge.miss_latency import MissLatency


def test_the_prior_stands_in_until_the_first_miss() -> None:
    latency = MissLatency(prior_ms=80.0)
    assert latency.mean_ms == 80.0
    latency.observe(30.0)
    assert latency.mean_ms == 30.0


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_it_is_the_mean_of_the_last_ten(measured: list[float]) -> None:
    latency = MissLatency()
    for value in measured:
        latency.observe(value)
    last = measured[-10:]
    assert latency.mean_ms == pytest.approx(sum(last) / len(last))
    assert latency.measured == len(last)


@pytest.mark.parametrize("nonsense", [math.nan, math.inf, -1.0])
def test_nonsense_is_refused(nonsense: float) -> None:
    latency = MissLatency()
    with pytest.raises(InvalidArgument):
        latency.observe(nonsense)
    with pytest.raises(InvalidArgument):
        MissLatency(prior_ms=nonsense)
    assert math.isfinite(latency.mean_ms)
