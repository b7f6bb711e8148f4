"""The forecast of rates learns the arrival process from all models together."""

import numpy as np
import pytest

from nearsight.common.errors import InvalidArgument
from nearsight.common.model_cache.forecast import Factor, RateForecast
from nearsight.common.model_cache.model_cache import Load, ModelCache
from nearsight.common.model_cache.policies.forecast import Forecast
from nearsight.common.model_cache.policy import ModelCosts

MODELS = np.arange(20)


def poisson(rates_hz: np.ndarray, duration_s: float, seed: int = 1) -> list[tuple[float, int]]:
    rng = np.random.default_rng(seed)
    counts = rng.poisson(rates_hz * duration_s)
    calls = [(float(t), m) for m, n in enumerate(counts) for t in rng.uniform(0, duration_s, n)]
    return sorted(calls)


def bursts(duration_s: float, seed: int = 1) -> list[tuple[float, int]]:
    """Every model in turn is called each 5 s for 100 s, and then not for 1,900 s."""
    return sorted(
        (start_s + place * 100.0 + second, place)
        for place in MODELS.tolist()
        for start_s in np.arange(0.0, duration_s, 2000.0)
        for second in np.arange(0.0, 100.0, 5.0)
    )


def after(calls: list[tuple[float, int]], **options) -> RateForecast:
    forecast = RateForecast(**options)
    for now_s, model in calls:
        forecast.requested(model, now_s)
    return forecast


def test_with_constant_rates_the_forecast_is_the_long_term_rate() -> None:
    rates_hz = np.geomspace(0.002, 0.2, 20)
    forecast = after(poisson(rates_hz, 7200.0))
    assert forecast.weights[1] == pytest.approx(1.0, abs=0.1)
    found = forecast.rates(MODELS, 7200.0)
    assert np.median(np.abs(np.log(found / rates_hz))) < 0.2


def test_in_bursts_recently_requested_models_are_expected_and_others_not() -> None:
    forecast = after(bursts(8000.0))
    now_s = 6000.0 + 7 * 100.0 + 50.0
    forecast = after([call for call in bursts(8000.0) if call[0] < now_s])
    rates_hz = forecast.rates(MODELS, now_s)
    assert rates_hz.argmax() == 7
    assert rates_hz[7] > 0.1
    assert rates_hz[6] < rates_hz[7] / 10


def test_learning_continues_after_a_night_without_requests() -> None:
    day, night_s = bursts(2000.0), 36_000.0
    before = after(day)
    forecast = after([*day, (night_s, 0)])
    assert forecast.weights == pytest.approx(before.weights, abs=0.05)
    now_s = 40_000.0 + 7 * 100.0 + 50.0
    morning = [(night_s + now, model) for now, model in bursts(now_s - night_s)]
    rates_hz = after([*day, *(call for call in morning if call[0] < now_s)]).rates(MODELS, now_s)
    assert rates_hz.argmax() == 7
    assert rates_hz[6] < rates_hz[7] / 10


def test_without_factors_bursts_are_not_recognised() -> None:
    now_s = 6000.0 + 7 * 100.0 + 50.0
    forecast = after([call for call in bursts(8000.0) if call[0] < now_s], factors=frozenset())
    rates_hz = forecast.rates(MODELS, now_s)
    assert rates_hz[7] < 2 * rates_hz[6]


def test_the_forecast_depends_on_the_time_of_day() -> None:
    # Half of the models are called in the first half of a day, the others in the second.
    rng = np.random.default_rng(1)
    calls = sorted(
        (1200.0 * day + 600.0 * (model >= 10) + float(second), model)
        for day in range(8)
        for model in MODELS.tolist()
        for second in rng.uniform(0, 600, 6)
    )
    forecast = after(calls, day_s=1200.0, factors=frozenset({Factor.DAY}))
    morning, evening = (forecast.rates(MODELS, 8 * 1200.0 + at_s) for at_s in (300.0, 900.0))
    assert morning[:10].mean() > 5 * morning[10:].mean()
    assert evening[10:].mean() > 5 * evening[:10].mean()


def test_models_that_were_requested_once_get_a_low_rate() -> None:
    # Two models are called all the time, and each second another one for the only time.
    calls = sorted([(float(t), t % 2) for t in range(3000)] + [(t + 0.5, 2 + t) for t in range(3000)])
    others = np.arange(1000, 2000)
    rates_hz = after(calls).rates(others, 3000.0)
    assert 0 < rates_hz.mean() < 1 / 3000 / 20


def test_the_rate_of_a_model_without_requests_does_not_depend_on_the_models_asked_with_it() -> None:
    forecast = after([(0.0, 0), (3600.0, 0)])
    assert forecast.rates(np.array([5]), 3600.0) == forecast.rates(np.array([0, 5]), 3600.0)[1]


def test_times_of_any_size_are_supported() -> None:
    forecast = after([(0.0, 0), (1e300, 1)])
    assert np.isfinite(forecast.rates(np.arange(3), 1e300)).all()


def test_a_model_that_was_loaded_without_a_request_can_be_evicted_before_the_first_one() -> None:
    cache, costs = ModelCache(1, Forecast(RateForecast())), ModelCosts(1, 1.0)
    cache.load("a", costs, 5.0)
    cache.loaded("a", 5.0)
    decision = cache.load("b", costs, 6.0)
    assert isinstance(decision, Load)
    assert [victim.model for victim in decision.evict] == ["a"]


def test_a_day_without_length_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        RateForecast(day_s=0.0)


@pytest.mark.parametrize(("others", "leaves"), [(0, "c"), (12, "b")])
def test_victims_are_the_best_subset_of_few_models_and_the_lowest_of_many(others: int, leaves: str) -> None:
    costs = {"a": ModelCosts(10, 1.0), "b": ModelCosts(100, 30.0), "c": ModelCosts(50, 20.0)}
    costs |= {f"other {number}": ModelCosts(10, 100.0) for number in range(others)}
    cache = ModelCache(sum(one.size_bytes for one in costs.values()), Forecast(RateForecast(frozenset())))
    for model, one in costs.items():
        cache.load(model, one, 0.0)
        cache.loaded(model, 0.0)
    decision = cache.request("new", ModelCosts(50, 1.0), 1.0)
    assert isinstance(decision, Load)
    assert [victim.model for victim in decision.evict] == [leaves]
