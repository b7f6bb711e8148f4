"""A peer: what it says of itself, what a device knows of it, what `Membership` remembers and makes of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from nearsight.device.peers.presence.identity import NodeId


class PeerState(enum.Enum):
    """How sure it is that a peer is there."""

    JOINING = "joining"
    """Heard of; has not answered yet."""
    LIVE = "live"
    SUSPECT = "suspect"
    """Silent, or a call to it failed; being pinged."""


@dataclass(frozen=True, slots=True)
class PingReply:
    """What a peer answers to a ping."""

    node_id: NodeId
    """The node that answers. With keys, the connection has proved it."""
    incarnation: int
    """Differs from start to start of one node."""
    device_id: str = ""
    """Its name for people."""
    keys: int = 0
    store_bytes: int = 0
    """What it holds of the key-value store."""
    models: int = 0
    """Object models that it can hand out."""


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
        Its last answer; None before it joined.
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


@dataclass(frozen=True, slots=True)
class Announce:
    """Send a beacon."""


@dataclass(frozen=True, slots=True)
class Joined:
    """A peer answered for the first time."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class Gone:
    """A peer was dropped. ``why``: silent, unreachable, left, restarted or replaced."""

    peer: Peer
    why: str


@dataclass(frozen=True, slots=True)
class Moved:
    """A peer, still the same process, answers at another address now."""

    peer: Peer
    before: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """A second device uses the id of a live peer, or that of this device."""

    node_id: NodeId
    endpoint: str


@dataclass(frozen=True, slots=True)
class Slept:
    """This device was not running for a while: what it knew may be stale."""

    gap_s: float


@dataclass(frozen=True, slots=True)
class Readdressed:
    """This device has another address: connections that it had are dead."""


NEVER = float("-inf")
NOT_DUE = float("inf")
MOST_ALIASES = 4


@dataclass(slots=True)
class TrackedPeer:
    """What `Membership` remembers of one node: the fields of `Peer`, and why it may be gone."""

    node_id: NodeId
    endpoint: str
    heard_s: float
    since_s: float
    state: PeerState = PeerState.JOINING
    reply: PingReply | None = None
    round_trip_s: float = 0.0
    answered_s: float = NEVER
    """Time of the last answer to a ping."""
    doubt: str = ""
    """Why it is suspect; empty if it is not."""
    doubted_s: float = NEVER
    due_s: float = NOT_DUE
    """When it last became suspect, and when to ping it because of that."""
    aliases: dict[str, None] = field(default_factory=dict)
    """Other addresses of the same process, in the order in which it answered there."""
    elsewhere: tuple[str, PingReply] | None = None
    """An answer under this id from another address, until it is known
    whether ``endpoint`` still answers."""
    endpoint_failed: bool = False
    """The last ping to ``endpoint`` was not answered."""
    unanswered: int = 0
    """Pings in a row to ``endpoint`` that were not answered."""

    @property
    def incarnation(self) -> int:
        """Of its last start; 0 before it joined."""
        return self.reply.incarnation if self.reply is not None else 0

    @property
    def joined(self) -> bool:
        """Whether it is a peer."""
        return self.state is not PeerState.JOINING

    def is_at(self, endpoint: str) -> bool:
        """Whether it is known to answer there."""
        return self.joined and (endpoint == self.endpoint or endpoint in self.aliases)

    def alive(self, at_s: float) -> None:
        """A sign of life came. A peer that was only silent is live again."""
        self.heard_s = max(self.heard_s, at_s)
        if self.state is PeerState.SUSPECT and self.doubt == "silent":
            self.sure()

    def sure(self) -> None:
        """It is live: a ping, or a call, was answered."""
        self.state, self.doubt, self.due_s, self.unanswered = PeerState.LIVE, "", NOT_DUE, 0

    def suspect(self, why: str) -> None:
        """It may be gone."""
        self.state, self.doubt, self.endpoint_failed = PeerState.SUSPECT, why, False

    def add_alias(self, endpoint: str) -> None:
        """The same process answers at this address, too."""
        self.aliases[endpoint] = None
        if len(self.aliases) > MOST_ALIASES:
            del self.aliases[next(iter(self.aliases))]

    def move(self, endpoint: str) -> None:
        """It is reached there from now on."""
        self.endpoint = endpoint
        self.aliases.pop(endpoint, None)
        self.elsewhere, self.endpoint_failed = None, False
        self.sure()

    def peer(self) -> Peer:
        """A snapshot."""
        seen_s = (self.heard_s, self.since_s)
        return Peer(self.node_id, self.endpoint, self.state, *seen_s, self.reply, self.round_trip_s)
