"""Who gets how much memory of an edge: its networks, and the recognition cache of each catalogue.

Memory goes where a byte saves the most time: the requests per second times what each saves, over the bytes
(cache partitioning by utility; Qureshi and Patt, MICRO 2006). An object in a cache saves what equation 2.3
says that E[L] falls by; a resident network saves the load, or the way to the next tier if that is shorter.
Objects are many and small, networks few and indivisible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from nearsight.common.errors import InvalidArgument
from nearsight.common.object_cache.expected_latency import FloatArray

_RESOLUTION = 128
"""Sizes of a recognition cache that are compared; beyond, they are spaced as a geometric row."""


@dataclass(frozen=True, slots=True)
class NetworkUse:
    """What a network's residence is worth."""

    name: str
    size_bytes: int
    saved: float
    """Time that its requests save if it is resident [ms per second]."""
    pinned: bool = False


@dataclass(frozen=True, eq=False)
class Claim:
    """What memory is worth to a recognition cache: steps of bytes, by falling worth per byte."""

    sizes_bytes: FloatArray
    """(S,) float64: of each step."""
    saved: FloatArray
    """(S,) float64: time that it saves [ms per second]."""

    @classmethod
    def of_objects(cls, expected_ms: FloatArray, requests_hz: float, object_bytes: float) -> Self:
        """Of a cache of the k most probable objects, up to the size with the least expected latency.

        Parameters
        ----------
        expected_ms : ndarray, (K + 1,) float64
            E[L] (equation 2.3) for k = 0 … K.
        requests_hz : float
            Requests per second.
        object_bytes : float
            Of an object's model and its part of the index.
        """
        largest = int(np.argmin(expected_ms))
        spaced = np.geomspace(1, max(1, largest), _RESOLUTION).round().astype(np.intp)
        sizes = np.unique(np.concatenate([[0], spaced[spaced <= largest]]))
        saved = requests_hz * (expected_ms[0] - expected_ms[sizes])
        corners = [0]  # of the concave hull: a size below it is worth nothing without the next ones
        for place in range(1, len(sizes)):
            while len(corners) > 1 and _slope(sizes, saved, corners[-2], corners[-1]) <= _slope(
                sizes, saved, corners[-1], place
            ):
                corners.pop()
            corners.append(place)
        return cls(np.diff(sizes[corners]) * object_bytes, np.diff(saved[corners]))

    def favoured(self, size_bytes: float, factor: float) -> Self:
        """The same where the first so many bytes are worth ``factor`` times as much."""
        ends, worths = _sums(self.sizes_bytes), _sums(self.saved)
        cut = np.unique(np.append(ends, min(size_bytes, ends[-1])))
        sizes, saved = np.diff(cut), np.diff(np.interp(cut, ends, worths))
        return replace(self, sizes_bytes=sizes, saved=np.where(cut[1:] <= size_bytes, factor, 1.0) * saved)

    def worth(self, size_bytes: float) -> float:
        """Time that so many bytes save [ms per second]."""
        return float(np.interp(size_bytes, _sums(self.sizes_bytes), _sums(self.saved)))


@dataclass(frozen=True, slots=True)
class Partition:
    """Bytes for each part."""

    networks_bytes: float
    caches_bytes: Mapping[str, float]
    """By catalogue."""
    networks: frozenset[str] = frozenset()
    """Those that are worth their memory: any other would displace one of them."""

    @property
    def size_bytes(self) -> float:
        """All parts."""
        return self.networks_bytes + sum(self.caches_bytes.values())


