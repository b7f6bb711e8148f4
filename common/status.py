"""How daemons are, asked over the same calls that serve requests."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass

from google.protobuf.message import Message

from nearsight.common.errors import InvalidMessage, NearsightError
from nearsight.common.rpc.client import Channel, Stub
from nearsight.common.rpc.security import ClientSecurity
from nearsight.protos import health_pb2

CLIENT_ID = "nearsight-status"


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """What one daemon said about itself, or why it said nothing.

    Parameters
    ----------
    endpoint : str
        As asked.
    ready : bool
        Whether it answers requests now.
    daemon, version : str
        Empty if there was no answer.
    uptime_s : float
        Seconds since its start.
    details : tuple of pairs
        Facts for a person, in display order.
    error : str
        Why there was no answer; empty if there was one.
    """

    endpoint: str
    ready: bool = False
    daemon: str = ""
    version: str = ""
    uptime_s: float = 0.0
    details: tuple[tuple[str, str], ...] = ()
    error: str = ""

    def to_json(self) -> dict[str, object]:
        """The fields, with the details as a mapping."""
        return asdict(self) | {"details": dict(self.details)}


def ask_status(
    endpoints: Sequence[str], *, timeout_s: float, security: ClientSecurity | None = None
) -> tuple[DaemonStatus, ...]:
    """Ask all daemons at the same time; takes ``timeout_s`` at most.

    Parameters
    ----------
    endpoints : sequence of str
        ``tcp://host:port`` each.
    timeout_s : float
        How long to wait for an answer.
    security : ClientSecurity, optional
        The keys, if the daemons use encryption.
    """
    service = health_pb2.DESCRIPTOR.services_by_name["Health"]
    with ExitStack() as open_channels:
        pending = []
        for endpoint in endpoints:
            channel = open_channels.enter_context(Channel(endpoint, client_id=CLIENT_ID, security=security))
            stub = Stub(channel, service)
            pending.append(stub.check.future(health_pb2.HealthRequest(), timeout_s=timeout_s))
        statuses = []
        for endpoint, answer in zip(endpoints, pending, strict=True):
            try:
                statuses.append(_status(endpoint, answer.result().message))
            except NearsightError as error:
                statuses.append(DaemonStatus(endpoint, error=str(error)))
    return tuple(statuses)


def _status(endpoint: str, health: Message) -> DaemonStatus:
    if not isinstance(health, health_pb2.HealthResponse):
        raise InvalidMessage(f"{endpoint} answered with a {health.DESCRIPTOR.name}")
    return DaemonStatus(
        endpoint,
        ready=health.ready,
        daemon=health.daemon,
        version=health.version,
        uptime_s=health.uptime_s,
        details=tuple((detail.name, detail.value) for detail in health.details),
    )


def format_duration(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3 h 5 min``, ``2 d 4 h``."""
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{int(seconds)} s"
