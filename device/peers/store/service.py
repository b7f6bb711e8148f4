"""Serves this device's part of the key-value store to its peers; checks and limits all input."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from google.protobuf.descriptor import ServiceDescriptor

from nearsight.common.errors import InvalidArgument, InvalidMessage
from nearsight.common.rpc.service import CallContext, Service
from nearsight.device.peers.presence.identity import NodeId, caller_of, proven_id
from nearsight.device.peers.routing.cluster_view import ClusterView
from nearsight.device.peers.routing.connections import TrafficByPeer
from nearsight.device.peers.store.local_store import Place, Refusal
from nearsight.device.peers.store.shared_store import SharedStore
from nearsight.device.peers.store.values import Entry, check_key
from nearsight.protos.peers_pb2 import (
    DESCRIPTOR,
    ClaimMessage,
    OfferRequest,
    OfferResponse,
    ReadRequest,
    ReadResponse,
    RefusalMessage,
    WriteRequest,
    WriteResponse,
)

_STORE = DESCRIPTOR.services_by_name["Store"]
READ, WRITE, OFFER = (_STORE.methods_by_name[name] for name in ("Read", "Write", "Offer"))
MOST_KEYS = 64
"""Maximum number of keys of one read."""
NO_VIEW = 0
"""A digest that no view has: entries that arrive with it are handed over to their replicas."""
MOST_ENTRIES = 1024
"""Maximum number of entries of one write or offer."""


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """The answer of one node about a key."""

    entry: Entry | None
    """The state of the key on that node; None if it has none."""
    synchronised: bool
    """Whether the node's keys are complete."""
    wait_ms: int = 0
    """Remaining time of another device's claim to produce the value [ms]; 0 if there is none."""


class WriteAnswer(NamedTuple):
    """The answer of one node to a write."""

    newer: Entry | None
    """The state that overrides the write, if there is one."""
    refusal: str = ""
    """The reason if the node refused the entry, else empty."""


@dataclass(slots=True)
class ServedCounts:
    """Counters of calls by peers."""

    reads: int = 0
    writes: int = 0
    refused: int = 0
    handed_over: int = 0
    """Entries requested from offers of other nodes because they were missing or different here."""


class StoreService(Service):
    """The part of the store that this device holds.

    Parameters
    ----------
    shared : SharedStore
        The entries.
    cluster : ClusterView
        Tells whether they are complete.
    misplaced : callable
        Receives each key that came from a node with another view, or that other nodes should hold.
    offers_requested : callable
        Receives each node that requests all offers again.
    traffic : TrafficByPeer
        Receives the bytes sent to and received from a node.
    """

    descriptor: ClassVar[ServiceDescriptor] = _STORE

    def __init__(
        self,
        shared: SharedStore,
        cluster: ClusterView,
        *,
        misplaced: Callable[[str], None],
        offers_requested: Callable[[NodeId], None],
        traffic: TrafficByPeer,
    ) -> None:
        self.shared = shared
        self._cluster = cluster
        self._misplaced = misplaced
        self._offers_requested = offers_requested
        self._traffic = traffic
        self._lock = threading.Lock()
        self.counts = ServedCounts()

    def answer(self, key: str, asker: NodeId, view_digest: int, *, claim: bool) -> NodeAnswer:
        """The answer of this node about a key."""
        # Evaluated before the entry is read: keys that are complete now are still complete then.
        synchronised = self._cluster.synchronised(view_digest)
        entry = self.shared.read(key)
        wait_ms = 0
        if claim and (entry is None or entry.empty):
            wait_ms = self.shared.claim(key, asker)
        if entry is None and self.shared.lossy:
            synchronised = False
        return NodeAnswer(entry, synchronised, wait_ms)

    def take(self, entry: Entry, view_digest: int, *, displace: bool = True) -> WriteAnswer:
        """Merge an entry."""
        newer, refusal = self.shared.write(entry, displace=displace)
        other_view = view_digest != self._cluster.view.digest
        if refusal is None and (other_view or self.shared.entries.place(entry.key) is Place.SPARE):
            self._misplaced(entry.key)
        # An expired entry counts as written, as it would not exist any more.
        return WriteAnswer(newer, refusal if refusal is not None and refusal is not Refusal.EXPIRED else "")

    def read(self, request: ReadRequest, context: CallContext) -> ReadResponse:
        """Read some keys.

        Raises
        ------
        InvalidArgument
            If a key is not valid, or there are too many.
        """
        _check_number(len(request.keys), MOST_KEYS, "keys")
        asker = caller_of(context)
        response = ReadResponse(synchronised=True)
        for key in request.keys:
            check_key(key)
            answer = self.answer(key, asker, request.view, claim=request.claim)
            response.synchronised = response.synchronised and answer.synchronised
            if answer.entry is not None:
                response.entries.append(self.shared.encode(answer.entry))
            if answer.wait_ms:
                response.claims.append(ClaimMessage(key=key, wait_ms=answer.wait_ms))
        with self._lock:
            self.counts.reads += 1
        self._traffic.add(asker, response.ByteSize(), request.ByteSize())
        return response

    def write(self, request: WriteRequest, context: CallContext) -> WriteResponse:
        """Merge some entries into the store. Invalid entries are refused in the response.

        Raises
        ------
        InvalidArgument
            If there are too many.
        """
        _check_number(len(request.entries), MOST_ENTRIES, "entries")
        response = WriteResponse()
        for message in request.entries:
            try:
                entry = self.shared.admit(message)
            except InvalidMessage as error:
                response.refused.append(RefusalMessage(key=message.key, reason=error.message))
                continue
            answer = self.take(entry, request.view, displace=not request.only_if_room)
            if answer.refusal:
                response.refused.append(RefusalMessage(key=entry.key, reason=answer.refusal))
            elif answer.newer is not None:
                response.newer.append(self.shared.encode(answer.newer))
        with self._lock:
            self.counts.writes += 1
            self.counts.refused += len(response.refused)
        self._traffic.add(caller_of(context), response.ByteSize(), request.ByteSize())
        return response

    def offer(self, request: OfferRequest, context: CallContext) -> OfferResponse:
        """Return which of the offered entries are missing or different here, and record the offer's flags.

        Raises
        ------
        InvalidArgument
            If there are too many, or the offering node has no valid id.
        Unauthenticated
            If the caller claims the id of another node.
        """
        _check_number(len(request.entries), MOST_ENTRIES, "entries")
        node = proven_id(request.node_id, context)
        if request.ask:
            self._offers_requested(node)
        offered = {message.key: message.digest for message in request.entries}
        response = OfferResponse(wanted=self.shared.wanted(offered))
        with self._lock:
            self.counts.handed_over += len(response.wanted)
        if request.complete:
            self._cluster.complete(node, request.view)
        self._traffic.add(node, response.ByteSize(), request.ByteSize())
        return response


def _check_number(number: int, limit: int, what: str) -> None:
    if number > limit:
        raise InvalidArgument(f"{number} {what} at once, the limit is {limit}")
