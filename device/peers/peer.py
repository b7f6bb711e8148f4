"""What a device knows about a peer, and what a peer says of itself."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from nearsight.device.peers.node_id import NodeId


class PeerState(enum.Enum):
    """How sure it is that a peer is there."""

    JOINING = "joining"
    """Heard of; has not answered yet."""
    LIVE = "live"
    SUSPECT = "suspect"
    """Silent, or a call to it failed; being pinged."""


@dataclass(frozen=True, slots=True)
class PingReply:
    """What a peer answers to a ping.

    Parameters
    ----------
    node_id : NodeId
        Who answers. With keys the caller has made sure of it.
    incarnation : int
        Differs from start to start of one node.
    device_id : str
        Its name for people.
    keys, store_bytes : int
        What it holds of the key-value store.
    models : int
        Object models that it can hand out.
    """

    node_id: NodeId
    incarnation: int
    device_id: str = ""
    keys: int = 0
    store_bytes: int = 0
    models: int = 0


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer at one moment.

    Parameters
    ----------
    node_id : NodeId
        Who it is.
    endpoint : str
        Where it answers, ``tcp://HOST:PORT``.
    state : PeerState
        How sure it is that it is there.
    heard_s, since_s : float
        Time of the last sign of life, and since when it is a peer, on the clock of this device.
    reply : PingReply or None
        What it said last; None before it joined.
    round_trip_s : float
        Of the last ping that it answered.
    """

    node_id: NodeId
    endpoint: str
    state: PeerState
    heard_s: float
    since_s: float
    reply: PingReply | None = None
    round_trip_s: float = 0.0

    @property
    def incarnation(self) -> int:
        """Differs from start to start of the peer; 0 before it joined."""
        return self.reply.incarnation if self.reply is not None else 0

    @property
    def device_id(self) -> str:
        """Its name for people; empty before it joined."""
        return self.reply.device_id if self.reply is not None else ""
