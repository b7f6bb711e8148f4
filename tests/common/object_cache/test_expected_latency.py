"""Equation 2.3 against a plain loop, and the shape of the dissertation's figure 3.2."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import InvalidArgument
from nearsight.common.object_cache.expected_latency import ExpectedLatency, LatencyTerms, why_cache_is_empty
from nearsight.edge.cache_size import Costs, choose_size
from support.caching import profile_of_table_3_2, zipf_ranking


@given(
    terms=st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=30),
    miss_ms=st.floats(0, 1e5),
)
def test_the_latency_of_every_size_is_that_of_the_equation(
    terms: list[tuple[float, float, float]], miss_ms: float
) -> None:
    lookup, recall, cached = (np.array(column, dtype=float) for column in zip(*terms, strict=True))
    expected = ExpectedLatency(lookup, recall, cached, miss_ms).evaluate()
    for k, (f, r, p) in enumerate(terms):
        assert expected[k] == pytest.approx(f + (1 - r * p) * miss_ms)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lookup_ms": np.array([0.0, np.nan])}, "lookup_ms"),
        ({"lookup_ms": np.array([0.0, -1.0])}, "lookup_ms"),
        ({"recall": np.array([0.5, 1.5])}, "recall"),
        ({"cached_probability": np.array([0.0])}, "shape"),
        ({"miss_ms": np.nan}, "miss_ms"),
    ],
)
def test_impossible_terms_are_refused(change: dict[str, object], message: str) -> None:
    terms = {
        "lookup_ms": np.array([0.0, 1.0]),
        "recall": np.array([0.9, 0.9]),
        "cached_probability": np.array([0.0, 0.5]),
        "miss_ms": 10.0,
    }
    with pytest.raises(InvalidArgument, match=message):
        ExpectedLatency(**(terms | change))  # type: ignore[arg-type]


def test_figure_3_2_has_its_minimum_near_30_objects_and_exceeds_no_cache_above_80() -> None:
    """Zipf 0.8, 400 objects, Table 3.2's LSH on Stanford.

    The figure's L_miss is not printed. At its crossing E[L](80) = L_miss, hence L_miss = f(80) / (recall(80)
    · P_cached(80)), about 361 ms: 40 ms round trip, an image of about 150 KB at 5 Mbps, and the cloud's own
    lookup.
    """
    curves = profile_of_table_3_2().curves(400)
    ranking = zipf_ranking(400, 0.8)
    miss_ms = curves.lookup_ms[80] / (curves.recall[80] * ranking.cumulative[80])
    assert miss_ms == pytest.approx(361, abs=2)

    latency = ExpectedLatency(curves.lookup_ms, curves.recall, ranking.cumulative, float(miss_ms)).evaluate()
    best = choose_size(Costs(curves.lookup_ms, curves.recall, float(miss_ms)), ranking).k

    assert 25 <= best <= 35
    assert latency[best] < latency[0]
    assert (latency[81:] > latency[0]).all()
    assert (np.diff(latency[best:]) > 0).all()


def test_the_reason_for_an_empty_cache_states_the_expected_times() -> None:
    offload = LatencyTerms(0, 2.0, 0.9, 0.0, 10.0, 12.0)
    others = [LatencyTerms(1, 8.0, 0.9, 0.2, 10.0, 16.2), LatencyTerms(50, 9.0, 0.9, 2 / 3, 10.0, 13.0)]
    assert why_cache_is_empty("cloud", offload, others) == (
        "asking the cloud takes 12 ms; a lookup among 50 objects would first take 9 ms "
        "and recognise 60 % of the photos, so the cache is empty"
    )
    assert "no room" in why_cache_is_empty("cloud", offload, [])
