"""The profile follows the machine."""

import math

import pytest

from nearsight.common.caching.correction import LookupCorrection
from nearsight.common.errors import InvalidArgument


def test_it_starts_with_the_profile_as_measured() -> None:
    assert LookupCorrection().factor == 1.0


def test_it_converges_to_the_ratio_of_measured_to_predicted() -> None:
    correction = LookupCorrection(0.05)
    for _ in range(300):
        correction.observe(30.0, 10.0)
    assert correction.factor == pytest.approx(3.0, rel=1e-3)


def test_it_reaches_a_machine_that_is_fifty_times_slower() -> None:
    correction = LookupCorrection(0.2)
    for _ in range(200):
        correction.observe(500.0, 10.0)
    assert correction.factor == pytest.approx(50.0, rel=1e-2)


def test_one_paused_thread_does_not_look_like_a_slow_machine() -> None:
    correction = LookupCorrection(0.05)
    correction.observe(10_000.0, 10.0)
    assert correction.factor < 1.5


@pytest.mark.parametrize(
    ("measured", "predicted"), [(math.nan, 1.0), (1.0, 0.0), (-1.0, 1.0), (1.0, math.inf)]
)
def test_times_that_say_nothing_change_nothing(measured: float, predicted: float) -> None:
    correction = LookupCorrection()
    correction.observe(measured, predicted)
    assert correction.factor == 1.0


@pytest.mark.parametrize("weight", [0.0, 1.5, math.nan])
def test_a_weight_outside_of_its_range_is_refused(weight: float) -> None:
    with pytest.raises(InvalidArgument):
        LookupCorrection(weight)


def test_without_lookups_it_returns_to_the_profile() -> None:
    correction = LookupCorrection(0.2)
    for _ in range(100):
        correction.observe(300.0, 10.0)
    for _ in range(60):
        correction.relax()
    assert correction.factor == pytest.approx(1.0, abs=0.1)
