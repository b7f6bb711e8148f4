"""The cloud of the twin: knows the whole catalogue, looks twice, hands out models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from nearsight.common.background.futures import failed, pending
from nearsight.common.catalogue.answers import FetchedModels, Listing
from nearsight.common.errors import DeadlineExceeded, NearsightError, Unavailable
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.request.answer import OBJECT, Answer
from nearsight.common.rpc.envelope import Hop
from nearsight.common.rpc.settings import ServerSettings
from nearsight.device.prefetching.predictions import Prediction
from nearsight.experiments.twin.cost_model import (
    ANSWER_BYTES,
    MODEL_OVERHEAD_BYTES,
    REQUEST_BYTES,
    Costs,
)
from nearsight.experiments.twin.events import Action, EventQueue
from nearsight.experiments.twin.link import Connection, TwinLink
from nearsight.experiments.twin.model_messages import listing_with_digests
from nearsight.experiments.twin.photos import TwinPhoto, found_object
from nearsight.experiments.twin.processor import Call, Processor, Server

CLOUD = "cloud"
QUERY_FEATURES = 800


@dataclass(frozen=True, slots=True)
class Question:
    """A photo on its way to a tier.

    Attributes
    ----------
    photo : TwinPhoto
    image : bool
        It travels as an image, else as features.
    features : int
        How many it was looked at with, or travel.
    size_bytes : int
        On the network.
    asked_again : bool
        Its features were unknown to the tier.
    """

    photo: TwinPhoto
    image: bool
    features: int
    size_bytes: int
    asked_again: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer of a tier.

    Attributes
    ----------
    found : RecognizedObject or None
        What the photo shows.
    answered_by : str
        The tier that knew.
    hops : tuple of Hop
        What each tier spent, the answering tier first.
    prediction : Prediction, optional
        What an edge expects to be asked next.
    size_bytes : int
        On the network.
    """

    found: RecognizedObject | None
    answered_by: str
    hops: tuple[Hop, ...]
    prediction: Prediction | None = None
    size_bytes: int = ANSWER_BYTES

    def answer(self, sent_bytes: int) -> Answer:
        """The same for a request flow."""
        return Answer(self.found, self.answered_by, OBJECT, self.hops, sent_bytes, self.size_bytes)


Answered = Callable[[Reply | NearsightError], None]


class TwinCloud:
    """A server with all models.

    Parameters
    ----------
    events : EventQueue
        Time.
    processor : Processor
        Its cores.
    models : mapping of str to ObjectModel
        The catalogue.
    costs : Costs
        What it spends.
    settings : ServerSettings
        Workers and queue.
    """

    def __init__(
        self,
        events: EventQueue,
        processor: Processor,
        models: Mapping[str, ObjectModel],
        costs: Costs,
        settings: ServerSettings,
    ) -> None:
        self._clock = events.clock
        self._costs = costs
        self.models = models
        self.processor = processor
        self.server = Server(events, processor, settings, costs.model.together)
        self.listing = listing_with_digests(models, 1)
        self.requests = 0

    def recognize(self, question: Question, deadline_s: float, answered: Answered) -> None:
        """A question arrives; the answer leaves when ``answered`` is called."""
        self.requests += 1
        photo = question.photo
        model = self.models.get(photo.object_id)
        at_once = model is not None and photo.known_with(QUERY_FEATURES)
        known = at_once if not question.image else at_once or photo.at_second_look

        def begin(call: Call) -> tuple[float, Action]:
            work_s = self._costs.cloud_s(
                image=question.image,
                again=not at_once,
                effort=photo.tier_effort,
                second_effort=photo.second_effort,
            )
            return work_s, lambda: end(call)

        def end(call: Call) -> None:
            spent_ms = (self._clock.now_s - call.started_s) * 1e3
            hop = Hop(CLOUD, call.queue_ms, spent_ms, 0.0, question.size_bytes, ANSWER_BYTES)
            found = found_object(model) if known and model is not None else None
            answered(Reply(found, CLOUD, (hop,)))

        self.server.offer(Call(deadline_s, begin, answered))

    def get_models(
        self, object_ids: Sequence[str], deadline_s: float, answered: Callable[[FetchedModels], None]
    ) -> None:
        """Models are asked for; a refused request is never answered, as its caller has a limit of its own."""
        models = tuple(self.models[name] for name in object_ids if name in self.models)
        missing = tuple(name for name in object_ids if name not in self.models)
        size = sum(model.size_bytes + MODEL_OVERHEAD_BYTES for model in models)
        fetched = FetchedModels(models, missing, {}, (), self.listing.revision, size)

        def begin(_call: Call) -> tuple[float, Action]:
            return self._costs.small_s * max(1, len(models)), lambda: answered(fetched)

        self.server.offer(Call(deadline_s, begin, lambda _error: None))


class TwinCloudClient:
    """The edge's view of the cloud, over a link: the calls of `edge.cloud_client.CloudClient` that it needs.

    Questions have a connection of their own, so the first of them waits for it.

    Parameters
    ----------
    events : EventQueue
        Time.
    cloud : TwinCloud
        The cloud.
    link : TwinLink
        The way there.
    way_s : float
        What each way typically takes besides.
    stretch : callable
        How much longer than typically it takes this time.
    connect_s : float
        What the first question takes besides.
    """

    def __init__(
        self,
        events: EventQueue,
        cloud: TwinCloud,
        link: TwinLink,
        way_s: float,
        stretch: Callable[[], float],
        connect_s: float = 0.0,
    ) -> None:
        self._events = events
        self._clock = events.clock
        self._cloud = cloud
        self._link = link
        self._way_s = way_s
        self._stretch = stretch
        self._connection = Connection(link, connect_s)

    @property
    def listing(self) -> Listing:
        """The catalogue."""
        return self._cloud.listing

    def ask(self, question: Question, deadline_s: float, answered: Answered) -> None:
        """Ask what a photo shows."""
        way_s = self._way_s * self._stretch()

        def back(outcome: Reply | NearsightError) -> None:
            size = outcome.size_bytes if isinstance(outcome, Reply) else ANSWER_BYTES
            self._link.down(size, lambda: answered(outcome), way_s)

        def send() -> None:
            self._link.up(
                question.size_bytes, lambda: self._cloud.recognize(question, deadline_s, back), way_s
            )

        self._connection.when_there(send)

    def get_models(
        self, catalogue: str, object_ids: Sequence[str], timeout_s: float
    ) -> Future[FetchedModels]:
        """Ask for object models; the future ends within ``timeout_s``."""
        del catalogue
        future: Future[FetchedModels] = pending()
        deadline_s = self._clock.now_s + timeout_s

        def arrived(fetched: FetchedModels) -> None:
            if not future.done():
                future.set_result(fetched)

        def expired() -> None:
            if not future.done():
                future.set_exception(DeadlineExceeded("no models in time"))

        def back(fetched: FetchedModels) -> None:
            self._link.down(fetched.size_bytes, lambda: arrived(fetched), self._way_s)

        self._link.up(
            REQUEST_BYTES,
            lambda: self._cloud.get_models(object_ids, deadline_s, back),
            self._way_s,
        )
        self._events.at(deadline_s, expired)
        return future

    def list_objects(self, catalogue: str, timeout_s: float) -> Future[Listing]:
        """Catalogues do not change in the twin."""
        del timeout_s
        return failed(Unavailable(f"the twin lists {catalogue} once"))
