"""Where models came from, and what cooperation cost."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from nearsight.common.operation.status import format_bytes
from nearsight.device.adaptation.adapter import AdaptationCounts


@dataclass
class CooperationAccount:
    """All since the start. Bytes are those of the network, frames and all."""

    peer_models: int = 0
    peer_bytes: int = 0
    """Models that came from devices nearby, and were the right ones."""
    edge_models: int = 0
    edge_bytes: int = 0
    cloud_models: int = 0
    cloud_bytes: int = 0
    """Models that came from the edge, and from the cloud."""
    lists: int = 0
    list_bytes: int = 0
    """Lists of the catalogue that came from edge or cloud: models of peers are verified by them."""
    rejected_models: int = 0
    rejected_bytes: int = 0
    """Answers of peers that were not the right model."""
    silent_peers: int = 0
    """Times that a peer did not answer, or failed."""
    waited: int = 0
    waited_in_vain: int = 0
    """Models that another device was fetching, and that were waited for; those of them that did not come."""
    served_models: int = 0
    served_bytes: int = 0
    """Models that were handed out to devices nearby."""
    steps: int = 0
    """Objects that this device came to, as counted in the store."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def add(self, **amounts: int) -> None:
        """Add to the named sums; thread-safe."""
        with self._lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)


@dataclass(frozen=True, slots=True)
class CooperationState:
    """For metrics."""

    peers: int
    """Devices nearby."""
    account: CooperationAccount
    """Where models came from."""
    liars: int
    """Peers that handed out a wrong model."""
    adaptation: AdaptationCounts | None
    """Of adapted views, if they are on."""

    def facts(self) -> list[tuple[str, str]]:
        """For a person, in display order."""
        account = self.account
        facts = [
            ("devices nearby", str(self.peers)),
            ("models from devices nearby", amount_text(account.peer_models, account.peer_bytes)),
            ("models from the edge", amount_text(account.edge_models, account.edge_bytes)),
            ("models from the cloud", amount_text(account.cloud_models, account.cloud_bytes)),
            ("lists of the catalogue", amount_text(account.lists, account.list_bytes)),
            ("models for devices nearby", amount_text(account.served_models, account.served_bytes)),
            ("wrong models rejected", amount_text(account.rejected_models, account.rejected_bytes)),
            ("peers not asked again", str(self.liars)),
            ("peers that did not answer", str(account.silent_peers)),
            ("waited for another device", f"{account.waited}, in vain {account.waited_in_vain}"),
            ("steps counted together", str(account.steps)),
        ]
        if self.adaptation is not None:
            views = f"{self.adaptation.views} of {self.adaptation.objects} objects"
            found = f"{self.adaptation.found} of {self.adaptation.looks}"
            facts += [("adapted views", views), ("found at a second look", found)]
        return facts


def amount_text(count: int, size_bytes: int) -> str:
    """A number of models and their size, for a person."""
    return f"{count}, {format_bytes(size_bytes)}"
