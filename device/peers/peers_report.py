"""What a device says about its peers to a person: `nearsight peers`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nearsight.device.peers.node_id import NodeId


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """One peer.

    Parameters
    ----------
    node_id : NodeId
        Who.
    device_id, endpoint, state : str
        Name, address, and "live", "suspect" or "joining".
    heard_s_ago, present_s : float
        Since its last sign of life, and since it joined.
    keys, store_bytes, models : int
        What it holds, by its own account when it was last pinged.
    sent_bytes, received_bytes : int
        Messages to and from it, without the headers of the network.
    round_trip_ms : float
        Of its last ping.
    """

    node_id: NodeId
    device_id: str
    endpoint: str
    state: str
    heard_s_ago: float
    present_s: float
    keys: int
    store_bytes: int
    models: int
    sent_bytes: int
    received_bytes: int
    round_trip_ms: float


@dataclass(frozen=True, slots=True)
class PeersReport:
    """The peers of one device, and facts in display order."""

    node_id: NodeId
    device_id: str
    endpoint: str
    peers: Sequence[PeerStatus]
    facts: Sequence[tuple[str, str]]
