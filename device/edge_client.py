"""The device's view of its edge besides recognition: predictions, object models, the list of objects.

On a connection of its own, so that a model on its way never stands before an answer that somebody waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from nearsight.common.background import BackgroundWorker
from nearsight.common.caching.codec import next_objects_from_proto
from nearsight.common.caching.next_objects import NextObjects
from nearsight.common.catalogue_answers import message_of
from nearsight.common.errors import NearsightError, Unavailable
from nearsight.common.rpc.client import Channel, Reply, Stub
from nearsight.protos import catalogue_pb2, prediction_pb2
from nearsight.protos.catalogue_pb2 import GetObjectModelsRequest, ListObjectsRequest
from nearsight.protos.prediction_pb2 import GetNextObjectsRequest, GetNextObjectsResponse
from nearsight.protos.recognition_pb2 import NextObjectsMessage

MOST_NEXT_OBJECTS = 256
"""Of a prediction, so many objects are kept; the rest is hardly ever asked for."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What an edge said may follow an object.

    Attributes
    ----------
    following : NextObjects
        The most probable objects.
    revision : int
        Of the catalogue, as the edge knew it.
    """

    following: NextObjects
    revision: int


def prediction_of(message: NextObjectsMessage) -> Prediction:
    """The prediction in a message.

    Raises
    ------
    InvalidMessage
        If it is no distribution.
    """
    return Prediction(next_objects_from_proto(message).top(MOST_NEXT_OBJECTS), message.revision)


class EdgeClient:
    """Calls in the background. All return at once with a future that fails with a NearsightError.

    Parameters
    ----------
    channel : Channel
        Owned: closed with the client. Its client id is the device's.
    catalogue : str
        Of predictions and listings.
    """

    def __init__(self, channel: Channel, catalogue: str) -> None:
        self._channel = channel
        self._catalogue = catalogue
        self._prediction = Stub(channel, prediction_pb2.DESCRIPTOR.services_by_name["Prediction"])
        self._models = Stub(channel, catalogue_pb2.DESCRIPTOR.services_by_name["Catalogue"])

    def get_next_objects(self, current: str, timeout_s: float) -> Future[Reply]:
        """Report what the device recognised, and ask what may follow: see `predicted_by`."""
        request = GetNextObjectsRequest(current_object_id=current)
        return self._prediction.get_next_objects.future(
            request, timeout_s=timeout_s, catalogue=self._catalogue
        )

    def get_models(self, catalogue: str, object_ids: Sequence[str], timeout_s: float) -> Future[Reply]:
        """Ask for object models."""
        request = GetObjectModelsRequest(object_ids=object_ids)
        return self._models.get_object_models.future(request, timeout_s=timeout_s, catalogue=catalogue)

    def list_objects(self, timeout_s: float) -> Future[Reply]:
        """Ask which objects there are, with their versions."""
        return self._models.list_objects.future(
            ListObjectsRequest(), timeout_s=timeout_s, catalogue=self._catalogue
        )

    def close(self) -> None:
        """Close the connection; open calls fail."""
        self._channel.close()


def predicted_by(reply: Reply) -> Prediction:
    """The prediction in an answer of `EdgeClient.get_next_objects`.

    Raises
    ------
    InvalidMessage
        If it is none.
    """
    return prediction_of(message_of(reply, GetNextObjectsResponse).next_objects)


def when_done(
    future: Future[Reply], background: BackgroundWorker, do: Callable[[Reply | NearsightError], None]
) -> None:
    """Call ``do`` with the outcome, in the background thread."""
    future.add_done_callback(lambda done: background.submit(lambda: do(_outcome(done))))


def _outcome(done: Future[Reply]) -> Reply | NearsightError:
    error = done.exception()
    if error is None:
        return done.result()
    return error if isinstance(error, NearsightError) else Unavailable(f"unexpected {type(error).__name__}")
