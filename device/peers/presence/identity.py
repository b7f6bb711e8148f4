"""Identity of a device: a node id of 64 bits, and the keys of the devices to share with.

With keys, the node id is derived from the public key. Thus an id can be proved, and a beacon of 13 bytes
identifies the key that the connection must prove.
"""

from __future__ import annotations

import functools
import hashlib
import random
from dataclasses import dataclass
from pathlib import Path
from typing import NewType

from nearsight.common.errors import ConfigurationError, InvalidArgument, Unauthenticated
from nearsight.common.rpc.allow_list import AllowList
from nearsight.common.rpc.endpoints import is_local
from nearsight.common.rpc.security import read_secret_key
from nearsight.common.rpc.service import CallContext
from nearsight.device.peers.settings import PeerSettings

NodeId = NewType("NodeId", int)
"""1 to 2**64 - 1; 0 means no node."""

_LAST = 2**64 - 1


@functools.lru_cache(maxsize=4096)
def node_id_of_key(public_key: str) -> NodeId:
    """The node id of the owner of a CURVE key.

    Parameters
    ----------
    public_key : str
        In Z85.
    """
    digest = hashlib.blake2b(public_key.encode("ascii")).digest()
    return NodeId(int.from_bytes(digest[:8], "big") or 1)


def random_node_id(rng: random.Random) -> NodeId:
    """A random id for a device without keys, or an incarnation; ``rng`` may be a `random.SystemRandom`."""
    return NodeId(rng.randint(1, _LAST))


def is_node_id(number: int) -> bool:
    """Whether the number is a valid node id."""
    return 1 <= number <= _LAST


def shown(node_id: int) -> str:
    """The id as 16 hexadecimal digits, for people."""
    return f"{node_id:016x}"


class AllowedPeers:
    """Public keys of the devices to share with, from a folder of ``*.key`` files. Thread-safe.

    Parameters
    ----------
    folder : Path
        Folder of the keys, written by `nearsight keys allow`.

    Raises
    ------
    ConfigurationError
        If the folder does not exist.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._list = AllowList(folder)
        self.refresh = self._list.refresh
        """Read the folder again if a file in it changed."""

    def public_key(self, node_id: NodeId) -> str | None:
        """The key (Z85) that this node must prove; None if the node is not allowed."""
        return next((key for key in self._list.clients if node_id_of_key(key) == node_id), None)

    def node_named(self, name: str) -> NodeId:
        """The node whose key is in ``NAME.key``.

        Raises
        ------
        ConfigurationError
            If there is no such key.
        """
        for client in self._list.clients.values():
            if client.name == name:
                return node_id_of_key(client.key)
        raise ConfigurationError(
            f"there is no key {name!r} in {self._folder}",
            advice=f"add it with `nearsight keys allow {name}.key --dir {self._folder}`",
        )


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of this device since its last start."""

    node_id: NodeId
    """Node id of this device."""
    incarnation: int
    """Random number of this process; a restart changes it. Peers thereby detect restarts."""
    allowed: AllowedPeers | None = None
    """Devices to share with; None without keys. Without keys, sharing is limited to one machine."""

    @classmethod
    def of(cls, settings: PeerSettings, rng: random.Random) -> Identity:
        """The identity that the settings describe; without keys a random one.

        Raises
        ------
        ConfigurationError
            If keys are missing or cannot be used.
        """
        if settings.allowed is not None and settings.secret_key_file is None:
            raise ConfigurationError(
                f"peers.allowed is {str(settings.allowed)!r}, but this device has no key of its own",
                advice="create one with `nearsight keys generate NAME --dir keys` and set peers."
                "secret_key_file (table [device.recognizer.peers]), or security.secret_key_file in [device]",
            )
        if settings.allowed is None and not is_local(settings.listen):
            raise ConfigurationError(
                f"listening on {settings.listen} needs keys, as other machines can connect to it",
                advice="set peers.allowed (table [device.recognizer.peers]) to a folder with the *.key files "
                "of the devices to share with (`nearsight keys allow KEY --dir FOLDER`), or listen on "
                "tcp://127.0.0.1:0",
            )
        if settings.secret_key_file is None or settings.allowed is None:
            return cls(random_node_id(rng), int(random_node_id(rng)))
        public = read_secret_key(settings.secret_key_file).public
        return cls(node_id_of_key(public), int(random_node_id(rng)), AllowedPeers(settings.allowed))


def proven_id(claimed: int, context: CallContext) -> NodeId:
    """The node that a call comes from.

    Raises
    ------
    InvalidArgument
        If the claimed number is not a node id.
    Unauthenticated
        If the caller's key belongs to another node.
    """
    if not is_node_id(claimed):
        raise InvalidArgument(f"{claimed} is not a node id")
    if context.caller.key and node_id_of_key(context.caller.key) != claimed:
        raise Unauthenticated(f"the key does not belong to the node {shown(claimed)}")
    return NodeId(claimed)


def caller_of(context: CallContext) -> NodeId:
    """The calling node: by its key, without keys by the id that it states; 0 if that is not an id."""
    if context.caller.key:
        return node_id_of_key(context.caller.key)
    try:
        return NodeId(int(context.client_id, 16))
    except ValueError:
        return NodeId(0)
