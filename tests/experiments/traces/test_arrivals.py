"""Generated calls: the papers' shares of rates, and the differences between the four processes."""

import numpy as np
import pytest
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument
from nearsight.experiments.traces.arrivals import (
    ARRIVAL_PROCESSES,
    CREMEBRULEE,
    MCACHE,
    ArrivalProcess,
    Diurnal,
    Drift,
    Marginals,
    OnOff,
    Poisson,
    rarely_called,
)

HOUR_S = 3_600.0


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def dispersion(process: ArrivalProcess, window_s: float) -> float:
    """Variance over mean of the calls of a function in windows: 1 of a Poisson process."""
    rates = np.full(300, 0.02)
    times, functions = process.segments(rates, 2 * HOUR_S, rng()).events(rng(2))
    counts = np.histogram2d(
        functions, times, bins=(300, int(2 * HOUR_S / window_s)), range=((-0.5, 299.5), (0, 2 * HOUR_S))
    )[0]
    return float(np.mean(counts.var(axis=1)) / counts.mean())


@pytest.mark.parametrize(
    ("marginals", "above", "share"),
    [(CREMEBRULEE, 1.0, 0.0063), (CREMEBRULEE, 0.1, 0.0235), (MCACHE, 1.0, 0.0117), (MCACHE, 1 / 60, 0.1)],
)
def test_shares_of_popular_functions_equal_those_of_the_papers(
    marginals: Marginals, above: float, share: float
) -> None:
    rates = marginals.draw(400_000, rng())
    assert np.mean(rates > above) == pytest.approx(share, rel=0.05)


def test_rates_are_within_the_extremes_of_the_paper_and_the_90th_percentile_is_once_a_minute() -> None:
    rates = MCACHE.draw(400_000, rng())
    assert 1.15e-5 < rates.min() < 1.2e-5
    assert 500 < rates.max() <= 967
    assert np.quantile(rates, 0.9) == pytest.approx(1 / 60, rel=0.03)


def test_popular_functions_and_those_called_once_are_removed() -> None:
    day = 86_400.0
    rates = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 1e6]) / day
    assert (rarely_called(rates, 0.9) * day).round().tolist() == [2, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("name", ARRIVAL_PROCESSES)
def test_every_process_keeps_mean_rates_and_the_order_of_times(name: str) -> None:
    rates = np.repeat([0.01, 0.05], 1_000)
    times, functions = ARRIVAL_PROCESSES[name].segments(rates, HOUR_S, rng()).events(rng(2))
    assert np.all(np.diff(times) >= 0)
    assert 0.0 <= times[0] < times[-1] < HOUR_S
    counts = np.bincount(functions, minlength=2_000).reshape(2, 1_000).mean(axis=1)
    assert counts == pytest.approx([36.0, 180.0], rel=0.2)


@pytest.mark.parametrize("name", ARRIVAL_PROCESSES)
def test_the_same_seed_gives_the_same_calls(name: str) -> None:
    rates = np.full(20, 0.01)
    one, same = (ARRIVAL_PROCESSES[name].segments(rates, HOUR_S, rng()).events(rng(2))[0] for _ in range(2))
    assert one.tolist() == same.tolist()


@pytest.mark.parametrize("name", ARRIVAL_PROCESSES)
def test_true_rates_predict_the_calls(name: str) -> None:
    rates, count = np.full(200, 0.05), 200
    segments = ARRIVAL_PROCESSES[name].segments(rates, HOUR_S, rng())
    times, _ = segments.events(rng(2))
    said = [segments.rates_at(time, count).sum() for time in np.arange(5.0, HOUR_S, 10.0)]
    assert len(times) == pytest.approx(10.0 * sum(said), rel=0.05)


def test_only_poisson_arrivals_are_not_bursty() -> None:
    assert dispersion(Poisson(), 300.0) == pytest.approx(1.0, abs=0.1)
    for process in (OnOff(), Diurnal(), Drift()):
        assert dispersion(process, 300.0) > 2.0


def test_a_function_that_is_off_is_not_called() -> None:
    segments = OnOff(on_s=60.0, duty=0.2).segments(np.full(500, 0.1), HOUR_S, rng())
    share_on = [np.mean(segments.rates_at(time, 500) > 0) for time in (0.0, 1_000.0, 3_500.0)]
    assert share_on == pytest.approx([0.2, 0.2, 0.2], abs=0.07)


def test_diurnal_rates_repeat_daily() -> None:
    segments = Diurnal(day_s=600.0).segments(np.full(50, 0.1), HOUR_S, rng())
    today, tomorrow = (segments.rates_at(time, 50) for time in (100.0, 700.0))
    assert today == pytest.approx(tomorrow)
    assert today.max() > 5 * today.min()


def test_popularity_drifts_slowly() -> None:
    segments = Drift(spread=1.5, memory_s=900.0).segments(np.full(2_000, 0.1), 2 * HOUR_S, rng())
    start, soon, later = (np.log(segments.rates_at(time, 2_000)) for time in (0.0, 90.0, 3_600.0))

    def correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
        return float(np.corrcoef(one, other)[0, 1])

    assert correlation(start, soon) == pytest.approx(np.exp(-0.1), abs=0.03)
    assert correlation(start, later) < 0.1


def test_models_inherit_the_rates_of_their_functions() -> None:
    segments = Poisson().segments(np.array([0.1, 0.2, 0.4]), HOUR_S, rng())
    models = segments.relabelled(np.array([1, -1, 1], dtype=np.int32))
    assert models.rates_at(10.0, 2) == pytest.approx([0.0, 0.5])


@pytest.mark.parametrize(
    "make",
    [
        lambda: OnOff(on_s=0),
        lambda: OnOff(duty=1.0),
        lambda: Diurnal(amplitude=2.0),
        lambda: Drift(memory_s=0),
    ],
)
def test_invalid_processes_are_refused(make: type) -> None:
    with pytest.raises(InvalidArgument):
        make()
