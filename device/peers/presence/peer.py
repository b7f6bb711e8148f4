"""A peer: its answers, its state, the record that `Membership` keeps of it, and the events that result."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from nearsight.device.peers.presence.identity import NodeId


class PeerState(enum.Enum):
    """State of a peer in `Membership`."""

    JOINING = "joining"
    """A beacon or a ping of it was received; it has not answered a ping yet."""
    LIVE = "live"
    SUSPECT = "suspect"
    """Silent, or a call to it failed; it is being pinged."""


@dataclass(frozen=True, slots=True)
class PingReply:
    """The answer of a peer to a ping."""

    node_id: NodeId
    """The node that answers. With keys, the connection has proved the id."""
    incarnation: int
    """Random number of the peer's process; a restart changes it."""
    device_id: str = ""
    """Name of the device for people."""
    keys: int = 0
    store_bytes: int = 0
    """Keys and bytes that it stores of the key-value store."""
    models: int = 0
    """Number of object models that it can provide."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Snapshot of a peer.

    Parameters
    ----------
    node_id : NodeId
        Its id.
    endpoint : str
        Its endpoint, ``tcp://HOST:PORT``.
    state : PeerState
        Its state in `Membership`.
    heard_s, since_s : float
        Time of its last sign of life, and time at which it joined, on the clock of this device [s].
    reply : PingReply or None
        Its last answer; None before it joined.
    round_trip_s : float
        Round-trip time of the last ping that it answered [s].
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
        """Number of the peer's process; 0 before it joined."""
        return self.reply.incarnation if self.reply is not None else 0

    @property
    def device_id(self) -> str:
        """Name of the device for people; empty before it joined."""
        return self.reply.device_id if self.reply is not None else ""


@dataclass(frozen=True, slots=True)
class Announce:
    """Send a beacon."""


class Change(enum.StrEnum):
    """Kinds of events, as in the log."""

    JOINED = "peer joined"
    """A peer answered a ping for the first time."""
    GONE = "peer gone"
    """A peer was dropped. ``why``: silent, unreachable, left, restarted, replaced or forbidden."""
    MOVED = "peer moved"
    """A peer, still the same process, has a new endpoint. ``before``: the old one."""
    CONFLICT = "two devices have the same identity"
    """A second device uses the id of a live peer, or the id of this device, at the endpoint ``second``."""
    SLEPT = "this device was suspended"
    """It was suspended for ``seconds``: its data about peers may be outdated."""
    READDRESSED = "the address of this device changed"
    """Its previous connections no longer work."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a peer, or to this device."""

    change: Change
    """The kind of the event."""
    peer: Peer | None = None
    """The peer that joined, is gone or moved."""
    details: Mapping[str, object] = field(default_factory=dict)
    """Details by name; see `Change`."""


NEVER = float("-inf")
NOT_DUE = float("inf")
MOST_ALIASES = 4


@dataclass(slots=True)
class TrackedPeer:
    """The record that `Membership` keeps of a node: the fields of `Peer`, and why the node is suspect."""

    node_id: NodeId
    endpoint: str
    heard_s: float
    since_s: float
    reply: PingReply | None = None
    round_trip_s: float = 0.0
    answered_s: float = NEVER
    """Time of the last answer to a ping."""
    suspicion: str = ""
    """Why it is suspect; empty if it is not."""
    suspected_s: float = NEVER
    due_s: float = NOT_DUE
    """Time at which it last became suspect, and time of the ping that this requires."""
    aliases: dict[str, None] = field(default_factory=dict)
    """Other endpoints of the same process, in the order of their answers. At most `MOST_ALIASES`."""
    other_answer: tuple[str, PingReply] | None = None
    """An answer with this id from another endpoint. Kept until a ping shows whether ``endpoint`` still
    answers."""
    endpoint_failed: bool = False
    """The last ping to ``endpoint`` was not answered."""
    unanswered: int = 0
    """Number of consecutive pings to ``endpoint`` without an answer."""

    @property
    def incarnation(self) -> int:
        """Number of its process; 0 before it joined."""
        return self.reply.incarnation if self.reply is not None else 0

    @property
    def joined(self) -> bool:
        """Whether it is a peer: it has answered a ping."""
        return self.reply is not None

    @property
    def state(self) -> PeerState:
        """Its state."""
        if not self.joined:
            return PeerState.JOINING
        return PeerState.SUSPECT if self.suspicion else PeerState.LIVE

    def answers_at(self, endpoint: str) -> bool:
        """Whether it has answered at this endpoint before."""
        return self.joined and (endpoint == self.endpoint or endpoint in self.aliases)

    def sign_of_life(self, at_s: float) -> None:
        """Record a sign of life. A peer that is suspect only because it was silent becomes live."""
        self.heard_s = max(self.heard_s, at_s)
        if self.suspicion == "silent":
            self.confirm()

    def confirm(self) -> None:
        """Make it live: it answered a ping or a call."""
        self.suspicion, self.due_s, self.unanswered = "", NOT_DUE, 0

    def suspect(self, why: str) -> None:
        """Make it suspect for the reason ``why``."""
        self.suspicion, self.endpoint_failed = why, False

    def add_alias(self, endpoint: str) -> None:
        """Add another endpoint of the same process; the oldest one is dropped above the limit."""
        self.aliases[endpoint] = None
        if len(self.aliases) > MOST_ALIASES:
            del self.aliases[next(iter(self.aliases))]

    def move(self, endpoint: str) -> None:
        """Change its endpoint, and make it live."""
        self.endpoint = endpoint
        self.aliases.pop(endpoint, None)
        self.other_answer, self.endpoint_failed = None, False
        self.confirm()

    def peer(self) -> Peer:
        """A snapshot of this record."""
        seen_s = (self.heard_s, self.since_s)
        return Peer(self.node_id, self.endpoint, self.state, *seen_s, self.reply, self.round_trip_s)
