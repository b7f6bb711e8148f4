"""Conversion of features, object models and answers to and from messages and blobs; digests of models.

The only module of recognition that uses protobuf. Received data is untrusted: every ``from`` function
validates it before allocating memory or using a value. Metadata are sorted by name, because protobuf returns
the entries of a map in any order.

Cloud and edge publish the digest of each object's model. A model received from another device is used only if
it has this digest (dissertation, section 5.1.1, leaves open who vouches for models). The digest is computed
over the encoded form, in which numbers are rounded, not over the arrays in memory. So it does not change
however often a model is transferred.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator, Sequence
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
"""Largest number of features that a message may declare for one image; also the limit in the settings."""

DIGEST_BYTES = 16
"""Size of a model digest [bytes]. With 128 bits, finding a second model with a given digest is infeasible."""

_DIGEST_PERSON = b"nearsight-model1"
_BLOBS_PER_VIEW = 3
_MAX_SIDE_PX = 2**16 // KEYPOINT_STEPS_PER_PX - 1
_MAX_SOURCE_SIDE_PX = 2**17
_MAGIC = b"NSM1"
_PREFIX = struct.Struct("<4sQI")
_PLACE: Callable[[Point], tuple[float, float]] = attrgetter("x", "y")


def features_to_proto(features: Features, first_blob: int) -> tuple[FeaturesMessage, list[bytes]]:
    """Encode features as a message and three blobs; the blobs start at index ``first_blob`` of the call.

    Raises
    ------
    InvalidArgument
        If the processed image is too large, or a keypoint lies outside the encodable range.
    """
    steps = np.rint(features.keypoints * KEYPOINT_STEPS_PER_PX)
    if max(features.image_size) > _MAX_SIDE_PX or (len(steps) and (steps.min() < 0 or steps.max() >= 2**16)):
        raise InvalidArgument(
            f"a processed image has at most {_MAX_SIDE_PX} px a side, got {features.image_size}"
        )
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
    """Decode and validate the features of a message.

    Raises
    ------
    InvalidMessage
        If counts, sizes and blobs are inconsistent.
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
        raise InvalidMessage(f"blob {index} is missing, received {len(blobs)}")
    blob = blobs[index]
    if len(blob) != expected_bytes:
        raise InvalidMessage(f"blob {index} has {len(blob)} bytes, expected {expected_bytes}")
    return blob


def object_model_to_proto(model: ObjectModel, first_blob: int) -> tuple[ObjectModelMessage, list[bytes]]:
    """Encode a model as a message and the blobs of its views, in the order of the views."""
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
    """Decode and validate the model of a message.

    Raises
    ------
    InvalidMessage
        If a part is missing or invalid.
    """
    try:
        return ObjectModel(
            message.object_id,
            message.label,
            tuple(features_from_proto(view, blobs) for view in message.views),
            message.version,
            dict(sorted(message.metadata.items())),
            dict(message.rivals),
        )
    except InvalidMessage:
        raise
    except InvalidArgument as error:
        raise InvalidMessage(f"object model: {error.message}") from error


def model_digest(model: ObjectModel) -> bytes:
    """Digest of a model, `DIGEST_BYTES` long: covers id, label, version, metadata, views and rivals."""
    return digest_of_message(*object_model_to_proto(model, 0))


def digest_of_message(message: ObjectModelMessage, blobs: Sequence[Blob]) -> bytes:
    """Digest of an encoded model, computed without decoding it.

    Raises
    ------
    InvalidMessage
        If a blob is missing.
    """
    hasher = blake2b(digest_size=DIGEST_BYTES, person=_DIGEST_PERSON)
    for part in _digest_parts(message, blobs):
        # Each part is preceded by its length, so that moving the boundary between parts changes the digest.
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
        # The index of the first blob in the call is not part of the model.
        last = view.first_blob + _BLOBS_PER_VIEW
        if last > len(blobs):
            raise InvalidMessage(f"blob {last - 1} is missing, received {len(blobs)}")
        yield from blobs[view.first_blob : last]
    for rival in sorted(message.rivals):  # without rivals: the same digest as before rivals existed
        yield rival.encode()
        yield message.rivals[rival].to_bytes(4, "little")


def recognized_object_to_proto(found: RecognizedObject) -> RecognizedObjectMessage:
    """Encode an answer as a message."""
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
    """Decode and validate the answer of a message.

    Raises
    ------
    InvalidMessage
        If the id is missing, the corners are neither absent nor four finite points, or the confidence is
        outside (0, 1].
    """
    points = list(map(_PLACE, message.corners))
    if not message.object_id or len(points) not in (0, 4) or not np.isfinite(points).all():
        raise InvalidMessage("an answer needs an object id, and either no corners or four finite ones")
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
        dict(sorted(message.metadata.items())),
    )


def object_model_to_bytes(model: ObjectModel) -> bytes:
    """Encode one model as a self-contained value with a checksum, for a database."""
    message, blobs = object_model_to_proto(model, 0)
    parts = [message.SerializeToString(deterministic=True), *blobs]
    body = b"".join([struct.pack(f"<{len(parts)}Q", *map(len, parts)), *parts])
    return _PREFIX.pack(_MAGIC, xxhash.xxh3_64_intdigest(body), len(parts)) + body


def object_model_from_bytes(data: bytes) -> ObjectModel:
    """Decode a model that `object_model_to_bytes` encoded.

    Raises
    ------
    CorruptStore
        If the bytes are damaged or have another format.
    """
    try:
        magic, checksum, count = _PREFIX.unpack_from(data)
        body = memoryview(data)[_PREFIX.size :]
        if magic != _MAGIC or xxhash.xxh3_64_intdigest(body) != checksum:
            raise InvalidMessage("the checksum does not match")
        ends = [*itertools.accumulate(struct.unpack_from(f"<{count}Q", body), initial=8 * count)]
        if count < 1 or ends[-1] != len(body):
            raise InvalidMessage("the lengths of the parts do not match the data")
        message, *blobs = (body[start:end] for start, end in itertools.pairwise(ends))
        return object_model_from_proto(ObjectModelMessage.FromString(bytes(message)), blobs)
    except (struct.error, DecodeError, InvalidArgument) as error:
        raise CorruptStore(
            f"a stored object model is damaged: {error}",
            advice="restore the database or ingest the images again",
        ) from error
