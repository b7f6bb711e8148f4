"""Prometheus metrics of the device daemon, beside those of its calls."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from nearsight.common.metrics import Readings, labelled
from nearsight.common.request.answer import Attempt
from nearsight.common.result_cache.metrics import result_cache_metrics
from nearsight.device.cooperation.account import CooperationState
from nearsight.device.engine import Outcome
from nearsight.device.prefetching.controller import PrefetchState
from nearsight.device.recognition import Recognition
from nearsight.device.recognizer import Recognizer

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0)


class RecognizerMetrics:
    """Counts outcomes of requests and of calls to tiers.

    Parameters
    ----------
    registry : CollectorRegistry
        Registry of the daemon.
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
            "nearsight_tier_attempts", "Calls to a tier.", ("tier", "outcome"), registry=registry
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

    def watch(self, recognizer: Recognizer) -> None:
        """Export the state and counters of a recognizer; they are read at each scrape."""

        def read() -> Iterator[Metric]:
            text = "0: healthy, 1: being probed, 2: cooling down."
            states = recognizer.breaker_states()
            yield labelled(GaugeMetricFamily, "nearsight_breaker_state", text, "tier", states)
            if (prefetching := recognizer.prefetch_state) is not None:
                yield from _prefetching(prefetching)
            if (results := recognizer.result_cache_state) is not None:
                yield from result_cache_metrics({recognizer.catalogue: results})
            if (cooperation := recognizer.cooperation_state) is not None:
                yield from _cooperation(cooperation)

        self._registry.register(Readings(read))


def _prefetching(state: PrefetchState) -> Iterator[Metric]:
    account = state.account
    yield from _counters(
        lookups=("Photos looked up on the device.", state.lookups),
        hits=("Photos recognised on the device.", state.hits),
        prefetched_models=("Prefetched object models.", account.fetched_models),
        prefetched_bytes=("Bytes of prefetched object models.", account.fetched_bytes),
        wasted_models=("Prefetched models that were removed without a hit.", account.wasted_models),
        wasted_bytes=("Bytes of such models.", account.wasted_bytes),
    )
    yield from _gauges(
        objects=("k: objects that the device recognises now.", state.k),
        query_features=("Features extracted from a photo.", state.query_features),
        held_models=("Object models in memory.", state.held_models),
        held_bytes=("Bytes of object models in memory.", state.held_bytes),
        expected_seconds=("E[L] of the last decision.", state.expected_ms / 1e3),
        miss_seconds=(
            "Median latency of a tier that a hit would have saved.",
            state.miss_ms / 1e3,
        ),
    )


def _cooperation(state: CooperationState) -> Iterator[Metric]:
    account = state.account
    for of, name, text in (
        ("models", "models", "Object models by source."),
        ("bytes", "model_bytes", "Their bytes on the network."),
    ):
        values = {
            source: getattr(account, f"{source}_{of}") for source in ("peer", "edge", "cloud", "rejected")
        }
        yield labelled(CounterMetricFamily, f"nearsight_device_{name}", text, "source", values)
    yield from _gauges(
        peers=("Devices nearby.", state.peers),
        peers_distrusted=("Peers that sent a wrong model.", state.distrusted),
    )
    yield from _counters(
        lists=("Catalogue listings, used to verify models of peers.", account.lists),
        list_bytes=("Bytes of such listings.", account.list_bytes),
        served_models=("Object models sent to peers.", account.served_models),
        served_bytes=("Bytes of such models.", account.served_bytes),
        silent_peers=("Peers that failed to send a model.", account.silent_peers),
        claims_waited=("Models that another device was fetching.", account.waited),
        claims_waited_in_vain=("Of these, models that did not arrive.", account.waited_in_vain),
        steps=("Steps counted in the shared store.", account.steps),
    )


def _counters(**values: tuple[str, float]) -> Iterator[Metric]:
    for name, (text, value) in values.items():
        yield CounterMetricFamily(f"nearsight_device_{name}", text, value=value)


def _gauges(**values: tuple[str, float]) -> Iterator[Metric]:
    for name, (text, value) in values.items():
        yield GaugeMetricFamily(f"nearsight_device_{name}", text, value=value)
