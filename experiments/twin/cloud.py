"""The cloud of the twin: has the whole catalogue, takes a second look at unknown photos, serves models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial

from nearsight.common.background.futures import failed
from nearsight.common.catalogue.answers import FetchedModels, Listing
from nearsight.common.errors import NearsightError, Unavailable
from nearsight.common.recognition.codec import digest_of_message
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.rpc.envelope import Hop
from nearsight.common.rpc.settings import ServerSettings
from nearsight.experiments.twin.cost_model import Costs
from nearsight.experiments.twin.events import Action
from nearsight.experiments.twin.link import (
    ANSWER_BYTES,
    OnReply,
    Reply,
    TierRequest,
    TwinLink,
    call_over_link,
    models_bytes,
    tier_over_link,
)
from nearsight.experiments.twin.photos import found_object
from nearsight.experiments.twin.processor import Call, Processor, Server
from nearsight.protos.catalogue_pb2 import ObjectModelMessage, ObjectSummary

CLOUD = "cloud"
QUERY_FEATURES = 800


class TwinCloud:
    """A server with all models.

    Parameters
    ----------
    processor : Processor
        Its cores.
    models : mapping of str to ObjectModel
        The catalogue.
    costs : Costs
        Its costs.
    settings : ServerSettings
        Workers and queue.
    """

    def __init__(
        self,
        processor: Processor,
        models: Mapping[str, ObjectModel],
        costs: Costs,
        settings: ServerSettings,
    ) -> None:
        self._events = processor.events
        self._costs = costs
        self._models = models
        self.processor = processor
        self._server = Server(processor, settings, costs.model.together)
        self._models_server = Server(processor, settings.model_copy(update={"workers": 1}))
        self.listing = _listing(models)

    def recognize(self, tier_request: TierRequest, deadline_s: float, answered: OnReply) -> None:
        """Receive a request; ``answered`` is called with the answer when it is sent."""
        photo = tier_request.photo
        model = self._models.get(photo.object_id)
        at_once = model is not None and photo.recognised_with(QUERY_FEATURES)
        known = at_once if not tier_request.image else at_once or photo.at_second_look

        def begin(call: Call) -> tuple[float, Action]:
            work_s = self._costs.cloud_s(
                image=tier_request.image,
                again=not at_once,
                effort=photo.tier_effort,
                second_effort=photo.second_effort,
            )
            return work_s, lambda: end(call)

        def end(call: Call) -> None:
            spent_ms = (self._events.now_s - call.started_s) * 1e3
            hop = Hop(CLOUD, call.queue_ms, spent_ms, 0.0, tier_request.size_bytes, ANSWER_BYTES)
            found = found_object(model) if known and model is not None else None
            answered(Reply(found, CLOUD, (hop,)))

        self._server.offer(Call(deadline_s, begin, answered))

    def get_models(
        self,
        object_ids: Sequence[str],
        deadline_s: float,
        answered: Callable[[FetchedModels | NearsightError], None],
    ) -> None:
        """Receive a request for models. As in the daemon, such requests have their own queue and worker."""
        models = tuple(self._models[name] for name in object_ids if name in self._models)
        missing = tuple(name for name in object_ids if name not in self._models)
        fetched = FetchedModels(models, missing, {}, (), self.listing.revision, models_bytes(models))
        work_s = self._costs.small_s * max(1, len(models))
        self._models_server.serve(deadline_s, work_s, lambda _call: answered(fetched), answered)


class TwinCloudClient:
    """The edge's client of the cloud over a link: the used part of `edge.cloud_client.CloudClient`.

    Requests have their own connection, which the first request establishes.

    Parameters
    ----------
    cloud : TwinCloud
        The cloud.
    link : TwinLink
        The link to it.
    way_s : float
        Typical time that daemons spend on each way, in addition to the link [s].
    costs : Costs
        Cost of connections, and scatter of calls.
    """

    def __init__(self, cloud: TwinCloud, link: TwinLink, way_s: float, costs: Costs) -> None:
        self._cloud = cloud
        self._call = partial(call_over_link, link, way_s)
        self.ask = tier_over_link(link, way_s, costs, cloud.recognize)
        self.listing = cloud.listing

    def get_models(
        self, catalogue: str, object_ids: Sequence[str], timeout_s: float
    ) -> Future[FetchedModels]:
        """Request object models; the future completes within ``timeout_s``."""
        del catalogue
        return self._call(partial(self._cloud.get_models, object_ids), timeout_s)

    def list_objects(self, catalogue: str, timeout_s: float) -> Future[Listing]:
        """Always fails: catalogues do not change in the twin."""
        del timeout_s
        return failed(Unavailable(f"the twin lists {catalogue} once"))


def message_of(model: ObjectModel) -> ObjectModelMessage:
    """A model as it is sent in the twin: without views."""
    return ObjectModelMessage(object_id=model.object_id, label=model.label, version=model.version)


def _listing(models: Mapping[str, ObjectModel]) -> Listing:
    """A listing with the digests of the models as they are sent here."""
    entries = tuple(
        ObjectSummary(
            object_id=name, version=model.version, model_digest=digest_of_message(message_of(model), ())
        )
        for name, model in models.items()
    )
    return Listing({name: model.version for name, model in models.items()}, 1, entries)
