"""Format of the data that cooperating devices share: keys and list items in the store, and the calls used.

========================================== ========= =======================================================
``model/<catalogue>/<object>/<version>``    list      holders of the model, or the model itself
``adapt/<catalogue>/<object>/<version>``    list      adapted views of the object
``popularity/<catalogue>/<hour>``           counters  object → number of steps to it
``next/<catalogue>/<object>/<hour>``        counters  object → number of steps from this object to it
========================================== ========= =======================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from hashlib import sha256
from typing import Protocol
from urllib.parse import quote

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from nearsight.common.rpc.client import Reply
from nearsight.device.peers.presence.identity import NodeId, is_node_id
from nearsight.device.peers.store.kvstore import ItemsRead

_HOLDER = b"H"
_MODEL = b"M"
_NODE_BYTES = 8
_MOST_PART_BYTES = 200


def model_key(catalogue: str, object_id: str, version: int) -> str:
    """Key of the holders of one version of a model."""
    return f"model/{_part(catalogue)}/{_part(object_id)}/{version}"


def adapt_key(catalogue: str, object_id: str, version: int) -> str:
    """Key of the adapted views of one version of a model."""
    return f"adapt/{_part(catalogue)}/{_part(object_id)}/{version}"


def popularity_key(catalogue: str) -> str:
    """Key of the numbers of steps to each object; `FadingCounts` appends the hour."""
    return f"popularity/{_part(catalogue)}"


def next_key(catalogue: str, object_id: str) -> str:
    """Key of the numbers of steps from this object to each other one; `FadingCounts` appends the hour."""
    return f"next/{_part(catalogue)}/{_part(object_id)}"


def _part(name: str) -> str:
    """The name without slashes; the hash of a name that is too long for a key of the store."""
    part = quote(name, safe=" ")
    return part if len(part) <= _MOST_PART_BYTES else f"%{sha256(part.encode()).hexdigest()}"


def holder_item(node_id: NodeId) -> bytes:
    """The list item for a node that holds the model."""
    return _HOLDER + node_id.to_bytes(_NODE_BYTES, "big")


def model_item(data: bytes) -> bytes:
    """The list item that contains the model itself, in its storage form."""
    return _MODEL + data


def holder_of(item: bytes) -> NodeId | None:
    """The node that an item names; None if the item is not of this kind. Other devices write the items."""
    if len(item) != 1 + _NODE_BYTES or not item.startswith(_HOLDER):
        return None
    number = int.from_bytes(item[1:], "big")
    return NodeId(number) if is_node_id(number) else None


def model_in(item: bytes) -> bytes | None:
    """The storage form of the model in an item, not checked; None if the item is not of this kind."""
    return item[1:] if item.startswith(_MODEL) else None


class StoreCalls(Protocol):
    """The part of `KVStore` that cooperation uses."""

    def items(self, key: str, *, claim: bool = False) -> Future[ItemsRead]:
        """See `KVStore.items`."""

    def append(self, key: str, item: bytes, *, ttl_s: float | None = None) -> Future[None]:
        """See `KVStore.append`."""

    def remove(self, key: str, item: bytes) -> Future[None]:
        """See `KVStore.remove`."""

    def merge(self, key: str, counts: Mapping[str, int], *, ttl_s: float | None = None) -> Future[None]:
        """See `KVStore.merge`."""

    def counts(self, key: str) -> Future[Mapping[str, int]]:
        """See `KVStore.counts`."""


class PeerCalls(Protocol):
    """The part of `KRoute` that cooperation uses."""

    def nodes_for(self, key: str, count: int) -> tuple[NodeId, ...]:
        """See `KRoute.nodes_for`."""

    def call(
        self, node: NodeId, method: MethodDescriptor, request: Message, *, timeout_s: float, catalogue: str
    ) -> Future[Reply]:
        """See `PeerConnections.call`."""
