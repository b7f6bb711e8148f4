"""The device daemon: the SDK behind a local endpoint, also for programs without the SDK."""

import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from nearsight.common.errors import InvalidArgument, NotFound, Overloaded
from nearsight.common.metrics import DaemonMetrics
from nearsight.common.operation.explain import ask_explanations
from nearsight.common.recognition.codec import features_to_proto
from nearsight.common.recognition.extraction import extract_features
from nearsight.common.recognition.images import load_image
from nearsight.common.request.next_tiers import BreakerSettings
from nearsight.common.rpc.client import Channel, Stub
from nearsight.common.rpc.endpoints import DEFAULT_ENDPOINTS
from nearsight.common.rpc.server import ServerSettings
from nearsight.device.daemon import DeviceDaemon
from nearsight.device.recognizer_settings import PrefetchSettings, RecognizerSettings
from nearsight.device.settings import DeviceSettings, TierSettings
from nearsight.protos import health_pb2, recognition_pb2
from nearsight.protos.recognition_pb2 import ImageInput, RecognizeRequest
from support.gallery import SETTINGS as GALLERY_SETTINGS
from support.gallery import SIDE, exhibit_models
from support.pictures import broken_images, jpeg, photo_jpeg, picture
from support.predicting_edge import PredictingEdge
from support.recognition_server import EXHIBIT, ScriptedRecognition, always, failing, serve
from support.waiting import LONG_S, wait_until

SERVER = ServerSettings(listen="tcp://127.0.0.1:0", queue_timeout_s=LONG_S)
RECOGNIZER = RecognizerSettings(
    timeout_s=LONG_S, breaker=BreakerSettings(cooldown_s=600.0, longest_cooldown_s=600.0)
)
DOCS = Path(__file__).resolve().parents[2] / "docs"
PHOTO = jpeg(picture(1))
IMAGE = RecognizeRequest(image=ImageInput(size_bytes=len(PHOTO)))


class Scene:
    """A device daemon in front of a scripted edge."""

    def __init__(self, stack: ExitStack) -> None:
        self.edge = ScriptedRecognition(always("edge"))
        server = serve(self.edge, "edge")
        stack.callback(server.stop, 0.0)
        self.metrics = DaemonMetrics("device")
        settings = DeviceSettings(
            edge=TierSettings(endpoint=server.endpoint), server=SERVER, recognizer=RECOGNIZER
        )
        self.daemon = DeviceDaemon(settings, self.metrics)
        self.daemon.start()
        stack.callback(self.daemon.stop, 0.0)
        channel = stack.enter_context(Channel(self.daemon.endpoint, client_id="app"))
        self.recognition = Stub(channel, recognition_pb2.DESCRIPTOR.services_by_name["Recognition"])
        self.health = Stub(channel, health_pb2.DESCRIPTOR.services_by_name["Health"])

    def sample(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)


@pytest.fixture
def scene(stack: ExitStack) -> Scene:
    return Scene(stack)


def test_an_image_is_answered_with_the_hops_of_all_tiers(scene: Scene) -> None:
    reply = scene.recognition.recognize(IMAGE, timeout_s=LONG_S, blobs=[PHOTO], catalogue="museum")
    assert reply.message.object.object_id == EXHIBIT.object_id
    assert reply.message.answered_by == "edge"
    assert [hop.tier for hop in reply.hops] == ["edge", "device"]
    assert reply.hops[1].next_tier_ms > 0


def test_features_are_passed_on(scene: Scene) -> None:
    message, blobs = features_to_proto(extract_features(load_image(PHOTO), 100), 0)
    reply = scene.recognition.recognize(RecognizeRequest(features=message), timeout_s=LONG_S, blobs=blobs)
    assert reply.message.object.object_id == EXHIBIT.object_id
    assert [bytes(blob) for blob in scene.edge.contexts[0].blobs] == blobs


def test_one_look_and_trace_id_of_the_application_are_passed_on(scene: Scene) -> None:
    for one_look in (True, False):
        request = RecognizeRequest(image=ImageInput(size_bytes=len(PHOTO), one_look=one_look))
        scene.recognition.recognize(request, timeout_s=LONG_S, blobs=[PHOTO], trace_id=f"app-{one_look}")
    assert [request.image.one_look for request in scene.edge.requests] == [True, False]
    assert [context.trace_id for context in scene.edge.contexts] == ["app-True", "app-False"]


def test_another_catalogue_is_not_found(scene: Scene) -> None:
    with pytest.raises(NotFound, match="museum"):
        scene.recognition.recognize(IMAGE, timeout_s=LONG_S, blobs=[PHOTO], catalogue="zoo")


def test_a_request_without_an_image_is_refused(scene: Scene) -> None:
    for request, blobs in ((RecognizeRequest(), [PHOTO]), (IMAGE, [])):
        with pytest.raises(InvalidArgument, match="no image"):
            scene.recognition.recognize(request, timeout_s=LONG_S, blobs=blobs)


def test_broken_images_and_failing_tiers_reach_the_application_as_status(scene: Scene) -> None:
    with pytest.raises(InvalidArgument, match="truncated"):
        scene.recognition.recognize(IMAGE, timeout_s=LONG_S, blobs=[broken_images()["truncated"]])
    scene.edge.answer = failing(Overloaded("busy"))
    with pytest.raises(Overloaded, match="busy"):
        scene.recognition.recognize(IMAGE, timeout_s=LONG_S, blobs=[PHOTO])


