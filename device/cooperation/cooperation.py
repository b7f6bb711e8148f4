"""What a device does together with its neighbours, wired in one place.

::

    Prefetcher ──models?──> CooperativeModelSource ──> KVStore: who has it? ──> a peer ──> else edge, cloud
        │  ▲                        ▲ vouchers (digests that edge or cloud listed)
        │  └──what next?── PeerForecasts ──> KVStore: counters
        ├──stepped──> StepCounts ──────────> KVStore: counters
        └──held, gone──> ModelSharing ─────> KVStore: holders;      peers ──> PeerModelService ──> HeldModels

Everything runs in one background thread of its own: recognition and the prefetcher never wait for a peer.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from nearsight.common.background.futures import when_done
from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.catalogue.answers import Listing
from nearsight.common.catalogue.model_fetcher import ModelSource
from nearsight.common.clock import Clock
from nearsight.common.errors import NearsightError
from nearsight.common.operation.status import format_bytes
from nearsight.common.recognition.models import Features, ObjectModel
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.device.adaptation.adapter import AdaptationCounts, Adapter
from nearsight.device.cooperation.account import Accountant, CooperationAccount
from nearsight.device.cooperation.analytics import PeerForecasts, StepCounts
from nearsight.device.cooperation.model_source import CooperativeModelSource
from nearsight.device.cooperation.protocol import CooperationRules, adapt_key
from nearsight.device.cooperation.sharing import ModelSharing, PeerModelService
from nearsight.device.cooperation.trust import ModelDigests
from nearsight.device.held_models import HeldModels
from nearsight.device.peers.node import PeerNode
from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.report import PeersReport
from nearsight.device.peers.settings import PeerSettings
from nearsight.device.peers.store.kvstore import ItemsRead

_DEFAULT_RULES = CooperationRules()
_LAST_STEPS_S = 0.5
_HAND_OVER_S = 1.0


@dataclass(frozen=True, slots=True)
class CooperationState:
    """For metrics.

    Attributes
    ----------
    peers : int
        Devices nearby.
    account : CooperationAccount
        Where models came from.
    liars : int
        Peers that handed out a wrong model.
    adaptation : AdaptationCounts or None
        Of adapted views, if they are on.
    """

    peers: int
    account: CooperationAccount
    liars: int
    adaptation: AdaptationCounts | None

    def facts(self) -> list[tuple[str, str]]:
        """For a person, in display order."""
        account = self.account
        facts = [
            ("devices nearby", str(self.peers)),
            ("models from devices nearby", _amount(account.peer_models, account.peer_bytes)),
            ("models from the edge", _amount(account.edge_models, account.edge_bytes)),
            ("models from the cloud", _amount(account.cloud_models, account.cloud_bytes)),
            ("lists of the catalogue", _amount(account.lists, account.list_bytes)),
            ("models for devices nearby", _amount(account.served_models, account.served_bytes)),
            ("wrong models rejected", _amount(account.rejected_models, account.rejected_bytes)),
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


def _amount(count: int, size_bytes: int) -> str:
    return f"{count}, {format_bytes(size_bytes)}"


class Cooperation:
    """One device among its neighbours.

    Parameters
    ----------
    catalogue : str
        Whose objects.
    device_id : str
        Name for people.
    held : HeldModels
        What the device has, and hands out.
    upstream : ModelSource
        Edge and cloud.
    settings : PeerSettings
        Who the neighbours are, and how models are shared.
    recognition : RecognitionSettings
        Of the device, for adapted views.
    clock : Clock
        Must run in real time.
    rng : random.Random
        Draws ids and holders.
    rules : CooperationRules
        Times and limits.

    Raises
    ------
    ConfigurationError
        If an address or key cannot be used.
    """

    def __init__(  # noqa: PLR0913, PLR0917  wired in one place, by name
        self,
        catalogue: str,
        device_id: str,
        held: HeldModels,
        upstream: ModelSource,
        settings: PeerSettings,
        recognition: RecognitionSettings,
        clock: Clock,
        rng: random.Random,
        rules: CooperationRules = _DEFAULT_RULES,
    ) -> None:
        self._catalogue = catalogue
        self._held_models = held
        self._background = BackgroundWorker(clock, "nearsight-cooperation")
        self._accountant = Accountant()
        self._digests = ModelDigests()
        self._adapter = Adapter(recognition, rng) if settings.adapt else None
        shares = settings.share != "off"
        self._node = PeerNode(
            settings,
            device_id=device_id,
            clock=clock,
            rng=rng,
            services=[PeerModelService(catalogue, held, self._accountant, self._served)] if shares else [],
            held=lambda: len(held) if shares else 0,
        )
        store, background = self._node.store, self._background
        self._source = CooperativeModelSource(
            catalogue,
            store,
            self._node.route,
            self._neighbours if shares else tuple,
            upstream,
            self._digests,
            self._accountant,
            background,
            rules,
            clock,
            rng,
        )
        self._sharing: ModelSharing | None = None
        if settings.share != "off":
            self._sharing = ModelSharing(
                catalogue,
                lambda: self._node.node_id,
                store,
                settings.share,
                self._source.came_from_tier,
                background,
                rules,
            )
        self._steps = StepCounts(catalogue, store, self._accountant, background, rules)
        self._forecasts = PeerForecasts(catalogue, store, self._digests, background, rules, clock)
        held.observe(self)

    @property
    def models(self) -> ModelSource:
        """Where the prefetcher gets models; from tiers alone, and counted, if models are not shared."""
        return self._source

    @property
    def forecasts(self) -> PeerForecasts:
        """What devices nearby predict."""
        return self._forecasts

    @property
    def node(self) -> PeerNode:
        """This device as its peers see it."""
        return self._node

    @property
    def state(self) -> CooperationState:
        """For metrics."""
        adaptation = self._adapter.counts if self._adapter is not None else None
        account = self._accountant.account
        return CooperationState(len(self._node.peers()), account, len(self._source.liars), adaptation)

    def report(self) -> PeersReport:
        """For `nearsight peers`."""
        report = self._node.report()
        held, wasted = self._held_models, self._held_models.account
        facts = (
            *report.facts,
            *self.state.facts(),
            ("models here", f"{_amount(len(held), held.size_bytes)}, {held.unused} of no use so far"),
            ("models fetched in vain", _amount(wasted.wasted_models, wasted.wasted_bytes)),
        )
        return PeersReport(report.node_id, report.device_id, report.endpoint, report.peers, facts)

    def start(self) -> None:
        """Look for neighbours.

        Raises
        ------
        AddressInUse, ConfigurationError
            If peers cannot be served at the address that is set.
        """
        self._background.start()
        self._node.start()
        if self._sharing is not None:
            self._sharing.start()

    def close(self) -> None:
        """Hand over and say goodbye."""
        self._background.stop(timeout_s=1.0)
        self._steps.close(_LAST_STEPS_S)
        self._node.stop(_HAND_OVER_S)

    def _served(self, node: NodeId, sent_bytes: int, received_bytes: int) -> None:
        self._node.count_served(node, sent_bytes, received_bytes)

    def _neighbours(self) -> tuple[NodeId, ...]:
        return tuple(peer.node_id for peer in self._node.peers())

    # A `HoldObserver`

    def held(self, model: ObjectModel) -> None:
        """The device has a model from now on."""
        if self._sharing is not None:
            self._sharing.held(model)
        self._background.submit(lambda: self._ask_for_views(model))

    def gone(self, model: ObjectModel) -> None:
        """The device has a model no more."""
        if self._sharing is not None:
            self._sharing.gone(model)
        if self._adapter is not None:
            adapter = self._adapter
            self._background.submit(lambda: adapter.forget([model.object_id]))

    # A `Neighbourhood`

    def followed(self, previous: str, found: RecognizedObject, features: Features | None) -> None:
        """The device recognised an object, after another one."""
        self._steps.stepped(previous, found.object_id)
        if self._adapter is None:
            return
        model = self._held_models.peek(found.object_id)
        if model is None or model.version != found.version:
            return
        if features is not None:
            self._background.submit(lambda: self._learn(features, found, model))
        if previous != found.object_id:
            self._background.submit(lambda: self._ask_for_views(model))

    def listed(self, listing: Listing) -> None:
        """A tier listed the catalogue."""
        self._accountant.add(lists=1, list_bytes=listing.size_bytes)
        self._digests.update(listing)
        self._source.listed()

    def serving(self, models: Sequence[ObjectModel]) -> None:
        """The device answers with these models."""
        if self._adapter is not None:
            adapter, served = self._adapter, tuple(models)
            self._background.submit(lambda: adapter.serve(served))
            self._background.submit(adapter.refresh, name="second look")

    # Adapted views

    @property
    def adapter(self) -> Adapter | None:
        """Looks again at photos that the models left unknown; None if that is off."""
        return self._adapter

    def _learn(self, features: Features, found: RecognizedObject, model: ObjectModel) -> None:
        adapter = self._adapter
        if adapter is None:
            return
        item = adapter.on_recognized(features, found, model)
        if item is not None:
            key = adapt_key(self._catalogue, model.object_id, model.version)
            self._node.store.append(key, item, ttl_s=adapter.rules.lifetime_s)
            self._background.submit(adapter.refresh, name="second look")

    def _ask_for_views(self, model: ObjectModel) -> None:
        adapter = self._adapter
        if adapter is None or not self._node.peers():
            return

        def came(outcome: ItemsRead | NearsightError) -> None:
            if isinstance(outcome, ItemsRead) and adapter.offer(model, outcome.items):
                self._background.submit(adapter.refresh, name="second look")

        key = adapt_key(self._catalogue, model.object_id, model.version)
        when_done(self._node.store.items(key), self._background, came)
