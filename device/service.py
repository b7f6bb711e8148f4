"""The Recognition service of the device daemon: the SDK at a local endpoint."""

from __future__ import annotations

from concurrent.futures import Future
from typing import ClassVar

from google.protobuf.descriptor import ServiceDescriptor

from nearsight.common.errors import InvalidMessage, NotFound
from nearsight.common.recognition.codec import features_from_proto, recognized_object_to_proto
from nearsight.common.recognition.models import Features
from nearsight.common.rpc.service import CallContext, Service
from nearsight.device.engine import Outcome
from nearsight.device.recognition import Recognition
from nearsight.device.recognizer import Recognizer
from nearsight.protos.recognition_pb2 import DESCRIPTOR, RecognizeRequest, RecognizeResponse

_SHORTEST_S = 0.001
"""Minimum timeout; a request whose time has just passed ends with the correct error."""


class DeviceRecognitionService(Service):
    """Answers requests with the SDK; no worker is blocked while a request is in flight.

    Parameters
    ----------
    recognizer : Recognizer
        Shared by all connected applications.
    """

    descriptor: ClassVar[ServiceDescriptor] = DESCRIPTOR.services_by_name["Recognition"]

    def __init__(self, recognizer: Recognizer) -> None:
        self._recognizer = recognizer

    def recognize(self, request: RecognizeRequest, context: CallContext) -> Future[RecognizeResponse]:
        """Recognise the image in blob 0, or features.

        Raises
        ------
        NotFound
            If the catalogue of the call is not that of this daemon; an empty name means this one.
        InvalidMessage
            If there is neither an image nor features.
        """
        if context.catalogue not in ("", self._recognizer.catalogue):
            raise NotFound(
                f"this device recognises the catalogue {self._recognizer.catalogue!r}, "
                f"not {context.catalogue!r}",
                advice="leave the catalogue empty, or start the device daemon with the one that you want",
            )
        answer: Future[RecognizeResponse] = Future()

        def deliver(outcome: Outcome) -> None:
            if isinstance(outcome, Recognition):
                *below, own = outcome.hops  # the server adds this daemon's own
                context.hops.extend(below)
                context.next_tier_ms += own.next_tier_ms
                known = outcome.object
                found = recognized_object_to_proto(known) if known is not None else None
                answer.set_result(
                    RecognizeResponse(object=found, answered_by=outcome.answered_by, grain=outcome.grain)
                )
            else:
                answer.set_exception(outcome)

        left_s = max(_SHORTEST_S, context.deadline.remaining_s())
        self._recognizer.recognize_for(
            _content(request, context),
            deliver,
            timeout_s=left_s,
            one_look=request.image.one_look,
            trace_id=context.trace_id,
        )
        return answer


def _content(request: RecognizeRequest, context: CallContext) -> bytes | Features:
    kind = request.WhichOneof("input")
    if kind == "features":
        return features_from_proto(request.features, context.blobs)
    if kind != "image" or not context.blobs:
        raise InvalidMessage("the request has no image", advice="send the image file as the first blob")
    return bytes(context.blobs[0])
