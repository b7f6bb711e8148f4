"""The models of CremeBrulee's table, and the seven of mCache."""

import statistics

import pytest

from nearsight.experiments.model_serving.zoo import cremebrulee_models, mcache_models


def test_all_models_together_are_those_of_the_paper() -> None:
    models = cremebrulee_models().values()
    assert len(models) == 26
    assert sum(one.size_bytes for one in models) == pytest.approx(21.7e9, rel=1e-6)
    assert statistics.mean(one.load_ms for one in models) == pytest.approx(8061, abs=1)
    assert statistics.mean(one.execution_ms for one in models) == pytest.approx(663, abs=1)


def test_with_a_fixed_part_of_memory_load_times_per_byte_differ() -> None:
    def spread(fixed_mb: float) -> float:
        densities = [one.load_ms / one.size_bytes for one in mcache_models(fixed_mb).values()]
        return max(densities) / min(densities)

    assert len(mcache_models()) == 7
    assert spread(0) == pytest.approx(1.0, abs=0.05)
    assert spread(500) > 3
