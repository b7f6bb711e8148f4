"""Cooperation of a device with the devices nearby: creates and connects its parts.

::

    prefetching ─models?──> CooperativeModelSource ──> KVStore: holders ──> a peer ──> else edge, cloud
        │  ▲                        ▲ digests that edge or cloud listed
        │  └──next objects?── PeerForecasts ──> KVStore: counters
        ├──followed──────> StepCounts ────> KVStore: counters
        └──added, dropped──> ModelSharing ──> KVStore: holders;     peers ──> PeerModelService ──> HeldModels

Everything runs in a background thread of its own: recognition and prefetching never wait for a peer.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from nearsight.common.background.futures import when_done
from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.catalogue.answers import Listing
from nearsight.common.catalogue.model_fetcher import ModelSource
from nearsight.common.clock import Clock
from nearsight.common.errors import NearsightError
from nearsight.common.recognition.models import Features, ObjectModel
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.device.adaptation.adapter import Adapter
from nearsight.device.cooperation.account import CooperationAccount, CooperationState, amount_text
from nearsight.device.cooperation.analytics import PeerForecasts, StepCounts
from nearsight.device.cooperation.context import CooperationContext
from nearsight.device.cooperation.model_source import CooperativeModelSource
from nearsight.device.cooperation.protocol import adapt_key
from nearsight.device.cooperation.sharing import ModelSharing, PeerModelService
from nearsight.device.peers.node import PeerNode
from nearsight.device.peers.report import PeersReport
from nearsight.device.peers.routing.connections import TrafficByPeer
from nearsight.device.peers.settings import PeerSettings
from nearsight.device.peers.store.kvstore import ItemsRead
from nearsight.device.prefetching.held_models import HeldModels

_LAST_STEPS_S = 0.5
_HAND_OVER_S = 1.0


class Cooperation:
    """Cooperation of one device with the devices nearby.

    Parameters
    ----------
    catalogue : str
        The catalogue of the objects.
    device_id : str
        Name of the device for people.
    held : HeldModels
        The models of the device, which it also provides to peers.
    upstream : ModelSource
        Edge and cloud.
    settings : PeerSettings
        Presence, store, and how models are shared.
    recognition : RecognitionSettings
        Recognition settings of the device, for adapted views.
    clock : Clock
        Must run in real time.
    rng : random.Random
        Draws ids and holders.

    Raises
    ------
    ConfigurationError
        If an address or key cannot be used.
    """

    def __init__(  # noqa: PLR0913, PLR0917  all parts are created here, from named arguments
        self,
        catalogue: str,
        device_id: str,
        held: HeldModels,
        upstream: ModelSource,
        settings: PeerSettings,
        recognition: RecognitionSettings,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._models = held
        self._background = BackgroundWorker(clock, "nearsight-cooperation")
        self.adapter = Adapter(recognition, rng) if settings.adapt else None
        """Second look with adapted views at photos without an answer; None if adaptation is off."""
        account, share, traffic = CooperationAccount(), settings.share, TrafficByPeer()
        services = [PeerModelService(catalogue, held, account, traffic)] if share != "off" else []
        self.node = PeerNode(
            settings,
            device_id=device_id,
            clock=clock,
            rng=rng,
            services=services,
            model_count=lambda: len(held) if services else 0,
            traffic=traffic,
        )
        """The node of this device in the peer network."""
        self._context = context = CooperationContext(
            catalogue,
            self.node.node_id,
            self.node.store,
            self.node.route,
            lambda: [peer.node_id for peer in self.node.peers()] if services else [],
            self._background,
            clock,
            rng,
            account=account,
        )
        self.models = CooperativeModelSource(context, upstream)
        """The prefetcher's source of models. If models are not shared, it asks only tiers and counts their
        models."""
        self._sharing: ModelSharing | None = None
        if share != "off":
            self._sharing = ModelSharing(context, share, self.models.came_from_tier)
        self._steps = StepCounts(context)
        self.forecasts = PeerForecasts(context)
        """Predictions from the counts of devices nearby."""
        held.observer = self

    @property
    def state(self) -> CooperationState:
        """The current state, for metrics."""
        adaptation = self.adapter.counts if self.adapter is not None else None
        account = replace(self._context.account)
        return CooperationState(len(self.node.peers()), account, len(self.models.distrusted), adaptation)

    def report(self) -> PeersReport:
        """The report for `nearsight peers`."""
        report = self.node.report()
        held, wasted = self._models, self._models.account
        facts = (
            *report.facts,
            *self.state.facts(),
            ("models here", f"{amount_text(len(held), held.size_bytes)}, {held.unused} not used yet"),
            ("models fetched but not used", amount_text(wasted.wasted_models, wasted.wasted_bytes)),
        )
        return replace(report, facts=facts)

    def start(self) -> None:
        """Start serving and looking for peers.

        Raises
        ------
        AddressInUse, ConfigurationError
            If the server cannot listen on the address of the settings.
        """
        self._background.start()
        self.node.start()
        if self._sharing is not None:
            self._sharing.start()

    def close(self) -> None:
        """Write the last counts, hand over the entries, and leave."""
        self._background.stop(timeout_s=1.0)
        self._steps.close(_LAST_STEPS_S)
        self.node.stop(_HAND_OVER_S)

    # Implementation of `HeldModelsObserver`

    def added(self, model: ObjectModel) -> None:
        """The device has a new model."""
        if self._sharing is not None:
            self._sharing.added(model)
        self._background.submit(lambda: self._ask_for_views(model))

    def dropped(self, model: ObjectModel) -> None:
        """The device dropped a model."""
        if self._sharing is not None:
            self._sharing.dropped(model)
        if self.adapter is not None:
            adapter = self.adapter
            self._background.submit(lambda: adapter.forget([model.object_id]))

    # Implementation of `PrefetchObserver`

    def followed(self, previous: str, found: RecognizedObject, features: Features | None) -> None:
        """The device or a tier recognised ``found``, after ``previous``."""
        self._steps.count(previous, found.object_id)
        adapter = self.adapter
        if adapter is None:
            return
        model = self._models.peek(found.object_id)
        if model is None or model.version != found.version:
            return
        if features is not None:  # one photo at most waits: learning takes longer than a lookup
            self._background.submit(lambda: self._learn(adapter, features, found, model), name="learn")
        if previous != found.object_id:
            self._background.submit(lambda: self._ask_for_views(model))

    def listed(self, listing: Listing) -> None:
        """A tier sent a listing of the catalogue."""
        self._context.account.add(lists=1, list_bytes=listing.size_bytes)
        self._context.digests.update(listing)
        self.models.listed()

    def serving(self, models: Sequence[ObjectModel]) -> None:
        """The device now answers with these models."""
        if self.adapter is not None:
            adapter, served = self.adapter, tuple(models)
            self._background.submit(lambda: adapter.serve(served))
            self._background.submit(adapter.refresh, name="second look")

    # Adapted views

    def _learn(
        self, adapter: Adapter, features: Features, found: RecognizedObject, model: ObjectModel
    ) -> None:
        item = adapter.on_recognized(features, found, model)
        if item is not None:
            key = adapt_key(self._context.catalogue, model.object_id, model.version)
            self.node.store.append(key, item, ttl_s=adapter.rules.lifetime_s)
            self._background.submit(adapter.refresh, name="second look")

    def _ask_for_views(self, model: ObjectModel) -> None:
        adapter = self.adapter
        if adapter is None or not self.node.peers():
            return

        def came(outcome: ItemsRead | NearsightError) -> None:
            if isinstance(outcome, ItemsRead) and adapter.offer(model, outcome.items):
                self._background.submit(adapter.refresh, name="second look")

        key = adapt_key(self._context.catalogue, model.object_id, model.version)
        when_done(self.node.store.items(key), self._background, came)
