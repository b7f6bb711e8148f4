"""The MAP estimate of equation 3.2, and its decay."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.clock import ManualClock
from nearsight.common.errors import InvalidArgument
from nearsight.edge.cache_size import Costs, choose_size
from nearsight.edge.request_distribution import DistributionEstimator, RequestDistribution


@given(
    requests=st.lists(st.integers(0, 11), max_size=80),
    prior=st.floats(0.01, 10),
)
def test_probabilities_are_the_map_estimate(requests: list[int], prior: float) -> None:
    names = [f"object-{i}" for i in range(12)]
    distribution = RequestDistribution(names, prior=prior)
    for request in requests:
        assert distribution.count(names[request], 0.0)
    ranking = distribution.ranking(0.0)
    counts = [requests.count(i) for i in range(12)]
    for name, p in zip(ranking.top(12), ranking.probabilities, strict=True):
        assert p == pytest.approx((counts[names.index(name)] + prior) / (len(requests) + 12 * prior))
    assert ranking.cumulative[0] == 0
    assert ranking.cumulative[-1] == pytest.approx(1)
    assert (np.diff(ranking.probabilities) <= 0).all()
    assert ranking.cumulative[1:] == pytest.approx(np.cumsum(ranking.probabilities))
    assert ranking.seen == sum(count > 0 for count in counts)


def test_every_request_counts() -> None:
    distribution = RequestDistribution(["a", "b"])
    for _ in range(7):
        distribution.count("b", 0.0)
    assert distribution.ranking(0.0).top(1) == ("b",)
    assert distribution.ranking(0.0).probabilities[0] == pytest.approx(8 / 9)


def test_equally_popular_objects_are_in_the_order_of_the_catalogue() -> None:
    assert RequestDistribution(["c", "a", "b"]).ranking(0.0).top(3) == ("c", "a", "b")


def test_unknown_objects_are_not_counted() -> None:
    distribution = RequestDistribution(["a"])
    assert not distribution.count("stranger", 0.0)
    assert distribution.counts(0.0) == {}


@given(times=st.lists(st.floats(0, 1e5), min_size=1, max_size=50), half_life_s=st.floats(0.5, 1e4))
def test_a_count_halves_per_half_life(times: list[float], half_life_s: float) -> None:
    """Also over many rescalings of the stored counts."""
    times.sort()
    distribution = RequestDistribution(["a", "b"], half_life_s=half_life_s)
    for now in times:
        distribution.count("a", now)
    end = times[-1] + half_life_s
    brute = sum(0.5 ** ((end - now) / half_life_s) for now in times)
    assert distribution.counts(end)["a"] == pytest.approx(brute)


def test_with_a_half_life_the_estimate_follows_changes() -> None:
    names = ["old", "new"]
    paper, decaying = RequestDistribution(names), RequestDistribution(names, half_life_s=60.0)
    for distribution in (paper, decaying):
        for second in range(1000):
            distribution.count("old", float(second))
        for second in range(1000, 1120):
            distribution.count("new", float(second))
    assert paper.ranking(1120.0).top(1) == ("old",)
    assert decaying.ranking(1120.0).top(1) == ("new",)


def test_counts_of_removed_objects_are_dropped_and_others_kept() -> None:
    distribution = RequestDistribution(["a", "b"])
    distribution.count("a", 0.0)
    distribution.count("b", 0.0)
    distribution.set_objects(["b", "c"])
    assert distribution.counts(0.0) == {"b": 1.0}
    assert "a" not in distribution
    distribution.set_objects(["a", "b"])
    assert distribution.counts(0.0) == {"b": 1.0}


def test_restored_counts_give_the_same_estimate() -> None:
    before = RequestDistribution(["a", "b", "c"])
    for _ in range(9):
        before.count("b", 0.0)
    now = RequestDistribution(["a", "b", "c"])
    assert not now.count("gone", 0.0, 5.0)
    for name, count in before.counts(0.0).items():
        now.count(name, 0.0, count)
    assert now.ranking(0.0).top(1) == ("b",)
    assert now.ranking(0.0).seen == 1
    assert now.ranking(0.0).probabilities == pytest.approx(before.ranking(0.0).probabilities)


def test_the_probability_of_a_set_is_the_sum_over_its_objects() -> None:
    distribution = RequestDistribution(["a", "b", "c"])
    distribution.count("c", 0.0)
    ranking = distribution.ranking(0.0)
    assert ranking.probability_of(["c", "a", "stranger"]) == pytest.approx(3 / 4)
    assert ranking.probability_of([]) == 0


@pytest.mark.parametrize("arguments", [{"prior": 0.0}, {"prior": math.nan}, {"half_life_s": 0.0}])
def test_invalid_parameters_are_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(InvalidArgument):
        RequestDistribution(["a"], **arguments)


def test_the_sum_of_the_priors_is_bounded() -> None:
    names = [str(number) for number in range(500)]
    distribution = RequestDistribution(names, prior_mass=100.0)
    for _ in range(100):
        distribution.count("7", 0.0)
    assert distribution.ranking(0.0).probability_of(["7"]) == pytest.approx(100.2 / 200)
    assert distribution.ranking(0.0).seen == 1
    distribution.set_objects(names[:50])
    assert distribution.ranking(0.0).probability_of(["7"]) == pytest.approx(101 / 150), "1 each, as they fit"
    distribution.set_objects(names)
    assert distribution.ranking(0.0).probability_of(["7"]) == pytest.approx(100.2 / 200)


def test_a_bounded_prior_reduces_the_cost_of_a_large_catalogue() -> None:
    """True cost of the first 200 requests, Zipf 1.2 over 500 objects: the bound saves at least 5 %."""
    rng = np.random.default_rng(2)
    weights = np.arange(1, 501) ** -1.2
    p = weights / weights.sum()
    requests = rng.choice(500, size=200, p=p)
    lookup_ms, recall = 5.0 + 0.2 * np.arange(501.0), np.full(501, 0.9)
    lookup_ms[0] = 0.0
    costs_of_size = Costs(lookup_ms, recall, 100.0)

    def mean_cost_ms(prior_mass: float) -> float:
        distribution = RequestDistribution(map(str, range(500)), prior_mass=prior_mass)
        cost_ms, costs = 100.0, []
        for request in requests:
            costs.append(cost_ms)
            distribution.count(str(request), 0.0)
            ranking = distribution.ranking(0.0)
            decision = choose_size(costs_of_size, ranking, ranking.seen)
            hits = 0.9 * p[[int(name) for name in decision.object_ids]].sum()
            cost_ms = decision.terms.lookup_ms + (1 - hits) * 100.0
        return float(np.mean(costs))

    assert mean_cost_ms(100.0) < 0.95 * mean_cost_ms(math.inf)


# Shared among threads


def estimator_of(*names: str) -> DistributionEstimator:
    return DistributionEstimator(RequestDistribution(names), ManualClock())


def test_concurrent_counts_are_exact() -> None:
    estimator = estimator_of("a", "b")
    with ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            pool.submit(lambda: [estimator.count("a") for _ in range(500)])
    assert estimator.counts() == {"a": 2000.0}
    assert estimator.asked() == {"a": 2000}


def test_requests_since_the_last_build_are_reset_for_cached_objects() -> None:
    estimator = estimator_of("a", "b")
    estimator.count("a")
    estimator.count("b")
    estimator.entered(["a", "never asked for"])
    assert estimator.asked() == {"b": 1}


def test_counts_of_removed_objects_are_dropped() -> None:
    estimator = estimator_of("a", "b")
    estimator.count("a")
    estimator.set_objects(["b", "c"])
    assert estimator.asked() == {}
    assert not estimator.count("a")
    assert estimator.counts() == {}


def test_a_replaced_object_counts_as_requested() -> None:
    estimator = estimator_of("a")
    estimator.readmit(["a", "gone"])
    assert estimator.asked() == {"a": 2}


def test_counts_decay_with_the_clock() -> None:
    clock = ManualClock()
    estimator = DistributionEstimator(RequestDistribution(["a"], half_life_s=10.0), clock)
    estimator.count("a")
    clock.advance(20.0)
    assert estimator.counts() == {"a": 0.25}


def test_recently_requested_objects_are_ordered_and_bounded() -> None:
    names = tuple(map(str, range(10_002)))
    estimator = estimator_of(*names)
    for name in (*names, "5000"):
        estimator.count(name)
    recent = estimator.recent()
    assert recent[:3] == ("5000", "10001", "10000")
    assert len(recent) == 10_000
    estimator.set_objects(["5000", "7000"])
    assert estimator.recent() == ("5000", "7000")
