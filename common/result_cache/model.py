"""What a cache of approximate keys will save and get wrong: the analytical model (section IV of the paper).

Requests are independent (IRM): an input has approximate key i with probability q_i, and then class j with
probability p_ij. The model predicts the share of lookups that need inference, and the share that is answered
wrongly, for an LRU cache (characteristic time) and for an ideal one, which holds the K most popular keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearsight.common.errors import InvalidArgument
from nearsight.common.result_cache.auto_refresh import AutoRefresh

FloatArray = NDArray[np.float64]

_NEGLIGIBLE = 1e-18
"""Terms below this share of the first one are left out."""
_EXACT = 2.0**53
"""Up to here the floor in equation 6 matters to a float; beyond it the sums have a closed form."""
_MOST_TERMS = 1_000_000
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class KeyRates:
    """What auto-refresh does to the lookups of one key."""

    inferences: float
    """r_i: share of its lookups that run the classifier: misses and verifications."""
    errors: float
    """e_i: share of its lookups that are answered wrongly."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a cache of approximate keys does to all lookups together."""

    hits: float
    """H: share of the lookups whose key is in the cache."""
    inferences: float
    """Share of the lookups that run the classifier: misses and verifications."""
    errors: float
    """E: share of the lookups that are answered wrongly."""

    @property
    def verifications(self) -> float:
        """R: share of the lookups that run the classifier although their key is in the cache."""
        return self.inferences - (1.0 - self.hits)


def uncorrected_error(classes: ArrayLike) -> float:
    """The share of a key's hits that are wrong without verification: 1 - sum of p_j^2 (eq. 4).

    Parameters
    ----------
    classes : array_like, shape (m,)
        p_j: probability of each class; they sum to 1.
    """
    p = _probabilities(classes, "the classes of a key")
    return float(1.0 - np.sum(p * p))


def key_rates(classes: ArrayLike, refresh: AutoRefresh, hit: float = 1.0) -> KeyRates:
    """Inferences and errors of one key under auto-refresh (eq. 7 and 8; eq. 9 and 10 where ``hit`` is 1).

    Parameters
    ----------
    classes : array_like, shape (m,)
        p_j: probability of each class; they sum to 1.
    refresh : AutoRefresh
        The schedule, also the printed one.
    hit : float
        h_i: probability that the key is still in the cache at its next lookup; 1 in an ideal cache.

    Raises
    ------
    InvalidArgument
        If the classes are no distribution, or ``hit`` is no probability.

    Notes
    -----
    A sequence of lookups begins with a new result and ends before an eviction or a conflict. With the n-th
    inference on lookup phi_n, a sequence that began with class j reaches lookup a with probability
    h^(a-1) p_j^(n(a)-1). Its expected inferences and length follow, and from them the rates. The paper prints
    exponents of h that do not sum to 1; r and e are the same with the right ones.
    """
    p = _probabilities(classes, "the classes of a key")
    if not 0.0 <= hit <= 1.0:
        raise InvalidArgument(f"the hit rate of a key is a probability, got {hit:g}")
    p = p[p > 0]
    if hit == 1.0 and p.max() * refresh.beta >= 1.0:
        return KeyRates(0.0, float(1.0 - p.max()))
    inferences, lengths, repeated = (
        np.array(column) for column in zip(*(_sequence(each, refresh, hit) for each in p), strict=True)
    )
    begins = p / (1.0 + p * repeated)
    """Probability that a sequence begins with this class, not normalised."""
    length = float(np.sum(begins * lengths))
    wrong = float(np.sum(begins * (1.0 - p) * (lengths - inferences)))
    return KeyRates(float(np.sum(begins * inferences)) / length, wrong / length)


def characteristic_time(popularity: ArrayLike, size: int) -> float:
    """t_c [lookups]: how long a key stays in an LRU cache after it was asked for (eq. 2).

    ``inf`` where all keys fit into the cache.

    Parameters
    ----------
    popularity : array_like, shape (N,)
        q_i; they sum to 1.
    size : int
        K: keys in the cache.
    """
    q = _probabilities(popularity, "the popularity of keys")
    q = q[q > 0]
    if not size >= 1:
        raise InvalidArgument(f"a cache has room for at least one key, got {size}")
    if size >= len(q):
        return float("inf")
    low, high = 0.0, float(size)
    while -np.expm1(-q * high).sum() < size:
        low, high = high, 2.0 * high
    while high - low > _TOLERANCE * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if -np.expm1(-q * middle).sum() < size else (low, middle)
    return (low + high) / 2.0


def lru_hits(popularity: ArrayLike, size: int) -> FloatArray:
    """h_i (N,): probability that a key is in an LRU cache when it is asked for (eq. 1)."""
    q = _probabilities(popularity, "the popularity of keys")
    time = characteristic_time(q, size)
    return np.where(q > 0, -np.expm1(-q * time), 0.0) if np.isfinite(time) else (q > 0).astype(np.float64)


def ideal_hits(popularity: ArrayLike, size: int) -> FloatArray:
    """h_i (N,): 1 for the K most popular keys, 0 for the others (eq. 3)."""
    q = _probabilities(popularity, "the popularity of keys")
    hits = np.zeros(len(q))
    hits[np.argsort(-q, kind="stable")[:size]] = 1.0
    return hits


