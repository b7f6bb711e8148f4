"""Workloads of the papers: numbers of requests, models, and true rates."""

import numpy as np
import pytest

from nearsight.experiments.model_serving.workloads import Recipe
from nearsight.experiments.model_serving.zoo import cremebrulee_models, mcache_models
from nearsight.experiments.traces.arrivals import ARRIVAL_PROCESSES, CREMEBRULEE, Poisson
from nearsight.experiments.traces.model_requests import Association


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("name", ARRIVAL_PROCESSES)
def test_an_hour_has_about_as_many_requests_as_that_of_mcache(name: str) -> None:
    work = Recipe(ARRIVAL_PROCESSES[name]).draw(mcache_models(), rng())
    assert len(work.requests) == pytest.approx(2_389, rel=0.4)
    assert work.requests.names == tuple(work.costs) == tuple(mcache_models())
    assert work.size_bytes == sum(one.size_bytes for one in mcache_models().values())


def test_true_rates_equal_the_counted_rates() -> None:
    work = Recipe(Poisson()).draw(mcache_models(), rng())
    assert work.requests.counts() / 3_600 == pytest.approx(work.segments.rates_at(0.0, 7), rel=0.25)


def test_functions_with_own_models_are_as_many_as_in_cremebrulees_simulation() -> None:
    recipe = Recipe(
        Poisson(), Association.POPULAR_AND_COSTLY, 5_400, 16_765, marginals=CREMEBRULEE, own_names=True
    )
    work = recipe.draw(cremebrulee_models(), rng())
    assert len(work.costs) == len(work.requests.names) == pytest.approx(2_408, rel=0.1)
    name = work.requests.names[0]
    assert work.costs[name] == cremebrulee_models()[name.rpartition("-")[0]]
    assert work.segments.rates_at(0.0, len(work.costs)).sum() == pytest.approx(16_765 / 3_600, rel=0.2)


def test_popular_functions_get_costly_models() -> None:
    costly, cheap = (
        Recipe(Poisson(), how).draw(mcache_models(), rng()).requests.counts()
        for how in (Association.POPULAR_AND_COSTLY, Association.POPULAR_AND_CHEAP)
    )
    names = [*mcache_models()]
    assert costly[names.index("T5")] > 3 * costly[names.index("ResNet50")]
    assert cheap[names.index("ResNet50")] > 3 * cheap[names.index("T5")]
