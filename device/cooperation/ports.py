"""What cooperation needs of the layer below: the store, and a way to call one peer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from nearsight.common.rpc.client import Reply
from nearsight.common.rpc.envelope import Buffer
from nearsight.device.peers.kvstore import ItemsRead
from nearsight.device.peers.node_id import NodeId


class SharedStore(Protocol):
    """The part of `KVStore` that is used; see there."""

    def items(self, key: str, *, claim: bool = False) -> Future[ItemsRead]: ...  # noqa: D102

    def append(  # noqa: D102
        self, key: str, item: bytes, *, ttl_s: float | None = None
    ) -> Future[None]: ...

    def remove(self, key: str, item: bytes) -> Future[None]: ...  # noqa: D102

    def merge(  # noqa: D102
        self, key: str, counts: Mapping[str, int], *, ttl_s: float | None = None
    ) -> Future[None]: ...

    def counts(self, key: str) -> Future[Mapping[str, int]]: ...  # noqa: D102


class PeerCalls(Protocol):
    """The part of `KRoute` that is used; see there."""

    def nodes_for(self, key: str, count: int) -> tuple[NodeId, ...]: ...  # noqa: D102

    def call(  # noqa: D102
        self,
        node: NodeId,
        method: MethodDescriptor,
        request: Message,
        *,
        timeout_s: float,
        blobs: Sequence[Buffer] = (),
        catalogue: str = "",
    ) -> Future[Reply]: ...
