"""Results for the application: the handle of a request, and the recognition with its source and times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from nearsight.common.background.futures import pending
from nearsight.common.recognition.results import Corners, RecognizedObject
from nearsight.common.request.answer import OBJECT, Answer, Attempt
from nearsight.common.request.flow import RequestFlow
from nearsight.common.rpc.client import Hop


@dataclass(frozen=True, slots=True)
class Recognition:
    """The answer to one request.

    Attributes
    ----------
    object : RecognizedObject or None
        None means unknown: every tier that could answer was called and none found a verified object.
    answered_by : str
        The tier that recognised the image: "device", "edge" or "cloud".
    latency_ms : float
        From the call of ``recognize`` to the outcome, preparation of the image included.
    hops : tuple of Hop
        Timings of each tier, the answering tier first, the device itself last.
    attempts : tuple of Attempt
        The tiers that this device called, in order; all but the last failed. Empty for a local hit.
    trace_id : str
        Identifies this request in the logs of all tiers.
    sent_bytes, received_bytes : int
        Traffic between this device and the tier that answered; 0 for a local hit.
    grain : str
        Source of the answer: "object" for models of objects, "result" for the answer to an earlier photo,
        "network" for a network that classifies.
    reused : float
        Share of its execution time that a network saved by reusing results of an earlier frame. Only in
        streams with a network on the device; else 0.
    """

    object: RecognizedObject | None
    answered_by: str
    latency_ms: float
    hops: tuple[Hop, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    trace_id: str = ""
    sent_bytes: int = 0
    received_bytes: int = 0
    grain: str = OBJECT
    reused: float = 0.0

    @property
    def known(self) -> bool:
        """Whether an object was found."""
        return self.object is not None

    @property
    def object_id(self) -> str | None:
        """Identity of the object in the catalogue; None if unknown."""
        return self.object.object_id if self.object else None

    @property
    def label(self) -> str:
        """Name of the object for people; empty if unknown."""
        return self.object.label if self.object else ""

    @property
    def confidence(self) -> float:
        """In (0, 1]; 0 if unknown."""
        return self.object.confidence if self.object else 0.0

    @property
    def corners(self) -> Corners | None:
        """Corners of the object in pixels of the application's image; None if not known."""
        return self.object.corners if self.object else None

    @property
    def metadata(self) -> Mapping[str, str]:
        """Metadata of the object in the catalogue; empty if unknown."""
        return self.object.metadata if self.object else {}


class RequestHandle:
    """A request in flight, or completed."""

    def __init__(self, trace_id: str, cancel: Callable[[], bool]) -> None:
        self.trace_id = trace_id
        self._cancel = cancel
        self.outcome: Future[Recognition] = pending()
        """For the SDK only: the engine completes it under its lock, and it cannot be cancelled."""

    def cancel(self) -> bool:
        """End the request now. Its callback gets a `Cancelled` error.

        Returns
        -------
        bool
            False if the request had an outcome already; the callback gets that outcome.
        """
        return self._cancel()

    def done(self) -> bool:
        """Whether there is an outcome; the callback may still be queued."""
        return self.outcome.done()

    def result(self, timeout: float | None = None) -> Recognition:
        """Wait for the outcome.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait. The request's own deadline ends the wait as well.

        Raises
        ------
        NearsightError
            If the request failed.
        TimeoutError
            If ``timeout`` passed first; the request continues.
        """
        return self.outcome.result(timeout)


def recognition_of(
    flow: RequestFlow[Any], answer: Answer, now_s: float, trace_id: str = "", reused: float = 0.0
) -> Recognition:
    """The application's result for a request that ends now with this answer.

    It has its own metadata: those of the answer belong to a model or to a cached result.
    """
    found = answer.found
    return Recognition(
        object=replace(found, metadata=dict(found.metadata)) if found is not None else None,
        answered_by=answer.answered_by,
        latency_ms=(now_s - flow.started_at_s) * 1000,
        hops=(*answer.hops, flow.own_hop(answer)),
        attempts=tuple(flow.attempts),
        trace_id=trace_id,
        sent_bytes=answer.sent_bytes,
        received_bytes=answer.received_bytes,
        grain=answer.grain,
        reused=reused,
    )
