"""Approximations: functions that make inputs share a key (APPROX; approximate-key caching, section III-A).

A good approximation gives few keys, each with one dominant class. Approximations are combined with ``|``,
from left to right: ``prefix(10) | quantize(32)`` takes ten elements and rounds them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument

Vector = NDArray[Any]

SECRET = secrets.randbits(64)
"""Random, so that other parties cannot create colliding inputs. Keys are never stored or sent."""


@dataclass(frozen=True, slots=True)
class Approximation:
    """A function from vectors to keys of 128 bits."""

    name: str
    steps: tuple[Callable[[Vector], Vector], ...] = ()
    seed: int = field(default=SECRET, repr=False)

    def __call__(self, vector: Vector | Sequence[float]) -> bytes:
        """The key of an input: 16 bytes.

        Parameters
        ----------
        vector : ndarray, shape (N,), or sequence of N floats

        Raises
        ------
        InvalidArgument
            If ``vector`` is not a vector of numbers, is empty, or has NaN among the elements used.
        """
        values = vector if isinstance(vector, np.ndarray) else _as_vector(vector)
        if values.ndim != 1 or not values.size:
            raise InvalidArgument(f"an input is a vector with elements, got an array of shape {values.shape}")
        if values.dtype.kind not in "fiub":  # the bytes of objects are addresses, which are reused
            raise InvalidArgument(f"an input is a vector of numbers, got an array of {values.dtype}")
        for step in self.steps:
            values = step(values)
        if values.dtype.kind == "f" and np.isnan(values).any():
            raise InvalidArgument("an input contains NaN, which equals no other value")
        return xxhash.xxh3_128_digest(values.tobytes(), self.seed)

    def __or__(self, then: Approximation) -> Approximation:
        return replace(self, name=f"{self.name} | {then.name}", steps=(*self.steps, *then.steps))

    def within(self, *context: str) -> Approximation:
        """The same function with separate keys for this context, such as a catalogue and its version."""
        return replace(self, seed=seed_within(self.seed, *context))


def seed_within(seed: int, *context: str) -> int:
    """The seed of separate keys for this context."""
    return xxhash.xxh3_64_intdigest("\0".join(context).encode(), seed)


def identity() -> Approximation:
    """The unchanged input: exact caching. Numbers of lists are compared as float64."""
    return Approximation("identity")


def prefix(n: int) -> Approximation:
    """The first n elements."""
    return _with_step("prefix", n, lambda vector: vector[:n])


def suffix(n: int) -> Approximation:
    """The last n elements."""
    return _with_step("suffix", n, lambda vector: vector[-n:])


def every(n: int) -> Approximation:
    """Every n-th element, starting with the first."""
    return _with_step("every", n, lambda vector: vector[::n])


def maxpool(n: int) -> Approximation:
    """The maximum of each n consecutive elements; the last group may be smaller."""
    return _with_step("maxpool", n, lambda vector: np.maximum.reduceat(vector, np.arange(0, len(vector), n)))


def quantize(step: float) -> Approximation:
    """Each element, rounded to the nearest multiple of ``step``; ties to an even multiple."""
    # 0.0 is added because -0.0 and 0.0 have different bytes.
    return _with_step("quantize", step, lambda vector: np.rint(vector / step) * step + 0.0)


def _as_vector(numbers: Sequence[float]) -> Vector:
    try:
        return np.asarray(numbers, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"an input is a vector of numbers: {error}") from error


def _with_step(name: str, n: float, step: Callable[[Vector], Vector]) -> Approximation:
    if not n > 0 or n == float("inf"):
        raise InvalidArgument(f"{name} takes a positive number, got {n:g}")
    return Approximation(f"{name}({n:g})", (step,))
