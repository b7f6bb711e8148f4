"""A tier on the other side of the network: queries become messages, replies become answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.errors import InternalError, InvalidMessage, NearsightError
from nearsight.common.logging import get_logger
from nearsight.common.recognition.codec import features_to_proto, recognized_object_from_proto
from nearsight.common.recognition.features import Features
from nearsight.common.rpc.client import Channel, Reply, Stub
from nearsight.device.edge_client import Prediction, prediction_of
from nearsight.device.offloading import FEATURES, IMAGE
from nearsight.device.query import Query
from nearsight.device.recognition import TierAnswer
from nearsight.protos.recognition_pb2 import DESCRIPTOR, ImageInput, RecognizeRequest, RecognizeResponse

_log = get_logger("device.tier")


@dataclass(frozen=True, slots=True)
class TierReply:
    """An answer with what the request itself has no use for.

    Attributes
    ----------
    tier : str
        Who was asked.
    form : str
        "image" or "features".
    answer : TierAnswer
        What the application gets.
    prediction : Prediction, optional
        What an edge expects to be asked next.
    round_trip_ms : float
        From the question to the answer.
    """

    tier: str
    form: str
    answer: TierAnswer
    prediction: Prediction | None
    round_trip_ms: float


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
    clock : Clock
        Measures round trips.
    replied : callable, optional
        Told every answer, on the thread of the channel; must be quick.
    """

    def __init__(
        self,
        name: str,
        channel: Channel,
        catalogue: str,
        clock: Clock = SYSTEM_CLOCK,
        replied: Callable[[TierReply], None] | None = None,
    ) -> None:
        self._name = name
        self._clock = clock
        self._replied = replied
        self._channel = channel
        self._catalogue = catalogue
        self._stub = Stub(channel, DESCRIPTOR.services_by_name["Recognition"])

    def ask(self, query: Query, *, timeout_s: float, trace_id: str) -> Future[TierAnswer]:
        """Start asking; the future completes within ``timeout_s`` with an answer or a NearsightError."""
        request, blobs = _to_proto(query.content)
        asked_s = self._clock.monotonic()
        reply: Future[Reply] = self._stub.recognize.future(
            request, timeout_s=timeout_s, blobs=blobs, catalogue=self._catalogue, trace_id=trace_id
        )
        answer: Future[TierAnswer] = Future()

        def replied(done: Future[Reply]) -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                found = self._answer(done.result(), query)
            except NearsightError as error:
                answer.set_exception(error)
                return
            answer.set_result(found)
            self._tell(done.result(), query, found, (self._clock.monotonic() - asked_s) * 1e3)

        def cancelled(done: Future[TierAnswer]) -> None:
            if done.cancelled():
                reply.cancel()

        answer.add_done_callback(cancelled)
        reply.add_done_callback(replied)
        return answer

    def close(self) -> None:
        """Close the channel; open questions fail."""
        self._channel.close()

    def _tell(self, reply: Reply, query: Query, answer: TierAnswer, round_trip_ms: float) -> None:
        if self._replied is None or not isinstance(reply.message, RecognizeResponse):
            return
        prediction = None
        if reply.message.HasField("next_objects"):
            try:
                prediction = prediction_of(reply.message.next_objects)
            except InvalidMessage as error:
                _log.warning(
                    "a prediction that makes no sense was ignored", tier=self._name, error=str(error)
                )
        form = IMAGE if isinstance(query.content, bytes) else FEATURES
        self._replied(TierReply(self._name, form, answer, prediction, round_trip_ms))

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
