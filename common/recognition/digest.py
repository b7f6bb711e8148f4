"""Which model it is: a digest that tells whether a model from a stranger is the one that was trained.

Cloud and edge list the digest of each object's model; a model that another device hands out is used only if
it has just this digest (dissertation, section 5.1.1; who vouches is left open there).

The digest is taken of what travels, not of the arrays in memory: message and blobs are rounded, so that it is
the same before and after any number of trips.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from hashlib import blake2b

from nearsight.common.errors import InvalidMessage
from nearsight.common.recognition.codec import Blob, object_model_to_proto
from nearsight.common.recognition.models import ObjectModel
from nearsight.protos.catalogue_pb2 import ObjectModelMessage

DIGEST_BYTES = 16
"""128 bits: nobody finds a second model with the digest of a given one."""

_PERSON = b"nearsight-model1"
_BLOBS_PER_VIEW = 3


def model_digest(model: ObjectModel) -> bytes:
    """The digest of a model, `DIGEST_BYTES` long: of id, label, version, metadata and all views."""
    return digest_of_message(*object_model_to_proto(model, 0))


def digest_of_message(message: ObjectModelMessage, blobs: Sequence[Blob]) -> bytes:
    """The digest of the model that a message and its blobs stand for; nothing is decoded.

    Raises
    ------
    InvalidMessage
        If a blob is missing.
    """
    hasher = blake2b(digest_size=DIGEST_BYTES, person=_PERSON)
    for part in _parts(message, blobs):
        _take(hasher, part)
    return hasher.digest()


def _take(hasher: hashlib.blake2b, part: Blob) -> None:
    """Each part behind its length: parts that are cut elsewhere must not make the same digest."""
    hasher.update(len(part).to_bytes(8, "little"))
    hasher.update(part)


def _parts(message: ObjectModelMessage, blobs: Sequence[Blob]) -> Iterator[Blob]:
    yield message.object_id.encode()
    yield message.label.encode()
    yield message.version.to_bytes(8, "little")
    yield len(message.metadata).to_bytes(8, "little")
    for key in sorted(message.metadata):
        yield key.encode()
        yield message.metadata[key].encode()
    for view in message.views:
        sizes = (view.count, view.image_width, view.image_height, view.source_width, view.source_height)
        yield b"".join(size.to_bytes(4, "little") for size in sizes)
        # Where the blobs lie among those of the call is no part of the model.
        last = view.first_blob + _BLOBS_PER_VIEW
        if last > len(blobs):
            raise InvalidMessage(f"blob {last - 1} is missing, {len(blobs)} came")
        yield from blobs[view.first_blob : last]
