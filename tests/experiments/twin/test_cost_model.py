"""Lookup times in the twin."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.object_cache.profile import CacheProfile, Measurement
from nearsight.experiments.twin.cost_model import CostModel, Costs, lookups_ms


def profile(measured_ms: Mapping[int, float]) -> CacheProfile:
    """A profile with these measurements; its polynomial is a line that need not fit them."""
    return CacheProfile(
        backend="auto",
        query_features=800,
        largest_k=400,
        lookup_ms=(3.0, 0.02),
        recall=(0.9,),
        measurements=tuple(
            Measurement(
                k=k,
                lookup_ms=ms,
                lookup_ms_std=0.1,
                recall=0.9,
                recall_std=0.0,
                precision=1.0,
                precision_std=0.0,
            )
            for k, ms in measured_ms.items()
        ),
    )


def test_lookup_times_are_interpolated_between_measurements() -> None:
    found = lookups_ms(profile({1: 2.0, 33: 6.0, 132: 8.5, 400: 8.5}), 2000)
    assert found[[0, 1, 17, 33, 132, 400, 2000]] == pytest.approx([0.0, 2.0, 4.0, 6.0, 8.5, 8.5, 8.5])


def test_growing_lookup_times_are_extrapolated() -> None:
    assert lookups_ms(profile({1: 2.0, 100: 10.0, 400: 40.0}), 800)[800] == pytest.approx(80.0)


def test_without_measurements_lookup_times_are_those_of_the_polynomial() -> None:
    unknown = profile({})
    assert lookups_ms(unknown, 300) == pytest.approx(unknown.curves(300).lookup_ms)


@given(times_ms=st.lists(st.floats(0.1, 100.0), min_size=2, max_size=8))
def test_lookup_times_do_not_decrease_with_more_objects(times_ms: list[float]) -> None:
    measured = {1 + 40 * number: ms for number, ms in enumerate(times_ms)}
    found = lookups_ms(profile(measured), 500)
    assert (np.diff(found) >= -1e-9).all()


def test_the_costs_of_the_edge_are_those_of_its_profile() -> None:
    model = CostModel.assumed().model_copy(update={"edge": profile({1: 2.0, 132: 8.0, 400: 8.0})})
    costs = Costs(model, 500, np.random.default_rng(1))
    among = [costs.edge_lookup_s(k, found=True) for k in (132,) * 200 + (500,) * 200]
    assert np.mean(among[:200]) == pytest.approx(np.mean(among[200:]), rel=0.05)