def predict(
    popularity: ArrayLike, classes: Sequence[ArrayLike], hits: FloatArray, refresh: AutoRefresh | None
) -> Prediction:
    """All lookups together (eq. 5, 11, 12).

    Parameters
    ----------
    popularity : array_like, shape (N,)
        q_i; they sum to 1.
    classes : sequence of N array_like, shapes (m_i,)
        p_ij of each key.
    hits : ndarray, shape (N,)
        h_i, of `lru_hits` or `ideal_hits`.
    refresh : AutoRefresh, optional
        The schedule; without one results are never verified.
    """
    q = _probabilities(popularity, "the popularity of keys")
    if not len(q) == len(classes) == len(hits):
        raise InvalidArgument(f"got {len(q)} keys, classes of {len(classes)} and hits of {len(hits)}")
    hit = float(np.sum(q * hits))
    inferences, errors = 0.0, 0.0
    for share, of_key, kept in zip(q, classes, hits, strict=True):
        if kept == 0.0 or share == 0.0:
            inferences += share
        elif refresh is None:
            inferences += share * (1.0 - kept)
            errors += share * kept * uncorrected_error(of_key)
        else:
            rates = key_rates(of_key, refresh, float(kept))
            inferences += share * rates.inferences
            errors += share * rates.errors
    return Prediction(hit, float(inferences), float(errors))


def finite_horizon(classes: ArrayLike, refresh: AutoRefresh, lookups: int) -> KeyRates:
    """Inferences and errors of one key in its first ``lookups`` lookups, exactly; the key is never evicted.

    The equations say what an endless stream does. Where a class has probability 1 / beta^2 or more, no
    simulation of practical length comes near them, because the variance of a sequence's length is infinite.

    Parameters
    ----------
    classes : array_like, shape (m,)
        p_j: probability of each class; they sum to 1.
    refresh : AutoRefresh
        The schedule.
    lookups : int
        Length of the stream, at least 1.
    """
    p = _probabilities(classes, "the classes of a key")
    p = p[p > 0]
    phi = np.array(_schedule(refresh, lambda _, lookup: lookup > lookups)[:-1])
    kept = p[:, None] ** np.arange(len(phi))
    """(m, n): probability that the n-th inference happens, in a stream that is long enough."""
    change = np.divide(p[None, :], 1.0 - p[:, None], out=np.zeros((len(p), len(p))), where=p[:, None] < 1)
    np.fill_diagonal(change, 0.0)
    inferred, wrong, then_inferred, then_wrong = np.zeros((4, lookups + 1, len(p)))
    """By length of the stream and class: if it begins with this class; if it begins with a conflict of it."""
    for length in range(1, lookups + 1):
        n = int(np.searchsorted(phi, length, side="right"))
        served = np.diff(np.append(phi[:n], length + 1)) - 1
        inferred[length] = kept[:, :n].sum(axis=1)
        wrong[length] = (1.0 - p) * (kept[:, :n] * served).sum(axis=1)
        conflicts = kept[:, : n - 1] * (1.0 - p[:, None])
        rest = length - phi[1:n] + 1
        for of_all, of_rest in ((inferred, then_inferred), (wrong, then_wrong)):
            of_all[length] += (conflicts * of_rest[rest].T).sum(axis=1)
            of_rest[length] = change @ of_all[length]
    return KeyRates(float(p @ inferred[lookups]) / lookups, float(p @ wrong[lookups]) / lookups)


def _sequence(p: float, refresh: AutoRefresh, hit: float) -> tuple[float, float, float]:
    """Of a sequence of this class: expected inferences, expected lookups, sum of p^(n-2) h^(phi_n - 1).

    The last one times 1 - p is the probability that a conflict ends the sequence.
    """
    growth = refresh.beta * p

    def over(n: int, lookup: int) -> bool:
        """Whether what follows is negligible, or a geometric series: floats do not see the floor any more."""
        return lookup >= _EXACT or n >= _MOST_TERMS or (p**n) * (hit**lookup) * lookup < _NEGLIGIBLE

    phi = np.array(_schedule(refresh, over), dtype=np.float64)
    kept = p ** np.arange(len(phi))
    if hit == 1.0:
        rest = kept[-1] * (refresh.to_serve(len(phi)) + 1) / (1.0 - growth)
        return 1.0 / (1.0 - p), float(np.sum(kept[:-1] * np.diff(phi)) + rest), 1.0 / (1.0 - p)
    present = hit ** (phi - 1.0)
    leaving = present - np.append(present[1:], 0.0)
    repeated = float(np.sum(kept[:-1] * present[1:]))
    return float(np.sum(kept * present)), float(np.sum(kept * leaving)) / (1.0 - hit), repeated


def _schedule(refresh: AutoRefresh, over: Callable[[int, int], bool]) -> list[int]:
    """phi_1, phi_2 …, up to and with the first phi_n for which ``over(n, phi_n)`` holds."""
    phi = [1]
    while not over(len(phi), phi[-1]):
        phi.append(phi[-1] + refresh.to_serve(len(phi)) + 1)
    return phi


def _probabilities(values: ArrayLike, what: str) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not array.size:
        raise InvalidArgument(f"{what} are a vector of probabilities, got an array of shape {array.shape}")
    if not np.all(array >= 0) or not abs(float(array.sum()) - 1.0) <= _TOLERANCE * max(1, array.size):
        raise InvalidArgument(f"{what} must sum to 1 and not be negative, got a sum of {array.sum():g}")
    return array
