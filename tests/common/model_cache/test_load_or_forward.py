"""Load here or forward: whichever answers sooner."""

import math

import pytest

from nearsight.common.model_cache.load_or_forward import Circumstances, load_or_forward
from nearsight.common.model_cache.model_cache import Decision, Load, Reason, Refuse, Run, Wait
from nearsight.common.model_cache.policy import ModelCosts

COSTS = ModelCosts(1, load_ms=400.0, execution_ms=30.0)
NOW = Circumstances(executions_ms=10.0, loads_ms=200.0, load_left_ms=50.0, forward_ms=300.0)
REFUSED = Refuse(Reason.TOO_LARGE, "huge", 2, 1, 1, 0)


@pytest.mark.parametrize(
    ("decision", "here_ms", "forward"),
    [(Run(), 40.0, False), (Wait(), 90.0, False), (Load(), 640.0, True), (REFUSED, math.inf, True)],
)
def test_the_way_that_is_expected_sooner(decision: Decision, here_ms: float, forward: bool) -> None:
    expected = load_or_forward(decision, COSTS, NOW)
    assert (expected.here_ms, expected.forward, expected.possible) == (here_ms, forward, True)


def test_without_a_next_tier_a_request_is_answered_here_or_not_at_all() -> None:
    assert not load_or_forward(Load(), COSTS, Circumstances()).forward
    assert not load_or_forward(REFUSED, COSTS, Circumstances()).possible
