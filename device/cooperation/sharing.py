"""Shares this device's models: through the store (5.4.3), and by sending them to peers on request.

``redirect``: the store contains the holders of a model. Each device that fetched it is added, so that the
load spreads. ``direct``: a device that fetched a model from a tier puts the model itself into the store. A
model that is too large for the store is shared as with ``redirect``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message

from nearsight.common.errors import CallerError, InvalidArgument, NotFound
from nearsight.common.logging import get_logger
from nearsight.common.recognition.codec import object_model_to_bytes, object_model_to_proto
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.rpc.service import CallContext, Service
from nearsight.device.cooperation.account import CooperationAccount
from nearsight.device.cooperation.context import CooperationContext, Steps
from nearsight.device.cooperation.protocol import holder_item, model_item, model_key
from nearsight.device.peers.presence.identity import caller_of
from nearsight.device.peers.routing.connections import TrafficByPeer
from nearsight.device.prefetching.held_models import HeldModels
from nearsight.protos import catalogue_pb2
from nearsight.protos.catalogue_pb2 import GetObjectModelsRequest, GetObjectModelsResponse

LIFE_S, RENEW_S = 3600.0, 1200.0
"""Time to live of an item in the store, and interval of its renewal [s]."""
_RETRY_S = 2.0
_RETRIES = 3


@dataclass(slots=True, eq=False)
class _Shared:
    """An item that this device put into the store."""

    key: str
    model: ObjectModel
    direct: bool


class ModelSharing:
    """A `HeldModelsObserver` that updates the store when models are added or dropped.

    Parameters
    ----------
    context : CooperationContext
        The store.
    share : {"redirect", "direct"}
        The kind of sharing.
    from_tier : callable
        Returns whether the last model of an object came from a tier.
    """

    def __init__(
        self,
        context: CooperationContext,
        share: Literal["redirect", "direct"],
        from_tier: Callable[[str], bool],
    ) -> None:
        self._context = context
        self._share = share
        self._from_tier = from_tier
        self._store = context.store
        self._background = context.background
        self._shared: dict[str, _Shared] = {}
        self._holder = holder_item(context.own)
        self._log = get_logger("device.cooperation").bind(catalogue=context.catalogue)

    def start(self) -> None:
        """Start to renew items before they expire."""
        self._background.submit(self._renew, name="renew", after_s=RENEW_S)

    def added(self, model: ObjectModel) -> None:
        """This device has a new model."""
        self._background.submit(lambda: self._add(model))

    def dropped(self, model: ObjectModel) -> None:
        """This device dropped a model."""
        self._background.submit(lambda: self._remove(model))

    def _add(self, model: ObjectModel) -> None:
        key = model_key(self._context.catalogue, model.object_id, model.version)
        direct = self._share == "direct" and self._from_tier(model.object_id)
        shared = self._shared[model.object_id] = _Shared(key, model, direct)
        self._context.run(self._write(shared, _RETRIES))

    def _write(self, shared: _Shared, retries: int) -> Steps[None]:
        """Write an item, with retries, unless another version replaces the model or it is dropped."""
        while self._shared.get(shared.model.object_id) is shared:
            item = model_item(object_model_to_bytes(shared.model)) if shared.direct else self._holder
            outcome = yield self._store.append(shared.key, item, ttl_s=LIFE_S), math.inf
            if outcome is None:
                return
            if shared.direct and isinstance(outcome, CallerError):
                shared.direct = False  # too large for the store
            elif retries:
                retries -= 1
                yield None, _RETRY_S
            else:
                self._log.info("a model is not shared", object=shared.model.object_id, reason=str(outcome))
                return

    def _remove(self, model: ObjectModel) -> None:
        shared = self._shared.get(model.object_id)
        if shared is not None and shared.model.version == model.version:
            del self._shared[model.object_id]
        # A model that is itself in the store remains useful without this device.
        if shared is None or not shared.direct:
            key = model_key(self._context.catalogue, model.object_id, model.version)
            self._store.remove(key, self._holder)

    def _renew(self) -> None:
        for shared in list(self._shared.values()):
            self._context.run(self._write(shared, 0))
        self.start()


MOST_MODELS = 16
"""Maximum number of models per request."""


class PeerModelService(Service):
    """Sends models to peers. Lists no catalogue: peers use the listing of a tier, which they trust.

    Parameters
    ----------
    catalogue : str
        The only catalogue that is served.
    held : HeldModels
        The models of this device.
    account : CooperationAccount
        Counts the models sent.
    traffic : TrafficByPeer
        Counts the bytes sent to and received from a node.
    """

    descriptor: ClassVar[ServiceDescriptor] = catalogue_pb2.DESCRIPTOR.services_by_name["Catalogue"]

    def __init__(
        self,
        catalogue: str,
        held: HeldModels,
        account: CooperationAccount,
        traffic: TrafficByPeer,
    ) -> None:
        self._catalogue = catalogue
        self._held = held
        self._account = account
        self._traffic = traffic

    def get_object_models(
        self, request: GetObjectModelsRequest, context: CallContext
    ) -> GetObjectModelsResponse:
        """The requested models that this device holds, and the ids of the others.

        Raises
        ------
        NotFound
            If another catalogue is requested.
        InvalidArgument
            If more than `MOST_MODELS` are requested.
        """
        if context.catalogue != self._catalogue:
            raise NotFound(f"this device holds models of {self._catalogue!r}, not {context.catalogue!r}")
        if len(request.object_ids) > MOST_MODELS:
            raise InvalidArgument(f"{len(request.object_ids)} ids in one call, the limit is {MOST_MODELS}")
        response = GetObjectModelsResponse()
        for object_id in dict.fromkeys(request.object_ids):
            model = self._held.peek(object_id)
            if model is None:
                response.missing.append(object_id)
                continue
            message, blobs = object_model_to_proto(model, len(context.response_blobs))
            response.models.append(message)
            context.response_blobs.extend(blobs)
            size_bytes = message.ByteSize() + sum(map(len, blobs))
            self._account.add(served_models=1, served_bytes=size_bytes)
        sent_bytes = response.ByteSize() + sum(map(len, context.response_blobs))
        self._traffic.add(caller_of(context), sent_bytes, request.ByteSize())
        return response

    def refuse(self, request: Message, context: CallContext) -> Message:
        """Refuse all other methods of the service."""
        del request, context
        raise InvalidArgument("a device only provides object models", advice="ask an edge or the cloud")

    list_objects = list_catalogues = add_objects = remove_objects = remove_catalogue = refuse
