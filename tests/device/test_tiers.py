"""A tier over a real connection: requests in each form, and answers."""

from contextlib import ExitStack

import cv2
import numpy as np
import pytest

from nearsight.common.clock import SYSTEM_CLOCK
from nearsight.common.errors import InternalError
from nearsight.common.recognition.codec import features_from_proto
from nearsight.common.request.answer import Answer
from nearsight.common.request.effects import Ask
from nearsight.common.request.forms import FEATURES, IMAGE
from nearsight.common.rpc.client import Channel
from nearsight.common.rpc.service import CallContext, Service
from nearsight.device.inference import infer
from nearsight.device.query import DeviceQuery, QueryContext
from nearsight.device.recognizer_settings import UploadSettings
from nearsight.device.tiers import RemoteTier
from nearsight.protos import inference_pb2
from nearsight.protos.inference_pb2 import InferRequest, InferResponse
from nearsight.protos.recognition_pb2 import RecognizeResponse
from support.gallery import photo_features
from support.pictures import photo_jpeg
from support.recognition_server import EXHIBIT, ScriptedRecognition, response, serve
from support.requests import asked
from support.waiting import LONG_S

PHOTO = photo_jpeg(1)
CONTEXT = QueryContext(UploadSettings(), SYSTEM_CLOCK)


class Scene:
    """An edge with scripted answers, and the tier that asks it."""

    def __init__(self, stack: ExitStack) -> None:
        self.answer = response("edge")
        self.service = ScriptedRecognition(lambda: self.answer)
        server = serve(self.service, "edge")
        stack.callback(server.stop, 0.0)
        self.tier = RemoteTier("edge", Channel(server.endpoint, client_id="phone"), "museum")
        stack.callback(self.tier.close)

    def ask(self, query: DeviceQuery, step: Ask) -> Answer:
        """Ask, and wait for the answer."""
        return asked(self.tier, query, step)


@pytest.fixture
def scene(stack: ExitStack) -> Scene:
    return Scene(stack)


def test_an_image_is_one_blob_with_a_flag_for_unknown_features(scene: Scene) -> None:
    query = DeviceQuery(PHOTO, CONTEXT)
    for again in (False, True):
        answer = scene.ask(query, Ask("edge", IMAGE, LONG_S, 0, again))
        assert (answer.found, answer.answered_by, answer.grain) == (EXHIBIT, "edge", "object")
        assert answer.sent_bytes > len(PHOTO)
        assert [hop.tier for hop in answer.hops] == ["edge"]
    assert [request.image.features_unknown for request in scene.service.requests] == [False, True]
    assert {context.trace_id for context in scene.service.contexts} == {"t"}
    assert [len(context.blobs) for context in scene.service.contexts] == [1, 1]


def test_an_image_has_a_flag_for_single_lookups(scene: Scene) -> None:
    for one_look in (False, True):
        query = DeviceQuery(PHOTO, CONTEXT)
        query.one_look = one_look
        scene.ask(query, Ask("edge", IMAGE, LONG_S, 0))
    assert [request.image.one_look for request in scene.service.requests] == [False, True]


def test_photos_have_a_thumbnail_while_the_tier_uses_them(scene: Scene) -> None:
    for wanted in (True, True, False, False):
        scene.answer.thumbnail_wanted = wanted
        scene.ask(DeviceQuery(PHOTO, CONTEXT), Ask("edge", IMAGE, LONG_S, 0))
    sizes = [len(request.image.thumbnail) for request in scene.service.requests]
    assert sizes == [0, 64, 64, 0]


DAMAGED = cv2.imencode(".png", np.full((60, 80), 9, np.uint8))[1].tobytes().replace(b"IDAT", b"ITAD")


@pytest.mark.parametrize(("photo", "thumbnails"), [(PHOTO, False), (DAMAGED, True)])
def test_a_photo_has_no_thumbnail_if_they_are_disabled_or_it_cannot_be_decoded(
    scene: Scene, photo: bytes, thumbnails: bool
) -> None:
    scene.answer.thumbnail_wanted = True
    context = QueryContext(UploadSettings(thumbnails=thumbnails), SYSTEM_CLOCK)
    for _ in range(2):
        scene.ask(DeviceQuery(photo, context), Ask("edge", IMAGE, LONG_S, 0))
    assert [request.image.thumbnail for request in scene.service.requests] == [b"", b""]


def test_features_travel_as_three_blobs(scene: Scene) -> None:
    features = photo_features(1)
    scene.answer = RecognizeResponse(answered_by="cloud", grain="network")
    answer = scene.ask(DeviceQuery(features, CONTEXT), Ask("edge", FEATURES, LONG_S, 0))
    assert (answer.found, answer.answered_by, answer.grain) == (None, "cloud", "network")
    (context,) = scene.service.contexts
    assert len(features_from_proto(scene.service.requests[0].features, context.blobs)) == len(features)


def test_valid_predictions_are_kept_with_the_query(scene: Scene) -> None:
    query = DeviceQuery(PHOTO, CONTEXT)
    following = scene.answer.next_objects
    following.object_ids.append("0001")
    following.probabilities.append(0.75)
    following.remaining = 0.25
    scene.ask(query, Ask("edge", IMAGE, LONG_S, 0))
    assert query.prediction is not None
    assert query.prediction.following.object_ids == ("0001",)
    following.probabilities[0] = 7.0
    scene.ask(query, Ask("edge", IMAGE, LONG_S, 0))
    assert query.prediction is None


def test_a_broken_answer_is_the_tier_s_fault(scene: Scene) -> None:
    scene.answer.object.confidence = 7.0
    with pytest.raises(InternalError, match="the edge sent an invalid answer"):
        scene.ask(DeviceQuery(PHOTO, CONTEXT), Ask("edge", IMAGE, LONG_S, 0))


class Echo(Service):
    """An Inference service that returns its inputs; without their content if it is broken."""

    descriptor = inference_pb2.DESCRIPTOR.services_by_name["Inference"]

    def __init__(self, *, broken: bool) -> None:
        self._broken = broken

    def infer(self, request: InferRequest, context: CallContext) -> InferResponse:
        """Return the inputs."""
        if not self._broken:
            context.response_blobs.extend(context.blobs)
        return InferResponse(outputs=request.inputs, version=1)


def test_the_next_tier_executes_a_network_if_an_answer_is_broken(stack: ExitStack) -> None:
    tiers = {}
    for name in ("edge", "cloud"):
        server = serve(Echo(broken=name == "edge"), name)
        stack.callback(server.stop, 0.0)
        tiers[name] = RemoteTier(name, Channel(server.endpoint, client_id="phone"), "museum")
        stack.callback(tiers[name].close)
    ones = np.ones((1, 3), np.float32)
    answer = infer(tiers, ones, exact=False, timeout_s=LONG_S, share=0.5, clock=SYSTEM_CLOCK)
    assert answer.answered_by == "cloud"
    np.testing.assert_array_equal(answer.output, ones)
    only = {"edge": tiers["edge"]}
    with pytest.raises(InternalError, match="the edge sent an invalid answer: 1 tensors are declared"):
        infer(only, ones, exact=False, timeout_s=LONG_S, share=0.5, clock=SYSTEM_CLOCK)
