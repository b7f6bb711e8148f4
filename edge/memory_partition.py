"""Division of an edge's memory between its networks and the recognition cache of each catalogue.

Memory goes where a byte saves the most time: requests per second times the saving per request, divided by
the bytes (cache partitioning by utility; Qureshi and Patt, MICRO 2006). An object in a cache saves the
resulting decrease of E[L] in equation 2.3. A resident network saves its load, or the trip to the next tier
if that is shorter. Objects are many and small; networks are few and indivisible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from nearsight.common.object_cache.expected_latency import FloatArray

FAVOUR = 1.2
"""Factor in favour of the present owner: rates are estimates, and moving memory costs loads and fetches.

Measured in decision 050.
"""
_RESOLUTION = 128
"""Number of cache sizes that are compared; if there are more, the sizes form a geometric sequence."""


@dataclass(frozen=True, slots=True)
class NetworkUse:
    """Benefit of keeping a network in memory."""

    name: str
    size_bytes: int
    saved: float
    """Time that its requests save while it is resident [ms per second]."""
    pinned: bool = False


@dataclass(frozen=True, eq=False)
class Claim:
    """Benefit of memory for a recognition cache: steps of bytes, by decreasing saving per byte."""

    sizes_bytes: FloatArray
    """(S,) float64: size of each step."""
    saved: FloatArray
    """(S,) float64: time that each step saves [ms per second]."""

    @classmethod
    def of_objects(cls, expected_ms: FloatArray, requests_hz: float, object_bytes: float) -> Self:
        """Claim of a cache of the k most probable objects, up to the size with the least expected latency.

        Parameters
        ----------
        expected_ms : ndarray, (K + 1,) float64
            E[L] (equation 2.3) for k = 0 … K.
        requests_hz : float
            Requests per second.
        object_bytes : float
            Size of an object's model and its part of the index.
        """
        largest = int(np.argmin(expected_ms))
        spaced = np.geomspace(1, max(1, largest), _RESOLUTION).round().astype(np.intp)
        sizes = np.unique(np.concatenate([[0], spaced[spaced <= largest]]))
        saved = requests_hz * (expected_ms[0] - expected_ms[sizes])
        corners = [0]  # of the concave hull: a size below the hull pays off only together with larger ones

        def slope(left: int, right: int) -> float:
            return float((saved[right] - saved[left]) / (sizes[right] - sizes[left]))

        for place in range(1, len(sizes)):
            while len(corners) > 1 and slope(*corners[-2:]) <= slope(corners[-1], place):
                corners.pop()
            corners.append(place)
        return cls(np.diff(sizes[corners]) * object_bytes, np.diff(saved[corners]))

    def favoured(self, size_bytes: float, factor: float) -> Self:
        """The same claim, with the saving of the first ``size_bytes`` bytes multiplied by ``factor``."""
        ends, worths = _sums(self.sizes_bytes), _sums(self.saved)
        cut = np.unique(np.append(ends, min(size_bytes, ends[-1])))
        sizes, saved = np.diff(cut), np.diff(np.interp(cut, ends, worths))
        return replace(self, sizes_bytes=sizes, saved=np.where(cut[1:] <= size_bytes, factor, 1.0) * saved)

    def worth(self, size_bytes: float) -> float:
        """Time that this amount of memory saves [ms per second]."""
        return float(np.interp(size_bytes, _sums(self.sizes_bytes), _sums(self.saved)))


@dataclass(frozen=True, slots=True)
class Partition:
    """Bytes for each part."""

    networks_bytes: float
    caches_bytes: Mapping[str, float]
    """Keys are catalogues."""
    networks: frozenset[str] = frozenset()
    """Networks that are worth their memory: any other network would displace one of them."""

    @property
    def size_bytes(self) -> float:
        """Sum of all parts."""
        return self.networks_bytes + sum(self.caches_bytes.values())


@dataclass(slots=True)
class MemoryPartitioner:
    """Divides a budget; memory moves to another part only if it saves clearly more time there."""

    budget_bytes: int
    networks_limit_bytes: int
    """Limit of the memory of all networks."""
    favour: float = FAVOUR
    """Memory moves if its saving elsewhere is more than this factor higher."""
    partition: Partition = field(default=Partition(0, {}), init=False)
    """Last division. Memory that saves no time belongs to no part."""

    def divide(self, networks: Sequence[NetworkUse], caches: Mapping[str, Claim]) -> Partition:
        """Bytes for each part: the division that saves the most time.

        Networks and steps of caches are sorted by decreasing saving per byte. Each possible number of
        networks is evaluated, with the remaining memory for objects.
        """
        kept, favour = self.partition, self.favour
        claims = {name: one.favoured(kept.caches_bytes.get(name, 0), favour) for name, one in caches.items()}
        steps = sorted(
            (-saved / size, name, size, saved)
            for name, claim in claims.items()
            for size, saved in zip(claim.sizes_bytes.tolist(), claim.saved.tolist(), strict=True)
        )
        pinned = [one for one in networks if one.pinned]
        worths = {one.name: one.saved * (favour if one.name in kept.networks else 1.0) for one in networks}
        others = [one for one in networks if not one.pinned and one.saved > 0]
        others.sort(key=lambda one: -worths[one.name] / one.size_bytes)
        most_bytes = min(self.budget_bytes, self.networks_limit_bytes)
        others = [one for one in others if _bytes_of([*pinned, one]) <= most_bytes]
        taken = _bytes_of(pinned) + _sums([one.size_bytes for one in others])
        saved = _sums([worths[one.name] for one in others])
        in_steps = _sums([size for _, _, size, _ in steps]), _sums([saved for *_, saved in steps])
        saved += np.interp(self.budget_bytes - taken, *in_steps)
        number = int(np.argmax(np.where(taken <= most_bytes, saved, -np.inf)))
        left, given = max(0.0, self.budget_bytes - taken[number]), dict.fromkeys(caches, 0.0)
        for _, name, size, _ in steps:
            given[name] += min(left, size)
            left -= min(left, size)
        chosen = frozenset(one.name for one in [*pinned, *others[:number]])
        self.partition = Partition(float(taken[number]), given, chosen)
        return self.partition

    def limits(self, networks_used_bytes: int, caches_used_bytes: Mapping[str, int]) -> Partition:
        """Current limit of each part, so that their sum never exceeds the budget.

        The memory that the division leaves over is shared equally, for objects that are requested next. A
        part grows only by memory that no other part holds, because networks in use are unloaded later.
        """
        parts = self.partition.caches_bytes
        left = max(0.0, self.budget_bytes - self.partition.size_bytes)
        spare_bytes = max(0.0, self.networks_limit_bytes - self.partition.networks_bytes)
        for_networks = min(left / (1 + len(parts)), spare_bytes)
        for_each = (left - for_networks) / max(1, len(parts))
        free = float(self.budget_bytes - networks_used_bytes - sum(caches_used_bytes.values()))

        def limit(size_bytes: float, used_bytes: int) -> float:
            nonlocal free
            growth = min(size_bytes - used_bytes, max(0.0, free))
            free -= max(0.0, growth)
            return used_bytes + growth

        networks_bytes = limit(self.partition.networks_bytes + for_networks, networks_used_bytes)
        caches_bytes = {name: limit(size + for_each, caches_used_bytes[name]) for name, size in parts.items()}
        return Partition(networks_bytes, caches_bytes, self.partition.networks)


def _bytes_of(networks: Sequence[NetworkUse]) -> int:
    return sum(one.size_bytes for one in networks)


def _sums(values: Sequence[float] | FloatArray) -> FloatArray:
    return np.concatenate([[0.0], np.cumsum(np.asarray(values, dtype=np.float64))])
