"""A real edge daemon in this process, in front of a cloud whose faults a test decides."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cache, lru_cache, partial
from typing import Any

from nearsight.common.errors import InvalidArgument, NearsightError, NotFound
from nearsight.common.metrics import DaemonMetrics
from nearsight.common.object_cache.next_objects import NextObjects, next_objects_from_proto
from nearsight.common.recognition.codec import (
    features_from_proto,
    features_to_proto,
    model_digest,
    object_model_to_proto,
    recognized_object_to_proto,
)
from nearsight.common.recognition.extraction import extract_query, train_object
from nearsight.common.recognition.models import Features, ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.common.rpc.client import Channel, Reply, Stub
from nearsight.common.rpc.security import ServerSecurity
from nearsight.common.rpc.server import RpcServer, ServerSettings
from nearsight.common.rpc.service import CallContext, Service
from nearsight.edge.catalogue_cache import CatalogueCache
from nearsight.edge.daemon import EdgeDaemon
from nearsight.edge.settings import CacheSettings, EdgeSettings, FetchSettings
from nearsight.protos import catalogue_pb2 as pb
from nearsight.protos import health_pb2, prediction_pb2, recognition_pb2
from nearsight.protos.recognition_pb2 import ImageInput, RecognizeRequest, RecognizeResponse
from support.endpoints import fresh_endpoint
from support.pictures import photo_jpeg, picture_jpeg
from support.waiting import LONG_S, wait_until

RECOGNITION = RecognitionSettings(training_features=300, query_features=300)
CATALOGUE = "museum"
EXHIBITS = 6
"""Number of exhibits in the museum of the tests."""


def exhibit(number: int, *, version: int = 1, picture: int | None = None) -> ObjectModel:
    """The model of exhibit ``number``, which shows picture ``number`` unless another is given."""
    return replace(_trained(number, number if picture is None else picture), version=version)


@cache
def _trained(number: int, picture: int) -> ObjectModel:
    return train_object(f"{number:02d}", f"exhibit {number}", [picture_jpeg(picture)], RECOGNITION)


def photo(number: int) -> bytes:
    """A photo of picture ``number``."""
    return photo_jpeg(number)


@lru_cache(maxsize=200)
def features_of(image: bytes) -> Features:
    """The features that a device extracts."""
    return extract_query(image, RECOGNITION)


class ScriptedCloud:
    """A cloud with one catalogue and real recognition; counts requests, and fails as the test defines.

    Attributes
    ----------
    fetched : list of tuple of str
        Objects of each request for models.
    received : list of str
        Kind of each recognition request, "image" or "features".
    flagged_unknown : list of bool
        Whether each recognition request stated that its features were unknown before.
    one_looks : list of bool
        Whether each recognition request asked for one look only.
    seconds_left : list of float
        Remaining time of each recognition request.
    recognize_error, image_error, fetch_errors, listed_error, catalogues_error
        Errors to answer with: to all recognition requests; to those with an image; to requests for an
        object's model, by object, in any batch; to requests for a list of objects, or of catalogues.
    listings : int
        Number of requests for the list of catalogues.
    hidden : bool
        Whether the catalogue does not exist any more.
    silent : set of str
        Objects whose requests for models are never answered.
    models_gate : threading.Event
        Answers with models are sent when it is set; no worker waits.
    malformed : set of str
        Objects whose models are sent damaged.
    replaced_models : dict
        Models to send instead of those in the catalogue.
    gate, image_gate : threading.Event
        Recognition requests wait until ``gate`` is set; those with an image wait for both.
    """

    def __init__(
        self,
        models: Sequence[ObjectModel],
        listen: str = "",
        security: ServerSecurity | None = None,
    ) -> None:
        self.fetched: list[tuple[str, ...]] = []
        self.received: list[str] = []
        self.flagged_unknown: list[bool] = []
        self.one_looks: list[bool] = []
        self.seconds_left: list[float] = []
        self.recognize_error: NearsightError | None = None
        self.image_error: NearsightError | None = None
        self.fetch_errors: dict[str, NearsightError] = {}
        self.listed_error: NearsightError | None = None
        self.catalogues_error: NearsightError | None = None
        self.listings = 0
        self.silent: set[str] = set()
        self.malformed: set[str] = set()
        self.models_gate = threading.Event()
        self.models_gate.set()
        self.gate = threading.Event()
        self.gate.set()
        self.image_gate = threading.Event()
        self.image_gate.set()
        self.replaced_models: dict[str, ObjectModel] = {}
        self.revision = 1
        self.hidden = False
        self.set_models(models, bump=False)
        services = [_Recognition(self), _Catalogue(self)]
        settings = ServerSettings(listen=listen or fresh_endpoint(), workers=2, queue_timeout_s=LONG_S)
        self.server = RpcServer(services, tier="cloud", settings=settings, security=security)
        self.server.start()

    @property
    def endpoint(self) -> str:
        return self.server.endpoint

    def set_models(self, models: Sequence[ObjectModel], *, bump: bool = True) -> None:
        """Replace the content of the catalogue."""
        self.recognizer = ObjectRecognizer.build(models, RECOGNITION)
        self.revision += bump

    def fetched_ids(self) -> list[str]:
        return [name for batch in self.fetched for name in batch]

    def stop(self) -> None:
        self.gate.set()
        self.image_gate.set()
        self.models_gate.set()
        self.server.stop(0.5)


class _Recognition(Service):
    descriptor = recognition_pb2.DESCRIPTOR.services_by_name["Recognition"]

    def __init__(self, cloud: ScriptedCloud) -> None:
        self._cloud = cloud

    def recognize(self, request: RecognizeRequest, context: CallContext) -> RecognizeResponse:
        cloud = self._cloud
        cloud.received.append(str(request.WhichOneof("input")))
        cloud.flagged_unknown.append(request.image.features_unknown)
        cloud.one_looks.append(request.image.one_look)
        cloud.seconds_left.append(context.deadline.remaining_s())
        assert cloud.gate.wait(LONG_S)
        if cloud.recognize_error is not None:
            raise copy.copy(cloud.recognize_error)
        if context.catalogue not in ("", CATALOGUE) or cloud.hidden:
            raise NotFound(f"there is no catalogue {context.catalogue!r}")
        if request.HasField("image"):
            assert cloud.image_gate.wait(LONG_S)
            if cloud.image_error is not None:
                raise copy.copy(cloud.image_error)
            features = features_of(bytes(context.blobs[0]))
        else:
            features = features_from_proto(request.features, context.blobs)
        found = cloud.recognizer.recognize(features).found
        response = RecognizeResponse(answered_by="cloud")
        if found is not None:
            response.object.CopyFrom(recognized_object_to_proto(found))
        return response


class _Catalogue(Service):
    descriptor = pb.DESCRIPTOR.services_by_name["Catalogue"]

    def __init__(self, cloud: ScriptedCloud) -> None:
        self._cloud = cloud

    def list_catalogues(
        self, request: pb.ListCataloguesRequest, context: CallContext
    ) -> pb.ListCataloguesResponse:
        cloud = self._cloud
        cloud.listings += 1
        if cloud.catalogues_error is not None:
            raise copy.copy(cloud.catalogues_error)
        summary = pb.CatalogueSummary(name=CATALOGUE, objects=len(cloud.recognizer), revision=cloud.revision)
        return pb.ListCataloguesResponse(catalogues=[] if cloud.hidden else [summary])

    def list_objects(self, request: pb.ListObjectsRequest, context: CallContext) -> pb.ListObjectsResponse:
        if self._cloud.listed_error is not None:
            raise copy.copy(self._cloud.listed_error)
        if context.catalogue not in ("", CATALOGUE) or self._cloud.hidden:
            raise NotFound(f"there is no catalogue {context.catalogue!r}")
        models = self._cloud.recognizer.models.values()
        return pb.ListObjectsResponse(
            objects=[
                pb.ObjectSummary(
                    object_id=m.object_id, label=m.label, version=m.version, model_digest=model_digest(m)
                )
                for m in models
            ],
            revision=self._cloud.revision,
        )

    def get_object_models(
        self, request: pb.GetObjectModelsRequest, context: CallContext
    ) -> pb.GetObjectModelsResponse | Future[pb.GetObjectModelsResponse]:
        cloud = self._cloud
        asked = tuple(request.object_ids)
        cloud.fetched.append(asked)
        for name in asked:
            if name in cloud.silent:
                return Future()
            if name in cloud.fetch_errors:
                raise copy.copy(cloud.fetch_errors[name])
        response = pb.GetObjectModelsResponse(revision=cloud.revision)
        for name in asked:
            model = cloud.replaced_models.get(name) or cloud.recognizer.models.get(name)
            if model is None:
                response.missing.append(name)
                continue
            message, blobs = object_model_to_proto(model, len(context.response_blobs))
            if name in cloud.malformed:
                message.views[0].count += 1
            response.models.append(message)
            context.response_blobs.extend(blobs)
        return response if cloud.models_gate.is_set() else when_set(cloud.models_gate, response)

    def _refuse(self, request: object, context: CallContext) -> object:
        raise InvalidArgument("not in this test")

    add_objects = remove_objects = remove_catalogue = _refuse


def when_set(
    gate: threading.Event, response: pb.GetObjectModelsResponse
) -> Future[pb.GetObjectModelsResponse]:
    """The response, completed by a thread when the gate is set."""
    answer: Future[pb.GetObjectModelsResponse] = Future()

    def wait() -> None:
        assert gate.wait(LONG_S)
        answer.set_result(response)

    threading.Thread(target=wait, daemon=True).start()
    return answer


class EdgeClient:
    """A device, with short methods for tests."""

    def __init__(self, endpoint: str, catalogue: str = CATALOGUE, device_id: str = "device-1") -> None:
        self.channel = Channel(endpoint, client_id=device_id)
        self.catalogue = catalogue
        self.recognition = Stub(self.channel, recognition_pb2.DESCRIPTOR.services_by_name["Recognition"])
        self.prediction = Stub(self.channel, prediction_pb2.DESCRIPTOR.services_by_name["Prediction"])
        self.catalogues = Stub(self.channel, pb.DESCRIPTOR.services_by_name["Catalogue"])
        self.health = Stub(self.channel, health_pb2.DESCRIPTOR.services_by_name["Health"])

    def __enter__(self) -> EdgeClient:
        return self

    def __exit__(self, *unused: object) -> None:
        self.channel.close()

    def send(
        self,
        query: bytes | Features,
        *,
        timeout_s: float = LONG_S,
        catalogue: str | None = None,
        features_unknown: bool = False,
    ) -> Future[Reply]:
        if isinstance(query, Features):
            message, blobs = features_to_proto(query, 0)
            return self.send_raw(RecognizeRequest(features=message), blobs, timeout_s, catalogue)
        image = ImageInput(size_bytes=len(query), features_unknown=features_unknown)
        request = RecognizeRequest(image=image)
        return self.send_raw(request, [query], timeout_s, catalogue)

    def send_raw(
        self,
        request: RecognizeRequest,
        blobs: Sequence[bytes],
        timeout_s: float = LONG_S,
        catalogue: str | None = None,
    ) -> Future[Reply]:
        name = self.catalogue if catalogue is None else catalogue
        future: Future[Reply] = self.recognition.recognize.future(
            request, timeout_s=timeout_s, blobs=blobs, catalogue=name, trace_id="trace"
        )
        return future

    def report(self, object_id: str) -> NextObjects:
        """Report an object that the device recognised itself; return the predicted next objects."""
        return next_objects_from_proto(self.send_report(object_id).message.next_objects)

    def send_report(self, object_id: str) -> Reply:
        """Report an object that the device recognised itself; return the whole reply."""
        request = prediction_pb2.GetNextObjectsRequest(current_object_id=object_id)
        reply: Reply = self.prediction.get_next_objects(request, timeout_s=LONG_S, catalogue=self.catalogue)
        return reply

    def ask(self, query: bytes | Features, *, timeout_s: float = LONG_S) -> tuple[str | None, str]:
        """Object in a photo, and the tier that answered."""
        return answer_of(self.send(query, timeout_s=timeout_s).result(timeout_s + LONG_S))


def answer_of(reply: Reply) -> tuple[str | None, str]:
    """Object id or None, and the tier that answered."""
    message = reply.message
    return (message.object.object_id if message.HasField("object") else None), message.answered_by


def edge_server(listen: str = "", **changes: Any) -> ServerSettings:
    """Settings of a server whose requests may wait for a busy machine."""
    return ServerSettings(
        **({"listen": listen or fresh_endpoint(), "workers": 2, "queue_timeout_s": LONG_S} | changes)
    )


def edge_settings(cloud: str, **changes: Any) -> EdgeSettings:
    """Settings for tests: a small pipeline, short poll intervals, builds without pauses."""
    values: dict[str, Any] = {
        "cloud": cloud,
        "server": edge_server(),
        "poll_s": 0.05,
        "standby_mb": 0,
        "recognition": RECOGNITION,
        "cache": CacheSettings(build_share=1.0, miss_prior_ms=1000.0),
        "fetch": FetchSettings(timeout_s=LONG_S, patience_s=60.0),
    }
    return EdgeSettings(**(values | changes))


@contextmanager
def running_edge(cloud: str, metrics: DaemonMetrics | None = None, **changes: Any) -> Iterator[EdgeDaemon]:
    """A running daemon, which is stopped at the end of the block."""
    daemon = EdgeDaemon(edge_settings(cloud, **changes), metrics or DaemonMetrics("edge"))
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop(2.0)


@contextmanager
def serving(
    cloud: ScriptedCloud, metrics: DaemonMetrics | None = None, **changes: Any
) -> Iterator[tuple[EdgeDaemon, EdgeClient]]:
    """An edge with these settings in front of the cloud, and a device connected to it."""
    with running_edge(cloud.endpoint, metrics, **changes) as edge, EdgeClient(edge.endpoint) as device:
        yield edge, device


Serve = Callable[..., AbstractContextManager[tuple[EdgeDaemon, EdgeClient]]]
"""`serving` with a test's cloud and cache settings."""


