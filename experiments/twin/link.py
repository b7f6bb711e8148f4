"""Links of the twin, and the calls over them.

A link is the shaper's own schedule (`LinkDirection`) with messages instead of sockets. The shaper admits the
pieces of a message as fast as they are read, and it reads them when they are sent. So messages keep their
order, and one message is one piece here.
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
from nearsight.experiments.twin.cost_model import (
    ANSWER_BYTES,
    BYTES_PER_PREDICTION,
    LISTED_BYTES,
    MODEL_OVERHEAD_BYTES,
    REQUEST_BYTES,
    Costs,
)
from nearsight.experiments.twin.events import Action, EventQueue
from nearsight.experiments.twin.photos import TwinPhoto

_HANDSHAKES, _HANDSHAKE_BYTES = 3, 30

A = TypeVar("A")


class TwinLink:
    """Both directions of a link.

    Parameters
    ----------
    events : EventQueue
        Time.
    shape : LinkShape
        What the link is like.
    rng : Generator
        Jitter.
    """

    def __init__(self, events: EventQueue, shape: LinkShape, rng: np.random.Generator) -> None:
        self.events = events
        self._up, self._down = (LinkDirection(0.0, 0.0, 0.0, rng) for _ in range(2))
        self.up_bytes = self.down_bytes = 0
        """That entered it since it has this shape."""
        self.reshape(shape)

    def up(self, size_bytes: int, arrived: Action, extra_s: float = 0.0) -> None:
        """Send towards the server; ``extra_s`` passes after the link, in daemons."""
        self.up_bytes += size_bytes
        self.events.at(self._up.admit(size_bytes, self.events.now_s) + extra_s, arrived)

    def down(self, size_bytes: int, arrived: Action, extra_s: float = 0.0) -> None:
        """Send back."""
        self.down_bytes += size_bytes
        self.events.at(self._down.admit(size_bytes, self.events.now_s) + extra_s, arrived)

    def connect(self, connected: Action, extra_s: float = 0.0) -> None:
        """Shake hands, as ZeroMQ does: signatures, versions, then who is ready, each after the other's.

        ``extra_s`` passes besides, in the daemons.
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
        """Be another link from now on, and count its bytes from 0."""
        self.up_bytes = self.down_bytes = 0
        delay_s, jitter_s = shape.rtt_ms / 2e3, shape.jitter_ms / 1e3
        self._up.reshape(delay_s, shape.up_mbps, jitter_s)
        self._down.reshape(delay_s, shape.down_mbps, jitter_s)


class Connection:
    """A connection over a link, made with the first message; messages sent meanwhile wait for it.

    Parameters
    ----------
    link : TwinLink
        Over which.
    extra_s : float
        What its first message takes besides.
    """

    def __init__(self, link: TwinLink, extra_s: float = 0.0) -> None:
        self._link = link
        self._extra_s = extra_s
        self._waiting: list[Action] | None = []

    def when_there(self, action: Action) -> None:
        """Do something as soon as there is a connection."""
        if self._waiting is None:
            action()
            return
        self._waiting.append(action)
        if len(self._waiting) == 1:
            self._link.connect(self._there, self._extra_s)

    def _there(self) -> None:
        waiting, self._waiting = self._waiting or [], None
        for action in waiting:
            action()


@dataclass(frozen=True, slots=True)
class Question:
    """A photo on its way to a tier."""

    photo: TwinPhoto
    image: bool
    """It travels as an image, else as features."""
    features: int
    """How many it was looked at with, or travel."""
    size_bytes: int
    """On the network."""
    asked_again: bool = False
    """Its features were unknown to the tier."""
    thumbnail: bool = False
    """It brings a thumbnail."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer of a tier."""

    found: RecognizedObject | None
    """What the photo shows."""
    answered_by: str
    """The tier that recognised it, or the last that was asked."""
    hops: tuple[Hop, ...]
    """What each tier spent, the answering tier first."""
    prediction: Prediction | None = None
    """What an edge expects to be asked next."""
    grain: str = OBJECT
    """What it was found in."""
    thumbnail_wanted: bool = False
    """The next photo should bring one."""


Answered = Callable[[Reply | NearsightError], None]
Asks = Callable[[Question, float, Answered], None]
"""Puts a question to a tier, over whatever lies between: question, deadline, what to do with the answer."""


def tell(
    flow: RequestFlow[Q], attempt: int, outcome: Reply | NearsightError, sent_bytes: int, now_s: float
) -> Effect[Q] | None:
    """Tell a flow what came of asking a tier."""
    if isinstance(outcome, NearsightError):
        return flow.failed(attempt, outcome, now_s)
    received_bytes = answer_bytes(outcome)
    answer = Answer(
        outcome.found, outcome.answered_by, outcome.grain, outcome.hops, sent_bytes, received_bytes
    )
    return flow.replied(attempt, answer, now_s)


def answer_bytes(answer: object) -> int:
    """Size of an answer, or of an error, on the network."""
    if isinstance(answer, FetchedModels):
        return answer.size_bytes
    if isinstance(answer, Listing):
        return ANSWER_BYTES + LISTED_BYTES * len(answer.versions)
    prediction = answer.prediction if isinstance(answer, Reply) else answer
    if isinstance(prediction, Prediction):
        return ANSWER_BYTES + BYTES_PER_PREDICTION * len(prediction.following)
    return ANSWER_BYTES


def models_bytes(models: Iterable[ObjectModel]) -> int:
    """Size of models on the network."""
    return sum(model.size_bytes + MODEL_OVERHEAD_BYTES for model in models)


def over(link: TwinLink, way_s: float, costs: Costs, ask: Asks) -> Asks:
    """A tier at the other end of a link.

    Daemons typically spend ``way_s`` on each way besides the link. The first question waits for the
    connection.
    """
    connection = Connection(link, costs.connect_s)

    def put(question: Question, deadline_s: float, answered: Answered) -> None:
        this_s = way_s * costs.call_stretch()

        def back(outcome: Reply | NearsightError) -> None:
            link.down(answer_bytes(outcome), lambda: answered(outcome), this_s)

        connection.when_there(
            lambda: link.up(question.size_bytes, lambda: ask(question, deadline_s, back), this_s)
        )

    return put


def call(
    link: TwinLink,
    way_s: float,
    serve: Callable[[float, Callable[[A | NearsightError], None]], None],
    timeout_s: float,
) -> Future[A]:
    """Send a small request over a link, where a connection is; the future ends within ``timeout_s``.

    ``serve`` gets the request at the other end: its deadline, and what to do with the answer.
    """
    future: Future[A] = pending()
    deadline_s = link.events.now_s + timeout_s

    def arrived(outcome: A | NearsightError) -> None:
        if future.done():
            return
        if isinstance(outcome, NearsightError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    def back(outcome: A | NearsightError) -> None:
        link.down(answer_bytes(outcome), lambda: arrived(outcome), way_s)

    link.up(REQUEST_BYTES, lambda: serve(deadline_s, back), way_s)
    link.events.at(deadline_s, lambda: arrived(DeadlineExceeded("no answer in time")))
    return future
