"""State of daemons: the health service of every daemon, and its client for several daemons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

from google.protobuf.descriptor import ServiceDescriptor

from nearsight import __version__
from nearsight.common.clock import SYSTEM_CLOCK
from nearsight.common.operation.inquiry import Securities, ask_all
from nearsight.common.rpc.service import CallContext, Service
from nearsight.protos import health_pb2
from nearsight.protos.health_pb2 import HealthRequest, HealthResponse

_UNITS = ("B", "kB", "MB", "GB")


class HealthService(Service):
    """Answers health checks, also while all workers are busy.

    Parameters
    ----------
    daemon : str
        "cloud", "edge" or "device".
    ready : callable
        Whether the daemon can answer requests; quick and thread-safe.
    details : callable
        Facts for people as (name, value), in display order; quick and thread-safe.
    """

    descriptor: ClassVar[ServiceDescriptor] = health_pb2.DESCRIPTOR.services_by_name["Health"]
    own_worker: ClassVar[bool] = True

    def __init__(
        self,
        daemon: str,
        ready: Callable[[], bool],
        details: Callable[[], Sequence[tuple[str, str]]] = tuple,
    ) -> None:
        self._daemon = daemon
        self._ready = ready
        self._details = details
        self._started_s = SYSTEM_CLOCK.monotonic()

    def check(self, request: HealthRequest, context: CallContext) -> HealthResponse:
        """The state of the daemon; without details if the caller may not use all catalogues."""
        del request
        details = () if context.caller.catalogues else self._details()
        return HealthResponse(
            daemon=self._daemon,
            version=__version__,
            ready=self._ready(),
            uptime_s=SYSTEM_CLOCK.monotonic() - self._started_s,
            details=[health_pb2.Detail(name=name, value=value) for name, value in details],
        )


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """The state of one daemon, or the error."""

    endpoint: str
    """The endpoint as given."""
    ready: bool = False
    """Whether it answers requests now."""
    daemon: str = ""
    version: str = ""
    """Empty if there was no answer."""
    uptime_s: float = 0.0
    """Seconds since its start."""
    details: tuple[tuple[str, str], ...] = ()
    """Facts for people, in display order."""
    error: str = ""
    """Reason why there was no answer; empty if there was one."""

    @property
    def absent(self) -> bool:
        """Whether no daemon answered."""
        return bool(self.error)

    def to_json(self) -> dict[str, object]:
        """The fields, with the details as a mapping."""
        return asdict(self) | {"details": dict(self.details)}


def ask_status(
    endpoints: Sequence[str], *, timeout_s: float, security: Securities = None
) -> tuple[DaemonStatus, ...]:
    """Request the state of all daemons; see `ask_all`."""

    def read(endpoint: str, health: HealthResponse) -> DaemonStatus:
        details = tuple((detail.name, detail.value) for detail in health.details)
        return DaemonStatus(endpoint, health.ready, health.daemon, health.version, health.uptime_s, details)

    return ask_all(
        endpoints,
        HealthService.descriptor.methods_by_name["Check"],
        HealthRequest(),
        read,
        lambda endpoint, error: DaemonStatus(endpoint, error=str(error)),
        timeout_s=timeout_s,
        security=security,
    )


def format_duration(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3 h 5 min``, ``2 d 4 h``."""
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{int(seconds)} s"


def format_bytes(count: int) -> str:
    """``812 B``, ``3.4 kB``, ``12.0 MB``."""
    value = float(count)
    for unit in _UNITS[:-1]:
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} {_UNITS[-1]}"
