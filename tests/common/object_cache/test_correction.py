"""The profile follows the machine."""

import math

import pytest

from nearsight.common.errors import InvalidArgument
from nearsight.common.object_cache.correction import LookupCorrection


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


def slowed(ratio: float = 30.0, weight: float = 0.2) -> LookupCorrection:
    correction = LookupCorrection(weight)
    for _ in range(100):
        correction.observe(ratio * 10.0, 10.0)
    return correction


@pytest.mark.parametrize("ratio", [30.0, 1 / 30.0])
def test_without_lookups_it_returns_to_the_profile(ratio: float) -> None:
    correction = slowed(ratio)
    for _ in range(100):
        correction.relax()
    assert correction.factor == pytest.approx(1.0, abs=0.1)


def test_the_way_back_depends_on_the_requests_not_on_how_often_it_is_looked_at() -> None:
    often, seldom = slowed(), slowed()
    for _ in range(12):
        often.relax(1)
        often.relax(0)
    seldom.relax(12)
    assert often.factor == pytest.approx(seldom.factor)


def lose_trial(correction: LookupCorrection, lookups: int = 3) -> float:
    """A few slow lookups, then an empty cache again; the patience that follows."""
    for _ in range(lookups):
        correction.observe(300.0, 10.0)
    correction.relax(0)
    return correction.patience


def test_each_lost_trial_doubles_the_patience_until_trials_are_rare() -> None:
    correction = slowed(weight=0.05)
    correction.relax(0)
    assert correction.patience == 20
    assert [lose_trial(correction) for _ in range(6)] == [40, 80, 160, 320, 400, 400]


def test_a_cache_that_was_held_for_long_begins_with_patience_anew() -> None:
    correction = slowed(weight=0.05)
    correction.relax(0)
    assert [lose_trial(correction) for _ in range(2)] == [40, 80]
    assert lose_trial(correction, lookups=8 * 80 - 1) == 160
    assert lose_trial(correction, lookups=8 * 160) == 20


def test_a_patient_correction_still_returns() -> None:
    correction = slowed(weight=0.05)
    for _ in range(20):
        lose_trial(correction)
    correction.relax(5 * 400)
    assert correction.factor < 1.2


def test_each_lost_trial_widens_the_band_of_indifference() -> None:
    correction = slowed(weight=0.05)
    assert correction.indifference == 0
    correction.relax(0)
    assert correction.indifference == 0, "no trial was lost: this was the first look at the machine"
    widths = []
    for _ in range(4):
        lose_trial(correction)
        widths.append(correction.indifference)
    assert widths == pytest.approx([0.04, 0.08, 0.1, 0.1])
    lose_trial(correction, lookups=8 * 400)
    assert correction.indifference == 0