def cache_of(edge: EdgeDaemon) -> CatalogueCache:
    """The cache of the catalogue; the first answered request creates it."""
    wait_until(lambda: edge.caches.get(CATALOGUE) is not None, what="a cache")
    cache = edge.caches.get(CATALOGUE)
    assert cache is not None
    return cache


def wait_for_standby(edge: EdgeDaemon, objects: int) -> None:
    """Wait until the standby of the catalogue holds this number of objects."""
    wait_until(lambda: edge.standbys.size(CATALOGUE) == objects, what=f"a standby of {objects} objects")


def cached(edge: EdgeDaemon) -> set[str]:
    """Ids in the current snapshot of the cache."""
    cache = edge.caches.get(CATALOGUE)
    return set(cache.holder.snapshot.object_ids) if cache is not None else set()


def ask_until(condition: Callable[[], bool], ask: Callable[[], object], what: str) -> None:
    """Repeat a request until a condition holds."""

    def asked() -> bool:
        if condition():
            return True
        ask()
        return condition()

    wait_until(asked, what=what)


def make_misses_costly(edge: EdgeDaemon) -> None:
    """Report high miss latencies, as of a distant cloud: a cache is useful however slow this machine is."""
    cache = cache_of(edge)
    for _ in range(50):
        cache.profiler.observe_miss(60_000.0)


def warm(edge: EdgeDaemon, device: EdgeClient, numbers: range | list[int]) -> None:
    """Send photos of exhibits until the edge answers each of them."""
    device.ask(photo(numbers[0]))
    make_misses_costly(edge)
    for number in numbers:
        image = photo(number)
        name = f"{number:02d}"
        ask_until(partial(is_cached, edge, name), partial(device.ask, image), f"{name} in the cache")


def is_cached(edge: EdgeDaemon, name: str) -> bool:
    """Whether the edge answers for this object."""
    return name in cached(edge)
