"""A tier on the other side of the network: queries become messages, replies become answers."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from nearsight.common.errors import InternalError, InvalidMessage, NearsightError
from nearsight.common.recognition.codec import features_to_proto, recognized_object_from_proto
from nearsight.common.recognition.features import Features
from nearsight.common.rpc.client import Channel, Reply, Stub
from nearsight.device.query import Query
from nearsight.device.recognition import TierAnswer
from nearsight.protos.recognition_pb2 import DESCRIPTOR, ImageInput, RecognizeRequest, RecognizeResponse


class RemoteTier:
    """Asks the Recognition service of an edge or a cloud.

    Parameters
    ----------
    name : str
        "edge" or "cloud"; what an answer is attributed to if it does not say itself.
    channel : Channel
        Owned: closed with the tier.
    catalogue : str
        Catalogue of every question.
    """

    def __init__(self, name: str, channel: Channel, catalogue: str) -> None:
        self._name = name
        self._channel = channel
        self._catalogue = catalogue
        self._stub = Stub(channel, DESCRIPTOR.services_by_name["Recognition"])

    def ask(self, query: Query, *, timeout_s: float, trace_id: str) -> Future[TierAnswer]:
        """Start asking; the future completes within ``timeout_s`` with an answer or a NearsightError."""
        request, blobs = _to_proto(query.content)
        reply: Future[Reply] = self._stub.recognize.future(
            request, timeout_s=timeout_s, blobs=blobs, catalogue=self._catalogue, trace_id=trace_id
        )
        answer: Future[TierAnswer] = Future()

        def replied(done: Future[Reply]) -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                answer.set_result(self._answer(done.result(), query))
            except NearsightError as error:
                answer.set_exception(error)

        def cancelled(done: Future[TierAnswer]) -> None:
            if done.cancelled():
                reply.cancel()

        answer.add_done_callback(cancelled)
        reply.add_done_callback(replied)
        return answer

    def close(self) -> None:
        """Close the channel; open questions fail."""
        self._channel.close()

    def _answer(self, reply: Reply, query: Query) -> TierAnswer:
        message = reply.message
        if not isinstance(message, RecognizeResponse):
            raise InternalError(f"the {self._name} answered with a {type(message).__name__}")
        found = None
        if message.HasField("object"):
            try:
                found = query.in_source(recognized_object_from_proto(message.object))
            except InvalidMessage as error:
                # Not the caller's fault: another tier may answer properly.
                raise InternalError(f"the {self._name} sent a broken answer: {error.message}") from error
        return TierAnswer(
            found=found,
            answered_by=message.answered_by or self._name,
            hops=reply.hops,
            sent_bytes=reply.sent_bytes,
            received_bytes=reply.received_bytes,
        )


def _to_proto(content: bytes | Features) -> tuple[RecognizeRequest, Sequence[bytes]]:
    if isinstance(content, bytes):
        return RecognizeRequest(image=ImageInput(size_bytes=len(content))), [content]
    message, blobs = features_to_proto(content, 0)
    return RecognizeRequest(features=message), blobs
