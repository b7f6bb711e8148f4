"""The paper's values of prefix(5) contradict each other, as approximate-traffic states; its ranks of keys."""

from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from nearsight.common.result_cache.auto_refresh import AutoRefresh
from nearsight.common.result_cache.model import predict, uncorrected_error
from nearsight.experiments.studies.approximate_keys.traffic_figures import PAPER_4, ranked, simulated

PAPER = PAPER_4["prefix(5)"]


def class_distributions() -> Iterator[np.ndarray]:
    """Class distributions of keys: equal classes, one larger than equal others, and random ones."""
    for count in (1, 2, 3, 4, 5, 7, 10, 20, 50, 100):
        yield np.full(count, 1 / count)
    for largest in np.arange(0.02, 0.99, 0.02):
        for others in (1, 2, 5, 40):
            yield np.array([largest, *[(1 - largest) / others] * others])
    for largest in (0.499, 0.665, 0.745, 0.768):
        yield np.array([largest, 1 - largest])
    rng = np.random.default_rng(1)
    for _ in range(150):
        yield rng.dirichlet(np.full(rng.integers(2, 8), rng.choice([0.5, 1, 3])))


def rates(p: np.ndarray, beta: float) -> tuple[float, float]:
    """Share of verified lookups and share of wrong answers."""
    if np.isinf(beta):
        return 0.0, uncorrected_error(p)
    found = predict([1.0], [p], np.ones(1), AutoRefresh(beta))
    return found.inferences, found.errors


@pytest.fixture(scope="module")
def by_beta() -> Mapping[float, np.ndarray]:
    kept = [*class_distributions()]
    return {beta: np.array([rates(p, beta) for p in kept]).T for beta in PAPER}


def least_largest_deviation(by_beta: Mapping[float, np.ndarray], *betas: float) -> float:
    """Largest deviation of the best mixture of keys, with a hit share of at least half, from the paper."""
    from scipy.optimize import linprog  # takes long to import, in every worker

    rows = np.vstack([by_beta[beta] for beta in betas])
    wanted = np.array([value for beta in betas for value in PAPER[beta]])
    count, slack = rows.shape[1], -np.ones((len(rows), 1))
    share = np.append(np.ones(count), 0.0)
    above = np.vstack([np.hstack([rows, slack]), np.hstack([-rows, slack]), share, -share])
    limits = np.concatenate([wanted, -wanted, [1.0, -0.5]])
    return float(linprog(np.append(np.zeros(count), 1.0), A_ub=above, b_ub=limits).fun)


def test_figure_4_alone_is_consistent_within_one_point(by_beta: Mapping[float, np.ndarray]) -> None:
    assert least_largest_deviation(by_beta, 1.3, 2.0, np.inf) < 0.01


def test_figure_5_and_no_refresh_are_consistent(by_beta: Mapping[float, np.ndarray]) -> None:
    assert least_largest_deviation(by_beta, 1.5, np.inf) < 0.002


def test_figures_4_and_5_together_contradict_the_equations(by_beta: Mapping[float, np.ndarray]) -> None:
    assert least_largest_deviation(by_beta, *PAPER) > 0.025
    assert least_largest_deviation(by_beta, 1.3, 1.5, np.inf) > 0.025


def test_equally_popular_keys_are_ranked_in_order_of_appearance_whatever_their_hashes() -> None:
    ranks = [ranked(keys).tolist() for keys in ([b"a", b"b", b"c", b"c"], [b"z", b"b", b"a", b"a"])]
    assert ranks == [[1, 2, 0, 0]] * 2


def test_the_lookups_that_fill_an_ideal_cache_are_no_verifications() -> None:
    stream = [(key, 0) for _ in range(5) for key in range(4)]
    never = simulated(stream, AutoRefresh(np.inf), 2, ideal=True)
    assert (never["hits"], never["inferences"]) == (0.5, 0.5)
    always = simulated(stream, AutoRefresh(1.0), 2, ideal=True)
    assert always["inferences"] == pytest.approx(1.0 - 2 / len(stream))
