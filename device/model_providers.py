"""Where a device gets models and predictions: from its tiers, and from the devices nearby if it shares."""

from __future__ import annotations

import random
from collections.abc import Mapping

from nearsight.common.clock import Clock
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.device.cooperation.cooperation import Cooperation
from nearsight.device.peers.settings import PeerSettings
from nearsight.device.prefetching.controller import PrefetchSources
from nearsight.device.prefetching.held_models import HeldModels
from nearsight.device.prefetching.tier_clients import CatalogueClient, EdgeClient, TierCatalogues


class ModelProviders:
    """The tiers of a device, its neighbours, and the models that it has.

    Parameters
    ----------
    catalogue : str
        Whose objects.
    clients : mapping of str to CatalogueClient
        By tier, the nearest first; at least one. Owned: closed with this.
    held : HeldModels
        The device's models.
    clock : Clock
        Must run in real time.
    """

    def __init__(
        self, catalogue: str, clients: Mapping[str, CatalogueClient], held: HeldModels, clock: Clock
    ) -> None:
        self._catalogue = catalogue
        self._clients = dict(clients)
        self._clock = clock
        self.held = held
        self.cooperation: Cooperation | None = None

    def cooperate(
        self, device_id: str, settings: PeerSettings, recognition: RecognitionSettings, rng: random.Random
    ) -> None:
        """Share with the devices nearby, from `start` on.

        Raises
        ------
        ConfigurationError
            If an address or key cannot be used.
        """
        self.cooperation = Cooperation(
            self._catalogue, device_id, self.held, self._tiers(), settings, recognition, self._clock, rng
        )

    def sources(self) -> PrefetchSources:
        """For the prefetcher."""
        tiers, edge, nearby = self._tiers(), self._edge(), self.cooperation
        if nearby is None:
            return PrefetchSources(tiers, tiers, edge)
        return PrefetchSources(nearby.models, tiers, edge, nearby.forecasts, nearby)

    def start(self) -> None:
        """Look for devices nearby.

        Raises
        ------
        AddressInUse, ConfigurationError
            If peers cannot be served at the address that is set.
        """
        if self.cooperation is not None:
            self.cooperation.start()

    def close(self) -> None:
        """Say goodbye to the devices nearby, and disconnect."""
        if self.cooperation is not None:
            self.cooperation.close()
        for client in self._clients.values():
            client.close()

    def _edge(self) -> EdgeClient | None:
        return next((one for one in self._clients.values() if isinstance(one, EdgeClient)), None)

    def _tiers(self) -> CatalogueClient | TierCatalogues:
        clients = tuple(self._clients.values())
        return clients[0] if len(clients) == 1 else TierCatalogues(clients, self._clock)
