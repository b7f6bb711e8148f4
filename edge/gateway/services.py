"""Objects that requests and streams of a gateway share."""

from __future__ import annotations

from dataclasses import dataclass

from nearsight.common.clock import Clock
from nearsight.edge.gateway.access import Access
from nearsight.edge.gateway.edge_client import EdgeClient
from nearsight.edge.gateway.metrics import GatewayMetrics
from nearsight.edge.gateway.settings import LimitSettings


@dataclass(frozen=True, slots=True)
class GatewayServices:
    """Objects of the daemon that exist once, for the event loop."""

    edge: EdgeClient
    """Client of the edge."""
    access: Access
    """Access control and rates."""
    limits: LimitSettings
    """Limits of requests and streams."""
    metrics: GatewayMetrics
    """Metrics of requests and streams."""
    client_id: str
    """Name of the gateway in requests to the edge."""
    clock: Clock
    """Source of the times of frames."""
