"""A real cloud daemon in this process, and a client that speaks its messages."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nearsight.cloud.daemon import CloudDaemon
from nearsight.cloud.settings import CloudSettings, IntakeSettings
from nearsight.common.metrics import DaemonMetrics
from nearsight.common.recognition.codec import features_to_proto
from nearsight.common.recognition.models import Features
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.common.rpc.client import Channel, Reply, Stub
from nearsight.common.rpc.security import ClientSecurity
from nearsight.common.rpc.server import ServerSettings
from nearsight.protos import catalogue_pb2 as pb
from nearsight.protos import health_pb2, recognition_pb2
from nearsight.protos.recognition_pb2 import ImageInput, RecognizeRequest, RecognizeResponse
from support.endpoints import fresh_endpoint
from support.waiting import LONG_S

SMALL_RECOGNITION = RecognitionSettings(training_features=300, query_features=300)


def cloud_settings(database: Path, **changes: Any) -> CloudSettings:
    """Settings of a small cloud on a free port."""
    values: dict[str, Any] = {
        "server": ServerSettings(listen=fresh_endpoint(), workers=2, queue_timeout_s=LONG_S),
        "database": database,
        "create": True,
        "poll_interval_s": 0.02,
        "recognition": SMALL_RECOGNITION,
        "intake": IntakeSettings(threads=2),
    }
    return CloudSettings(**(values | changes))


@contextmanager
def running_cloud(
    database: Path, metrics: DaemonMetrics | None = None, **changes: Any
) -> Iterator[CloudDaemon]:
    """A running daemon, which is stopped at the end of the block."""
    daemon = CloudDaemon(cloud_settings(database, **changes), metrics)
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop(2.0)


class CloudClient:
    """A client of a cloud, with short methods for tests."""

    def __init__(
        self,
        endpoint: str,
        catalogue: str = "museum",
        *,
        timeout_s: float = LONG_S,
        security: ClientSecurity | None = None,
    ) -> None:
        self.channel = Channel(endpoint, client_id="test", security=security)
        self.catalogue = catalogue
        self.timeout_s = timeout_s
        self.recognition = Stub(self.channel, recognition_pb2.DESCRIPTOR.services_by_name["Recognition"])
        self.catalogues = Stub(self.channel, pb.DESCRIPTOR.services_by_name["Catalogue"])
        self.health = Stub(self.channel, health_pb2.DESCRIPTOR.services_by_name["Health"])

    def __enter__(self) -> CloudClient:
        return self

    def __exit__(self, *unused: object) -> None:
        self.channel.close()

    def recognize(
        self, query: bytes | Features, *, catalogue: str | None = None, one_look: bool = False
    ) -> RecognizeResponse:
        if isinstance(query, bytes):
            image = ImageInput(size_bytes=len(query), one_look=one_look)
            request, blobs = RecognizeRequest(image=image), [query]
        else:
            message, blobs = features_to_proto(query, 0)
            request = RecognizeRequest(features=message)
        return self._call(self.recognition.recognize, request, blobs, catalogue).message

    def shown(self, photo: bytes) -> str | None:
        """Id of the object in a photo; None if unknown."""
        response = self.recognize(photo)
        return response.object.object_id if response.HasField("object") else None

    def add(
        self, objects: dict[str, Sequence[bytes]], *, catalogue: str | None = None, index_later: bool = False
    ) -> pb.AddObjectsResponse:
        request = pb.AddObjectsRequest(
            objects=[pb.NewObject(object_id=name, images=len(images)) for name, images in objects.items()],
            index_later=index_later,
        )
        blobs = [image for images in objects.values() for image in images]
        return self._call(self.catalogues.add_objects, request, blobs, catalogue).message

    def remove(self, *object_ids: str) -> pb.RemoveObjectsResponse:
        request = pb.RemoveObjectsRequest(object_ids=object_ids)
        return self._call(self.catalogues.remove_objects, request).message

    def remove_catalogue(self, name: str) -> int:
        return int(
            self._call(
                self.catalogues.remove_catalogue, pb.RemoveCatalogueRequest(), catalogue=name
            ).message.objects
        )

    def objects(self) -> pb.ListObjectsResponse:
        return self._call(self.catalogues.list_objects, pb.ListObjectsRequest()).message

    def models(self, *object_ids: str) -> Reply:
        return self._call(self.catalogues.get_object_models, pb.GetObjectModelsRequest(object_ids=object_ids))

    def check(self) -> health_pb2.HealthResponse:
        return self._call(self.health.check, health_pb2.HealthRequest()).message

    def _call(
        self, method: Any, request: Any, blobs: Sequence[bytes] = (), catalogue: str | None = None
    ) -> Reply:
        name = self.catalogue if catalogue is None else catalogue
        return method(request, timeout_s=self.timeout_s, blobs=blobs, catalogue=name)


def hold_recognition(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Recognition sets the first event, then waits for the second one."""
    held, release = threading.Event(), threading.Event()
    recognize = ObjectRecognizer.recognize

    def slow(self: ObjectRecognizer, features: object) -> object:
        held.set()
        assert release.wait(LONG_S)
        return recognize(self, features)

    monkeypatch.setattr(ObjectRecognizer, "recognize", slow)
    return held, release
