"""Devices recognise objects that the edge predicted: real sockets and recognition, and faults."""

import threading
from pathlib import Path

import pytest

from nearsight import ImageTooLarge, InvalidImage, NearsightError, Recognition
from nearsight.common.errors import CorruptStore
from nearsight.common.recognition.models import Features
from nearsight.common.recognition.results import RecognitionResult
from nearsight.device.video.live_view import Done, StreamSettings
from nearsight.protos.recognition_pb2 import NextObjectsMessage
from support.gallery import exhibit_model, photo_features
from support.pictures import broken_images
from support.prefetching_devices import Scene, holds, name, photo, settings
from support.waiting import LONG_S, wait_until


def test_predicted_objects_are_recognised_on_the_device(scene: Scene) -> None:
    device = scene.device()
    first = device.recognize_blocking(photo(0))
    assert (first.answered_by, first.object_id) == ("edge", name(0))
    holds(device, 5)
    asked = len(scene.edge.forms)
    for number in range(5):
        found = device.recognize_blocking(photo(number))
        assert (found.answered_by, found.object_id) == ("device", name(number))
        assert found.metadata == {"seed": str(number)}
        assert (found.attempts, found.sent_bytes, found.received_bytes) == ((), 0, 0)
        assert [hop.tier for hop in found.hops] == ["device"]
        assert 0 < found.hops[0].compute_ms <= found.latency_ms
    assert len(scene.edge.forms) == asked


def test_answers_of_device_and_edge_agree_in_every_part(scene: Scene) -> None:
    device = scene.device()
    from_edge = device.recognize_blocking(photo(0)).object
    holds(device, 5)
    from_device = device.recognize_blocking(photo(0)).object
    assert from_edge is not None
    assert from_device is not None
    assert (from_device.object_id, from_device.label, from_device.version, from_device.metadata) == (
        from_edge.object_id,
        from_edge.label,
        from_edge.version,
        from_edge.metadata,
    )
    for here, there in zip(from_device.corners, from_edge.corners, strict=True):
        assert abs(here[0] - there[0]) < 5
        assert abs(here[1] - there[1]) < 5


def test_a_stream_recognises_what_the_device_holds_while_a_tier_is_busy(scene: Scene) -> None:
    device, busy, edge = scene.device(), threading.Event(), scene.edge.recognizer
    device.recognize_blocking(photo(0))
    holds(device, 5)

    class Busy:
        models = edge.models

        def recognize(self, features: Features) -> RecognitionResult:
            assert busy.wait(LONG_S)
            return edge.recognize(features)

    scene.edge.recognizer, asked = Busy(), len(scene.edge.forms)  # type: ignore[assignment]
    with device.stream(settings=StreamSettings(credits=1, timeout_s=LONG_S)) as stream:
        assert stream.push(photo(77)).done is Done.ASKED
        wait_until(lambda: len(scene.edge.forms) > asked, what="the request about an unknown frame")

        def seen() -> bool:
            answer = stream.push(photo(1)).recognition
            return answer is not None and (answer.answered_by, answer.object_id) == ("device", name(1))

        wait_until(seen, what="an answer of the device")
        busy.set()


def test_an_application_that_changes_the_metadata_of_an_answer_changes_no_later_one(scene: Scene) -> None:
    device = scene.device()
    device.recognize_blocking(photo(0))
    holds(device, 5)
    for _ in range(2):
        answer = device.recognize_blocking(photo(1))
        assert (answer.answered_by, answer.metadata) == ("device", {"seed": "1"})
        answer.metadata["shown"] = "yes"  # type: ignore[index]


def test_hits_are_reported_in_their_order_with_the_identity_of_the_device(scene: Scene) -> None:
    device = scene.device()
    device.recognize_blocking(photo(0))
    holds(device, 5)
    walk = [1, 2, 3, 4]
    for number in walk:
        assert device.recognize_blocking(photo(number)).answered_by == "device"
    wait_until(lambda: len(scene.edge.reported) == len(walk), what="reports")
    assert scene.edge.reported == [("phone-1", name(number)) for number in walk]


def test_a_late_prediction_for_an_earlier_object_evicts_nothing(scene: Scene) -> None:
    device = scene.device()
    device.recognize_blocking(photo(0))
    holds(device, 5)
    go_on = threading.Event()

    def slowly(current: str) -> NextObjectsMessage:
        assert go_on.wait(LONG_S)
        return scene.edge.everything_else(current)

    scene.edge.predict = slowly
    for number in (1, 2, 3):
        assert device.recognize_blocking(photo(number)).answered_by == "device"
    go_on.set()
    wait_until(lambda: len(scene.edge.reported) == 3, what="reports")
    assert [object_id for _, object_id in scene.edge.reported] == [name(1), name(2), name(3)]
    assert device.recognize_blocking(photo(4)).answered_by == "device"


def test_staying_with_an_object_is_not_reported_again_and_again(scene: Scene) -> None:
    device = scene.device(settings(refresh_s=60.0))
    device.recognize_blocking(photo(0))
    holds(device, 5)
    for _ in range(5):
        assert device.recognize_blocking(photo(0)).answered_by == "device"
    assert device.recognize_blocking(photo(1)).answered_by == "device"
    wait_until(lambda: bool(scene.edge.reported), what="a report")
    assert scene.edge.reported == [("phone-1", name(1))]


