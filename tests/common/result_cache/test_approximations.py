"""APPROX functions: which vectors share a key."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import InvalidArgument
from nearsight.common.result_cache.approximations import (
    Approximation,
    every,
    identity,
    maxpool,
    prefix,
    quantize,
    suffix,
)

X = (12, 7, 33, 8, 41, 5)


@pytest.mark.parametrize(
    ("approx", "same", "other"),
    [
        (identity(), X, (12, 7, 33, 8, 41, 6)),
        (prefix(3), (12, 7, 33, 0, 0, 0), (12, 7, 34, 8, 41, 5)),
        (suffix(3), (0, 0, 0, 8, 41, 5), (12, 7, 33, 8, 41, 6)),
        (every(2), (12, 0, 33, 0, 41, 0), (12, 7, 32, 8, 41, 5)),
        (maxpool(2), (1, 12, 33, 1, 41, 41), (13, 7, 33, 8, 41, 5)),
        (maxpool(4), (33, 0, 0, 0, 0, 41), (12, 7, 33, 8, 41, 42)),
        (quantize(10), (9, 11, 27, 12, 38, 4), (12, 7, 33, 8, 46, 5)),
        (prefix(2) | quantize(10), (9, 11, 0, 0, 0, 0), (16, 7, 33, 8, 41, 5)),
        (quantize(10) | maxpool(3), (1, 34, 0, 39, 0, 0), (12, 7, 36, 8, 41, 5)),
    ],
    ids=lambda value: value.name if isinstance(value, Approximation) else "",
)
def test_keys_depend_only_on_the_kept_part_of_a_vector(
    approx: Approximation, same: Sequence[int], other: Sequence[int]
) -> None:
    key = approx(np.array(X))
    assert len(key) == 16
    assert approx(np.array(same)) == key
    assert approx(np.array(other)) != key


def test_a_sequence_has_the_key_of_its_numbers() -> None:
    assert prefix(3)([1, 2, 3, 4]) == prefix(3)(np.array([1.0, 2.0, 3.0, 9.0]))


@given(st.lists(st.integers(-1500, 1500), min_size=1, max_size=30), st.integers(1, 64))
def test_rounding_does_not_tell_negative_from_positive_zero(values: list[int], step: int) -> None:
    rounded = np.rint(np.array(values) / step) * step
    assert quantize(step)(np.array(values)) == identity()(np.where(rounded == 0, 0.0, rounded))


def test_another_context_has_other_keys() -> None:
    approx = prefix(3)
    keys = {approx.within(*names)(X) for names in ((), ("a",), ("a", "2"), ("a", "1"), ("a2",))}
    assert len(keys | {approx(X)}) == 6
    assert approx.within("museum", "1")(X) == approx.within("museum", "1")(X)


@pytest.mark.parametrize("vector", [[], np.zeros((2, 2)), 3.0, [1.0, float("nan")]])
def test_inputs_without_a_key_are_refused(vector: object) -> None:
    with pytest.raises(InvalidArgument, match=r"vector with elements|NaN"):
        identity()(vector)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "approx", [identity(), suffix(2), every(1), maxpool(2), quantize(3), prefix(3) | quantize(3)]
)
def test_nan_that_an_approximation_keeps_is_refused(approx: Approximation) -> None:
    for dtype in (np.float16, np.float32, np.float64):
        with pytest.raises(InvalidArgument, match="NaN"):
            approx(np.array([1, 2, np.nan], dtype=dtype))


@pytest.mark.parametrize(
    "vector",
    [
        np.array([1, "a"], dtype=object),
        np.array(["a"]),
        np.array([1j]),
        np.array(["2020-01-01"], dtype="M8[D]"),
        "abc",
    ],
    ids=str,
)
def test_inputs_that_are_not_numeric_vectors_are_refused(vector: object) -> None:
    """The bytes of an array of objects are addresses, which another object may have later."""
    with pytest.raises(InvalidArgument, match="numbers"):
        identity()(vector)  # type: ignore[arg-type]


def test_infinity_is_a_valid_number() -> None:
    assert quantize(3)([float("inf"), 1.0]) == quantize(3)([float("inf"), 0.0])
    assert quantize(3)([float("inf"), 1.0]) != quantize(3)([float("-inf"), 1.0])


def test_dropped_elements_may_be_nan() -> None:
    assert prefix(1)([1.0, float("nan")]) == prefix(1)([1.0, 2.0])


@pytest.mark.parametrize("function", [prefix, suffix, every, maxpool, quantize])
@pytest.mark.parametrize("n", [0, -3])
def test_sizes_must_be_positive(function: Callable[[int], Approximation], n: int) -> None:
    with pytest.raises(InvalidArgument, match="positive number"):
        function(n)
