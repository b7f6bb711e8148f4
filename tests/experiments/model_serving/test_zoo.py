"""The models of CremeBrulee's table."""

import statistics

import pytest

from nearsight.experiments.model_serving.zoo import cremebrulee_models


def test_all_models_together_are_those_of_the_paper() -> None:
    models = cremebrulee_models().values()
    assert len(models) == 26
    assert sum(one.size_bytes for one in models) == pytest.approx(21.7e9, rel=1e-6)
    assert statistics.mean(one.load_ms for one in models) == pytest.approx(8061, abs=1)
    assert statistics.mean(one.execution_ms for one in models) == pytest.approx(663, abs=1)
