"""The analytical model against the paper's closed forms, a simulation, and an exact recursion."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import ArrayLike

from nearsight.common.errors import InvalidArgument
from nearsight.common.result_cache.auto_refresh import AutoRefresh
from nearsight.common.result_cache.model import (
    Prediction,
    characteristic_time,
    finite_horizon,
    ideal_hits,
    lru_hits,
    predict,
    uncorrected_error,
)


def one_key(classes: ArrayLike, refresh: AutoRefresh, hit: float = 1.0) -> Prediction:
    """The prediction for a single key, which is in the cache for this share of its lookups."""
    return predict([1.0], [classes], np.array([hit]), refresh)


@pytest.mark.parametrize("beta", [2, 3, 4])
@pytest.mark.parametrize("classes", [5, 7, 20])
def test_equally_likely_classes_agree_with_the_closed_form(beta: int, classes: int) -> None:
    m = classes
    rates = one_key(np.full(m, 1 / m), AutoRefresh(beta))
    inferences = (m - beta) / ((beta - 1) * (m - 1))
    assert rates.inferences == pytest.approx(inferences, rel=1e-12)
    assert rates.errors == pytest.approx((1 - 1 / m) * (1 - inferences), rel=1e-12)


def test_without_a_dominant_class_a_back_off_of_two_is_wrong_once_in_m_lookups() -> None:
    """Equation 14."""
    rates = one_key(np.full(4, 0.25), AutoRefresh(2))
    assert (rates.inferences, rates.errors) == pytest.approx((2 / 3, 1 / 4))


@pytest.mark.parametrize(
    ("classes", "beta", "hit", "inferences", "errors"),
    [
        ((0.5, 0.3, 0.2), 1.5, 1.0, 0.888449, 0.056725),
        ((0.6, 0.4), 1.5, 1.0, 0.580448, 0.170837),
        ((0.45, 0.45, 0.1), 2.0, 1.0, 0.197531, 0.442222),
        ((0.9, 0.1), 1.1, 1.0, 0.627134, 0.037287),
        ((0.8, 0.2), 2.0, 0.95, 0.325861, 0.144806),
    ],
)
def test_reference_values(
    classes: Sequence[float], beta: float, hit: float, inferences: float, errors: float
) -> None:
    rates = one_key(classes, AutoRefresh(beta), hit)
    assert (rates.inferences, rates.errors) == pytest.approx((inferences, errors), abs=1e-6)


def test_a_back_off_of_two_needs_few_inferences() -> None:
    p = np.array([0.45, 0.3, 0.25])
    expected = 1 / float(np.sum(p * (1 - p) / (1 - 2 * p)))
    assert one_key(p, AutoRefresh(2)).inferences == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("beta", [1.3, 1.5, 2.0])
def test_a_dominant_class_is_rarely_verified_and_its_error_is_bounded(beta: float) -> None:
    """Equation 13."""
    p = 1 / beta + 0.05
    rates = one_key((p, 1 - p), AutoRefresh(beta))
    assert rates.inferences == 0.0
    assert rates.errors == pytest.approx(1 - p)
    assert rates.errors <= 1 - 1 / beta


def test_a_key_with_one_class_is_never_wrong() -> None:
    assert one_key((1.0,), AutoRefresh(1.5)) == Prediction(1.0, 0.0, 0.0)
    rates = one_key((1.0,), AutoRefresh(1.5), 0.9)
    assert rates.errors == 0.0
    assert 0.1 < rates.inferences < 1.0


@pytest.mark.parametrize("hit", [0.9, 1 - 1e-7, 1.0])
@pytest.mark.parametrize("classes", [(1.0,), (1 - 1e-9, 1e-9), (0.5, 0.5, 0.0)])
def test_back_offs_of_one_and_infinity_verify_every_lookup_and_none(
    classes: Sequence[float], hit: float
) -> None:
    assert one_key(classes, AutoRefresh(1), hit) == Prediction(hit, 1.0, 0.0)
    never = one_key(classes, AutoRefresh(math.inf), hit)
    assert never.inferences == pytest.approx(1 - hit)
    assert never.errors == pytest.approx(hit * uncorrected_error(classes), abs=1e-8)


def test_a_key_that_is_never_kept_is_always_inferred() -> None:
    assert one_key((0.7, 0.3), AutoRefresh(2), 0.0) == Prediction(0.0, 1.0, 0.0)


def test_a_cache_that_rarely_evicts_is_nearly_ideal() -> None:
    classes, refresh = (0.4, 0.35, 0.25), AutoRefresh(1.5)
    nearly, ideal = one_key(classes, refresh, 1 - 1e-7), one_key(classes, refresh)
    assert (nearly.inferences, nearly.errors) == pytest.approx((ideal.inferences, ideal.errors), rel=1e-4)


@pytest.mark.parametrize("as_printed", [False, True])
@pytest.mark.parametrize(("beta", "hit"), [(1.3, 1.0), (1.5, 0.9), (2.0, 0.95), (3.0, 0.6)])
def test_a_simulated_key_agrees_with_the_equations(beta: float, hit: float, as_printed: bool) -> None:
    """Within five standard errors of 20 simulated streams; p is chosen so that the variance is finite."""
    p = np.array([0.5, 0.3, 0.2]) if beta < 1.4 or hit < 1 else np.full(4, 0.25)
    refresh, lookups = AutoRefresh(beta, as_printed), 5_000
    shares = np.array([simulated(p, refresh, hit, lookups, seed) for seed in range(20)]) / lookups
    rates = one_key(p, refresh, hit)
    errors = 5 * shares.std(axis=0, ddof=1) / math.sqrt(len(shares)) + 1e-3
    assert np.all(np.abs(shares.mean(axis=0) - [rates.inferences, rates.errors]) < errors)


def simulated(p: np.ndarray, refresh: AutoRefresh, hit: float, lookups: int, seed: int) -> tuple[int, int]:
    rng = np.random.default_rng(seed)
    value, to_serve, inferences, inferred, wrong = -1, 0, 0, 0, 0
    for drawn, kept in zip(rng.choice(len(p), lookups, p=p), rng.random(lookups) < hit, strict=True):
        if value >= 0 and kept and to_serve > 0:
            to_serve -= 1
            wrong += drawn != value
            continue
        inferred += 1
        inferences = inferences + 1 if value == drawn and kept else 1
        value, to_serve = drawn, refresh.to_serve(inferences)
    return inferred, wrong


@pytest.mark.parametrize(("classes", "beta"), [((0.6, 0.4), 1.5), ((0.5, 0.3, 0.2), 2.5), ((1.0,), 1.5)])
def test_the_recursion_agrees_with_many_short_streams(classes: Sequence[float], beta: float) -> None:
    """Also where the variance of an endless stream is infinite."""
    refresh, lookups = AutoRefresh(beta), 200
    shares = [simulated(np.array(classes), refresh, 1.0, lookups, seed) for seed in range(600)]
    means = np.mean(shares, axis=0) / lookups
    errors = 5 * np.std(shares, axis=0, ddof=1) / lookups / math.sqrt(len(shares)) + 1e-9
    exact = finite_horizon(classes, refresh, lookups)
    assert np.all(np.abs(means - [exact.inferences, exact.errors]) <= errors)


def test_the_recursion_approaches_the_equations() -> None:
    classes, refresh = (0.5, 0.3, 0.2), AutoRefresh(1.3)
    exact, endless = finite_horizon(classes, refresh, 5_000), one_key(classes, refresh)
    assert (exact.inferences, exact.errors) == pytest.approx((endless.inferences, endless.errors), abs=2e-3)


def test_the_expected_number_of_keys_in_an_lru_cache_is_its_size() -> None:
    q = 1 / np.arange(1, 1001) ** 0.9
    q /= q.sum()
    time = characteristic_time(q, 100)
    assert float(np.sum(1 - np.exp(-q * time))) == pytest.approx(100, rel=1e-6)
    hits = lru_hits(q, 100)
    assert np.all(np.diff(hits) < 0)
    assert float(np.sum(q * hits)) < float(np.sum(q * ideal_hits(q, 100)))


def test_a_cache_with_room_for_all_keys_keeps_them() -> None:
    q = (0.5, 0.5, 0.0)
    assert math.isinf(characteristic_time(q, 2))
    assert lru_hits(q, 2).tolist() == [1.0, 1.0, 0.0]


def test_totals_count_misses_once() -> None:
    q, classes = (0.6, 0.3, 0.1), [(0.7, 0.3), (1.0,), (0.5, 0.5)]
    ideal = ideal_hits(q, 2)
    refresh = AutoRefresh(1.3)
    found = predict(q, classes, ideal, refresh)
    rates = [one_key(of_key, refresh) for of_key in classes[:2]]
    assert found.hits == pytest.approx(0.9)
    assert found.inferences == pytest.approx(0.6 * rates[0].inferences + 0.3 * rates[1].inferences + 0.1)
    assert found.errors == pytest.approx(0.6 * rates[0].errors)


def test_without_verification_errors_are_those_of_equation_4() -> None:
    q, classes = (0.8, 0.2), [(0.7, 0.3), (0.5, 0.5)]
    found = predict(q, classes, ideal_hits(q, 1), None)
    assert uncorrected_error((0.7, 0.3)) == pytest.approx(0.42)
    assert (found.errors, found.inferences) == pytest.approx((0.8 * 0.42, 0.2))


def test_the_printed_algorithm_has_more_errors() -> None:
    """It contradicts equation 6: simulated with p = (.6, .3, .1), h = .9, beta = 1.5."""
    rates = [one_key((0.6, 0.3, 0.1), AutoRefresh(1.5, as_printed=form), 0.9) for form in (False, True)]
    assert (rates[0].inferences, rates[0].errors) == pytest.approx((0.927, 0.030), abs=2e-3)
    assert (rates[1].inferences, rates[1].errors) == pytest.approx((0.647, 0.161), abs=2e-3)


@pytest.mark.parametrize("classes", [(), (0.5, 0.4), (-0.5, 1.5), (math.nan, 1.0)])
def test_an_invalid_distribution_is_refused(classes: Sequence[float]) -> None:
    with pytest.raises(InvalidArgument):
        one_key(classes, AutoRefresh(1.5))
