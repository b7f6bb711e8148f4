"""The health service of every daemon: is it alive, is it ready, and what is it doing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from google.protobuf.descriptor import ServiceDescriptor

from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.rpc.service import CallContext, Service
from nearsight.protos import health_pb2


class HealthService(Service):
    """Answers health checks, also while all workers are busy.

    Parameters
    ----------
    daemon : str
        "cloud", "edge" or "device".
    version : str
        Of nearsight.
    ready : callable
        Whether the daemon can do its job; quick and thread-safe.
    details : callable
        Facts for a person as (name, value), in display order; quick and thread-safe.
    clock : Clock
        For the uptime.
    """

    descriptor: ClassVar[ServiceDescriptor] = health_pb2.DESCRIPTOR.services_by_name["Health"]
    own_worker: ClassVar[bool] = True

    def __init__(
        self,
        daemon: str,
        version: str,
        ready: Callable[[], bool],
        details: Callable[[], Sequence[tuple[str, str]]] = tuple,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._daemon = daemon
        self._version = version
        self._ready = ready
        self._details = details
        self._clock = clock
        self._started_s = clock.monotonic()

    def check(self, request: health_pb2.HealthRequest, context: CallContext) -> health_pb2.HealthResponse:  # noqa: ARG002
        """The state of the daemon."""
        return health_pb2.HealthResponse(
            daemon=self._daemon,
            version=self._version,
            ready=self._ready(),
            uptime_s=self._clock.monotonic() - self._started_s,
            details=[health_pb2.Detail(name=name, value=value) for name, value in self._details()],
        )
