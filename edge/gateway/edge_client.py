"""Client of the edge for an event loop: calls do not block a thread, and responses arrive on the loop."""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass

from nearsight.common.errors import NearsightError, Unauthenticated, Unavailable
from nearsight.common.request.answer import Answer, answer_of
from nearsight.common.rpc.client import Channel, Reply, Stub
from nearsight.common.rpc.envelope import Buffer, Hop
from nearsight.protos import catalogue_pb2, health_pb2, recognition_pb2
from nearsight.protos.catalogue_pb2 import ListCataloguesRequest, ListCataloguesResponse
from nearsight.protos.health_pb2 import HealthRequest, HealthResponse
from nearsight.protos.recognition_pb2 import ImageInput, RecognizeRequest

_EDGE = "edge"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a photo."""

    answer: Answer | NearsightError
    """Answer of the edge, or the error."""
    latency_ms: float
    """Time from request to response at the gateway."""
    trace_id: str
    """Id of the request at all tiers."""

    def to_json(self) -> dict[str, object]:
        """The answer in the format for clients.

        Raises
        ------
        NearsightError
            If the result is an error.
        """
        answer = self.answer
        if isinstance(answer, NearsightError):
            raise answer
        found = answer.found
        return {
            "known": found is not None,
            "object_id": found.object_id if found else None,
            "label": found.label if found else None,
            "metadata": dict(found.metadata) if found else {},
            "confidence": found.confidence if found else None,
            "corners": found.corners if found else None,
            "answered_by": answer.answered_by,
            "grain": answer.grain,
            "latency_ms": self.latency_ms,
            "hops": [{name: getattr(hop, name) for name in Hop.__slots__} for hop in answer.hops],
            "trace_id": self.trace_id,
        }


class EdgeClient:
    """Client of the edge, for use on the event loop.

    Parameters
    ----------
    channel : Channel
        Connection to the edge; this object closes it.
    timeout_s : float
        Timeout of a request.
    """

    def __init__(self, channel: Channel, timeout_s: float) -> None:
        self._channel = channel
        self._timeout_s = timeout_s
        self._recognition = Stub(channel, recognition_pb2.DESCRIPTOR.services_by_name["Recognition"])
        self._catalogue = Stub(channel, catalogue_pb2.DESCRIPTOR.services_by_name["Catalogue"])
        self._health = Stub(channel, health_pb2.DESCRIPTOR.services_by_name["Health"])
        self._trace_prefix = os.urandom(6).hex()
        self._asked = 0

    def recognize(
        self, image: Buffer, catalogue: str, client_id: str, *, one_look: bool = False
    ) -> asyncio.Future[Outcome]:
        """Recognise the object in an image; the future never fails.

        Parameters
        ----------
        image : buffer
            Content of the image file.
        catalogue : str
            Catalogue of the objects that the image may show.
        client_id : str
            Client whose history the image belongs to, at the edge.
        one_look : bool
            Whether similar frames follow, as in a stream; then an unknown image needs no second look.
        """
        self._asked += 1
        trace_id = f"{self._trace_prefix}-{self._asked:x}"
        begun_s = time.perf_counter()
        reply: Future[Reply] = self._recognition.recognize.future(
            RecognizeRequest(image=ImageInput(size_bytes=len(image), one_look=one_look)),
            timeout_s=self._timeout_s,
            blobs=[image],
            catalogue=catalogue,
            trace_id=trace_id,
            client_id=client_id,
        )
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Outcome] = loop.create_future()

        def complete(found: Outcome) -> None:
            if not outcome.done():
                outcome.set_result(found)

        def replied(done: Future[Reply]) -> None:
            found = Outcome(_answer_of(done), (time.perf_counter() - begun_s) * 1000, trace_id)
            with suppress(RuntimeError):  # the loop has ended, so no task waits
                loop.call_soon_threadsafe(complete, found)

        reply.add_done_callback(replied)
        return outcome

    async def catalogues(self) -> list[str]:
        """Names of the catalogues of the edge.

        Raises
        ------
        NearsightError
            If the edge does not answer.
        """
        asked = self._catalogue.list_catalogues.future(ListCataloguesRequest(), timeout_s=self._timeout_s)
        reply = await _reply_of(asked)
        response: ListCataloguesResponse = reply.message
        return [catalogue.name for catalogue in response.catalogues]

    async def check_health(self, timeout_s: float) -> None:
        """Ask the edge whether it is ready.

        Raises
        ------
        NearsightError
            If the edge does not answer, or is not ready.
        """
        reply = await _reply_of(self._health.check.future(HealthRequest(), timeout_s=timeout_s))
        health: HealthResponse = reply.message
        if not health.ready:
            raise Unavailable(
                "the edge is not ready: its cloud does not answer, and no standby can answer in its place",
                advice="see `nearsight status` on the machine of the edge",
            )

    def close(self) -> None:
        """Close the connection; open requests fail."""
        self._channel.close()


async def _reply_of(future: Future[Reply]) -> Reply:
    try:
        return await asyncio.wrap_future(future)
    except NearsightError as error:
        raise _edge_error(error) from error


def _answer_of(future: Future[Reply]) -> Answer | NearsightError:
    try:
        reply = future.result()
        return answer_of(reply, _EDGE, reply.sent_bytes)[0]
    except NearsightError as error:
        return _edge_error(error).with_traceback(None)


def _edge_error(error: NearsightError) -> NearsightError:
    """An error of the edge, from the gateway's point of view."""
    if isinstance(error, Unauthenticated):
        # The client's token is valid; the problem is in the configuration of the gateway or the edge.
        return Unavailable(
            f"the edge refuses this gateway: {error.message}",
            advice="check secret_key_file and edge_public_key of the gateway, and the edge's list of clients",
        )
    if isinstance(error, Unavailable):
        unavailable = Unavailable(f"the edge is unavailable: {error.message}", advice=error.advice)
        unavailable.reached = error.reached
        return unavailable
    return error
