"""Predicts savings and errors of an approximate-key cache: the analytical model (section IV of the paper).

Requests are independent (IRM): an input has approximate key i with probability q_i, and then class j with
probability p_ij. The model predicts the share of lookups that need inference, and the share that is answered
wrongly, for an LRU cache (characteristic time) and for an ideal cache, which holds the K most popular keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearsight.common.errors import InvalidArgument
from nearsight.common.result_cache.auto_refresh import AutoRefresh

FloatArray = NDArray[np.float64]

_EXACT = 2.0**53
"""Largest phi_n at which the floor in equation 6 changes a float; beyond, the sums have a closed form."""
_MOST_TERMS = 5000
"""Maximum number of verifications of one result in the sums; enough for a back-off of 1.01."""
_AT_ONCE = 4096
"""Number of classes whose series are summed together, to limit memory."""
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted shares of lookups: of all of a cache, or of those with one key."""

    hits: float
    """H: share of the lookups whose key is in the cache."""
    inferences: float
    """Share of the lookups that run the classifier (misses and verifications)."""
    errors: float
    """E: share of the lookups that are answered wrongly."""


def uncorrected_error(classes: ArrayLike) -> float:
    """Share of a key's hits that are wrong without verification: 1 - sum of p_j^2 (eq. 4).

    Parameters
    ----------
    classes : array_like, shape (m,)
        p_j: probability of each class; they sum to 1.
    """
    p = _probabilities(classes, "the classes of a key")
    return float(1.0 - np.sum(p * p))


def characteristic_time(popularity: ArrayLike, size: int) -> float:
    """t_c [lookups]: time that a key stays in an LRU cache after a request (eq. 2).

    ``inf`` if all keys fit into the cache.

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
    """h_i (N,): probability that a key is in an LRU cache when it is requested (eq. 1)."""
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
    """Predict the shares over all lookups (eq. 5 and 7 to 12).

    Parameters
    ----------
    popularity : array_like, shape (N,)
        q_i; they sum to 1.
    classes : sequence of N array_like, shapes (m_i,)
        p_ij of each key.
    hits : ndarray, shape (N,)
        h_i, from `lru_hits` or `ideal_hits`.
    refresh : AutoRefresh, optional
        The schedule; None if results are never verified.
    """
    q = _probabilities(popularity, "the popularity of keys")
    if not len(q) == len(classes) == len(hits):
        raise InvalidArgument(f"got {len(q)} keys, {len(classes)} sets of classes and {len(hits)} hit rates")
    hits = np.asarray(hits, dtype=np.float64)
    kept = np.flatnonzero((hits > 0) & (q > 0)).tolist()
    hit = float(np.sum(q * hits))
    if refresh is None:
        errors = sum(float(q[key] * hits[key]) * uncorrected_error(classes[key]) for key in kept)
        return Prediction(hit, 1.0 - hit, errors)
    of_keys = [p[p > 0] for p in (_probabilities(classes[key], "the classes of a key") for key in kept)]
    if not of_keys or (refresh.beta == 1 and not refresh.as_printed):  # every lookup is inferred
        return Prediction(hit, 1.0, 0.0)
    inferences, wrong = _rates(of_keys, hits[kept], refresh)
    never_kept = 1.0 - float(q[kept].sum())
    return Prediction(hit, float(q[kept] @ inferences) + never_kept, float(q[kept] @ wrong))


def finite_horizon(classes: ArrayLike, refresh: AutoRefresh, lookups: int) -> Prediction:
    """Shares over the first ``lookups`` lookups of one key, exactly; the key is never evicted.

    The equations describe an infinite stream. If a class has probability 1 / beta^2 or more, simulations of
    practical length deviate from them, because the variance of a sequence's length is infinite.

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
    phi = _schedule(refresh, lookups).astype(np.int64)
    kept = p[:, None] ** np.arange(len(phi))
    """(m, n): probability that the n-th inference occurs, in a stream that is long enough."""
    change = np.divide(p[None, :], 1.0 - p[:, None], out=np.zeros((len(p), len(p))), where=p[:, None] < 1)
    np.fill_diagonal(change, 0.0)
    inferred, wrong, then_inferred, then_wrong = np.zeros((4, lookups + 1, len(p)))
    """By length and class: the first two for a stream that begins with this class, the others for one that
    begins with a conflict of this class."""
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
    inferences, errors = (float(p @ of_all[lookups]) / lookups for of_all in (inferred, wrong))
    return Prediction(1.0 - 1.0 / lookups, inferences, errors)


