"""The device recognises by itself what the edge predicted: real sockets, real recognition, every fault."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from nearsight import ImageTooLarge, InvalidImage, NearsightError, Recognition, Recognizer, RecognizerSettings
from nearsight.common.caching.device_profile import DeviceProfile
from nearsight.common.caching.profile import CacheProfile
from nearsight.common.errors import ConfigurationError, CorruptStore
from nearsight.common.recognition.extraction import OrbExtractor
from nearsight.common.recognition.features import Features
from nearsight.common.recognition.images import GrayImage
from nearsight.common.recognition.settings import ImageLimits
from nearsight.device.recognizer_settings import BreakerSettings, PrefetchSettings
from nearsight.protos.recognition_pb2 import NextObjectsMessage
from support.gallery import SETTINGS, SIDE, exhibit_model, exhibit_models, photo_features
from support.pictures import broken_images, photo_jpeg
from support.predicting_edge import PredictingEdge, edge_process
from support.recognition_server import ScriptedRecognition, always, serve
from support.waiting import wait_until

PREFETCH = PrefetchSettings(recognition=SETTINGS, timeout_s=2.0, refresh_s=0.001)
QUICK = RecognizerSettings(
    timeout_s=5.0,
    prefetch=PREFETCH,
    breaker=BreakerSettings(cooldown_s=0.05, longest_cooldown_s=0.1),
)


def photo(number: int) -> bytes:
    return photo_jpeg(number, side=SIDE)


def name(number: int) -> str:
    return f"exhibit-{number}"


def settings(**changes: object) -> RecognizerSettings:
    return QUICK.model_copy(update={"prefetch": PREFETCH.model_copy(update=changes)})


class Scene:
    """An edge with five exhibits, and devices."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.edge = PredictingEdge(exhibit_models(5))
        stack.callback(self.edge.stop)

    def device(
        self, chosen: RecognizerSettings = QUICK, *, edge: str | None = None, cloud: str | None = None
    ) -> Recognizer:
        recognizer = Recognizer(
            edge or self.edge.endpoint, cloud, "museum", device_id="phone-1", settings=chosen
        )
        return self._stack.enter_context(recognizer)

    def scripted(self, tier: str) -> tuple[ScriptedRecognition, str]:
        service = ScriptedRecognition(always(tier))
        server = serve(service, tier)
        self._stack.callback(server.stop, 0.0)
        return service, server.endpoint


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(stack)


def holds(device: Recognizer, count: int) -> None:
    """Wait until the device recognises ``count`` objects by itself."""

    def held() -> bool:
        state = device.prefetch_state
        return state is not None and state.k == count

    wait_until(held, what=f"{count} objects on the device")


def test_what_the_edge_predicted_is_recognised_on_the_device(scene: Scene) -> None:
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


def test_hits_are_reported_in_their_order_with_the_identity_of_the_device(scene: Scene) -> None:
    device = scene.device()
    device.recognize_blocking(photo(0))
    holds(device, 5)
    walk = [1, 2, 3, 4]
    for number in walk:
        assert device.recognize_blocking(photo(number)).answered_by == "device"
    wait_until(lambda: len(scene.edge.reported) == len(walk), what="reports")
    assert scene.edge.reported == [("phone-1", name(number)) for number in walk]


def test_a_slow_prediction_for_an_object_left_behind_takes_nothing_away(scene: Scene) -> None:
    device = scene.device()
    device.recognize_blocking(photo(0))
    holds(device, 5)
    go_on = threading.Event()

    def slowly(current: str) -> NextObjectsMessage:
        assert go_on.wait(10)
        return scene.edge.everything_else(current)

    scene.edge.predict = slowly
    for number in (1, 2, 3):
        assert device.recognize_blocking(photo(number)).answered_by == "device"
    go_on.set()
    wait_until(lambda: len(scene.edge.reported) == 3, what="reports")
    assert [object_id for _, object_id in scene.edge.reported] == [name(1), name(2), name(3)]
    assert device.recognize_blocking(photo(4)).answered_by == "device"


