"""Zipf's law, and requests that follow it within one request."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import InvalidArgument
from nearsight.experiments.framework.numbers import zipf
from nearsight.experiments.studies.cachier.zipf import systematic_ranks


@given(st.integers(1, 500), st.floats(0, 2))
def test_shares_sum_to_one_and_do_not_increase(objects: int, exponent: float) -> None:
    shares = zipf(objects, exponent)
    assert shares.sum() == pytest.approx(1)
    assert (np.diff(shares) <= 0).all()


def test_the_shares_of_the_first_two_objects_follow_the_law() -> None:
    shares = zipf(400, 0.8)
    assert shares[1] / shares[0] == pytest.approx(2**-0.8)


def test_zero_objects_are_refused() -> None:
    with pytest.raises(InvalidArgument):
        zipf(0, 0.8)


@given(st.integers(1, 300), st.integers(1, 200), st.integers(0, 1000))
def test_the_first_k_objects_get_their_share_within_one_request(objects: int, count: int, seed: int) -> None:
    shares = zipf(objects, 0.8)
    ranks = systematic_ranks(shares, count, np.random.default_rng(seed))
    assert len(ranks) == count
    counts = np.cumsum(np.bincount(ranks, minlength=objects))
    assert (np.abs(counts - count * np.cumsum(shares)) <= 1 + 1e-6).all()
