"""Verification of peers' models: only models with a digest that edge or cloud listed are accepted.

`ModelDigests` holds the last listing and `verify` compares an answer with it. `PeerReputation` records peers
that sent a wrong model (they are not asked again) and peers that failed (they are not asked for a while).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass

from cachetools import FIFOCache

from nearsight.common.catalogue.answers import Listing
from nearsight.common.errors import CorruptStore, InvalidMessage
from nearsight.common.recognition.codec import digest_of_message, model_digest, object_model_from_bytes
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.rpc.client import Reply
from nearsight.device.peers.presence.identity import NodeId
from nearsight.protos.catalogue_pb2 import GetObjectModelsResponse

BACK_OFF_S, LONGEST_BACK_OFF_S = 5.0, 120.0
"""Time for which a peer is not asked for models after a failure, and its maximum [s]; doubles with each
failure."""
LARGEST_ANSWER_BYTES = 4 * 2**20
"""Maximum size of a peer's answer; longer ones are rejected unread."""
_MOST_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class ModelDigest:
    """The version of an object's model that a tier listed, and its digest."""

    version: int
    digest: bytes


class ModelDigests:
    """The last listing of the catalogue. One thread updates it; any thread may read it."""

    def __init__(self) -> None:
        self.listed = False
        """Whether a tier has listed the catalogue."""
        self.revision = 0
        """Revision of the listed catalogue; 0 before the first listing."""
        self.object_ids: tuple[str, ...] = ()
        """All objects of the catalogue."""
        self._known: Mapping[str, ModelDigest] = {}

    def of(self, object_id: str) -> ModelDigest | None:
        """The listed version and digest of an object; None if it is not listed."""
        return self._known.get(object_id)

    def update(self, listing: Listing) -> None:
        """Replace the listing."""
        versions = listing.versions
        # Assigning a name is atomic: readers get the old digests or the new ones.
        self._known = {name: ModelDigest(versions[name], digest) for name, digest in listing.digests.items()}
        self.object_ids, self.revision, self.listed = tuple(versions), listing.revision, True


class Verdict(enum.Enum):
    """Result of verifying a peer's answer."""

    RIGHT = "right"
    """The listed model, equal in every bit."""
    MISSING = "missing"
    """The peer has no model. This is no sign of malice, as models may be evicted before the store is
    updated."""
    OUTDATED = "outdated"
    """Another version: the peer or this device does not have the newest listing."""
    WRONG = "wrong"
    """Not the requested model."""


def verify(reply: Reply, object_id: str, listed: ModelDigest) -> Verdict:
    """Compare an answer with the listing of a tier.

    Parameters
    ----------
    reply : Reply
        Answer of a peer that was asked for one model.
    object_id : str
        The requested object.
    listed : ModelDigest
        Its version and digest.
    """
    message = reply.message
    if not isinstance(message, GetObjectModelsResponse) or reply.received_bytes > LARGEST_ANSWER_BYTES:
        return Verdict.WRONG
    if not message.models:
        return Verdict.MISSING
    model = message.models[0]
    if len(message.models) != 1 or model.object_id != object_id:
        return Verdict.WRONG
    if model.version != listed.version:
        return Verdict.OUTDATED
    try:
        right = digest_of_message(model, reply.blobs) == listed.digest
    except InvalidMessage:
        right = False
    return Verdict.RIGHT if right else Verdict.WRONG


def stored_model(data: bytes, listed: ModelDigest) -> ObjectModel | None:
    """The model in a value of the store; None if it is not the listed one."""
    try:
        model = object_model_from_bytes(data)
    except CorruptStore:
        return None
    return model if model_digest(model) == listed.digest else None


class PeerReputation:
    """Peers that sent wrong models or failed. Not thread-safe."""

    def __init__(self) -> None:
        self._failed: FIFOCache[NodeId, tuple[int, float]] = FIFOCache(_MOST_REMEMBERED)
        self._distrusted: FIFOCache[NodeId, tuple[str, bytes]] = FIFOCache(_MOST_REMEMBERED)

    @property
    def distrusted(self) -> tuple[NodeId, ...]:
        """Peers that sent a wrong model."""
        return tuple(self._distrusted)

    def may_be_asked(self, node: NodeId, now_s: float) -> bool:
        """Whether the peer may be asked now: it has sent no wrong model, and its last back-off has ended."""
        _, back_off_until_s = self._failed.get(node, (0, -math.inf))
        return node not in self._distrusted and now_s >= back_off_until_s

    def answered(self, node: NodeId) -> None:
        """Record an answer that was correct: resets the back-off."""
        self._failed.pop(node, None)

    def failed(self, node: NodeId, now_s: float) -> None:
        """Record a missing answer or an outdated model: starts a back-off."""
        times, _ = self._failed.pop(node, (0, 0.0))
        back_off_s = min(LONGEST_BACK_OFF_S, BACK_OFF_S * 2.0 ** min(times, 16))
        self._failed[node] = (times + 1, now_s + back_off_s)

    def distrust(self, node: NodeId, object_id: str, digest: bytes) -> None:
        """Record that it sent something else than the model of this object with this digest."""
        self._distrusted[node] = (object_id, digest)

    def restore(self, digests: ModelDigests) -> None:
        """Trust peers again if the object has another digest now: theirs may have been outdated."""
        for node, (object_id, digest) in list(self._distrusted.items()):
            listed = digests.of(object_id)
            if listed is None or listed.digest != digest:
                del self._distrusted[node]
