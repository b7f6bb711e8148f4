"""What `Membership` wants to have done, or has found out."""

from __future__ import annotations

from dataclasses import dataclass

from nearsight.device.peers.node_id import NodeId
from nearsight.device.peers.peer import Peer


@dataclass(frozen=True, slots=True)
class Ping:
    """Ask this address who is there.

    Parameters
    ----------
    node_id : NodeId or None
        Who must answer; None where that is not known before: a static peer without keys.
    endpoint : str
        Whom to ask.
    number : int
        Tells it from other pings of the same address.
    urgent : bool
        It is about a peer that may be gone, not about somebody new.
    """

    node_id: NodeId | None
    endpoint: str
    number: int
    urgent: bool


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


Action = Ping | Announce | Joined | Gone | Moved | Conflict | Slept | Readdressed
Actions = tuple[Action, ...]