def _rates(
    classes: Sequence[FloatArray], hits: FloatArray, refresh: AutoRefresh
) -> tuple[FloatArray, FloatArray]:
    """r_i (N,) and e_i (N,): shares of each key's lookups with an inference, and with a wrong answer.

    Equations 7 to 10; the last two are those of an ideal cache, where h_i is 1.

    A sequence of lookups begins with a new result and ends before an eviction or a conflict. With the n-th
    inference on lookup phi_n, a sequence that began with class j reaches lookup a with probability
    h^(a-1) p_j^(n(a)-1). Its expected inferences and length follow, and from them the rates. The paper prints
    exponents of h that do not sum to 1; r and e are the same with the right ones.
    """
    firsts = np.cumsum([0, *(len(one) for one in classes)])[:-1]
    p = np.concatenate(classes)
    hit = np.repeat(hits, np.diff(np.append(firsts, len(p))))
    largest = np.maximum.reduceat(p, firsts)
    dominated = (hits == 1.0) & (largest * refresh.beta >= 1.0)
    """Keys with a class that is hardly ever verified (eq. 13)."""
    phi = _schedule(refresh, _EXACT)
    inferences, lengths, begins = np.zeros((3, len(p)))
    for start in range(0, len(p), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        inferences[part], lengths[part], begins[part] = _sequences(p[part], hit[part], phi, refresh)
    ends = [
        np.add.reduceat(begins * one, firsts)
        for one in (inferences, lengths, (1 - p) * (lengths - inferences))
    ]
    with np.errstate(invalid="ignore"):
        return (
            np.where(dominated, 0.0, ends[0] / ends[1]),
            np.where(dominated, 1.0 - largest, ends[2] / ends[1]),
        )


def _sequences(
    p: FloatArray, hit: FloatArray, phi: FloatArray, refresh: AutoRefresh
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Expected inferences and expected lookups of sequences of these classes, and how often one begins.

    The last array is not normalised. All values are 0 if the length is infinite.
    """
    kept = p[:, None] ** np.arange(len(phi))
    present = hit[:, None] ** (phi - 1.0)
    inferences = np.sum(kept * present, axis=1)
    repeated = np.sum(kept[:, :-1] * present[:, 1:], axis=1)
    """Multiplied by 1 - p, the probability that a conflict ends the sequence."""
    leaving = present - np.column_stack([present[:, 1:], np.zeros(len(p))])
    lengths = np.divide(np.sum(kept * leaving, axis=1), 1.0 - hit, out=np.zeros(len(p)), where=hit < 1)

    growth = refresh.beta * p
    endless = (hit == 1.0) & (growth < 1.0)
    """After the last phi_n the floor in equation 6 has no effect, and the series is geometric."""
    rest = kept[:, -1] * (refresh.to_serve(len(phi)) + 1)
    rest = np.divide(rest, 1.0 - growth, out=np.zeros(len(p)), where=endless)
    lengths = np.where(endless, kept[:, :-1] @ np.diff(phi) + rest, lengths)
    begins = np.where((hit < 1.0) | endless, p / (1.0 + p * repeated), 0.0)
    return inferences, lengths, begins


def _schedule(refresh: AutoRefresh, last: float) -> FloatArray:
    """phi_1, phi_2 … up to this lookup, at most `_MOST_TERMS` values."""
    phi = [1]
    while len(phi) < _MOST_TERMS and (following := phi[-1] + refresh.to_serve(len(phi)) + 1) <= last:
        phi.append(following)
    return np.array(phi, dtype=np.float64)


def _probabilities(values: ArrayLike, what: str) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not array.size:
        raise InvalidArgument(f"{what} are a vector of probabilities, got an array of shape {array.shape}")
    if not np.all(array >= 0) or not abs(float(array.sum()) - 1.0) <= _TOLERANCE * max(1, array.size):
        raise InvalidArgument(f"{what} must sum to 1 and not be negative, got a sum of {array.sum():g}")
    return array
