"""What other caches would hold: the baselines that the adaptive cache is compared with.

They answer the same question as the optimizer, in the same shape, and stand in the same place; only what
they look at differs: nothing, counts, or who was asked for last.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Protocol

from nearsight.common.errors import InvalidArgument
from nearsight.common.object_cache.expected_latency import FloatArray, LatencyTerms
from nearsight.edge.cache_size import CacheSizeDecision
from nearsight.edge.request_distribution import Ranking


class EvictionPolicy(Protocol):
    """Says which objects belong into the cache now."""

    @property
    def name(self) -> str:
        """For settings, rows of results and people."""

    def choose(self, ranking: Ranking, recent: Sequence[str], k_max: int) -> tuple[str, ...]:
        """At most ``k_max`` objects of the ranking's catalogue, the dearest first.

        Parameters
        ----------
        ranking : Ranking
            The estimated request distribution.
        recent : sequence of str
            Objects that were asked for, the latest first, each once (`Recency`).
        k_max : int
            Most objects.
        """


class NoCache:
    """Everything goes to the cloud."""

    name = "none"

    def choose(  # noqa: D102
        self, ranking: Ranking, recent: Sequence[str], k_max: int
    ) -> tuple[str, ...]:
        del ranking, recent, k_max
        return ()


class FixedLfu:
    """The ``size`` objects that were asked for most often.

    With an infinite half-life of the counts this is LFU proper; with another it is LFU with aging.
    """

    name = "lfu"

    def __init__(self, size: int) -> None:
        self._size = _checked(size)

    def choose(  # noqa: D102
        self, ranking: Ranking, recent: Sequence[str], k_max: int
    ) -> tuple[str, ...]:
        del recent
        return ranking.top(min(self._size, k_max, ranking.seen))


class FixedLru:
    """The ``size`` objects that were asked for last."""

    name = "lru"

    def __init__(self, size: int) -> None:
        self._size = _checked(size)

    def choose(  # noqa: D102
        self, ranking: Ranking, recent: Sequence[str], k_max: int
    ) -> tuple[str, ...]:
        present = (object_id for object_id in recent if object_id in ranking.positions)
        return tuple(object_id for object_id, _ in zip(present, range(min(self._size, k_max)), strict=False))


class Everything:
    """The whole catalogue, asked for or not."""

    name = "everything"

    def choose(  # noqa: D102
        self, ranking: Ranking, recent: Sequence[str], k_max: int
    ) -> tuple[str, ...]:
        del recent
        return ranking.top(k_max)


class Recency:
    """Which objects were asked for last.

    Parameters
    ----------
    capacity : int
        Objects that are remembered.

    Raises
    ------
    InvalidArgument
        If it is not positive.
    """

    def __init__(self, capacity: int = 10_000) -> None:
        self._capacity = _checked(capacity)
        self._order: OrderedDict[str, None] = OrderedDict()

    def observe(self, object_id: str) -> None:
        """An object was asked for."""
        self._order[object_id] = None
        self._order.move_to_end(object_id)
        if len(self._order) > self._capacity:
            self._order.popitem(last=False)

    def remove(self, object_ids: Iterable[str]) -> None:
        """Objects left the catalogue."""
        for object_id in object_ids:
            self._order.pop(object_id, None)

    def latest_first(self) -> tuple[str, ...]:
        """Each object once."""
        return tuple(reversed(self._order))


def decision_for(
    policy: EvictionPolicy,
    object_ids: tuple[str, ...],
    ranking: Ranking,
    lookup_ms: FloatArray,
    recall: FloatArray,
    miss_ms: float,
) -> CacheSizeDecision:
    """Put a baseline's choice into the form of the optimizer's, with its terms of equation 2.3.

    ``lookup_ms`` and ``recall`` are (K + 1,) float64; a larger cache is charged as one of K objects.
    """
    k = min(len(object_ids), len(lookup_ms) - 1)
    cached = min(1.0, ranking.probability_of(object_ids))
    found = float(recall[k])
    expected_ms = float(lookup_ms[k]) + (1.0 - found * cached) * miss_ms
    terms = LatencyTerms(len(object_ids), float(lookup_ms[k]), found, cached, miss_ms, expected_ms)
    offload = LatencyTerms(
        0, float(lookup_ms[0]), float(recall[0]), 0.0, miss_ms, float(lookup_ms[0]) + miss_ms
    )
    alternatives = {} if not object_ids else {0: offload}
    why = (
        f"{policy.name}: k={len(object_ids)}, {expected_ms:.2f} ms expected, without a cache {miss_ms:.2f} ms"
    )
    return CacheSizeDecision(len(object_ids), len(object_ids), terms, alternatives, object_ids, why)


def _checked(size: int) -> int:
    if size < 1:
        raise InvalidArgument(f"a size must be at least 1, got {size}")
    return size
