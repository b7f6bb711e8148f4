"""The sources of models and predictions of a device: its tiers, and the devices nearby if it cooperates."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from nearsight.common.clock import Clock
from nearsight.common.rpc.client import Channel
from nearsight.device.cooperation.cooperation import Cooperation
from nearsight.device.prefetching.controller import PrefetchSources
from nearsight.device.prefetching.held_models import HeldModels
from nearsight.device.prefetching.tier_clients import CatalogueClient, EdgeClient, TierCatalogues
from nearsight.device.recognizer_settings import RecognizerSettings


class ModelProviders:
    """Sources of models (the edge, or all tiers and devices nearby if they cooperate), and own models.

    Parameters
    ----------
    catalogue : str
        Catalogue of the objects.
    device_id : str
        Name that devices nearby see.
    tiers : sequence of str
        The nearest first.
    connect : callable
        Opens the channel to a tier.
    settings : RecognizerSettings
        Settings of the SDK.
    clock : Clock
        Must run in real time.

    Raises
    ------
    ConfigurationError
        If an address or key cannot be used.
    """

    def __init__(
        self,
        catalogue: str,
        device_id: str,
        tiers: Sequence[str],
        connect: Callable[[str], Channel],
        settings: RecognizerSettings,
        clock: Clock,
    ) -> None:
        peers = settings.peers
        self.held = HeldModels(settings.prefetch.memory_bytes)
        """The device's models."""
        self.cooperation: Cooperation | None = None
        """Cooperation with devices nearby, active once it is started; None if it is disabled."""
        clients: dict[str, CatalogueClient] = {}
        edge: EdgeClient | None = None
        with ExitStack() as opened:
            for name in tiers:
                if name == "edge":
                    clients[name] = edge = EdgeClient(connect(name), catalogue, clock)
                elif peers.enabled:
                    clients[name] = CatalogueClient(connect(name), catalogue)
                else:
                    continue
                opened.callback(clients[name].close)
            used = tuple(clients.values())
            upstream = used[0] if len(used) == 1 else TierCatalogues(used, clock)
            self.sources = PrefetchSources(upstream, upstream, edge)
            """Sources for the prefetcher."""
            if peers.enabled:
                recognition, rng = settings.prefetch.recognition, random.Random()
                nearby = self.cooperation = Cooperation(
                    catalogue, device_id, self.held, upstream, peers, recognition, clock, rng
                )
                opened.callback(nearby.close)
                self.sources = PrefetchSources(nearby.models, upstream, edge, nearby.forecasts, nearby)
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Leave the group of devices nearby, and disconnect."""
        self._opened.close()
