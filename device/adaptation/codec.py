"""Adapted views as items of a shared list, and back. What comes in was written by strangers."""

from __future__ import annotations

import numpy as np
from google.protobuf.message import DecodeError

from nearsight.common.errors import InvalidArgument, InvalidMessage
from nearsight.common.recognition.models import DESCRIPTOR_BYTES
from nearsight.device.adaptation.adapted_view import AdaptedView
from nearsight.protos.peers_pb2 import AdaptedViewMessage

_INDEX = np.dtype("<u2")


def view_to_bytes(view: AdaptedView) -> bytes:
    """One list item; equal views give equal bytes."""
    if len(view) and view.indices[-1] >= 2**16:
        raise InvalidArgument(f"an adapted view names features up to {2**16 - 1}, got {view.indices[-1]}")
    return AdaptedViewMessage(
        object_id=view.object_id,
        version=view.version,
        view=view.view,
        features=view.indices.astype(_INDEX).tobytes(),
        descriptors=view.descriptors.tobytes(),
    ).SerializeToString(deterministic=True)


def view_from_bytes(data: bytes, max_bytes: int) -> AdaptedView:
    """The view of one item.

    Raises
    ------
    InvalidMessage
        If it is longer than ``max_bytes``, or no view.
    """
    if len(data) > max_bytes:
        raise InvalidMessage(f"an adapted view of {len(data)} bytes, the limit is {max_bytes}")
    try:
        message = AdaptedViewMessage.FromString(data)
    except DecodeError as error:
        raise InvalidMessage(f"no adapted view: {error}") from error
    count, rest = divmod(len(message.features), _INDEX.itemsize)
    if rest or len(message.descriptors) != count * DESCRIPTOR_BYTES:
        raise InvalidMessage(
            f"an adapted view with {len(message.features)} bytes of features "
            f"and {len(message.descriptors)} of descriptors"
        )
    try:
        return AdaptedView(
            message.object_id,
            message.version,
            message.view,
            np.frombuffer(message.features, _INDEX).astype(np.int32),
            np.frombuffer(message.descriptors, np.uint8).reshape(count, DESCRIPTOR_BYTES),
        )
    except InvalidArgument as error:
        raise InvalidMessage(f"adapted view: {error.message}") from error
