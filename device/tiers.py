"""The tiers of a device: a request to an edge or a cloud, and the evaluation of its answer."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from nearsight.common.errors import InternalError, InvalidMessage, NearsightError
from nearsight.common.inference.tensors import Blob
from nearsight.common.logging import get_logger
from nearsight.common.object_cache.next_objects import next_objects_from_proto
from nearsight.common.recognition.codec import features_to_proto
from nearsight.common.request.answer import Answer, answer_of
from nearsight.common.request.effects import Ask
from nearsight.common.rpc.client import Channel, Reply, Stub
from nearsight.device.prefetching.predictions import MOST_NEXT_OBJECTS, Prediction
from nearsight.device.query import DeviceQuery
from nearsight.protos import inference_pb2
from nearsight.protos.inference_pb2 import InferRequest
from nearsight.protos.recognition_pb2 import DESCRIPTOR, ImageInput, RecognizeRequest, RecognizeResponse

Replied = Callable[[Answer | NearsightError], None]

_log = get_logger("device.tier")


class RemoteTier:
    """Calls the Recognition and Inference services of an edge or a cloud.

    Parameters
    ----------
    name : str
        "edge" or "cloud"; the answering tier of an answer that names none.
    channel : Channel
        Owned: closed with the tier.
    catalogue : str
        Catalogue of every request.
    """

    def __init__(self, name: str, channel: Channel, catalogue: str) -> None:
        self._name = name
        self._channel = channel
        self._catalogue = catalogue
        self._wants_thumbnails = False
        self._stub = Stub(channel, DESCRIPTOR.services_by_name["Recognition"])
        self._inference = Stub(channel, inference_pb2.DESCRIPTOR.services_by_name["Inference"])

    def ask(self, query: DeviceQuery, step: Ask, trace_id: str, done: Replied) -> None:
        """Start a request; ``done`` is called within ``step.timeout_s``, on the thread of the channel."""
        content = query.content(step.form)
        if isinstance(content, bytes):
            image = ImageInput(size_bytes=len(content), features_unknown=step.again, one_look=query.one_look)
            if self._wants_thumbnails and not step.again:
                image.thumbnail = query.thumbnail()
            request, blobs = RecognizeRequest(image=image), [content]
        else:
            message, blobs = features_to_proto(content, 0)
            request = RecognizeRequest(features=message)
        reply: Future[Reply] = self._stub.recognize.future(
            request, timeout_s=step.timeout_s, blobs=blobs, catalogue=self._catalogue, trace_id=trace_id
        )
        reply.add_done_callback(partial(self._replied, query, step.form, done))

    def infer(self, request: InferRequest, blobs: list[Blob], timeout_s: float) -> Future[Reply]:
        """Execute the network of the catalogue on tensors."""
        reply: Future[Reply] = self._inference.infer.future(
            request, timeout_s=timeout_s, blobs=blobs, catalogue=self._catalogue
        )
        return reply

    def close(self) -> None:
        """Close the channel; open requests fail."""
        self._channel.close()

    def _replied(
        self,
        query: DeviceQuery,
        form: str,
        done: Replied,
        future: Future[Reply],
    ) -> None:
        outcome: Answer | NearsightError
        try:
            reply = future.result()
            answer, message = answer_of(reply, self._name, reply.sent_bytes)
            outcome = query.answered(answer, form)
            self._note_prediction(query, message)
            self._wants_thumbnails = message.thumbnail_wanted
        except NearsightError as error:
            outcome = error.with_traceback(None)  # its frames refer to the query
        except Exception as error:  # noqa: BLE001  the request must get an outcome after any error
            _log.exception("asking a tier failed", tier=self._name)
            outcome = InternalError(f"unexpected {type(error).__name__} in the SDK", advice="see the log")
        done(outcome)

    def _note_prediction(self, query: DeviceQuery, message: RecognizeResponse) -> None:
        query.prediction = None
        if message.HasField("next_objects"):
            try:
                following = next_objects_from_proto(message.next_objects, MOST_NEXT_OBJECTS)
                query.prediction = Prediction(following, message.next_objects.revision)
            except InvalidMessage as error:
                _log.warning("an invalid prediction was ignored", tier=self._name, error=str(error))
