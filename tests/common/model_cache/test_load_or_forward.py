"""Load here or forward: whichever answers sooner."""

import math

import pytest

from nearsight.common.model_cache.load_or_forward import Circumstances, forward_is_sooner
from nearsight.common.model_cache.model_cache import Load, Wait
from nearsight.common.model_cache.policy import ModelCosts

COSTS = ModelCosts(1, load_ms=400.0, execution_ms=30.0)


@pytest.mark.parametrize(("decision", "here_ms"), [(Wait(), 80.0), (Load(), 630.0)])
def test_the_way_that_is_expected_sooner(decision: Load | Wait, here_ms: float) -> None:
    def forward(forward_ms: float) -> bool:
        now = Circumstances(loads_ms=200.0, load_left_ms=50.0, forward_ms=forward_ms)
        return forward_is_sooner(decision, COSTS, now)

    assert forward(here_ms - 1.0)
    assert not forward(here_ms)
    assert not forward(math.inf)