@pytest.mark.parametrize(("few_ms", "many_ms", "chosen"), [(5.0, 40.0, 200), (5.0, 5.1, 400)])
def test_the_number_of_features_follows_the_decision(
    scene: Scene, tmp_path: Path, few_ms: float, many_ms: float, chosen: int
) -> None:
    rows = [
        CacheProfile(
            backend="auto", query_features=features, largest_k=10, lookup_ms=(spent_ms,), recall=(recall,)
        )
        for features, spent_ms, recall in ((200, few_ms, 0.8), (400, many_ms, 0.95))
    ]
    DeviceProfile(profiles=tuple(rows)).save(tmp_path / "device.json")
    device = scene.device(settings(profile=tmp_path / "device.json"))
    device.recognize_blocking(photo(0))
    holds(device, 5)
    state = device.prefetch_state
    assert state is not None
    assert state.query_features == chosen
    explanation = device.explain()
    assert explanation is not None
    assert explanation.chosen.query_features == chosen
    assert {terms.query_features for terms in explanation.alternatives} == {200, 400}
    assert device.recognize_blocking(photo(1)).answered_by == "device"


def test_few_features_are_taken_from_a_smaller_image(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[tuple[int, int], int]] = []
    extract = OrbExtractor.extract

    def noted(self: OrbExtractor, image: GrayImage, count: int) -> Features:
        seen.append((image.size, count))
        return extract(self, image, count)

    monkeypatch.setattr(OrbExtractor, "extract", noted)
    pipeline = SETTINGS.model_copy(update={"limits": ImageLimits(longest_side=SIDE)})
    device = scene.device(settings(recognition=pipeline, features=200))
    device.recognize_blocking(photo(0))
    holds(device, 5)
    seen.clear()
    assert device.recognize_blocking(photo(1)).answered_by == "device"
    assert [(max(size), count) for size, count in seen] == [(round(0.7 * SIDE), 200)]


def test_staying_with_an_object_is_not_reported_again_and_again(scene: Scene) -> None:
    device = scene.device(settings(refresh_s=60.0))
    device.recognize_blocking(photo(0))
    holds(device, 5)
    for _ in range(5):
        assert device.recognize_blocking(photo(0)).answered_by == "device"
    assert device.recognize_blocking(photo(1)).answered_by == "device"
    wait_until(lambda: bool(scene.edge.reported), what="a report")
    assert scene.edge.reported == [("phone-1", name(1))]


def test_only_the_probable_is_held_and_the_current_object_always(scene: Scene) -> None:
    scene.edge.predict = lambda _: scene.edge.prediction({name(3): 0.6, name(1): 0.3})
    device = scene.device(settings(k_max=2))
    device.recognize_blocking(photo(0))
    holds(device, 2)
    explanation = device.explain()
    assert explanation is not None
    assert explanation.object_ids == (name(0), name(3))
    assert device.recognize_blocking(photo(1)).answered_by == "edge"
    assert device.recognize_blocking(photo(3)).answered_by == "device"


def test_a_photo_that_the_device_does_not_know_goes_to_the_edge_as_unknown_too(scene: Scene) -> None:
    device = scene.device()
    device.recognize_blocking(photo(0))
    holds(device, 5)
    stranger = device.recognize_blocking(photo(77))
    assert not stranger.known
    assert stranger.answered_by == "edge"
    assert [attempt.tier for attempt in stranger.attempts] == ["edge"]


def test_a_hit_would_have_saved_the_first_photo_but_no_photo_that_nobody_knows(scene: Scene) -> None:
    device = scene.device()
    device.recognize_blocking(photo(0))
    holds(device, 5)
    for _ in range(2):
        device.recognize_blocking(photo(77))
    told = " 3 answers; 1 of them a hit would have saved"
    wait_until(lambda: told in _fact(device, "miss latency"), what="three answers")


