"""Prometheus metrics of the device daemon, beside those of its calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from nearsight.device.circuit_breaker import BreakerState
from nearsight.device.cooperation.account import CooperationState
from nearsight.device.engine import Outcome
from nearsight.device.prefetching.controller import PrefetchState
from nearsight.device.recognition import Attempt, Recognition

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0)


class RecognizerMetrics:
    """Counts outcomes of requests and of the tiers that were asked.

    Parameters
    ----------
    registry : CollectorRegistry
        The daemon's.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._requests = Counter(
            "nearsight_recognitions",
            "Requests by the tier that answered (none: failed) and by outcome.",
            ("answered_by", "outcome"),
            registry=registry,
        )
        self._attempts = Counter(
            "nearsight_tier_attempts", "Questions put to a tier.", ("tier", "outcome"), registry=registry
        )
        self._attempt_seconds = Histogram(
            "nearsight_tier_attempt_seconds",
            "Time until a tier answered or failed.",
            ("tier",),
            registry=registry,
            buckets=_SECONDS,
        )
        self._latency = Histogram(
            "nearsight_recognition_seconds",
            "From the request to its outcome.",
            registry=registry,
            buckets=_SECONDS,
        )

    def on_outcome(self, outcome: Outcome, attempts: tuple[Attempt, ...], latency_ms: float) -> None:
        """Count one request (see ``RecognizerObserver``)."""
        if isinstance(outcome, Recognition):
            self._requests.labels(outcome.answered_by, "known" if outcome.known else "unknown").inc()
        else:
            self._requests.labels("none", type(outcome).__name__).inc()
        for attempt in attempts:
            self._attempts.labels(attempt.tier, attempt.outcome.name).inc()
            self._attempt_seconds.labels(attempt.tier).observe(attempt.elapsed_ms / 1000)
        self._latency.observe(latency_ms / 1000)

    def watch_breakers(self, states: Callable[[], Mapping[str, BreakerState]]) -> None:
        """Export the state of the circuit breakers, read when the metrics are."""
        self._registry.register(_BreakerCollector(states))

    def watch_prefetching(self, state: Callable[[], PrefetchState | None]) -> None:
        """Export what the device's own cache is and did, read when the metrics are."""
        self._registry.register(_PrefetchCollector(state))

    def watch_cooperation(self, state: Callable[[], CooperationState | None]) -> None:
        """Export what the device shares with those nearby, read when the metrics are."""
        self._registry.register(_CooperationCollector(state))


class _BreakerCollector(Collector):
    def __init__(self, states: Callable[[], Mapping[str, BreakerState]]) -> None:
        self._states = states

    def collect(self) -> Iterator[GaugeMetricFamily]:
        gauge = GaugeMetricFamily(
            "nearsight_breaker_state", "0: healthy, 1: being probed, 2: cooling down.", labels=["tier"]
        )
        for tier, state in self._states().items():
            gauge.add_metric([tier], state)
        yield gauge


class _PrefetchCollector(Collector):
    def __init__(self, state: Callable[[], PrefetchState | None]) -> None:
        self._state = state

    def collect(self) -> Iterator[Metric]:
        state = self._state()
        if state is None:
            return
        account = state.account
        counters: dict[str, tuple[str, float]] = {
            "lookups": ("Photos looked up on the device.", state.lookups),
            "hits": ("Photos recognised on the device.", state.hits),
            "prefetched_models": ("Object models fetched ahead.", account.fetched_models),
            "prefetched_bytes": ("Bytes of object models fetched ahead.", account.fetched_bytes),
            "wasted_models": ("Models that left without having recognised anything.", account.wasted_models),
            "wasted_bytes": ("Bytes of such models.", account.wasted_bytes),
        }
        gauges: dict[str, tuple[str, float]] = {
            "objects": ("k: objects that the device recognises now.", state.k),
            "query_features": ("Features extracted from a photo.", state.query_features),
            "held_models": ("Object models in memory.", state.held_models),
            "held_bytes": ("Bytes of object models in memory.", state.held_bytes),
            "expected_seconds": ("E[L] of the last decision.", state.expected_ms / 1e3),
            "miss_seconds": (
                "Time of an answer of a tier that a hit would have saved, the median.",
                state.miss_ms / 1e3,
            ),
        }
        for name, (text, value) in counters.items():
            yield CounterMetricFamily(f"nearsight_device_{name}", text, value=value)
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"nearsight_device_{name}", text, value=value)


class _CooperationCollector(Collector):
    def __init__(self, state: Callable[[], CooperationState | None]) -> None:
        self._state = state

    def collect(self) -> Iterator[Metric]:
        state = self._state()
        if state is None:
            return
        account = state.account
        yield GaugeMetricFamily("nearsight_device_peers", "Devices nearby.", value=state.peers)
        yield GaugeMetricFamily(
            "nearsight_device_peers_distrusted", "Peers that handed out a wrong model.", value=state.liars
        )
        models = CounterMetricFamily(
            "nearsight_device_models", "Object models by where they came from.", labels=["source"]
        )
        size = CounterMetricFamily(
            "nearsight_device_model_bytes", "Their bytes on the network.", labels=["source"]
        )
        for source in ("peer", "edge", "cloud", "rejected"):
            models.add_metric([source], getattr(account, f"{source}_models"))
            size.add_metric([source], getattr(account, f"{source}_bytes"))
        yield models
        yield size
        counters: dict[str, tuple[str, float]] = {
            "lists": ("Lists of the catalogue, by which models of peers are judged.", account.lists),
            "list_bytes": ("Bytes of such lists.", account.list_bytes),
            "served_models": ("Object models handed out to peers.", account.served_models),
            "served_bytes": ("Bytes of such models.", account.served_bytes),
            "silent_peers": ("Peers that failed to hand out a model.", account.silent_peers),
            "claims_waited": ("Models that another device was fetching.", account.waited),
            "claims_waited_in_vain": ("Of these, the ones that did not come.", account.waited_in_vain),
            "steps": ("Steps counted in the shared store.", account.steps),
        }
        for name, (text, value) in counters.items():
            yield CounterMetricFamily(f"nearsight_device_{name}", text, value=value)
