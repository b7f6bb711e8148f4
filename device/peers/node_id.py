"""The name by which devices know each other: 64 bits.

With keys it follows from the public key, so that whoever claims an id can be made to prove it, and a beacon
of 13 bytes says which key the connection must prove.
"""

from __future__ import annotations

import hashlib
import random
from typing import NewType

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