def test_only_probable_objects_and_the_current_one_are_held(scene: Scene) -> None:
    scene.edge.predict = lambda _: scene.edge.prediction({name(3): 0.6, name(1): 0.3})
    device = scene.device(settings(k_max=2))
    device.recognize_blocking(photo(0))
    holds(device, 2)
    explanation = device.explain()
    assert explanation is not None
    assert explanation.object_ids == (name(0), name(3))
    assert device.recognize_blocking(photo(1)).answered_by == "edge"
    assert device.recognize_blocking(photo(3)).answered_by == "device"


def test_a_photo_unknown_on_the_device_is_sent_to_the_edge(scene: Scene) -> None:
    device = scene.device()
    device.recognize_blocking(photo(0))
    holds(device, 5)
    stranger = device.recognize_blocking(photo(77))
    assert not stranger.known
    assert stranger.answered_by == "edge"
    assert [attempt.tier for attempt in stranger.attempts] == ["edge"]


def test_a_missing_model_does_not_delay_the_others(scene: Scene) -> None:
    scene.edge.silent = {name(1)}
    device = scene.device(settings(parallel=2, timeout_s=LONG_S))
    device.recognize_blocking(photo(0))
    holds(device, 4)
    assert device.recognize_blocking(photo(4)).answered_by == "device"
    assert device.recognize_blocking(photo(1)).answered_by == "edge"
    assert scene.edge.fetched.count(name(1)) == 1


def test_each_model_is_fetched_once(scene: Scene) -> None:
    device = scene.device()
    for number in (0, 1, 2, 0, 1, 2, 3, 4):
        device.recognize_blocking(photo(number))
    holds(device, 5)
    assert sorted(scene.edge.fetched) == [name(number) for number in range(5)]
    state = device.prefetch_state
    assert state is not None
    assert state.account.fetched_models == 5
    assert state.account.fetched_bytes > 5 * 10_000


def test_predicted_objects_without_a_model_are_omitted_and_not_requested_again(scene: Scene) -> None:
    ghosts = {f"ghost-{number}": 0.02 for number in range(30)}
    scene.edge.predict = lambda _: scene.edge.prediction({**ghosts, name(1): 0.01, name(2): 0.01})
    device = scene.device(settings(k_max=10))
    device.recognize_blocking(photo(0))
    holds(device, 3)
    assert device.recognize_blocking(photo(2)).answered_by == "device"
    assert all(scene.edge.fetched.count(ghost) < 8 for ghost in ghosts), "the pauses double"


def test_invalid_predictions_are_ignored(scene: Scene) -> None:
    scene.edge.predict = lambda _: NextObjectsMessage(object_ids=["a", "a"], probabilities=[9.0, -8.0])
    device = scene.device()
    for number in (0, 1, 0, 1):
        assert device.recognize_blocking(photo(number)).object_id == name(number)
    scene.edge.predict = scene.edge.everything_else
    device.recognize_blocking(photo(2))
    wait_until(lambda: device.recognize_blocking(photo(3)).answered_by == "device", what="a local answer")


def test_memory_is_bounded_and_unused_models_are_counted(scene: Scene) -> None:
    limit = int(2.5 * exhibit_model(0).size_bytes)
    scene.edge.predict = lambda current: scene.edge.prediction(
        {name((int(current[-1]) + 1) % 5): 0.5, name((int(current[-1]) + 2) % 5): 0.4}
    )
    device = scene.device(settings(memory_bytes=limit))
    for number in (0, 2, 4, 1, 3, 0, 2):
        assert device.recognize_blocking(photo(number)).object_id == name(number)
    wait_until(lambda: (s := device.prefetch_state) is not None and s.account.wasted_models > 0, what="waste")
    state = device.prefetch_state
    assert state is not None
    assert state.held_bytes <= limit
    assert state.account.wasted_bytes > 0


def test_every_request_has_one_outcome_while_snapshots_change_under_it(scene: Scene) -> None:
    device = scene.device(settings(k_max=2))
    outcomes: dict[int, list[Recognition | NearsightError]] = {}
    done = threading.Semaphore(0)

    def receive(number: int, outcome: Recognition | NearsightError) -> None:
        outcomes.setdefault(number, []).append(outcome)
        done.release()

    for number in range(40):
        device.recognize(photo(number % 5), lambda outcome, number=number: receive(number, outcome))
    for _ in range(40):
        assert done.acquire(timeout=LONG_S)
    assert all(len(seen) == 1 for seen in outcomes.values())
    for number, (outcome,) in outcomes.items():
        assert isinstance(outcome, Recognition)
        assert outcome.object_id == name(number % 5)


def test_extracted_features_are_looked_up_too(scene: Scene) -> None:
    device = scene.device()
    device.recognize_blocking(photo(0))
    holds(device, 5)
    assert device.recognize_blocking(photo_features(2)).answered_by == "device"


def test_broken_images_are_refused_with_a_full_cache_too(scene: Scene) -> None:
    device = scene.device()
    device.recognize_blocking(photo(0))
    holds(device, 5)
    for kind in ("empty", "truncated", "no image", "bomb"):
        with pytest.raises((InvalidImage, ImageTooLarge)):
            device.recognize_blocking(broken_images()[kind])
    assert device.recognize_blocking(photo(2)).answered_by == "device"


def test_prefetching_can_be_switched_off(scene: Scene) -> None:
    device = scene.device(settings(enabled=False))
    for _ in range(3):
        assert device.recognize_blocking(photo(0)).answered_by == "edge"
    assert device.prefetch_state is None
    assert device.explain() is None
    assert scene.edge.fetched == []
    assert scene.edge.forms == ["image"] * 3


def test_an_invalid_profile_is_an_error(scene: Scene, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text("{}")
    with pytest.raises(CorruptStore, match="nearsight profile"):
        scene.device(settings(profile=path))
