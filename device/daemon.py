"""The device daemon: runs the SDK for applications in any language that supports ZeroMQ and protobuf."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from types import MappingProxyType

from nearsight.common.errors import NotFound
from nearsight.common.metrics import DaemonMetrics
from nearsight.common.object_cache.expected_latency import Explanation
from nearsight.common.operation.explain import ExplanationService
from nearsight.common.operation.status import HealthService, format_bytes
from nearsight.common.request.next_tiers import BreakerState
from nearsight.common.rpc.server import RpcServer
from nearsight.common.rpc.service import Service
from nearsight.device.metrics import RecognizerMetrics
from nearsight.device.peers.report import PeerReportsService, PeersReport
from nearsight.device.prefetching.controller import PrefetchState
from nearsight.device.service import DeviceRecognitionService
from nearsight.device.settings import DeviceSettings

_STATES = MappingProxyType(
    {
        BreakerState.CLOSED: "healthy",
        BreakerState.PROBING: "being probed",
        BreakerState.COOLING: "cooling down",
    }
)


class DeviceDaemon:
    """One Recognizer and one server.

    Parameters
    ----------
    settings : DeviceSettings
        Tiers, catalogue, local endpoint.
    metrics : DaemonMetrics
        Counts calls and recognitions.

    Raises
    ------
    ConfigurationError
        If a key cannot be read.
    """

    def __init__(self, settings: DeviceSettings, metrics: DaemonMetrics) -> None:
        self._settings = settings
        recognizer_metrics = RecognizerMetrics(metrics.registry)
        self._recognizer = settings.new_recognizer(observer=recognizer_metrics)
        recognizer_metrics.watch(self._recognizer)
        self._server = RpcServer(
            [
                DeviceRecognitionService(self._recognizer),
                HealthService("device", self.ready, self.details),
                ExplanationService(self._explanations),
                *self._peer_reports(),
            ],
            tier="device",
            settings=settings.server,
            security=settings.security.for_server(),
            metrics=metrics,
        )

    @property
    def endpoint(self) -> str:
        """The endpoint for applications, with the bound port."""
        return self._server.endpoint

    def start(self) -> None:
        """Bind and begin to serve."""
        with ExitStack() as undo:
            undo.callback(self._recognizer.close)
            self._server.start()
            undo.pop_all()

    def stop(self, grace_s: float) -> None:
        """Finish requests in progress within ``grace_s`` seconds, then end the others with an error."""
        self._server.stop(grace_s)
        self._recognizer.close()

    def ready(self) -> bool:
        """Whether at least one tier is expected to answer."""
        return BreakerState.CLOSED in self._recognizer.breaker_states().values()

    def details(self) -> Sequence[tuple[str, str]]:
        """Facts for people, in display order."""
        endpoints, nearby = self._recognizer.endpoints, self._recognizer.cooperation_state
        tiers = [
            (tier, f"{endpoints[tier]} ({_STATES[state]})")
            for tier, state in self._recognizer.breaker_states().items()
        ]
        return [
            ("catalogue", self._recognizer.catalogue),
            ("device id", self._recognizer.device_id),
            *tiers,
            ("requests in flight", str(self._recognizer.pending)),
            *_prefetch_details(self._recognizer.prefetch_state),
            *([("why empty", empty)] if (empty := self._recognizer.why_empty()) else []),
            *([("devices nearby", "sharing is off")] if nearby is None else nearby.facts()),
        ]

    def _peer_reports(self) -> Sequence[Service]:
        """The service for `nearsight peers`, if this device shares with others."""
        if self._recognizer.peers() is None:
            return ()

        def report() -> PeersReport:
            now = self._recognizer.peers()
            if now is None:
                raise NotFound("this device does not share with devices nearby")
            return now

        return (PeerReportsService(report),)

    def _explanations(self) -> Sequence[Explanation]:
        explanation = self._recognizer.explain()
        return () if explanation is None else (explanation,)


def _prefetch_details(state: PrefetchState | None) -> list[tuple[str, str]]:
    if state is None:
        return [("recognition on the device", "off")]
    account = state.account
    return [
        ("recognised on the device", f"{state.hits} of {state.lookups} lookups"),
        ("in the cache", f"{state.k} objects, {state.query_features} features per photo"),
        ("prefetched", f"{account.fetched_models} models, {format_bytes(account.fetched_bytes)}"),
        (
            "prefetched and removed without a hit",
            f"{account.wasted_models} models, {format_bytes(account.wasted_bytes)}",
        ),
    ]
