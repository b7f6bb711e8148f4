"""Where models came from, and what cooperation cost."""

from __future__ import annotations

import dataclasses
import threading
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CooperationAccount:
    """All since the start. Bytes are those of the network, frames and all.

    Attributes
    ----------
    peer_models, peer_bytes : int
        Models that came from devices nearby, and were the right ones.
    edge_models, edge_bytes : int
        Models that came from the edge.
    cloud_models, cloud_bytes : int
        Models that came from the cloud.
    lists, list_bytes : int
        Lists of the catalogue that came from edge or cloud: by them models of peers are judged.
    rejected_models, rejected_bytes : int
        Answers of peers that were not the right model.
    silent_peers : int
        Times that a peer did not answer, or failed.
    waited : int
        Models that another device was fetching, and that were waited for.
    waited_in_vain : int
        Of these, the ones that did not come.
    served_models, served_bytes : int
        Models that were handed out to devices nearby.
    steps : int
        Objects that this device came to, as counted in the store.
    """

    peer_models: int = 0
    peer_bytes: int = 0
    edge_models: int = 0
    edge_bytes: int = 0
    cloud_models: int = 0
    cloud_bytes: int = 0
    lists: int = 0
    list_bytes: int = 0
    rejected_models: int = 0
    rejected_bytes: int = 0
    silent_peers: int = 0
    waited: int = 0
    waited_in_vain: int = 0
    served_models: int = 0
    served_bytes: int = 0
    steps: int = 0


class Accountant:
    """Adds up; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._account = CooperationAccount()

    @property
    def account(self) -> CooperationAccount:
        """The sums now."""
        return self._account

    def add(self, **amounts: int) -> None:
        """Add to the named sums."""
        with self._lock:
            before = self._account
            sums = {name: getattr(before, name) + amount for name, amount in amounts.items()}
            self._account = dataclasses.replace(before, **sums)
