"""Current costs of lookups and misses."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import InvalidArgument
from nearsight.edge.profiler import Measured, Profiler
from support.caching import profile_of_table_3_2


def new_profiler() -> Profiler:
    profile = profile_of_table_3_2().model_copy(update={"extraction_ms": 8.0})
    return Profiler(profile)


def test_before_any_measurement_profile_and_prior_are_used() -> None:
    costs = new_profiler().costs(400)
    assert costs.lookup_ms[[0, 100]] == pytest.approx([0.0, 238.14])
    assert costs.recall[100] == pytest.approx(0.886)
    assert costs.miss_ms == 100.0
    assert Profiler(profile_of_table_3_2(), miss_prior_ms=80.0).costs(1).miss_ms == 80.0


def test_lookups_slower_than_the_profile_raise_the_whole_curve() -> None:
    profiler = new_profiler()
    for _ in range(200):
        profiler.observe_lookup(100, 2 * 238.14)
    costs = profiler.costs(400)
    assert costs.lookup_ms[[0, 50, 400]] == pytest.approx(2 * np.array([0, 144.64, 799.14]), rel=1e-3)


def test_images_add_the_extraction_time_except_to_an_empty_cache() -> None:
    profiler = new_profiler()
    plain = profiler.costs(10).lookup_ms
    profiler.observe_query(image=True)
    assert profiler.costs(10).lookup_ms - plain == pytest.approx([0.0] + [8.0] * 10), "from the profile"
    profiler.observe_extraction(6.0)
    profiler.observe_query(image=False)
    assert profiler.costs(10).lookup_ms - plain == pytest.approx([0.0] + [3.0] * 10), "half of the requests"


def test_the_forwarding_overhead_is_the_cost_of_an_empty_cache() -> None:
    profiler = new_profiler()
    profiler.observe_query(image=True, overhead_ms=6.0)
    profiler.observe_query(image=False)
    assert profiler.costs(2).lookup_ms[0] == pytest.approx(3.0)


def test_restored_measurements_give_the_same_costs() -> None:
    earlier, later = new_profiler(), new_profiler()
    earlier.observe_miss(60.0)
    for _ in range(200):
        earlier.observe_query(image=True, overhead_ms=12.0)
        earlier.observe_extraction(6.0)
        earlier.observe_lookup(100, 2 * 238.14)
    measured = earlier.measured()
    assert measured is not None
    later.restore(Measured.model_validate_json(measured.model_dump_json()), keep_profile=True)
    before, after = earlier.costs(10), later.costs(10)
    assert before.lookup_ms[0] == pytest.approx(12.0)
    assert after.lookup_ms == pytest.approx(before.lookup_ms)
    assert after.miss_ms == before.miss_ms


def test_a_correction_of_another_profile_is_not_restored() -> None:
    earlier, later = new_profiler(), new_profiler()
    earlier.observe_miss(60.0)
    earlier.use(profile_of_table_3_2().model_copy(update={"lookup_ms": (1.0, 0.1)}))
    earlier.observe_lookup(10, 1000.0)
    measured = earlier.measured()
    assert measured is not None
    later.restore(measured, keep_profile=True)
    assert later.correction == 1.0
    later.restore(measured, keep_profile=False)
    assert (later.correction, later.profile) == (earlier.correction, earlier.profile)


def test_a_new_profile_starts_with_a_new_correction() -> None:
    profiler = new_profiler()
    profiler.observe_lookup(10, 1000.0)
    profiler.use(profile_of_table_3_2().model_copy(update={"lookup_ms": (1.0, 0.1)}))
    assert profiler.correction == 1.0
    assert profiler.costs(10).lookup_ms[10] == pytest.approx(2.0)


def test_sizes_beyond_the_profile_are_extrapolated() -> None:
    profiler = new_profiler()
    profiler.observe_lookup(5000, 10.0)
    assert len(profiler.costs(20_000).lookup_ms) == 20_001


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_the_miss_latency_is_the_mean_of_the_last_ten(measured: list[float]) -> None:
    profiler = new_profiler()
    for value in measured:
        profiler.observe_miss(value)
    last = measured[-10:]
    assert profiler.costs(1).miss_ms == pytest.approx(sum(last) / len(last))


@pytest.mark.parametrize("nonsense", [math.nan, math.inf, -1.0])
def test_an_invalid_latency_is_refused(nonsense: float) -> None:
    profiler = new_profiler()
    with pytest.raises(InvalidArgument):
        profiler.observe_miss(nonsense)
    with pytest.raises(InvalidArgument):
        Profiler(profile_of_table_3_2(), miss_prior_ms=nonsense)
    assert math.isfinite(profiler.costs(1).miss_ms)


def extraction_ms(profiler: Profiler) -> float:
    profiler.observe_query(image=True)
    costs = profiler.costs(1)
    return float(costs.lookup_ms[1] - profiler.profile.curves(1).lookup_ms[1] * profiler.correction)


def test_slow_extraction_times_decay_while_photos_are_passed_on() -> None:
    profiler = new_profiler()
    for _ in range(2):
        profiler.observe_extraction(50.0)
    assert extraction_ms(profiler) == pytest.approx(50.0)
    for _ in range(20):
        profiler.relax(1)
    assert extraction_ms(profiler) < 15.0


def test_extraction_times_do_not_decay_while_features_are_extracted() -> None:
    profiler = new_profiler()
    for _ in range(40):
        profiler.observe_extraction(50.0)
        profiler.relax(1)
    assert extraction_ms(profiler) == pytest.approx(50.0)


def test_after_failed_trials_extraction_times_decay_more_slowly() -> None:
    def left_ms(lost: int) -> float:
        profiler = new_profiler()
        for _ in range(lost):
            profiler.relax(1)
            profiler.observe_lookup(1, 100.0)
        for _ in range(100):
            profiler.observe_extraction(50.0)
        profiler.relax(0)
        profiler.relax(40)
        profiler.relax(40)
        return extraction_ms(profiler)

    assert left_ms(5) > left_ms(0)
