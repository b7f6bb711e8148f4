"""What is believed of peers: nothing but models whose digest edge or cloud listed.

`ModelDigests` holds the last listing, `verify` compares an answer with it, and `PeerReputation` remembers
peers that lied (they are not asked again) and peers that failed (they are left alone for a while).
"""

from __future__ import annotations

import enum
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

from nearsight.common.catalogue.answers import Listing
from nearsight.common.errors import CorruptStore, InvalidMessage
from nearsight.common.recognition.codec import digest_of_message, model_digest, object_model_from_bytes
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.rpc.client import Reply
from nearsight.device.cooperation.protocol import CooperationRules
from nearsight.device.peers.presence.identity import NodeId
from nearsight.protos.catalogue_pb2 import GetObjectModelsResponse


class Verdict(enum.Enum):
    """On an answer of a peer."""

    RIGHT = "right"
    """The model that is vouched for, bit by bit."""
    MISSING = "missing"
    """It has none: honest, as models leave memory before the store knows."""
    OUTDATED = "outdated"
    """Of another version: it, or this device, has not heard of the newest one."""
    WRONG = "wrong"
    """Not what was asked for."""


def judge(reply: Reply, object_id: str, voucher: ModelDigest, limit_bytes: int) -> Verdict:
    """Compare an answer with what a tier vouches for.

    Parameters
    ----------
    reply : Reply
        Of a peer that was asked for one model.
    object_id : str
        Of which object.
    voucher : ModelDigest
        Its version and digest.
    limit_bytes : int
        A longer answer is not looked at.
    """
    message = reply.message
    if not isinstance(message, GetObjectModelsResponse) or reply.received_bytes > limit_bytes:
        return Verdict.WRONG
    if not message.models:
        return Verdict.MISSING
    model = message.models[0]
    if len(message.models) != 1 or model.object_id != object_id:
        return Verdict.WRONG
    if model.version != voucher.version:
        return Verdict.OUTDATED
    try:
        right = digest_of_message(model, reply.blobs) == voucher.digest
    except InvalidMessage:
        right = False
    return Verdict.RIGHT if right else Verdict.WRONG


def stored_model(data: bytes, voucher: ModelDigest) -> ObjectModel | None:
    """The model in a value of the store; None if it is not the one that is vouched for."""
    try:
        model = object_model_from_bytes(data)
    except CorruptStore:
        return None
    return model if model_digest(model) == voucher.digest else None


_MOST_REMEMBERED = 4096


class PeerReputation:
    """What was experienced with peers. Not thread-safe.

    Parameters
    ----------
    rules : CooperationRules
        How long a peer that failed rests.
    """

    def __init__(self, rules: CooperationRules) -> None:
        self._rules = rules
        self._failed: OrderedDict[NodeId, tuple[int, float]] = OrderedDict()
        self._liars: OrderedDict[NodeId, tuple[str, bytes]] = OrderedDict()

    @property
    def liars(self) -> tuple[NodeId, ...]:
        """Peers that handed out a wrong model."""
        return tuple(self._liars)

    def may_be_asked(self, node: NodeId, now_s: float) -> bool:
        """Whether a model of this peer is worth the wait."""
        _, rests_until_s = self._failed.get(node, (0, -math.inf))
        return node not in self._liars and now_s >= rests_until_s

    def answered(self, node: NodeId) -> None:
        """It gave what was asked for."""
        self._failed.pop(node, None)

    def failed(self, node: NodeId, now_s: float) -> None:
        """It did not answer."""
        times, _ = self._failed.pop(node, (0, 0.0))
        rest_s = min(self._rules.longest_rest_s, self._rules.rest_s * 2.0 ** min(times, 16))
        self._failed[node] = (times + 1, now_s + rest_s)
        if len(self._failed) > _MOST_REMEMBERED:
            self._failed.popitem(last=False)

    def lied(self, node: NodeId, object_id: str, digest: bytes) -> None:
        """It handed out something else than the model of this object with this digest."""
        self._liars[node] = (object_id, digest)
        if len(self._liars) > _MOST_REMEMBERED:
            self._liars.popitem(last=False)

    def forgive(self, was_mistaken: Callable[[str, bytes], bool]) -> None:
        """Trust those again whom only an outdated digest spoke against."""
        for node, (object_id, digest) in list(self._liars.items()):
            if was_mistaken(object_id, digest):
                del self._liars[node]


@dataclass(frozen=True, slots=True)
class ModelDigest:
    """What a tier says of one object.

    Attributes
    ----------
    version : int
        That is to be used.
    digest : bytes
        Of its model.
    """

    version: int
    digest: bytes


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    vouchers: MappingProxyType[str, ModelDigest]
    object_ids: tuple[str, ...]
    revision: int


class ModelDigests:
    """The last listing. Any thread may read it, one thread changes it."""

    def __init__(self) -> None:
        self._known: _Known | None = None

    @property
    def listed(self) -> bool:
        """Whether a tier has listed the catalogue."""
        return self._known is not None

    @property
    def revision(self) -> int:
        """Of the catalogue as it was listed; 0 before."""
        return self._known.revision if self._known is not None else 0

    @property
    def object_ids(self) -> tuple[str, ...]:
        """All objects of the catalogue."""
        return self._known.object_ids if self._known is not None else ()

    def of(self, object_id: str) -> ModelDigest | None:
        """What is vouched for; None if nothing is."""
        return self._known.vouchers.get(object_id) if self._known is not None else None

    def update(self, listing: Listing) -> None:
        """Take over a listing."""
        versions = listing.versions
        vouchers = {name: ModelDigest(versions[name], digest) for name, digest in listing.digests.items()}
        # Binding a name is atomic: readers see the old listing or the new one.
        self._known = _Known(MappingProxyType(vouchers), tuple(versions), listing.revision)
