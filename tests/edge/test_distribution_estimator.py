"""Counting from several threads, and what counts as newly asked for."""

from concurrent.futures import ThreadPoolExecutor

from nearsight.common.clock import ManualClock
from nearsight.edge.distribution_estimator import DistributionEstimator
from nearsight.edge.request_distribution import RequestDistribution


def estimator_of(*names: str) -> DistributionEstimator:
    return DistributionEstimator(RequestDistribution(names), ManualClock())


def test_no_count_is_lost_between_threads() -> None:
    estimator = estimator_of("a", "b")
    with ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            pool.submit(lambda: [estimator.count("a") for _ in range(500)])
    assert estimator.counts() == {"a": 2000.0}
    assert estimator.asked() == {"a": 2000}


def test_objects_that_entered_the_cache_are_newly_asked_for_no_longer() -> None:
    estimator = estimator_of("a", "b")
    estimator.count("a")
    estimator.count("b")
    estimator.entered(["a", "never asked for"])
    assert estimator.asked() == {"b": 1}


def test_a_changed_catalogue_forgets_what_left() -> None:
    estimator = estimator_of("a", "b")
    estimator.count("a")
    estimator.set_objects(["b", "c"])
    assert estimator.asked() == {}
    assert not estimator.count("a")
    assert estimator.counts() == {}


def test_a_replaced_object_counts_as_asked_for() -> None:
    estimator = estimator_of("a")
    estimator.readmit(["a", "gone"])
    assert estimator.asked() == {"a": 2}


def test_counts_fade_with_the_clock() -> None:
    clock = ManualClock()
    estimator = DistributionEstimator(RequestDistribution(["a"], half_life_s=10.0), clock)
    estimator.count("a")
    clock.advance(20.0)
    assert estimator.counts() == {"a": 0.25}