def _fact(device: Recognizer, fact: str) -> str:
    explanation = device.explain()
    return dict(explanation.facts).get(fact, "") if explanation is not None else ""


def test_a_slow_device_offloads_everything(scene: Scene, tmp_path: Path) -> None:
    slow = CacheProfile(backend="auto", query_features=400, largest_k=10, lookup_ms=(9e4,), recall=(0.9,))
    DeviceProfile(profiles=(slow,)).save(tmp_path / "slow.json")
    device = scene.device(settings(profile=tmp_path / "slow.json"))
    for _ in range(3):
        assert device.recognize_blocking(photo(0)).answered_by == "edge"
    assert_offloads(scene, device)


@pytest.mark.parametrize(("edge_s", "held"), [(0.0, 0), (1.0, 5)])
def test_the_same_device_offloads_to_a_near_edge_and_caches_before_a_far_one(
    scene: Scene, tmp_path: Path, edge_s: float, held: int
) -> None:
    row = CacheProfile(backend="auto", query_features=400, largest_k=10, lookup_ms=(400.0,), recall=(0.9,))
    DeviceProfile(profiles=(row,)).save(tmp_path / "device.json")
    scene.edge.delay_s = edge_s
    device = scene.device(settings(profile=tmp_path / "device.json"))
    device.recognize_blocking(photo(0))
    wait_until(lambda: device.explain() is not None, what="a decision")
    explanation = device.explain()
    assert explanation is not None
    assert explanation.chosen.terms.k == held
    holds(device, held)


def test_a_device_that_hits_hears_that_its_edge_is_quick_again(scene: Scene, tmp_path: Path) -> None:
    row = CacheProfile(backend="auto", query_features=400, largest_k=10, lookup_ms=(400.0,), recall=(0.9,))
    DeviceProfile(profiles=(row,)).save(tmp_path / "device.json")
    scene.edge.delay_s = 1.0
    device = scene.device(settings(profile=tmp_path / "device.json"))
    device.recognize_blocking(photo(0))
    holds(device, 5)
    scene.edge.answer_ms = 5.0
    assert device.recognize_blocking(photo(1)).answered_by == "device"
    holds(device, 0)
    assert "1 at the " in _fact(device, "miss latency")


def assert_offloads(scene: Scene, device: Recognizer) -> None:
    wait_until(lambda: device.explain() is not None, what="a decision")
    explanation = device.explain()
    assert explanation is not None
    assert explanation.chosen.terms.k == 0
    assert {terms.query_features for terms in explanation.alternatives} <= {400}
    assert scene.edge.fetched == []
    state = device.prefetch_state
    assert state is not None
    assert state.lookups == 0


def test_a_model_that_never_comes_does_not_hold_up_the_others(scene: Scene) -> None:
    scene.edge.silent = {name(1)}
    device = scene.device(settings(parallel=2, timeout_s=30.0))
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


def test_predicted_objects_without_a_model_are_left_out_and_not_asked_for_again(scene: Scene) -> None:
    ghosts = {f"ghost-{number}": 0.02 for number in range(30)}
    scene.edge.predict = lambda _: scene.edge.prediction({**ghosts, name(1): 0.01, name(2): 0.01})
    device = scene.device(settings(k_max=10))
    device.recognize_blocking(photo(0))
    holds(device, 3)
    assert device.recognize_blocking(photo(2)).answered_by == "device"
    assert all(scene.edge.fetched.count(ghost) <= 2 for ghost in ghosts)


