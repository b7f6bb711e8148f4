"""Complete devices beside peers that send wrong models, or none."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import ClassVar

import pytest
from google.protobuf.descriptor import ServiceDescriptor

from nearsight.common.background.futures import failed
from nearsight.common.errors import InvalidArgument
from nearsight.common.recognition.codec import object_model_to_proto
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.rpc.service import CallContext, Service
from nearsight.device.cooperation.protocol import holder_item, model_key
from nearsight.protos import catalogue_pb2
from nearsight.protos.catalogue_pb2 import GetObjectModelsRequest, GetObjectModelsResponse
from support.gallery import exhibit_model, photo_features
from support.sharing_devices import Scene, account, holds, name
from support.waiting import LONG_S, wait_until


class _Peer(Service):
    """A peer that answers as a test says."""

    descriptor: ClassVar[ServiceDescriptor] = catalogue_pb2.DESCRIPTOR.services_by_name["Catalogue"]

    def __init__(self, answer: Callable[[str, CallContext], object]) -> None:
        self._answer = answer
        self.asked: list[str] = []

    def get_object_models(self, request: GetObjectModelsRequest, context: CallContext) -> object:
        (object_id,) = request.object_ids
        self.asked.append(object_id)
        return self._answer(object_id, context)

    def _refuse(self, request: object, context: CallContext) -> object:
        raise InvalidArgument("not here")

    list_objects = list_catalogues = add_objects = remove_objects = remove_catalogue = _refuse


def _hand_out(model: ObjectModel, context: CallContext) -> GetObjectModelsResponse:
    message, blobs = object_model_to_proto(model, 0)
    context.response_blobs.extend(blobs)
    return GetObjectModelsResponse(models=[message], revision=10**6)


def _wrong(object_id: str, context: CallContext) -> GetObjectModelsResponse:
    """The model of the next picture with this object's id."""
    other = exhibit_model((int(object_id.removeprefix("exhibit-")) + 1) % 5)
    return _hand_out(replace(other, object_id=object_id), context)


def _never(object_id: str, context: CallContext) -> Future[GetObjectModelsResponse]:
    del object_id, context
    return Future()


# A peer that never answers costs the timeout of a model several times.
@pytest.mark.parametrize("lie", [_wrong, pytest.param(_never, marks=pytest.mark.system)])
def test_a_bad_peer_causes_no_wrong_answers_and_no_delays(
    scene: Scene, lie: Callable[[str, CallContext], object]
) -> None:
    service = _Peer(lie)
    bad = scene.stranger(service)
    devices = [scene.device(), scene.device()]
    scene.meet()
    for number in range(5):
        key = model_key("museum", name(number), 1)
        bad.store.append(key, holder_item(bad.node_id)).result(LONG_S)
    for device in devices:
        device.recognize_blocking(photo_features(0))
    for device in devices:
        holds(device, 0, 1, 2, 3, 4)
        for number in range(5):
            found = device.recognize_blocking(photo_features(number))
            assert (found.object_id, found.answered_by) == (name(number), "device")
        blamed = account(device).rejected_models + account(device).silent_peers
        # Up to four models are asked for at a time; after the first bad answer no more.
        assert blamed <= 4
    assert 1 <= len(service.asked) <= 8
    if lie is _wrong:
        assert sum(account(device).rejected_models for device in devices) == len(service.asked)


def test_photos_are_answered_while_a_peer_sends_no_models(scene: Scene) -> None:
    kept: list[Future[GetObjectModelsResponse]] = []
    waiting = True

    def answer(*_: object) -> Future[GetObjectModelsResponse]:
        kept.append(Future())
        return kept[-1] if waiting else failed(InvalidArgument("not here"))

    service = _Peer(answer)
    bad = scene.stranger(service)
    device = scene.device()
    scene.meet()
    for number in range(1, 5):
        bad.store.append(model_key("museum", name(number), 1), holder_item(bad.node_id)).result(LONG_S)
    device.recognize_blocking(photo_features(0))
    wait_until(lambda: len(service.asked) >= 1, what="a question to the silent peer")
    for _ in range(5):
        device.recognize_blocking(photo_features(0))
    assert account(device).silent_peers == 0  # still waiting
    waiting = False
    for future in kept:
        if not future.done():
            future.set_exception(InvalidArgument("not here"))
    holds(device, 0, 1, 2, 3, 4)