@dataclass(slots=True)
class MemoryPartitioner:
    """Divides a budget; who has memory keeps it until it is worth clearly more to others.

    Raises
    ------
    InvalidArgument
        If the budget or the factor makes no sense.
    """

    budget_bytes: int
    favour: float = 1.2
    """Memory moves where it is worth more than so many times as much: rates are estimates, and whatever moves
    is loaded or fetched anew."""
    partition: Partition = field(default=Partition(0, {}), init=False)
    """The last one. Memory that saves nothing to anyone is in no part."""

    def __post_init__(self) -> None:
        if self.budget_bytes < 0 or not self.favour >= 1:
            raise InvalidArgument(f"a budget of {self.budget_bytes} bytes that moves for {self.favour:g}")

    def divide(self, networks: Sequence[NetworkUse], caches: Mapping[str, Claim]) -> Partition:
        """Bytes for each part, together at most the budget but for pinned networks."""
        kept = self.partition
        self.partition = best_partition(
            self.budget_bytes,
            [
                replace(one, saved=one.saved * self.favour) if one.name in kept.networks else one
                for one in networks
            ],
            {
                name: claim.favoured(kept.caches_bytes.get(name, 0), self.favour)
                for name, claim in caches.items()
            },
        )
        return self.partition


def best_partition(
    budget_bytes: int, networks: Sequence[NetworkUse], caches: Mapping[str, Claim]
) -> Partition:
    """The division that saves most: some networks, those with the most worth per byte, and objects.

    For each number of networks the rest goes to the caches, the steps with the most worth per byte first.
    """
    steps = sorted(
        (-saved / size, name, size, saved)
        for name, claim in caches.items()
        for size, saved in zip(claim.sizes_bytes.tolist(), claim.saved.tolist(), strict=True)
    )
    pinned_bytes = sum(one.size_bytes for one in networks if one.pinned)
    wanted = [
        one
        for one in sorted(networks, key=lambda one: -one.saved / one.size_bytes)
        if not one.pinned and one.saved > 0 and pinned_bytes + one.size_bytes <= budget_bytes
    ]
    taken = pinned_bytes + _sums([one.size_bytes for one in wanted])
    objects = np.interp(
        budget_bytes - taken, _sums([size for _, _, size, _ in steps]), _sums([saved for *_, saved in steps])
    )
    saved = np.where(taken <= budget_bytes, _sums([one.saved for one in wanted]) + objects, -np.inf)
    number = int(np.argmax(saved))
    left, given = max(0.0, budget_bytes - taken[number]), dict.fromkeys(caches, 0.0)
    for _, name, size, _ in steps:
        given[name] += min(left, size)
        left -= min(left, size)
    chosen = [*wanted[:number], *(one for one in networks if one.pinned)]
    return Partition(float(taken[number]), given, frozenset(one.name for one in chosen))


def limits_of(
    partition: Partition,
    budget_bytes: int,
    networks_used_bytes: int,
    caches_used_bytes: Mapping[str, int],
    networks_most_bytes: int,
) -> Partition:
    """What each part may take now, that all of them together never take more than the budget.

    What the partition leaves over is for what is asked for next: the same for each part, as far as the
    settings of networks allow. A part grows only by what no other part holds: networks in use leave later.
    """
    left = max(0.0, budget_bytes - partition.size_bytes)
    share = left / (1 + len(partition.caches_bytes))
    for_networks = min(share, max(0.0, networks_most_bytes - partition.networks_bytes))
    for_each = (left - for_networks) / max(1, len(partition.caches_bytes))
    free = float(budget_bytes - networks_used_bytes - sum(caches_used_bytes.values()))

    def limit(size_bytes: float, used_bytes: int) -> float:
        nonlocal free
        growth = min(size_bytes - used_bytes, max(0.0, free))
        free -= max(0.0, growth)
        return used_bytes + growth

    networks_bytes = limit(partition.networks_bytes + for_networks, networks_used_bytes)
    parts = partition.caches_bytes.items()
    caches_bytes = {name: limit(size + for_each, caches_used_bytes[name]) for name, size in parts}
    return Partition(networks_bytes, caches_bytes, partition.networks)


def _sums(values: Sequence[float] | FloatArray) -> FloatArray:
    return np.concatenate([[0.0], np.cumsum(np.asarray(values, dtype=np.float64))])


def _slope(sizes: FloatArray, saved: FloatArray, left: int, right: int) -> float:
    return float((saved[right] - saved[left]) / (sizes[right] - sizes[left]))
