"""What the edge counts, beyond what every daemon counts."""

from __future__ import annotations

from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


class EdgeMetrics:
    """Prometheus metrics of the recognition cache, one set of labels per catalogue.

    Parameters
    ----------
    registry : CollectorRegistry
        That of the daemon.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        label = ("catalogue",)
        self.hits = Counter("nearsight_edge_hits", "Requests answered here.", label, registry=registry)
        self.misses = Counter(
            "nearsight_edge_misses", "Requests passed on to the cloud.", label, registry=registry
        )
        self.device_hits = Counter(
            "nearsight_edge_device_hits",
            "Requests that devices answered themselves, as they reported.",
            label,
            registry=registry,
        )
        self.recognition_misses = Counter(
            "nearsight_edge_recognition_misses",
            "Misses of an object that was in the cache.",
            label,
            registry=registry,
        )
        self.unknown = Counter(
            "nearsight_edge_unknown",
            "Requests that the cloud does not know either.",
            label,
            registry=registry,
        )
        self.cached_objects = Gauge(
            "nearsight_edge_cached_objects", "Objects in the snapshot that answers.", label, registry=registry
        )
        self.chosen_size = Gauge(
            "nearsight_edge_chosen_size", "Cache size k that the optimizer chose.", label, registry=registry
        )
        self.expected_latency = Gauge(
            "nearsight_edge_expected_latency_seconds",
            "Expected latency at the chosen size (equation 3.4).",
            label,
            registry=registry,
        )
        self.miss_latency = Gauge(
            "nearsight_edge_miss_latency_seconds",
            "Mean time to the first answer of the cloud, over the last misses.",
            label,
            registry=registry,
        )
        self.lookup = Histogram(
            "nearsight_edge_lookup_seconds",
            "Time of one lookup in the cache.",
            label,
            registry=registry,
            buckets=_SECONDS,
        )
        self.regret = Gauge(
            "nearsight_edge_regret_seconds",
            "Mean latency of the last requests above that of the best fixed size.",
            label,
            registry=registry,
        )
        self.prefetched = Counter(
            "nearsight_edge_prefetched", "Objects that entered the cache as guests.", label, registry=registry
        )
        self.prefetch_useful = Counter(
            "nearsight_edge_prefetch_useful", "Guests that were asked for.", label, registry=registry
        )
        self.prefetch_wasted = Counter(
            "nearsight_edge_prefetch_wasted",
            "Guests that left without having been asked for.",
            label,
            registry=registry,
        )
        self.builds = Counter("nearsight_edge_snapshots", "Snapshots built.", label, registry=registry)
        self.build_seconds = Counter(
            "nearsight_edge_snapshot_build_seconds", "Time spent on it.", label, registry=registry
        )
        self.fetched_models = Counter(
            "nearsight_edge_fetched_models", "Object models fetched.", label, registry=registry
        )
        self.fetched_bytes = Counter("nearsight_edge_fetched_bytes", "Their bytes.", label, registry=registry)

        self.given_away = Counter(
            "nearsight_edge_given_away",
            "Requests passed on at once, as the edge was busy.",
            label,
            registry=registry,
        )

    def forget(self, catalogue: str) -> None:
        """Drop the labels of a catalogue that has no cache any more."""
        for metric in vars(self).values():
            with suppress(KeyError):
                metric.remove(catalogue)
