"""Counters of cooperation: origins of models, and traffic."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from nearsight.common.operation.status import format_bytes
from nearsight.device.adaptation.adapter import AdaptationCounts


@dataclass
class CooperationAccount:
    """Counters since the start. Bytes as on the network, including frame headers."""

    peer_models: int = 0
    peer_bytes: int = 0
    """Models from devices nearby that were verified."""
    edge_models: int = 0
    edge_bytes: int = 0
    cloud_models: int = 0
    cloud_bytes: int = 0
    """Models from the edge, and from the cloud."""
    lists: int = 0
    list_bytes: int = 0
    """Listings of the catalogue from edge or cloud, used to verify models of peers."""
    rejected_models: int = 0
    rejected_bytes: int = 0
    """Answers of peers that were not the listed model."""
    silent_peers: int = 0
    """Calls that a peer did not answer, or that failed."""
    waited: int = 0
    waited_in_vain: int = 0
    """Models for which this device waited because another device was fetching them, and those that did not
    arrive."""
    served_models: int = 0
    served_bytes: int = 0
    """Models sent to devices nearby."""
    steps: int = 0
    """Steps to another object that this device counted in the store."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def add(self, **amounts: int) -> None:
        """Add amounts to the counters of these names; thread-safe."""
        with self._lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)


@dataclass(frozen=True, slots=True)
class CooperationState:
    """State of cooperation, for metrics."""

    peers: int
    """Number of devices nearby."""
    account: CooperationAccount
    """Counters of models by origin."""
    distrusted: int
    """Number of peers that sent a wrong model."""
    adaptation: AdaptationCounts | None
    """Counters of adapted views; None if adaptation is off."""

    def facts(self) -> list[tuple[str, str]]:
        """The state as facts for people, in display order."""
        account = self.account
        facts = [
            ("devices nearby", str(self.peers)),
            ("models from devices nearby", amount_text(account.peer_models, account.peer_bytes)),
            ("models from the edge", amount_text(account.edge_models, account.edge_bytes)),
            ("models from the cloud", amount_text(account.cloud_models, account.cloud_bytes)),
            ("listings of the catalogue", amount_text(account.lists, account.list_bytes)),
            ("models sent to devices nearby", amount_text(account.served_models, account.served_bytes)),
            ("wrong models rejected", amount_text(account.rejected_models, account.rejected_bytes)),
            ("distrusted peers", str(self.distrusted)),
            ("missing answers of peers", str(account.silent_peers)),
            ("waited for another device", f"{account.waited}, without success {account.waited_in_vain}"),
            ("steps counted in the store", str(account.steps)),
        ]
        if self.adaptation is not None:
            views = f"{self.adaptation.views} of {self.adaptation.objects} objects"
            found = f"{self.adaptation.found} of {self.adaptation.looks}"
            facts += [("adapted views", views), ("found in a second look", found)]
        return facts


def amount_text(count: int, size_bytes: int) -> str:
    """A number of models and their size, for people."""
    return f"{count}, {format_bytes(size_bytes)}"
