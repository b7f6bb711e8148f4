"""Regret, compared with a replay of all requests for every size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import InvalidArgument
from nearsight.edge.cache_size import Costs
from nearsight.edge.profiler import Regret
from support.caching import profile_of_table_3_2, ranking_of

LOOKUP_MS = np.array([0.0, 10.0, 12.0, 15.0, 30.0])
RECALL = np.array([0.0, 0.9, 0.9, 0.8, 0.8])
RANKING = ranking_of(np.full(7, 1 / 7))


def costing(miss_ms: float, regret: Regret) -> Regret:
    """Record a decision with this miss latency; ``str(rank)`` is the object of a rank."""
    regret.decided(RANKING, Costs(LOOKUP_MS, RECALL, miss_ms))
    return regret


@given(
    requests=st.lists(
        st.tuples(st.none() | st.integers(0, 6), st.integers(0, 4), st.floats(0, 500)), max_size=40
    ),
    window=st.integers(1, 20),
)
def test_costs_of_all_sizes_are_those_of_a_replay(
    requests: list[tuple[int | None, int, float]], window: int
) -> None:
    regret = Regret(4, window)
    for rank, k, miss_ms in requests:
        held = rank is not None and rank < k
        costing(miss_ms, regret).observe(None if rank is None else str(rank), k, held=held)
    last = requests[-window:]

    def cost_ms(k: int, rank: int | None, miss_ms: float) -> float:
        found = RECALL[k] if rank is not None and rank < k else 0.0
        return float(LOOKUP_MS[k] + (1 - found) * miss_ms)

    report = regret.report()
    assert report.requests == len(last)
    if last:
        fixed = [np.mean([cost_ms(k, rank, miss) for rank, _, miss in last]) for k in range(5)]
        chosen = np.mean([cost_ms(k, rank, miss) for rank, k, miss in last])
        assert regret.costs_ms() == pytest.approx(fixed)
        assert report.mean_ms == pytest.approx(chosen)
        assert report.best_ms == pytest.approx(min(fixed))
        assert report.regret_ms == pytest.approx(chosen - min(fixed))


def test_the_best_fixed_size_has_no_regret() -> None:
    regret = costing(200.0, Regret(4))
    for name in "0101":
        regret.observe(name, 2, held=True)
    report = regret.report()
    assert (report.best_k, report.regret_ms) == (2, 0.0)
    assert "always k=2" in report.why


def test_a_chosen_object_that_is_not_cached_yet_causes_regret() -> None:
    regret = costing(200.0, Regret(4))
    regret.observe("0", 1, held=False)
    assert regret.report().regret_ms == pytest.approx(0.9 * 200)
    assert "+600.0 %" in regret.report().why


def test_changes_of_the_size_can_be_better_than_every_fixed_size() -> None:
    regret = costing(200.0, Regret(4))
    for name, k in [(None, 0)] * 5 + [("2", 3)] * 5:
        regret.observe(name, k, held=k > 0)
    assert regret.report().regret_ms < 0


def test_an_object_without_earlier_requests_is_a_miss_for_every_size() -> None:
    """It is ranked by the prior only; models are fetched lazily."""
    regret = Regret(3)
    regret.decided(ranking_of(np.array([0.6, 0.3, 0.1]), seen=2), Costs(LOOKUP_MS, RECALL, 100.0))
    for name in ("2", "unheard of", None):
        regret.observe(name, 0, held=False)
    assert (regret.report().best_k, regret.report().best_ms) == (0, 100.0)


def test_memory_does_not_grow_with_the_catalogue() -> None:
    regret = Regret(10_000, window=100, resolution=64)
    assert regret.sizes[0] == 0
    assert regret.sizes[-1] == 10_000
    assert 40 <= len(regret.sizes) <= 64
    curves = profile_of_table_3_2().curves(10_000)
    regret.decided(ranking_of(np.full(300, 1 / 300)), Costs(curves.lookup_ms, curves.recall, 300.0))
    for rank in range(300):
        regret.observe(str(rank), 50, held=rank < 50)
    assert regret.report().requests == 100


def test_before_the_first_decision_there_is_no_regret() -> None:
    regret = Regret(10)
    regret.observe("0", 1, held=True)
    report = regret.report()
    assert (report.requests, report.regret_ms, report.why) == (0, 0.0, "no request yet")


@pytest.mark.parametrize("wrong", [(-1, 10, 10), (10, 0, 10), (10, 10, 1)])
def test_invalid_sizes_are_refused(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidArgument):
        Regret(*wrong)
