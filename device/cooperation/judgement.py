"""What a peer's answer is worth: the only place where a model of a stranger becomes one of ours."""

from __future__ import annotations

import enum

from nearsight.common.errors import CorruptStore, InvalidMessage
from nearsight.common.recognition.codec import object_model_from_bytes
from nearsight.common.recognition.digest import digest_of_message, model_digest
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.rpc.client import Reply
from nearsight.device.cooperation.vouchers import Voucher
from nearsight.protos.catalogue_pb2 import GetObjectModelsResponse


class Verdict(enum.Enum):
    """On an answer of a peer."""

    RIGHT = "right"
    """The model that is vouched for, bit by bit."""
    MISSING = "missing"
    """It has none: honest, as models leave memory before the store knows."""
    OUTDATED = "outdated"
    """Of another version: it, or this device, has not heard of the newest one."""
    WRONG = "wrong"
    """Not what was asked for."""


def judge(reply: Reply, object_id: str, voucher: Voucher, limit_bytes: int) -> Verdict:
    """Compare an answer with what a tier vouches for.

    Parameters
    ----------
    reply : Reply
        Of a peer that was asked for one model.
    object_id : str
        Of which object.
    voucher : Voucher
        Its version and digest.
    limit_bytes : int
        A longer answer is not looked at.
    """
    message = reply.message
    if not isinstance(message, GetObjectModelsResponse) or reply.received_bytes > limit_bytes:
        return Verdict.WRONG
    if not message.models:
        return Verdict.MISSING
    model = message.models[0]
    if len(message.models) != 1 or model.object_id != object_id:
        return Verdict.WRONG
    if model.version != voucher.version:
        return Verdict.OUTDATED
    try:
        right = digest_of_message(model, reply.blobs) == voucher.digest
    except InvalidMessage:
        right = False
    return Verdict.RIGHT if right else Verdict.WRONG


def stored_model(data: bytes, voucher: Voucher) -> ObjectModel | None:
    """The model in a value of the store; None if it is not the one that is vouched for."""
    try:
        model = object_model_from_bytes(data)
    except CorruptStore:
        return None
    return model if model_digest(model) == voucher.digest else None
