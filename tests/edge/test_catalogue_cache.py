"""Decisions of the cache of a catalogue, without network and threads, in virtual time."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import cast

import pytest
from prometheus_client import CollectorRegistry

from nearsight.common.background.futures import completed
from nearsight.common.catalogue.answers import FetchedModels, Listing
from nearsight.common.clock import ManualClock
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.common.request.answer import Answer, Lesson
from nearsight.common.rpc.call import Reply
from nearsight.common.rpc.envelope import Hop
from nearsight.edge.catalogue_cache import CatalogueCache
from nearsight.edge.cloud_client import CloudClient
from nearsight.edge.load import RECOGNIZE, LoadControl
from nearsight.edge.metrics import EdgeMetrics
from nearsight.edge.query import EdgeQuery
from nearsight.edge.services import EdgeServices, next_tiers
from nearsight.edge.settings import CacheSettings, EdgeSettings, LoadSettings, MultiUser, PrefetchSettings
from nearsight.edge.snapshot_holder import SnapshotHolder
from nearsight.protos.catalogue_pb2 import ListObjectsResponse, ObjectSummary
from support.caching import profile_of_table_3_2
from support.manual_background import ManualBackground
from support.objects import random_model

NAMES = tuple(f"{number:03d}" for number in range(100))
MODELS = {name: random_model(name, number, count=10) for number, name in enumerate(NAMES)}
PROFILE = profile_of_table_3_2().model_copy(update={"lookup_ms": (10.0, 0.1)})


class Cloud:
    """Sends models at once, except those of removed objects; lists the others."""

    def __init__(self) -> None:
        self.removed: set[str] = set()
        self.asked: list[str] = []

    def get_models(
        self, catalogue: str, object_ids: Sequence[str], timeout_s: float
    ) -> Future[FetchedModels]:
        del catalogue, timeout_s
        self.asked += object_ids
        missing = tuple(name for name in object_ids if name in self.removed)
        models = tuple(MODELS[name] for name in object_ids if name not in self.removed)
        return completed(FetchedModels(models, missing, {}, (), 1, 1000))

    def list_objects(self, catalogue: str, timeout_s: float) -> Future[Reply]:
        del catalogue, timeout_s
        listed = [
            ObjectSummary(object_id=name, version=model.version)
            for name, model in MODELS.items()
            if name not in self.removed
        ]
        return completed(Reply(ListObjectsResponse(objects=listed, revision=2), (), (), 0, 0))


class SlowHolder(SnapshotHolder):
    """Each build of objects takes ``build_s``."""

    def __init__(self, settings: RecognitionSettings, clock: ManualClock, build_s: float) -> None:
        super().__init__(settings)
        self._clock = clock
        self._build_s = build_s

    def build(self, models: Iterable[ObjectModel]) -> ObjectRecognizer:
        built = super().build(models)
        if len(built):
            self._clock.advance(self._build_s)
        return built


class Scene:
    """A cache in virtual time."""

    def __init__(
        self,
        multi_user: MultiUser = "none",
        load: LoadSettings | None = None,
        build_share: float = 1.0,
        build_s: float = 0.0,
    ) -> None:
        self.clock = ManualClock(1000.0)
        self.background = ManualBackground(self.clock)
        self.load = LoadControl(multi_user, load or LoadSettings(), 1, self.clock)
        self.cloud = Cloud()
        services = EdgeServices(
            cast("CloudClient", self.cloud),
            self.background,
            EdgeMetrics(CollectorRegistry()),
            self.clock,
            PROFILE,
            self.load,
            next_tiers(800),
        )
        listing = Listing({name: MODELS[name].version for name in NAMES}, 1)
        settings = EdgeSettings(
            cloud="tcp://127.0.0.1:9",
            cache=CacheSettings(build_share=build_share),
            prefetch=PrefetchSettings(idle_s=1.0),
        )
        holder = SlowHolder(settings.recognition, self.clock, build_s)
        self.cache = CatalogueCache("museum", listing, settings, services, holder)
        self.cache.start()

    def walk(self, path: Sequence[str], visitors: int = 10) -> None:
        """Record transitions of former visitors; the popularity of the objects stays unknown."""
        for visitor in range(visitors):
            for name in path:
                self.cache.markov.observe(f"visitor {visitor}", name)

    def miss(self, name: str) -> None:
        """Process a photo that the cloud recognises in 100 ms."""
        self.load.arrived(RECOGNIZE)
        self.cache.observe("today", name)
        found = RecognizedObject(name, name, MODELS[name].version, 1.0, 50, ((0.0, 0.0),) * 4, {})
        lesson = Lesson(
            "cloud",
            unknown=False,
            round_trip_ms=1e2,
            first_ms=1e2,
            waited_ms=1e2,
            complete=True,
            hop=Hop("cloud"),
        )
        self.cache.learn(EdgeQuery(b"a photo", None, RecognitionSettings()), Answer(found, "cloud"), lesson)

    def wait(self, seconds: float) -> None:
        """Let time pass without requests."""
        self.background.advance(seconds)

    @property
    def held(self) -> set[str]:
        return set(self.cache.holder.snapshot.object_ids)


def test_the_correction_of_lookup_times_decays_while_the_cache_is_empty() -> None:
    scene = Scene()
    for _ in range(100):
        scene.cache.profiler.observe_lookup(1, 1000.0)
    slow = scene.cache.profiler.correction
    for _ in range(20):
        scene.miss(NAMES[0])
        scene.background.run()
    assert scene.held == set()
    assert scene.cache.profiler.correction == pytest.approx(slow**0.5), "half-life of 20 requests"


def test_a_wanted_object_that_left_the_catalogue_is_not_fetched_again() -> None:
    scene = Scene()
    scene.cloud.removed.add(NAMES[0])
    for _ in range(60):
        scene.miss(NAMES[0])
    scene.background.run()
    asked = len(scene.cloud.asked)
    assert asked >= 1
    scene.wait(1.0)
    assert NAMES[0] not in scene.cache.listing.versions, "the missing model led to a new list"
    asked = len(scene.cloud.asked)
    scene.wait(200.0)
    assert len(scene.cloud.asked) == asked


def test_a_request_for_models_costs_the_same_however_many_others_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    supply, considered = scene.cache.supply, list[Sequence[str]]()
    monkeypatch.setattr(scene.cloud, "get_models", lambda *_: Future())  # the cloud does not answer
    answers = [supply.for_device([name], 60.0) for name in NAMES[:50]]
    scene.background.run()
    answer = supply._answer

    def counted(object_ids: Sequence[str], arrived: Mapping[str, ObjectModel]) -> FetchedModels:
        considered.append(object_ids)
        return answer(object_ids, arrived)

    monkeypatch.setattr(supply, "_answer", counted)
    answers.append(supply.for_device([NAMES[50]], 60.0))
    scene.background.run()
    assert considered == [[NAMES[50]]] * 2, "at once, and when it begins to wait"
    scene.wait(60.0)
    assert all(one.result(0).left_out for one in answers)


def test_with_a_build_share_of_a_fifth_the_pause_is_four_times_the_build_time() -> None:
    scene = Scene(build_share=0.2, build_s=1.0)
    for name in NAMES[:2]:
        for _ in range(60):
            scene.miss(name)
        scene.background.run()
    assert scene.held == {NAMES[0]}
    scene.wait(3.9)
    assert NAMES[1] not in scene.held
    scene.wait(0.2)
    assert NAMES[1] in scene.held


def test_prefetched_objects_stay_in_a_cache_without_residents() -> None:
    scene = Scene()
    scene.walk(NAMES[:2])
    scene.cache.markov.observe("today", NAMES[0])
    scene.wait(2.0)
    prefetched = scene.held
    assert prefetched == scene.cache.prefetch.prefetched != set()
    scene.cache.improve()
    decision = scene.cache.optimizer.decision
    assert decision is not None
    assert decision.k == 0
    assert scene.held == prefetched


def test_a_prefetched_object_that_the_optimizer_wants_stays_when_its_visitor_leaves() -> None:
    scene = Scene()
    scene.walk(NAMES[:2])
    for _ in range(60):
        scene.miss(NAMES[0])
    scene.wait(3.0)
    assert scene.held == {NAMES[0], NAMES[1]}
    assert scene.cache.prefetch.prefetched == {NAMES[1]}
    snapshot = scene.cache.holder.snapshot
    for _ in range(60):
        scene.cache.note_device_hit("another", NAMES[1])
    scene.background.run()
    scene.wait(400.0)
    assert scene.cache.holder.snapshot is snapshot, "the same objects need no build"
    assert scene.cache.prefetch.prefetched == set()


def test_the_number_of_prefetched_objects_is_bounded_by_the_request_rate() -> None:
    """A lookup among k objects takes 10 + 0.1 k ms; requests arrive every 10.35 ms."""
    scene = Scene("bounded", LoadSettings(share=1.0, interarrival_seed_ms=10.35, window=10_000))
    for name in NAMES[1:9]:
        scene.walk([NAMES[0], name])
    scene.miss(NAMES[0])
    scene.wait(3.0)
    assert NAMES[0] in scene.held
    assert len(scene.held) == 3


def test_a_device_probably_stays_at_its_object_as_often_as_devices_did() -> None:
    scene = Scene()
    scene.walk(NAMES[:2])
    for _ in range(100):
        scene.cache.markov.observe("today", NAMES[0])
    staying = scene.cache.markov.staying
    assert 0.5 < staying < 0.7
    expected = scene.cache.markov.expected_next(within_s=300.0, most=1)
    assert expected[NAMES[0]] == pytest.approx(staying)
    assert 0.5 * (1 - staying) < expected[NAMES[1]] <= 1 - staying


def test_predictions_are_made_for_recently_active_devices_only() -> None:
    scene = Scene()
    scene.walk(NAMES[:2])
    scene.cache.markov.observe("today", NAMES[0])
    assert NAMES[1] in scene.cache.markov.expected_next(within_s=300.0, most=1)
    scene.clock.advance(301.0)
    assert scene.cache.markov.expected_next(within_s=300.0, most=1) == {}
