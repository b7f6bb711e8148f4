"""A real `RpcServer` with a Recognition service whose answers a test decides."""

import copy
import threading
from collections.abc import Callable
from concurrent.futures import Future

from nearsight.common.recognition.codec import recognized_object_to_proto
from nearsight.common.recognition.results import Corners, RecognizedObject
from nearsight.common.rpc.server import RpcServer, ServerSettings
from nearsight.common.rpc.service import CallContext, Service
from nearsight.protos.recognition_pb2 import DESCRIPTOR, RecognizeRequest, RecognizeResponse
from support.endpoints import fresh_endpoint
from support.waiting import LONG_S

Answer = Callable[[], RecognizeResponse | Future[RecognizeResponse]]

CORNERS: Corners = ((1, 2), (30, 2), (30, 40), (1, 40))
EXHIBIT = RecognizedObject("0042", "Night", 1, 0.9, 30, CORNERS, {"artist": "R."})


def response(answered_by: str, found: RecognizedObject | None = EXHIBIT) -> RecognizeResponse:
    """An answer with an object, or unknown."""
    message = RecognizeResponse(answered_by=answered_by)
    if found is not None:
        message.object.CopyFrom(recognized_object_to_proto(found))
    return message


class ScriptedRecognition(Service):
    """Answers with ``answer``, which a test may replace while it serves; records the requests.

    Attributes
    ----------
    asked : threading.Semaphore
        Released once per request.
    contexts : list of CallContext
        Contexts of all requests.
    requests : list of RecognizeRequest
        All requests, in the same order.
    """

    descriptor = DESCRIPTOR.services_by_name["Recognition"]

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked = threading.Semaphore(0)
        self.contexts: list[CallContext] = []
        self.requests: list[RecognizeRequest] = []

    def recognize(
        self, request: RecognizeRequest, context: CallContext
    ) -> RecognizeResponse | Future[RecognizeResponse]:
        """Answer as the test defines."""
        self.contexts.append(context)
        self.requests.append(request)
        self.asked.release()
        return self.answer()


def always(answered_by: str) -> Answer:
    """Answer with `EXHIBIT`."""
    return lambda: response(answered_by)


def never() -> Answer:
    """Never answer."""
    return Future


def failing(error: Exception) -> Answer:
    """Answer with an error."""

    def answer() -> RecognizeResponse:
        raise copy.copy(error)

    return answer


def serve(service: Service, name: str, listen: str = "") -> RpcServer:
    """A started server with one service."""
    settings = ServerSettings(listen=listen or fresh_endpoint(), queue_timeout_s=LONG_S)
    server = RpcServer([service], tier=name, settings=settings)
    server.start()
    return server
