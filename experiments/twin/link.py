"""Links of the twin, and calls over them.

A link is the shaper's own schedule (`LinkDirection`) for messages instead of sockets. The shaper admits the
pieces of a message as fast as it reads them, and it reads them when they are sent. Messages therefore keep
their order, and here one message is one piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from nearsight.common.background.futures import pending
from nearsight.common.catalogue.answers import FetchedModels, Listing
from nearsight.common.errors import DeadlineExceeded, NearsightError
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.request.answer import OBJECT, Answer
from nearsight.common.request.effects import Effect, Q
from nearsight.common.request.flow import RequestFlow
from nearsight.common.rpc.envelope import Hop
from nearsight.device.prefetching.predictions import Prediction
from nearsight.experiments.links.link import LinkDirection, LinkShape
from nearsight.experiments.twin.cost_model import Costs
from nearsight.experiments.twin.events import Action, EventQueue
from nearsight.experiments.twin.photos import TwinPhoto

REQUEST_BYTES, ANSWER_BYTES = 200, 230
_PREDICTION_BYTES, _LISTED_BYTES, _MODEL_BYTES = 20, 60, 300
"""What a predicted object and a listed one add to an answer; and what a model takes besides its features."""
_HANDSHAKES, _HANDSHAKE_BYTES = 3, 30

A = TypeVar("A")


class TwinLink:
    """Both directions of a link.

    Parameters
    ----------
    events : EventQueue
        Virtual time.
    shape : LinkShape
        Properties of the link.
    rng : Generator
        Source of jitter.
    """

    def __init__(self, events: EventQueue, shape: LinkShape, rng: np.random.Generator) -> None:
        self.events = events
        self._up, self._down = (LinkDirection(rng) for _ in range(2))
        self.up_bytes = self.down_bytes = 0
        """Bytes of messages that arrived in each direction since the last `reshape`, as the shaper counts."""
        self.reshape(shape)

    def up(self, size_bytes: int, arrived: Action, extra_s: float = 0.0) -> None:
        """Send towards the server; daemons spend ``extra_s`` after the link."""

        def arrive() -> None:
            self.up_bytes += size_bytes
            arrived()

        self.events.at(self._up.admit(size_bytes, self.events.now_s) + extra_s, arrive)

    def down(self, size_bytes: int, arrived: Action, extra_s: float = 0.0) -> None:
        """Send towards the client; daemons spend ``extra_s`` after the link."""

        def arrive() -> None:
            self.down_bytes += size_bytes
            arrived()

        self.events.at(self._down.admit(size_bytes, self.events.now_s) + extra_s, arrive)

    def connect(self, connected: Action, extra_s: float = 0.0) -> None:
        """Simulate ZeroMQ's handshake: signatures, versions, then readiness, each after the other side's.

        Daemons spend ``extra_s`` in addition.
        """
        self._shake(_HANDSHAKES, lambda: self.events.after(extra_s, connected))

    def _shake(self, times: int, connected: Action) -> None:
        if not times:
            connected()
            return
        self.up(
            _HANDSHAKE_BYTES, lambda: self.down(_HANDSHAKE_BYTES, lambda: self._shake(times - 1, connected))
        )

    def reshape(self, shape: LinkShape) -> None:
        """Change the shape of the link, and reset its byte counters."""
        self.up_bytes = self.down_bytes = 0
        delay_s, jitter_s = shape.rtt_ms / 2e3, shape.jitter_ms / 1e3
        self._up.reshape(delay_s, shape.up_mbps, jitter_s)
        self._down.reshape(delay_s, shape.down_mbps, jitter_s)


class Connection:
    """A connection over a link, established for the first message; messages sent meanwhile wait for it.

    Parameters
    ----------
    link : TwinLink
        The link.
    extra_s : float
        Additional time for establishing the connection [s].
    """

    def __init__(self, link: TwinLink, extra_s: float = 0.0) -> None:
        self._link = link
        self._extra_s = extra_s
        self._waiting: list[Action] | None = []

    def when_connected(self, action: Action) -> None:
        """Run an action as soon as the connection is established."""
        if self._waiting is None:
            action()
            return
        self._waiting.append(action)
        if len(self._waiting) == 1:
            self._link.connect(self._connected, self._extra_s)

    def _connected(self) -> None:
        waiting, self._waiting = self._waiting or [], None
        for action in waiting:
            action()


@dataclass(frozen=True, slots=True)
class TierRequest:
    """A photo on its way to a tier."""

    photo: TwinPhoto
    image: bool
    """Whether it is sent as an image; otherwise as features."""
    size_bytes: int
    """Size on the network [bytes]."""
    asked_again: bool = False
    """Whether the tier did not recognise the features before."""
    thumbnail: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer of a tier."""

    found: RecognizedObject | None
    """Object on the photo; None: unknown."""
    answered_by: str
    """The tier that recognised it, or the last tier asked."""
    hops: tuple[Hop, ...]
    """Times of each tier, the answering tier first."""
    prediction: Prediction | None = None
    """The edge's prediction of the next objects."""
    grain: str = OBJECT
    """Kind of the cached item that gave the answer."""
    thumbnail_wanted: bool = False
    """Whether the next photo should include a thumbnail."""


