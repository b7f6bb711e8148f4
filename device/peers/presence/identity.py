"""Who a device is: 64 bits, and the keys of the devices to share with.

With keys the node id follows from the public key. Then an id can be proved, and a beacon of 13 bytes tells
which key the connection must prove.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from pathlib import Path
from typing import NewType

from nearsight.common.errors import ConfigurationError, InvalidArgument, Unauthenticated
from nearsight.common.rpc.security import AllowList
from nearsight.common.rpc.service import CallContext

NodeId = NewType("NodeId", int)
"""1 to 2**64 - 1; 0 stands for no node."""

_LAST = 2**64 - 1


def node_id_of_key(public_key: str) -> NodeId:
    """The id of the owner of a CURVE key.

    Parameters
    ----------
    public_key : str
        In Z85.
    """
    digest = hashlib.blake2b(public_key.encode("ascii")).digest()
    return NodeId(int.from_bytes(digest[:8], "big") or 1)


def random_node_id(rng: random.Random) -> NodeId:
    """An id for a device without keys; also good as an incarnation. `random.SystemRandom` is a ``rng``."""
    return NodeId(rng.randint(1, _LAST))


def is_node_id(number: int) -> bool:
    """Whether the number can be the id of a node."""
    return 1 <= number <= _LAST


def shown(node_id: int) -> str:
    """The id as 16 hexadecimal digits, for people."""
    return f"{node_id:016x}"


class AllowedPeers:
    """Public keys by node id, from a folder of ``*.key`` files. One thread refreshes it; any may ask.

    Parameters
    ----------
    folder : Path
        Of the keys, as `nearsight keys allow` fills it.

    Raises
    ------
    ConfigurationError
        If there is no such folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._list = AllowList(folder)
        self._keys: dict[NodeId, str] = {}
        self._names: Mapping[str, str] = {}
        self._read()

    def __contains__(self, node_id: object) -> bool:
        return node_id in self._keys

    def public_key(self, node_id: NodeId) -> str | None:
        """The key in Z85 that this node must prove; None for a stranger."""
        return self._keys.get(node_id)

    def node_named(self, name: str) -> NodeId:
        """The node whose key is in ``NAME.key``.

        Raises
        ------
        ConfigurationError
            If there is no such key.
        """
        for key, known in self._names.items():
            if known == name:
                return node_id_of_key(key)
        raise ConfigurationError(
            f"no key called {name!r} is in {self._folder}",
            advice=f"let it in with `nearsight keys allow {name}.key --dir {self._folder}`",
        )

    def refresh(self) -> None:
        """Read the folder again if a file in it changed."""
        self._list.refresh()
        if self._list.names is not self._names:
            self._read()

    def _read(self) -> None:
        self._names = self._list.names
        self._keys = {node_id_of_key(key): key for key in self._names}


def proven_id(claimed: int, context: CallContext) -> NodeId:
    """The node that a call comes from.

    Raises
    ------
    InvalidArgument
        If the claimed number is no id.
    Unauthenticated
        If the caller's key belongs to another node.
    """
    if not is_node_id(claimed):
        raise InvalidArgument(f"{claimed} is not the id of a node")
    if context.peer_key is not None and node_id_of_key(context.peer_key) != claimed:
        raise Unauthenticated(f"this key does not belong to the node {shown(claimed)}")
    return NodeId(claimed)


def caller_of(context: CallContext) -> NodeId:
    """The node that calls; without keys, the one that it says that it is; 0 if that is none."""
    if context.peer_key is not None:
        return node_id_of_key(context.peer_key)
    try:
        return NodeId(int(context.client_id, 16))
    except ValueError:
        return NodeId(0)
