"""Serves this device's part of the key-value store to its peers.

Everything that comes in is checked, counted and bounded: peers are devices of strangers' making.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

from google.protobuf.descriptor import ServiceDescriptor

from nearsight.common.errors import InvalidArgument, InvalidMessage
from nearsight.common.rpc.service import CallContext, Service
from nearsight.device.peers.presence.identity import NodeId, caller_of, proven_id
from nearsight.device.peers.routing.cluster_view import ClusterView
from nearsight.device.peers.store.local_store import Refusal
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

MOST_KEYS = 64
"""Of one read."""
MOST_ENTRIES = 1024
"""Of one write or offer."""


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What one node says about a key.

    Parameters
    ----------
    entry : Entry or None
        Its state there, if any.
    synchronised : bool
        The node's keys are complete.
    wait_ms : int
        Somebody else produces the value, and needs about so long.
    """

    entry: Entry | None
    synchronised: bool
    wait_ms: int = 0


@dataclass(slots=True)
class ServedCounts:
    """What peers asked for so far."""

    reads: int = 0
    writes: int = 0
    refused: int = 0
    handed_over: int = 0
    """Entries that arrived because nodes came or went, and were news."""


@dataclass(frozen=True, slots=True)
class StoreEvents:
    """Who is told of what arrives.

    Parameters
    ----------
    misplaced : callable
        Keys came from somebody who sees other nodes; they may belong elsewhere too.
    asked : callable
        A node wants everything offered once more.
    traffic : callable
        Bytes sent to and received from a node.
    """

    misplaced: Callable[[Iterable[str]], None]
    asked: Callable[[NodeId], None]
    traffic: Callable[[NodeId, int, int], None]


class StoreService(Service):
    """The part of the store that this device holds.

    Parameters
    ----------
    shared : SharedStore
        The entries.
    cluster : ClusterView
        Whether they are complete.
    belongs : callable
        Whether this node is a replica of a key.
    events : StoreEvents
        Told of what arrives.
    """

    descriptor: ClassVar[ServiceDescriptor] = DESCRIPTOR.services_by_name["Store"]

    def __init__(
        self,
        shared: SharedStore,
        cluster: ClusterView,
        belongs: Callable[[str], bool],
        events: StoreEvents,
    ) -> None:
        self._shared = shared
        self._cluster = cluster
        self._belongs = belongs
        self._events = events
        self._lock = threading.Lock()
        self.counts = ServedCounts()

    def answer(self, key: str, asker: NodeId, view_digest: int, *, claim: bool) -> NodeAnswer:
        """What this node says about a key."""
        # Asked before the entry is read: what is complete now is so when it is read.
        synchronised = self._cluster.synchronised(view_digest)
        entry = self._shared.read(key)
        wait_ms = 0
        if claim and (entry is None or entry.empty):
            wait_ms = self._shared.claim(key, asker)
        if entry is None and self._shared.lossy:
            synchronised = False
        return NodeAnswer(entry, synchronised, wait_ms)

    def take(self, entry: Entry, view_digest: int, *, displace: bool = True) -> tuple[Entry | None, str]:
        """Take in an entry; returns what its writer must know, and why it was refused, if it was."""
        written = self._shared.write(entry, displace=displace)
        if view_digest != self._cluster.view.digest or not self._belongs(entry.key):
            self._events.misplaced((entry.key,))
        # What has ended is as good as written: it would be gone by now.
        refused = written.refusal is not None and written.refusal is not Refusal.EXPIRED
        return written.newer, str(written.refusal) if refused else ""

    def read(self, request: ReadRequest, context: CallContext) -> ReadResponse:
        """Read some keys.

        Raises
        ------
        InvalidArgument
            If a key is none, or there are too many.
        """
        _check_number(len(request.keys), MOST_KEYS, "keys")
        asker = caller_of(context)
        response = ReadResponse(synchronised=True)
        for key in request.keys:
            check_key(key)
            answer = self.answer(key, asker, request.view, claim=request.claim)
            response.synchronised = response.synchronised and answer.synchronised
            if answer.entry is not None:
                response.entries.append(self._shared.encode(answer.entry))
            if answer.wait_ms:
                response.claims.append(ClaimMessage(key=key, wait_ms=answer.wait_ms))
        with self._lock:
            self.counts.reads += 1
        self._events.traffic(asker, response.ByteSize(), request.ByteSize())
        return response

    def write(self, request: WriteRequest, context: CallContext) -> WriteResponse:
        """Take in some entries.

        Raises
        ------
        InvalidArgument
            If there are too many.
        InvalidMessage
            If one of them is none.
        """
        _check_number(len(request.entries), MOST_ENTRIES, "entries")
        response = WriteResponse()
        for message in request.entries:
            try:
                entry = self._shared.admit(message)
            except InvalidMessage as error:
                response.refused.append(RefusalMessage(key=message.key, reason=error.message))
                continue
            newer, reason = self.take(entry, request.view, displace=not request.only_if_room)
            if reason:
                response.refused.append(RefusalMessage(key=entry.key, reason=reason))
            elif newer is not None:
                response.newer.append(self._shared.encode(newer))
        with self._lock:
            self.counts.writes += 1
            self.counts.refused += len(response.refused)
        self._events.traffic(caller_of(context), response.ByteSize(), request.ByteSize())
        return response

    def offer(self, request: OfferRequest, context: CallContext) -> OfferResponse:
        """Say which of the offered entries are lacking here, and note what else the offer says.

        Raises
        ------
        InvalidArgument
            If there are too many, or no node offers them.
        Unauthenticated
            If the caller claims to be somebody else.
        """
        _check_number(len(request.entries), MOST_ENTRIES, "entries")
        node = proven_id(request.node_id, context)
        if request.ask:
            self._events.asked(node)
        offered = {message.key: message.digest for message in request.entries}
        response = OfferResponse(wanted=self._shared.wanted(offered))
        with self._lock:
            self.counts.handed_over += len(response.wanted)
        if request.complete:
            self._cluster.complete(node, request.view)
        self._events.traffic(node, response.ByteSize(), request.ByteSize())
        return response


def _check_number(number: int, limit: int, what: str) -> None:
    if number > limit:
        raise InvalidArgument(f"{number} {what} at once, the limit is {limit}")
