"""A tier on the other side of the network: queries become messages, replies become answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from nearsight.common.caching.offload_choice import FEATURES, IMAGE
from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.errors import InternalError, InvalidMessage, NearsightError
from nearsight.common.logging import get_logger
from nearsight.common.recognition.codec import features_to_proto, recognized_object_from_proto
from nearsight.common.recognition.models import Features
from nearsight.common.rpc.client import Channel, Reply, Stub
from nearsight.device.prefetching.predictions import Prediction, prediction_of
from nearsight.device.query import Query
from nearsight.device.recognition import TierAnswer
from nearsight.protos.recognition_pb2 import DESCRIPTOR, ImageInput, RecognizeRequest, RecognizeResponse

LEAST_REPETITION_S = 0.1
"""With less time left, an answer to features stands, even if it is "unknown"."""

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
    sent_bytes : int
        Of the message that was answered.
    round_trip_ms : float
        From that message to the answer.
    waited_ms : float
        From the question to the answer; more than ``round_trip_ms`` if it took two messages.
    features : Features, optional
        Of the photo, as far as the device knows them.
    looked_for : frozenset of str
        Objects that the device found none of in the photo.
    last : bool
        False if the image follows, as the features were unknown.
    """

    tier: str
    form: str
    answer: TierAnswer
    prediction: Prediction | None
    sent_bytes: int
    round_trip_ms: float
    waited_ms: float
    features: Features | None = None
    looked_for: frozenset[str] = frozenset()
    last: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class _Question:
    """What a tier is asked, until when, and what it said of the features alone."""

    query: Query
    asked_s: float
    until_s: float
    trace_id: str
    answer: Future[TierAnswer]
    first: TierAnswer | None = None


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
        answer: Future[TierAnswer] = Future()
        asked_s = self._clock.monotonic()
        self._put(_Question(query, asked_s, asked_s + timeout_s, trace_id, answer))
        return answer

    def _put(self, question: _Question) -> None:
        request, blobs = _to_proto(question)
        sent_s = self._clock.monotonic()
        reply: Future[Reply] = self._stub.recognize.future(
            request,
            timeout_s=question.until_s - sent_s,
            blobs=blobs,
            catalogue=self._catalogue,
            trace_id=question.trace_id,
        )
        reply.add_done_callback(lambda done: self._arrived(question, done, sent_s))

    def _arrived(self, question: _Question, done: Future[Reply], sent_s: float) -> None:
        if question.answer.cancelled():
            return
        try:
            answer = self._answer(done.result(), question.query)
        except NearsightError as error:
            if question.first is None:
                _settle(question.answer, error)
            else:  # at least the features were looked at
                _settle(question.answer, question.first)
            return
        if question.first is not None:
            answer = answer.after(question.first)
        if answer.found is None and (again := self._with_image(question, answer)) is not None:
            self._tell(done.result(), question, answer, sent_s, last=False)
            self._put(again)
            return
        _settle(question.answer, answer)
        self._tell(done.result(), question, answer, sent_s)

    def _with_image(self, question: _Question, unknown: TierAnswer) -> _Question | None:
        """The question again, if the tier had no image to look at and there is time."""
        otherwise = question.query.otherwise
        if otherwise is None or question.until_s - self._clock.monotonic() < LEAST_REPETITION_S:
            return None
        try:
            query = otherwise()
        except NearsightError:
            return None
        before = question.query
        again = replace(query, looked_at=before.looked_at, looked_for=before.looked_for)
        return replace(question, query=again, first=unknown)

    def close(self) -> None:
        """Close the channel; open questions fail."""
        self._channel.close()

    def _tell(
        self, reply: Reply, question: _Question, answer: TierAnswer, sent_s: float, *, last: bool = True
    ) -> None:
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
        form = IMAGE if isinstance(question.query.content, bytes) else FEATURES
        now_s = self._clock.monotonic()
        self._replied(
            TierReply(
                tier=self._name,
                form=form,
                answer=answer,
                prediction=prediction,
                sent_bytes=reply.sent_bytes,
                round_trip_ms=(now_s - sent_s) * 1e3,
                waited_ms=(now_s - question.asked_s) * 1e3,
                features=question.query.looked_at,
                looked_for=question.query.looked_for,
                last=last,
            )
        )

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


def _settle(answer: Future[TierAnswer], outcome: TierAnswer | NearsightError) -> None:
    if not answer.set_running_or_notify_cancel():
        return
    if isinstance(outcome, NearsightError):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)


def _to_proto(question: _Question) -> tuple[RecognizeRequest, Sequence[bytes]]:
    content = question.query.content
    if isinstance(content, bytes):
        image = ImageInput(size_bytes=len(content), features_unknown=question.first is not None)
        return RecognizeRequest(image=image), [content]
    message, blobs = features_to_proto(content, 0)
    return RecognizeRequest(features=message), blobs
