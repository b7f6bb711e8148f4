"""What requests and streams of a gateway share."""

from __future__ import annotations

from dataclasses import dataclass

from nearsight.common.clock import Clock
from nearsight.edge.gateway.access import Access
from nearsight.edge.gateway.edge_client import EdgeClient
from nearsight.edge.gateway.metrics import GatewayMetrics
from nearsight.edge.gateway.settings import LimitSettings


@dataclass(frozen=True, slots=True)
class GatewayServices:
    """Parts of the daemon, for the event loop."""

    edge: EdgeClient
    """Answers."""
    access: Access
    """Who may ask, and how much."""
    limits: LimitSettings
    """Bounds."""
    metrics: GatewayMetrics
    """Counts."""
    client_id: str
    """How the gateway calls itself to the edge."""
    clock: Clock
    """For times of frames."""
