"""The schedule of verifications: equation 6, the printed algorithm, and limits."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import InvalidArgument
from nearsight.common.result_cache.auto_refresh import NEVER, AutoRefresh


def inferred(refresh: AutoRefresh, count: int) -> list[int]:
    """The lookups, from 1, that run the classifier while nothing conflicts."""
    return [*itertools.accumulate((refresh.to_serve(n) + 1 for n in range(1, count)), initial=1)]


@pytest.mark.parametrize(
    ("refresh", "lookups"),
    [
        (AutoRefresh(2.0), [1, 2, 4, 8, 16, 32]),
        (AutoRefresh(1.5), [1, 2, 3, 4, 5, 7, 11, 17, 25]),
        (AutoRefresh(3.0), [1, 3, 9, 27]),
        (AutoRefresh(1.0), [1, 2, 3, 4, 5]),
        (AutoRefresh(2.0, as_printed=True), [1, 2, 5, 10, 19]),
        (AutoRefresh(1.5, as_printed=True), [1, 2, 4, 7, 11, 17]),
    ],
)
def test_the_classifier_runs_at_these_lookups(refresh: AutoRefresh, lookups: list[int]) -> None:
    assert inferred(refresh, len(lookups)) == lookups


@given(beta=st.floats(1.01, 10), count=st.integers(2, 60))
def test_the_schedule_is_equation_6(beta: float, count: int) -> None:
    expected = [max(n, math.floor(beta ** (n - 1))) for n in range(1, count + 1)]
    assert inferred(AutoRefresh(beta), count)[: sum(one < NEVER for one in expected)] == [
        one for one in expected if one < NEVER
    ]


def test_an_infinite_back_off_never_verifies() -> None:
    assert AutoRefresh(math.inf).to_serve(1) == NEVER


def test_after_many_confirmations_a_result_is_never_verified() -> None:
    assert AutoRefresh(1.5).to_serve(100_000) == NEVER


@pytest.mark.parametrize("beta", [0.5, -1.0, math.nan])
def test_a_back_off_below_one_is_refused(beta: float) -> None:
    with pytest.raises(InvalidArgument, match="at least 1"):
        AutoRefresh(beta)
