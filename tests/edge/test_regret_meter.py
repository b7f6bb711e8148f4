"""Regret of the running edge: ranks and costs as of the last decision."""

import numpy as np
import pytest

from nearsight.edge.profiler import Costs
from nearsight.edge.regret_meter import RegretMeter
from support.caching import ranking_of

COSTS = Costs(np.arange(4.0), np.ones(4), 100.0)
RANKING = ranking_of(np.array([0.6, 0.3, 0.1]))


def test_before_the_first_decision_there_is_nothing_to_compare() -> None:
    meter = RegretMeter(3, 10)
    meter.observe("0", 1, held=True)
    assert meter.report().requests == 0


def test_each_size_would_have_had_the_objects_above_it_in_the_ranking() -> None:
    meter = RegretMeter(3, 10)
    meter.decided(RANKING, COSTS)
    meter.observe("1", 1, held=False)
    report = meter.report()
    assert (report.best_k, report.best_ms) == (2, 2.0)
    assert report.mean_ms == pytest.approx(101.0), "a cache of one did not hold the second"


def test_an_object_that_nobody_had_asked_for_would_have_been_in_no_cache() -> None:
    """The prior alone ranks it; models are fetched lazily."""
    meter = RegretMeter(3, 10)
    seen_two = ranking_of(np.array([0.6, 0.3, 0.1]), seen=2)
    meter.decided(seen_two, COSTS)
    for name in ("2", "unheard of", None):
        meter.observe(name, 0, held=False)
    assert (meter.report().best_k, meter.report().best_ms) == (0, 100.0)