def _nonsense(kind: str) -> NextObjectsMessage:
    if kind == "nan":
        return NextObjectsMessage(object_ids=["a"], probabilities=[float("nan")], remaining=0.0)
    if kind == "lengths":
        return NextObjectsMessage(object_ids=["a", "b"], probabilities=[1.0])
    if kind == "too many":
        names = [f"x{number}" for number in range(50_000)]
        return NextObjectsMessage(object_ids=names, probabilities=[1 / 50_000] * 50_000)
    if kind == "many":
        names = [f"x{number}" for number in range(4_000)]
        return NextObjectsMessage(object_ids=names, probabilities=[1 / 4_000] * 4_000)
    return NextObjectsMessage(object_ids=["a", "a"], probabilities=[9.0, -8.0], remaining=0.0)


@pytest.mark.parametrize("kind", ["nan", "lengths", "too many", "many", "negative"])
def test_predictions_that_make_no_sense_are_harmless(scene: Scene, kind: str) -> None:
    scene.edge.predict = lambda _: _nonsense(kind)
    device = scene.device()
    for number in (0, 1, 0, 1):
        assert device.recognize_blocking(photo(number)).object_id == name(number)
    scene.edge.predict = scene.edge.everything_else
    device.recognize_blocking(photo(2))
    wait_until(lambda: device.recognize_blocking(photo(3)).answered_by == "device", what="a local answer")


def test_an_object_that_was_replaced_is_never_answered_in_its_old_version_after_the_sync(
    scene: Scene,
) -> None:
    device = scene.device()
    device.recognize_blocking(photo(0))
    holds(device, 5)
    new = replace(exhibit_model(1), version=2, label="restored")
    scene.edge.set_models([new if model.object_id == name(1) else model for model in exhibit_models(5)])
    assert device.recognize_blocking(photo(0)).answered_by == "device"  # its report brings the new revision
    wait_until(lambda: scene.edge.listings == 1, what="the sync")
    wait_until(lambda: scene.edge.fetched.count(name(1)) == 2, what="the new model")
    holds(device, 5)
    found = device.recognize_blocking(photo(1))
    assert (found.label, found.object.version if found.object else 0) == ("restored", 2)


def test_an_object_that_was_removed_is_never_answered_after_the_sync(scene: Scene) -> None:
    device = scene.device()
    device.recognize_blocking(photo(0))
    holds(device, 5)
    scene.edge.set_models([model for model in exhibit_models(5) if model.object_id != name(1)])
    device.recognize_blocking(photo(0))
    holds(device, 4)
    assert not device.recognize_blocking(photo(1)).known
    device.recognize_blocking(photo(2))
    device.recognize_blocking(photo(0))  # snapshots that were kept have lost it too
    assert not device.recognize_blocking(photo(1)).known


def test_an_object_that_was_removed_is_dropped_though_the_device_looks_at_nothing_else(scene: Scene) -> None:
    device = scene.device()
    device.recognize_blocking(photo(0))
    holds(device, 5)
    scene.edge.set_models(exhibit_models(5)[1:])
    wait_until(lambda: not device.recognize_blocking(photo(0)).known, what="the object gone")


def test_a_newer_version_that_the_edge_answers_with_leads_to_a_sync(scene: Scene) -> None:
    device = scene.device(settings(k_max=1))
    device.recognize_blocking(photo(0))
    holds(device, 1)
    device.recognize_blocking(photo(1))
    wait_until(lambda: (e := device.explain()) is not None and e.object_ids == (name(1),), what="a decision")
    scene.edge.set_models([replace(exhibit_model(0), version=7), *exhibit_models(5)[1:]], bump=False)
    wait_until(
        lambda: (found := device.recognize_blocking(photo(0)).object) is not None and found.version == 7,
        what="the new version",
    )
    wait_until(lambda: scene.edge.listings > 0, what="the sync: what is held is older")


def test_a_number_of_features_that_was_said_is_the_one_that_is_used(scene: Scene) -> None:
    device = scene.device(settings(features=400))
    device.recognize_blocking(photo(0))
    holds(device, 5)
    state = device.prefetch_state
    assert state is not None
    assert state.query_features == 400
    with pytest.raises(ConfigurationError, match="no 333 features"):
        scene.device(settings(features=333))


