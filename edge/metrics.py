"""Metrics of the edge, in addition to those of every daemon."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from nearsight.common.inference.metrics import model_metrics
from nearsight.common.metrics import labelled
from nearsight.edge.inference.networks import EdgeNetworks

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


class EdgeMetrics:
    """Prometheus metrics of the recognition cache, one set of labels per catalogue.

    Parameters
    ----------
    registry : CollectorRegistry
        Registry of the daemon.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        label = ("catalogue",)

        def counter(name: str, text: str) -> Counter:
            return Counter(f"nearsight_edge_{name}", text, label, registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"nearsight_edge_{name}", text, label, registry=registry)

        self.hits = counter("hits", "Requests answered by the object cache.")
        self.misses = counter("misses", "Requests answered by the cloud.")
        self.device_hits = counter(
            "device_hits", "Requests that devices answered themselves, from their reports."
        )
        self.recognition_misses = counter("recognition_misses", "Misses of an object that was in the cache.")
        self.unknown = counter("unknown", "Requests that the cloud answered as unknown.")
        self.given_away = counter("given_away", "Requests passed on at once, as the edge was busy.")
        self.lookup = Histogram(
            "nearsight_edge_lookup_seconds",
            "Time of one lookup in the cache.",
            label,
            registry=registry,
            buckets=_SECONDS,
        )
        self.cached_objects = gauge("cached_objects", "Objects in the active snapshot.")
        self.chosen_size = gauge("chosen_size", "Cache size k that the optimizer chose.")
        self.expected_latency = gauge(
            "expected_latency_seconds", "Expected latency at the chosen size (equation 3.4)."
        )
        self.miss_latency = gauge(
            "miss_latency_seconds", "Mean time to the first answer of the cloud, over the last misses."
        )
        self.regret = gauge(
            "regret_seconds", "Mean latency of the last requests above that of the best fixed size."
        )
        self.prefetched = counter("prefetched", "Objects that were prefetched into the cache.")
        self.prefetch_useful = counter("prefetch_useful", "Prefetched objects that were requested.")
        self.prefetch_wasted = counter("prefetch_wasted", "Prefetched objects that left without a request.")
        self.standby_answers = counter("standby_answers", "Requests that the standby answered.")
        self.standby_objects = gauge("standby_objects", "Objects in the index of the standby.")
        self.standby_bytes = gauge("standby_bytes", "Memory of the standby.")
        self.builds = counter("snapshots", "Snapshots built.")
        self.build_seconds = counter("snapshot_build_seconds", "Time of building snapshots.")
        self.fetched_models = counter("fetched_models", "Object models fetched.")
        self.fetched_bytes = counter("fetched_bytes", "Size of the fetched object models.")

    def remove(self, catalogue: str) -> None:
        """Remove the labels of a catalogue whose cache was removed."""
        for metric in vars(self).values():
            with suppress(KeyError):
                metric.remove(catalogue)


def network_metrics(networks: EdgeNetworks) -> Iterator[Metric]:
    """State and counters of an edge's networks."""
    yield from model_metrics(networks.memory.state)
    text = "Requests by answer: here, after a load here, by a similar network, forwarded."
    yield labelled(CounterMetricFamily, "nearsight_edge_network_requests", text, "by", networks.counts())
    if networks.hindsight is not None:
        text = "Mean time until the network of a request is loaded, also with two reference policies."
        ways = ("waited", "fixed_set", "clairvoyant")
        waits = {way: getattr(networks.hindsight, f"{way}_ms") / 1e3 for way in ways}
        yield labelled(GaugeMetricFamily, "nearsight_edge_network_wait_seconds", text, "with", waits)