OnReply = Callable[[Reply | NearsightError], None]
TierAccess = Callable[[TierRequest, float, OnReply], None]
"""Sends a request to a tier over all links between: request, deadline, callback for the answer."""


def report_outcome(
    flow: RequestFlow[Q], attempt: int, outcome: Reply | NearsightError, sent_bytes: int, now_s: float
) -> Effect[Q] | None:
    """Report the outcome of a request to a tier to a flow; returns the flow's next effect."""
    if isinstance(outcome, NearsightError):
        return flow.failed(attempt, outcome, now_s)
    received_bytes = answer_bytes(outcome)
    answer = Answer(
        outcome.found, outcome.answered_by, outcome.grain, outcome.hops, sent_bytes, received_bytes
    )
    return flow.replied(attempt, answer, now_s)


def answer_bytes(answer: object) -> int:
    """Size of an answer, or of an error, on the network [bytes]."""
    if isinstance(answer, FetchedModels):
        return answer.size_bytes
    if isinstance(answer, Listing):
        return ANSWER_BYTES + _LISTED_BYTES * len(answer.versions)
    prediction = answer.prediction if isinstance(answer, Reply) else answer
    if isinstance(prediction, Prediction):
        return ANSWER_BYTES + _PREDICTION_BYTES * len(prediction.following)
    return ANSWER_BYTES


def models_bytes(models: Iterable[ObjectModel]) -> int:
    """Size of models on the network [bytes]."""
    return sum(model.size_bytes + _MODEL_BYTES for model in models)


def tier_over_link(link: TwinLink, way_s: float, costs: Costs, ask: TierAccess) -> TierAccess:
    """Access to a tier at the other end of a link.

    Daemons typically spend ``way_s`` on each way, in addition to the link. The first request waits for the
    connection. As in the daemons, a request carries the time left until its deadline, and the tier counts it
    from the arrival: a tier also serves what was on the link for too long.
    """
    connection = Connection(link, costs.model.connect_ms / 1e3)

    def put(tier_request: TierRequest, deadline_s: float, answered: OnReply) -> None:
        this_s = way_s * costs.call_stretch()

        def back(outcome: Reply | NearsightError) -> None:
            link.down(answer_bytes(outcome), lambda: answered(outcome), this_s)

        def send() -> None:
            left_s = deadline_s - link.events.now_s
            link.up(
                tier_request.size_bytes,
                lambda: ask(tier_request, link.events.now_s + left_s, back),
                this_s,
            )

        connection.when_connected(send)

    return put


def call_over_link(
    link: TwinLink,
    way_s: float,
    serve: Callable[[float, Callable[[A | NearsightError], None]], None],
    timeout_s: float,
) -> Future[A]:
    """Send a small request over an established connection; the future completes within ``timeout_s``.

    ``serve`` gets the request at the other end: its deadline, ``timeout_s`` from its arrival, and a callback
    for the answer.
    """
    future: Future[A] = pending()

    def arrived(outcome: A | NearsightError) -> None:
        if future.done():
            return
        if isinstance(outcome, NearsightError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    def back(outcome: A | NearsightError) -> None:
        link.down(answer_bytes(outcome), lambda: arrived(outcome), way_s)

    link.up(REQUEST_BYTES, lambda: serve(link.events.now_s + timeout_s, back), way_s)
    link.events.after(timeout_s, lambda: arrived(DeadlineExceeded("no answer in time")))
    return future