def test_memory_is_bounded_and_what_was_of_no_use_is_counted(scene: Scene) -> None:
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


def test_while_the_edge_is_away_all_that_is_held_answers(scene: Scene) -> None:
    device = scene.device()
    device.recognize_blocking(photo(0))
    holds(device, 5)
    scene.edge.predict = lambda _: scene.edge.prediction({name(1): 0.99})
    device.recognize_blocking(photo(0))
    holds(device, 2)
    scene.edge.stop()
    assert device.recognize_blocking(photo(0)).answered_by == "device"
    holds(device, 5)


def test_the_edge_may_be_away_and_come_back() -> None:
    with edge_process() as first:
        endpoint = first.endpoint
        device = Recognizer(endpoint, None, "museum", settings=QUICK)
        with device:
            device.recognize_blocking(photo(0))
            holds(device, 3)
            first.kill()
            for number in (0, 1, 2, 1):
                assert device.recognize_blocking(photo(number), timeout_s=2.0).answered_by == "device"
            with pytest.raises(NearsightError):
                device.recognize_blocking(photo(77), timeout_s=0.5)
            with edge_process(endpoint):
                wait_until(lambda: _answered(device, 77), what="an answer of the new edge")
                assert device.recognize_blocking(photo(2)).answered_by == "device"


def _answered(device: Recognizer, number: int) -> bool:
    try:
        return device.recognize_blocking(photo(number), timeout_s=2.0).answered_by == "edge"
    except NearsightError:
        return False


def test_without_the_edge_the_cloud_answers_what_the_device_does_not_know(scene: Scene) -> None:
    cloud, endpoint = scene.scripted("cloud")
    device = scene.device(cloud=endpoint)
    device.recognize_blocking(photo(0))
    holds(device, 5)
    scene.edge.stop()
    assert device.recognize_blocking(photo(1)).answered_by == "device"
    assert device.recognize_blocking(photo(77)).answered_by == "cloud"
    assert len(cloud.contexts) == 1


def test_what_was_predicted_for_an_object_is_remembered_while_the_edge_is_away(scene: Scene) -> None:
    scene.edge.predict = lambda current: scene.edge.prediction(
        {name(1 - int(current[-1])) if int(current[-1]) < 2 else name(0): 0.9}
    )
    device = scene.device(settings(k_max=2))
    device.recognize_blocking(photo(0))
    holds(device, 2)
    device.recognize_blocking(photo(1))
    wait_until(lambda: name(1) in str(scene.edge.reported), what="the report")
    scene.edge.stop()
    for number in (0, 1, 0, 1):
        assert device.recognize_blocking(photo(number)).answered_by == "device"
    explanation = device.explain()
    assert explanation is not None
    assert set(explanation.object_ids) == {name(0), name(1)}


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
        assert done.acquire(timeout=20)
    assert all(len(seen) == 1 for seen in outcomes.values())
    for number, (outcome,) in outcomes.items():
        assert isinstance(outcome, Recognition)
        assert outcome.object_id == name(number % 5)


def test_features_that_an_application_extracted_are_looked_up_as_well(scene: Scene) -> None:
    device = scene.device()
    device.recognize_blocking(photo(0))
    holds(device, 5)
    assert device.recognize_blocking(photo_features(2)).answered_by == "device"


@pytest.mark.parametrize("kind", ["empty", "truncated", "no image", "bomb"])
def test_broken_images_are_refused_with_a_full_cache_too(scene: Scene, kind: str) -> None:
    device = scene.device()
    device.recognize_blocking(photo(0))
    holds(device, 5)
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


def test_a_profile_that_is_none_is_an_error_at_once(scene: Scene, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text("{}")
    with pytest.raises(CorruptStore, match="nearsight profile"):
        scene.device(settings(profile=path))
