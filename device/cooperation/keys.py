"""Under which keys devices share, and what the items of the lists are.

========================================== ========= =======================================================
``model/<catalogue>/<object>/<version>``    list      who holds the model, or the model itself
``adapt/<catalogue>/<object>/<version>``    list      adapted views of the object
``popularity/<catalogue>``                  counters  object → how often somebody came to it
``next/<catalogue>/<object>``               counters  object → how often it followed
========================================== ========= =======================================================
"""

from __future__ import annotations

from urllib.parse import quote

from nearsight.device.peers.node_id import NodeId, is_node_id

_HOLDER = b"H"
_MODEL = b"M"
_NODE_BYTES = 8


def model_key(catalogue: str, object_id: str, version: int) -> str:
    """Where one version of a model is to be had."""
    return f"model/{_part(catalogue)}/{_part(object_id)}/{version}"


def adapt_key(catalogue: str, object_id: str, version: int) -> str:
    """Adapted views of one version of a model."""
    return f"adapt/{_part(catalogue)}/{_part(object_id)}/{version}"


def popularity_key(catalogue: str) -> str:
    """How often each object was come to."""
    return f"popularity/{_part(catalogue)}"


def next_key(catalogue: str, object_id: str) -> str:
    """How often each object followed this one."""
    return f"next/{_part(catalogue)}/{_part(object_id)}"


def _part(name: str) -> str:
    return quote(name, safe=" ")


def holder_item(node_id: NodeId) -> bytes:
    """The list item that says: this node holds the model."""
    return _HOLDER + node_id.to_bytes(_NODE_BYTES, "big")


def model_item(data: bytes) -> bytes:
    """The list item that is the model itself, in its storage form."""
    return _MODEL + data


def holder_of(item: bytes) -> NodeId | None:
    """The node that an item names; None if it names none. Strangers wrote it."""
    if len(item) != 1 + _NODE_BYTES or not item.startswith(_HOLDER):
        return None
    number = int.from_bytes(item[1:], "big")
    return NodeId(number) if is_node_id(number) else None


def model_in(item: bytes) -> bytes | None:
    """The storage form of the model that an item claims to be; None if it claims nothing of that kind."""
    return item[1:] if item.startswith(_MODEL) else None