def test_health_names_the_tiers_and_their_state(scene: Scene) -> None:
    health = scene.health.check(health_pb2.HealthRequest(), timeout_s=LONG_S).message
    assert (health.daemon, health.ready) == ("device", True)
    details = {detail.name: detail.value for detail in health.details}
    assert details["catalogue"] == "museum"
    assert details["edge"].endswith("(healthy)")


def test_metrics_count_outcomes_attempts_and_breakers(scene: Scene) -> None:
    scene.recognition.recognize(IMAGE, timeout_s=LONG_S, blobs=[PHOTO])
    scene.edge.answer = failing(Overloaded("busy"))
    for _ in range(3):
        with pytest.raises(Overloaded):
            scene.recognition.recognize(IMAGE, timeout_s=LONG_S, blobs=[PHOTO])
    # The application may have its answer a moment before it is counted.
    wait_until(lambda: scene.sample("nearsight_recognition_seconds_count") == 4)
    assert scene.sample("nearsight_recognitions_total", answered_by="edge", outcome="known") == 1
    assert scene.sample("nearsight_recognitions_total", answered_by="none", outcome="Overloaded") == 3
    assert scene.sample("nearsight_tier_attempts_total", tier="edge", outcome="OVERLOADED") == 3
    assert scene.sample("nearsight_breaker_state", tier="edge") == 2


def test_recognition_on_the_device_is_reported_everywhere() -> None:
    edge = PredictingEdge(exhibit_models(3))
    photo = photo_jpeg(1, side=SIDE)
    prefetch = PrefetchSettings(recognition=GALLERY_SETTINGS)
    settings = DeviceSettings(
        edge=TierSettings(endpoint=edge.endpoint),
        server=SERVER,
        recognizer=RecognizerSettings(timeout_s=LONG_S, prefetch=prefetch),
    )
    metrics = DaemonMetrics("device")
    daemon = DeviceDaemon(settings, metrics)
    daemon.start()
    request = RecognizeRequest(image=ImageInput(size_bytes=len(photo)))
    try:
        with Channel(daemon.endpoint, client_id="app") as channel:
            recognition = Stub(channel, recognition_pb2.DESCRIPTOR.services_by_name["Recognition"])
            recognition.recognize(request, timeout_s=LONG_S, blobs=[photo])
            wait_until(lambda: metrics.registry.get_sample_value("nearsight_device_objects") == 3)
            reply = recognition.recognize(request, timeout_s=LONG_S, blobs=[photo])
            assert reply.message.answered_by == "device"
            assert [hop.tier for hop in reply.hops] == ["device"]
            assert ("in the cache", f"3 objects, {_features(metrics)} features per photo") in daemon.details()
            for counter, value in (("hits", 1), ("lookups", 1), ("prefetched_models", 3)):
                assert metrics.registry.get_sample_value(f"nearsight_device_{counter}_total") == value
            here = {"answered_by": "device", "outcome": "known"}
            wait_until(lambda: metrics.registry.get_sample_value("nearsight_recognitions_total", here) == 1)
            (answer,) = ask_explanations([daemon.endpoint], timeout_s=LONG_S)
            (decision,) = answer.decisions
            assert decision.chosen.k == 3
            assert decision.chosen.features in (200, 400, 600, 800)
            assert decision.object_ids[0] == "exhibit-1"
    finally:
        daemon.stop(0.0)
        edge.stop()


def _features(metrics: DaemonMetrics) -> int:
    return int(metrics.registry.get_sample_value("nearsight_device_query_features") or 0)


def test_a_daemon_without_any_tier_asks_those_of_this_machine() -> None:
    daemon = DeviceDaemon(DeviceSettings(), DaemonMetrics("device"))
    facts = dict(daemon.details())
    daemon.stop(0.0)
    assert [facts[tier].split()[0] for tier in ("edge", "cloud")] == [
        DEFAULT_ENDPOINTS["edge"],
        DEFAULT_ENDPOINTS["cloud"],
    ]


def raw_client(tmp_path: Path) -> Path:
    """Write the program of the documentation to a file."""
    blocks = re.findall(
        r"```python title=\"raw_client.py\"\n(.*?)```", (DOCS / "sdk.md").read_text(), re.DOTALL
    )
    assert len(blocks) == 1
    (tmp_path / "raw_client.py").write_text(blocks[0])
    return tmp_path / "raw_client.py"


@pytest.mark.parametrize(
    ("data", "stdout", "stderr"),
    [(PHOTO, "0042 from edge\n", ""), (b"no image", "", "INVALID_ARGUMENT: these 8 bytes are not an image")],
)
def test_the_documented_raw_client_works(
    scene: Scene, tmp_path: Path, data: bytes, stdout: str, stderr: str
) -> None:
    (tmp_path / "photo.jpg").write_bytes(data)
    done = subprocess.run(
        [sys.executable, raw_client(tmp_path), scene.daemon.endpoint, tmp_path / "photo.jpg"],
        capture_output=True,
        text=True,
        timeout=LONG_S,
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
        check=False,
    )
    assert done.stdout == stdout
    assert done.stderr.startswith(stderr)
    assert bool(done.returncode) == bool(stderr)
