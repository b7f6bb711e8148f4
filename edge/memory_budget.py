"""Memory that networks and recognition caches of an edge share: divided once a second, and explained.

If the budget suffices for everything, no part has a limit. Otherwise `MemoryPartitioner` divides it. Parts
that shrink release memory at once, except networks in use. Parts that grow receive only memory that is free.
Thus the sum of all parts never exceeds the budget. Memory is counted by estimates: networks as measured,
object models with their index as calibrated (decision 050), and spare models.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from nearsight.common.inference.process_memory import return_freed_memory
from nearsight.common.recognition.classifiers.registry import AUTO, bytes_per_descriptor
from nearsight.common.recognition.models import FEATURE_BYTES
from nearsight.edge.catalogue_cache import CatalogueCache
from nearsight.edge.catalogue_caches import CatalogueCaches
from nearsight.edge.inference.networks import EdgeNetworks
from nearsight.edge.memory_partition import Claim, MemoryPartitioner, Partition
from nearsight.edge.services import EdgeServices
from nearsight.edge.settings import EdgeSettings
from nearsight.edge.standby.standbys import Standbys

_EVERY_S = 1.0
RATE_WINDOW_S = 60.0
_NEXT_OBJECTS = 16
"""Objects that may enter a cache before the next division; spare models leave room for them."""
_MB = 10**6


@dataclass(frozen=True, slots=True)
class Part:
    """Memory of the networks, or of the cache of a catalogue."""

    used_bytes: int
    limit_bytes: float
    """``inf`` if there is no limit."""
    saved: float
    """Estimate of the time that it saves [ms per second]; NaN if not computed, because nothing is limited."""

    @property
    def why(self) -> str:
        """The part in one line, as text for the user."""
        if math.isinf(self.limit_bytes):
            return f"{self.used_bytes / _MB:.1f} MB; no limit"
        return (
            f"{self.used_bytes / _MB:.1f} of {self.limit_bytes / _MB:.1f} MB, which save {self.saved:.3g} ms "
            f"per second"
        )


_METRICS: Sequence[tuple[str, str, Callable[[Part], float]]] = (
    ("bytes", "Memory of networks and recognition caches.", lambda part: part.used_bytes),
    (
        "limit_bytes",
        "Memory limit of networks and recognition caches; +Inf: no limit.",
        lambda part: part.limit_bytes,
    ),
    ("saved_ratio", "Time that this memory saves, in seconds per second.", lambda part: part.saved / 1e3),
)


class RequestRates:
    """Requests per second of several items: averages with exponential decay while there are requests.

    During periods without any request, the averages stay unchanged. Not thread-safe.
    """

    def __init__(self, memory_s: float) -> None:
        self._memory_s = memory_s
        self._known: dict[Hashable, tuple[int, float]] = {}
        self._at_s = -math.inf

    def update(self, counts: Mapping[Hashable, int], now_s: float) -> dict[Hashable, float]:
        """Current rates, from the total number of requests of each item."""
        before = {name: self._known.get(name, (0, 0.0)) for name in counts}
        past_s = now_s - self._at_s
        if not any(count > before[name][0] for name, count in counts.items()):
            past_s = 0.0
        kept = math.exp(-past_s / self._memory_s)
        weight = (1.0 - kept) / past_s if past_s > 0 else 0.0
        known = {}
        for name, count in counts.items():
            past, rate = before[name]
            known[name] = (count, rate * kept + weight * max(0, count - past))
        self._known, self._at_s = known, now_s
        return {name: rate for name, (_, rate) in known.items()}


class MemoryBudget:
    """Divides the memory budget, in the background thread of the edge.

    Attributes
    ----------
    networks : Part
        Memory of the networks.
    caches : mapping of str to Part
        Memory of the cache of each catalogue.
    """

    def __init__(
        self,
        settings: EdgeSettings,
        caches: CatalogueCaches,
        networks: EdgeNetworks,
        standbys: Standbys,
        services: EdgeServices,
    ) -> None:
        self._settings = settings
        self._all_caches = caches
        self._all_networks = networks
        self._standbys = standbys
        self._services = services
        self._budget_bytes = settings.memory_mb * _MB
        self._library_bytes = settings.cache.library_mb * 2**20
        self._partitioner = MemoryPartitioner(self._budget_bytes, 0)
        self._rates = RequestRates(RATE_WINDOW_S)
        self._used_bytes = 0
        self.networks = Part(0, math.inf, 0.0)
        self.caches: Mapping[str, Part] = {}

    def start(self) -> None:
        """Start dividing, if there is a budget."""
        if self._budget_bytes:
            self._services.background.submit(self._round, name="memory", after_s=_EVERY_S)

    def _round(self) -> None:
        self.start()
        self.divide()

    def divide(self) -> None:
        """Set the limit of each part. Standbys limit themselves; their memory is subtracted first."""
        budget_bytes = self._budget_bytes - self._standbys.size_bytes
        caches, uses = {cache.name: cache for cache in self._all_caches.all()}, self._all_networks.uses()
        counts: dict[Hashable, int] = {(one.name, "network"): count for one, count in uses}
        counts |= {(name, "objects"): cache.hits + cache.misses for name, cache in caches.items()}
        rates = self._rates.update(counts, self._services.clock.monotonic())
        networks = [replace(one, saved=one.saved * rates[one.name, "network"]) for one, _ in uses]
        networks_most = self._settings.models.memory_mb * _MB if self._all_networks.offers_any else 0
        state = self._all_networks.memory.state
        used = {name: _used_bytes(cache) for name, cache in caches.items()}
        claims: dict[str, Claim] = {}
        if networks_most + sum(map(self._most_bytes, caches.values())) <= budget_bytes:
            limits, worth_it = Partition(math.inf, dict.fromkeys(caches, math.inf)), None
        else:
            claims = {name: self._claim(cache, rates[name, "objects"]) for name, cache in caches.items()}
            self._partitioner.networks_limit_bytes = networks_most
            self._partitioner.budget_bytes = budget_bytes
            worth_it = self._partitioner.divide(networks, claims).networks
            limits = self._partitioner.limits(state.used_bytes, used)
        saved = sum(one.saved for one in networks if one.name in state.resident)
        self.networks = Part(state.used_bytes, limits.networks_bytes, saved)
        self._all_networks.limit(limits.networks_bytes, worth_it)
        parts = {}
        for name, cache in caches.items():
            limit_bytes, here_bytes = limits.caches_bytes[name], cache.holder.snapshot.size_bytes
            saved = claims[name].worth(here_bytes) if name in claims else math.nan
            parts[name] = Part(used[name], limit_bytes, saved)
            self._limit(cache, limit_bytes)
        self.caches = parts
        used_bytes = state.used_bytes + sum(used.values())
        if worth_it is not None and used_bytes < self._used_bytes:
            return_freed_memory()
        self._used_bytes = used_bytes

    def _claim(self, cache: CatalogueCache, requests_hz: float) -> Claim:
        ranking = cache.estimator.ranking()
        costs = cache.profiler.costs(len(ranking))
        expected_ms = costs.expected(ranking, min(self._settings.cache.k_max, ranking.seen)).evaluate()
        return Claim.of_objects(expected_ms, requests_hz, self._object_bytes(cache))

    def _most_bytes(self, cache: CatalogueCache) -> float:
        """Memory of a cache that holds the whole catalogue and its spare models [bytes]."""
        objects = min(self._settings.cache.k_max, len(cache.listing.versions))
        return objects * self._object_bytes(cache) + self._library_bytes

    def _object_bytes(self, cache: CatalogueCache) -> float:
        """Memory of an object in a large cache [bytes]: present mean, or an estimate from the settings."""
        settings, snapshot = self._settings.recognition, cache.holder.snapshot
        if len(snapshot) and not (settings.backend == AUTO and snapshot.backend == "exact"):
            return snapshot.size_bytes / len(snapshot)
        return settings.training_features * (FEATURE_BYTES + bytes_per_descriptor(settings.backend))

    def _limit(self, cache: CatalogueCache, limit_bytes: float) -> None:
        if math.isinf(limit_bytes):
            cache.limit(self._settings.cache.k_max)
            cache.supply.library.limit(self._library_bytes)
            return
        here_bytes, here = cache.holder.snapshot.size_bytes, cache.size
        objects = int(limit_bytes / self._object_bytes(cache))
        if here_bytes <= limit_bytes:  # keep the present number, because objects differ in size
            objects = max(objects, here)
        cache.limit(max(0, objects - len(cache.prefetch.prefetched)))
        decision = cache.optimizer.decision
        soon = max(here, decision.k if decision is not None else 0) + _NEXT_OBJECTS
        spare_bytes = limit_bytes - min(objects, soon) * self._object_bytes(cache)
        cache.supply.library.limit(min(self._library_bytes, max(0, int(spare_bytes))))

    def facts(self) -> Sequence[tuple[str, str]]:
        """Lines for the status; empty if no memory is shared."""
        if not self._budget_bytes:
            return ()
        used_bytes = self.networks.used_bytes + sum(one.used_bytes for one in self.caches.values())
        used_bytes += self._standbys.size_bytes
        facts = [("memory", f"{used_bytes / _MB:.1f} of {self._budget_bytes / _MB:.0f} MB")]
        if self.networks.used_bytes or self._all_networks.offers_any:
            facts.append(("memory of networks", self.networks.why))
        return facts + [(f"memory of {name}", one.why) for name, one in self.caches.items()]

    def why(self, catalogue: str | None = None) -> str:
        """Memory of the cache of a catalogue, or of the networks (None), in one line."""
        if not self._budget_bytes:
            return "not shared, as memory_mb is 0"
        part = self.networks if catalogue is None else self.caches.get(catalogue)
        return part.why if part is not None else "not divided yet"

    def metrics(self) -> Iterator[Metric]:
        """Memory of each part, and the time that it saves."""
        for name, text, read in _METRICS:
            family = GaugeMetricFamily(f"nearsight_edge_memory_{name}", text, labels=["of", "catalogue"])
            family.add_metric(["networks", ""], read(self.networks))
            for catalogue, part in self.caches.items():
                family.add_metric(["objects", catalogue], read(part))
            yield family


def _used_bytes(cache: CatalogueCache) -> int:
    return cache.holder.snapshot.size_bytes + cache.supply.library.size_bytes
