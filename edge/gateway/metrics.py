"""Metrics of the gateway."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class GatewayMetrics:
    """Prometheus metrics of the gateway.

    Parameters
    ----------
    registry : CollectorRegistry
        Registry of the daemon.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "nearsight_gateway_requests",
            "Requests and frames answered.",
            ("route", "code"),
            registry=registry,
        )
        self.edge_seconds = Histogram(
            "nearsight_gateway_edge_seconds",
            "Time of a request to the edge.",
            ("route",),
            registry=registry,
            buckets=_SECONDS,
        )
        self.closed = Counter(
            "nearsight_gateway_closed_streams",
            "Streams that the gateway closed.",
            ("code",),
            registry=registry,
        )
        self.dropped = Counter(
            "nearsight_gateway_dropped_connections",
            "Connections that the gateway closed: too many, too slow, or too much memory.",
            ("reason",),
            registry=registry,
        )
        self._registry = registry

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Register a gauge whose value is read on every scrape."""
        Gauge(f"nearsight_gateway_{name}", text, registry=self._registry).set_function(value)
