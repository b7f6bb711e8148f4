"""The share of the gap to the oracle that our policy closes, and loading ahead."""

import numpy as np
import pytest

from nearsight.common.model_cache.forecast import RateForecast
from nearsight.common.model_cache.model_cache import ModelCache
from nearsight.common.model_cache.policy import ModelCosts
from nearsight.experiments.studies.cremebrulee.forecast_figure import (
    BASELINES,
    SEVEN,
    ForecastFigure,
    LoadAhead,
    TrueRates,
    workload,
)


def rows(delays: dict[str, tuple[float, ...]], memory: str = "0.6") -> list[dict[str, str]]:
    where = {"serving": "replay", "models": "7 models", "process": "on-off", "memory": memory}
    return [
        {**where, "run": str(run), "policy": policy, "load_s": str(load_s), "hit_ratio": "0.5"}
        for policy, loads in delays.items()
        for run, load_s in enumerate(loads)
    ]


def test_the_closed_share_of_the_gap_is_computed_per_run_and_over_all_sizes() -> None:
    baselines = dict.fromkeys(BASELINES, (4.0, 8.0, 6.0))
    small = {**baselines, "cremebrulee-oracle": (2.0, 4.0, 2.0), "forecast": (3.0, 7.0, 2.0)}
    large = {**baselines, "cremebrulee-oracle": (2.0, 4.0, 2.0), "forecast": (4.0, 8.0, 6.0)}
    found = ForecastFigure().metrics(rows(small) + rows(large, "0.8"))["closed"]["replay"]["7 models"][
        "on-off"
    ]
    assert found["0.6"]["cremebrulee"]["forecast"] == pytest.approx(
        {"median": 0.5, "p25": 0.375, "p75": 0.75, "min": 0.25, "delay": 0.75}
    )
    assert found["all"]["iam"]["forecast"]["median"] == pytest.approx(0.125)


def test_true_rates_are_those_of_the_generated_requests() -> None:
    drawn = workload(SEVEN, "drift", "replay", np.random.default_rng(1))
    policy = TrueRates(drawn)
    names = [*drawn.costs]
    for name in names[::-1]:
        policy.loaded(name, drawn.costs[name], 0.0)
    for now_s in (0.0, 1_000.0, 3_000.0):
        rates = drawn.segments.rates_at(now_s, len(names))
        losses = [rates[names.index(name)] * drawn.costs[name].load_ms for name in names[::-1]]
        sizes = [drawn.costs[name].size_bytes for name in names[::-1]]
        assert (policy.scores(now_s)[: len(names)] * sizes).tolist() == pytest.approx(losses)


def load_ahead(requests: str, resident: str, load_ms: float = 1000.0) -> str | None:
    """The model that is loaded ahead after these requests, one per second, with memory for two models."""
    costs = {model: ModelCosts(1, load_ms) for model in "abc"}
    policy = LoadAhead(RateForecast(factors=frozenset()), costs)
    cache = ModelCache(2, policy)
    for model in resident:
        cache.load(model, costs[model], 0.0)
        cache.loaded(model, 0.0)
    for now_s, model in enumerate(requests):
        policy.requested(model, float(now_s))
    return policy(cache, float(len(requests)))


def test_a_model_requested_more_often_than_a_resident_one_is_loaded_ahead() -> None:
    assert load_ahead("aaabbbbbc" * 20, resident="ac") == "b"


def test_nothing_is_loaded_ahead_if_the_most_requested_models_are_resident() -> None:
    assert load_ahead("aaabbbbbc" * 20, resident="ab") is None


def test_a_load_that_delays_others_longer_than_it_saves_is_not_started() -> None:
    assert load_ahead("aaabbbbbc" * 20, resident="ac", load_ms=2_000_000.0) is None
