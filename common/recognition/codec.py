"""Features, models and answers as messages and blobs, and back; the digest that names a model.

The only place where recognition meets protobuf. What comes in was written by strangers: every ``from``
function checks it before anything is allocated or believed.

Cloud and edge list the digest of each object's model. A model that another device hands out is used only if
it has this digest (dissertation, section 5.1.1, leaves open who vouches). The digest is taken of what
travels, where numbers are rounded, not of the arrays in memory: it is the same after any number of trips.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from operator import attrgetter

import numpy as np
import xxhash
from google.protobuf.message import DecodeError

from nearsight.common.errors import CorruptStore, InvalidArgument, InvalidMessage
from nearsight.common.recognition.extraction import KEYPOINT_STEPS_PER_PX
from nearsight.common.recognition.models import DESCRIPTOR_BYTES, Features, ObjectModel
from nearsight.common.recognition.results import RecognizedObject
from nearsight.protos.catalogue_pb2 import ObjectModelMessage
from nearsight.protos.recognition_pb2 import FeaturesMessage, Point, RecognizedObjectMessage

Blob = bytes | bytearray | memoryview

MAX_FEATURES = 10_000
"""Most features that a message may declare for one image; as many as settings may ask for."""

DIGEST_BYTES = 16
"""128 bits: nobody finds a second model with the digest of a given one."""

_DIGEST_PERSON = b"nearsight-model1"
_BLOBS_PER_VIEW = 3
_MAX_SIDE_PX = 2**16 // KEYPOINT_STEPS_PER_PX - 1
_MAX_SOURCE_SIDE_PX = 2**17
_MAGIC = b"NSM1"
_PREFIX = struct.Struct("<4sQI")
_PLACE: Callable[[Point], tuple[float, float]] = attrgetter("x", "y")


def features_to_proto(features: Features, first_blob: int) -> tuple[FeaturesMessage, list[bytes]]:
    """A message and its three blobs, the first of which will be blob ``first_blob`` of the call."""
    steps = np.rint(features.keypoints * KEYPOINT_STEPS_PER_PX)
    if max(features.image_size) > _MAX_SIDE_PX or (len(steps) and (steps.min() < 0 or steps.max() >= 2**16)):
        raise InvalidArgument(f"a processed image may be {_MAX_SIDE_PX} px long, got {features.image_size}")
    message = FeaturesMessage(
        count=len(features),
        image_width=features.image_size[0],
        image_height=features.image_size[1],
        source_width=features.source_size[0],
        source_height=features.source_size[1],
        first_blob=first_blob,
    )
    strengths = np.clip(features.strengths, -65504, 65504).astype("<f2")
    return message, [steps.astype("<u2").tobytes(), features.descriptors.tobytes(), strengths.tobytes()]


def features_from_proto(message: FeaturesMessage, blobs: Sequence[Blob]) -> Features:
    """The features of a message.

    Raises
    ------
    InvalidMessage
        If counts, sizes and blobs do not fit together.
    """
    count = message.count
    if count > MAX_FEATURES:
        raise InvalidMessage(f"{count} features in one image, the limit is {MAX_FEATURES}")
    image_size = (message.image_width, message.image_height)
    source_size = (message.source_width, message.source_height)
    if not (min(image_size) >= 1 and max(image_size) <= _MAX_SIDE_PX):
        raise InvalidMessage(f"image size {image_size} is not within 1..{_MAX_SIDE_PX}")
    if not (min(source_size) >= 1 and max(source_size) <= _MAX_SOURCE_SIDE_PX):
        raise InvalidMessage(f"source size {source_size} is not within 1..{_MAX_SOURCE_SIDE_PX}")
    keypoints = np.frombuffer(_blob(blobs, message.first_blob, count * 4), "<u2").reshape(count, 2)
    descriptors = np.frombuffer(_blob(blobs, message.first_blob + 1, count * DESCRIPTOR_BYTES), np.uint8)
    if count and (keypoints.max(axis=0) > np.array(image_size) * KEYPOINT_STEPS_PER_PX).any():
        raise InvalidMessage(f"keypoints lie outside of the image of {image_size}")
    strengths = np.frombuffer(_blob(blobs, message.first_blob + 2, count * 2), "<f2")
    try:
        return Features(
            keypoints.astype(np.float32) / np.float32(KEYPOINT_STEPS_PER_PX),
            descriptors.reshape(count, DESCRIPTOR_BYTES),
            strengths.astype(np.float32),
            image_size,
            source_size,
        )
    except InvalidArgument as error:
        raise InvalidMessage(f"features: {error.message}") from error


def _blob(blobs: Sequence[Blob], index: int, expected_bytes: int) -> Blob:
    if index >= len(blobs):
        raise InvalidMessage(f"blob {index} is missing, {len(blobs)} came")
    blob = blobs[index]
    if len(blob) != expected_bytes:
        raise InvalidMessage(f"blob {index} has {len(blob)} bytes, expected {expected_bytes}")
    return blob


def object_model_to_proto(model: ObjectModel, first_blob: int) -> tuple[ObjectModelMessage, list[bytes]]:
    """A message and the blobs of its views, view after view."""
    message = ObjectModelMessage(
        object_id=model.object_id,
        label=model.label,
        version=model.version,
        metadata=dict(model.metadata),
        rivals=dict(model.rivals),
    )
    blobs: list[bytes] = []
    for view in model.views:
        features, added = features_to_proto(view, first_blob + len(blobs))
        message.views.append(features)
        blobs += added
    return message, blobs


def object_model_from_proto(message: ObjectModelMessage, blobs: Sequence[Blob]) -> ObjectModel:
    """The model of a message.

    Raises
    ------
    InvalidMessage
        If a part is missing or does not fit.
    """
    try:
        return ObjectModel(
            message.object_id,
            message.label,
            tuple(features_from_proto(view, blobs) for view in message.views),
            message.version,
            _in_order(message.metadata),
            dict(message.rivals),
        )
    except InvalidMessage:
        raise
    except InvalidArgument as error:
        raise InvalidMessage(f"object model: {error.message}") from error


def model_digest(model: ObjectModel) -> bytes:
    """The digest of a model, `DIGEST_BYTES` long: of id, label, version, metadata, views, rivals."""
    return digest_of_message(*object_model_to_proto(model, 0))


def digest_of_message(message: ObjectModelMessage, blobs: Sequence[Blob]) -> bytes:
    """The digest of the model that a message and its blobs stand for; nothing is decoded.

    Raises
    ------
    InvalidMessage
        If a blob is missing.
    """
    hasher = blake2b(digest_size=DIGEST_BYTES, person=_DIGEST_PERSON)
    for part in _digest_parts(message, blobs):
        # Each part follows its length: parts that are cut elsewhere must not make the same digest.
        hasher.update(len(part).to_bytes(8, "little"))
        hasher.update(part)
    return hasher.digest()


def _digest_parts(message: ObjectModelMessage, blobs: Sequence[Blob]) -> Iterator[Blob]:
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
        # The place of the blobs in the call is no part of the model.
        last = view.first_blob + _BLOBS_PER_VIEW
        if last > len(blobs):
            raise InvalidMessage(f"blob {last - 1} is missing, {len(blobs)} came")
        yield from blobs[view.first_blob : last]
    for rival in sorted(message.rivals):  # none: the digest of times before there were rivals
        yield rival.encode()
        yield message.rivals[rival].to_bytes(4, "little")


def recognized_object_to_proto(found: RecognizedObject) -> RecognizedObjectMessage:
    """The message of an answer."""
    message = RecognizedObjectMessage(
        object_id=found.object_id,
        label=found.label,
        version=found.version,
        confidence=found.confidence,
        inliers=found.inliers,
        metadata=dict(found.metadata),
    )
    for x, y in found.corners or ():
        message.corners.add(x=x, y=y)
    return message


def recognized_object_from_proto(message: RecognizedObjectMessage) -> RecognizedObject:
    """The answer of a message.

    Raises
    ------
    InvalidMessage
        If the id is missing, there are corners but not four finite ones, or the confidence is outside (0, 1].
    """
    points = list(map(_PLACE, message.corners))
    if not message.object_id or len(points) not in (0, 4) or not np.isfinite(points).all():
        raise InvalidMessage("an answer needs an object id, and no corners or four finite ones")
    if not 0 < message.confidence <= 1:
        raise InvalidMessage(f"confidence must be in (0, 1], got {message.confidence}")
    corners = (points[0], points[1], points[2], points[3]) if points else None
    return RecognizedObject(
        message.object_id,
        message.label,
        message.version,
        message.confidence,
        message.inliers,
        corners,
        _in_order(message.metadata),
    )


def _in_order(metadata: Mapping[str, str]) -> dict[str, str]:
    """Metadata by name: protobuf gives the entries of a map in any order."""
    return dict(sorted(metadata.items()))


def object_model_to_bytes(model: ObjectModel) -> bytes:
    """One model as one self-contained, checksummed value for a database."""
    message, blobs = object_model_to_proto(model, 0)
    parts = [message.SerializeToString(deterministic=True), *blobs]
    body = b"".join([struct.pack(f"<{len(parts)}Q", *map(len, parts)), *parts])
    return _PREFIX.pack(_MAGIC, xxhash.xxh3_64_intdigest(body), len(parts)) + body


def object_model_from_bytes(data: bytes) -> ObjectModel:
    """The model of `object_model_to_bytes`.

    Raises
    ------
    CorruptStore
        If the bytes are not what was written.
    """
    try:
        magic, checksum, count = _PREFIX.unpack_from(data)
        body = memoryview(data)[_PREFIX.size :]
        if magic != _MAGIC or xxhash.xxh3_64_intdigest(body) != checksum:
            raise InvalidMessage("the checksum does not match")
        ends = [*itertools.accumulate(struct.unpack_from(f"<{count}Q", body), initial=8 * count)]
        if count < 1 or ends[-1] != len(body):
            raise InvalidMessage("the parts do not add up")
        message, *blobs = (body[start:end] for start, end in itertools.pairwise(ends))
        return object_model_from_proto(ObjectModelMessage.FromString(bytes(message)), blobs)
    except (struct.error, DecodeError, InvalidArgument) as error:
        raise CorruptStore(
            f"a stored object model is damaged: {error}",
            advice="restore the database or ingest the images again",
        ) from error
