"""One device among its peers: presence, routing and the key-value store, wired together."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.rpc.server import ServerObserver
from nearsight.common.rpc.service import Service
from nearsight.device.peers.kvstore import KVStore
from nearsight.device.peers.node_id import NodeId
from nearsight.device.peers.peer import Peer
from nearsight.device.peers.peer_settings import PeerSettings
from nearsight.device.peers.peers_report import PeersReport


class PeerNode:
    """A device among its peers.

    Parameters
    ----------
    settings : PeerSettings
        Address, keys, limits.
    device_id : str
        Name for people.
    clock : Clock
        The time.
    rng : random.Random or None
        Node id without keys, incarnation, jitter; by default seeded by the system.
    services : sequence of Service
        Further services for peers, e.g. models.
    held : callable or None
        How many models, and bytes of them, this device can hand out.
    observer : ServerObserver or None
        Told of every call that peers make.

    Raises
    ------
    ConfigurationError
        If an address or key cannot be used.
    """

    store: KVStore
    node_id: NodeId

    def __init__(
        self,
        settings: PeerSettings,
        *,
        device_id: str,
        clock: Clock = SYSTEM_CLOCK,
        rng: random.Random | None = None,
        services: Sequence[Service] = (),
        held: Callable[[], tuple[int, int]] | None = None,
        observer: ServerObserver | None = None,
    ) -> None:
        raise NotImplementedError

    @property
    def endpoint(self) -> str:
        """Where peers reach this device, its port resolved."""
        raise NotImplementedError

    def start(self) -> None:
        """Serve peers, and look for them.

        Raises
        ------
        AddressInUse, ConfigurationError
            If the address cannot be listened on.
        """
        raise NotImplementedError

    def stop(self, grace_s: float = 2.0) -> None:
        """Hand over what peers should hold now, say goodbye and end; safe to call twice."""
        raise NotImplementedError

    def peers(self) -> tuple[Peer, ...]:
        """The peers that are there, suspects among them."""
        raise NotImplementedError

    def watch(self, changed: Callable[[tuple[Peer, ...]], None]) -> None:
        """Have ``changed`` called, on a thread of presence, whenever peers came or went; it must not wait."""
        raise NotImplementedError

    def report(self) -> PeersReport:
        """What there is to say about peers."""
        raise NotImplementedError
