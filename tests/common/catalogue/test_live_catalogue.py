import threading
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from nearsight.common.catalogue import live_catalogue
from nearsight.common.catalogue.live_catalogue import LiveCatalogue
from nearsight.common.catalogue.store import CatalogueStore
from nearsight.common.catalogue.training import NewObject, TrainedObject, train_objects
from nearsight.common.clock import ManualClock
from nearsight.common.errors import InternalError, NotFound, Unavailable
from nearsight.common.recognition.extraction import extract_features
from nearsight.common.recognition.images import load_image
from nearsight.common.recognition.models import Features, ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.settings import RecognitionSettings
from support.objects import random_model
from support.pictures import photo_jpeg, picture_jpeg
from support.waiting import LONG_S, wait_until

SETTINGS = RecognitionSettings(training_features=300, query_features=300)


class GatedBuild:
    """Builds as many recognizers as the test permits."""

    def __init__(self) -> None:
        self.started = threading.Semaphore(0)
        self.permitted = threading.Semaphore(0)
        self.built: list[frozenset[str]] = []
        self.failing = False

    def __call__(self, models: Iterable[ObjectModel], settings: RecognitionSettings) -> ObjectRecognizer:
        recognizer = ObjectRecognizer.build(models, settings)
        if len(recognizer):  # the constructor builds an empty one
            self.started.release()
            assert self.permitted.acquire(timeout=LONG_S)
            self.built.append(recognizer.object_ids)
        if self.failing:
            raise RuntimeError("no memory for the index")
        return recognizer


def trained(object_id: str, seed: int = 0) -> TrainedObject:
    pictures = 1000 * seed + ord(object_id[-1])  # different for each object
    return TrainedObject(random_model(object_id, pictures), f"hash {seed}", "t")


def trained_picture(object_id: str, seed: int) -> TrainedObject:
    outcome = train_objects([NewObject(object_id, object_id, (picture_jpeg(seed),))], SETTINGS)
    return outcome.trained[0]


def query(seed: int) -> Features:
    return extract_features(load_image(photo_jpeg(seed)), SETTINGS.query_features)


@pytest.fixture
def live(store: CatalogueStore) -> Iterator[LiveCatalogue]:
    catalogue = LiveCatalogue("museum", store, SETTINGS)
    catalogue.start()
    yield catalogue
    catalogue.stop()


@pytest.fixture
def gate() -> GatedBuild:
    return GatedBuild()


@pytest.fixture
def gated(store: CatalogueStore, gate: GatedBuild) -> Iterator[LiveCatalogue]:
    catalogue = LiveCatalogue("museum", store, SETTINGS, gate)
    catalogue.start()
    yield catalogue
    gate.permitted.release(100)
    catalogue.stop()


def test_a_batch_is_put_without_reading_the_list_of_all_objects(
    live: LiveCatalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CatalogueStore, "objects", None)  # with 100,000 objects it takes half a second
    assert live.put([trained("a"), trained("b")]).added == ("a", "b")
    outcome = live.put([trained("b"), trained("a", 1), trained("c")])
    assert (outcome.unchanged, outcome.replaced, outcome.added) == (("b",), ("a",), ("c",))


def test_a_new_catalogue_answers_unknown(live: LiveCatalogue) -> None:
    assert live.recognizer.recognize(query(1)).found is None
    assert live.state.indexed_revision == 0


def test_an_object_is_recognised_once_its_revision_is_current(live: LiveCatalogue) -> None:
    outcome = live.put([trained_picture("a", 1), trained_picture("b", 2)])
    assert live.when_current(outcome.revision).result(LONG_S) == 1
    found = live.recognizer.recognize(query(2)).found
    assert found is not None
    assert found.object_id == "b"


def test_a_removed_object_is_not_recognised_any_more(live: LiveCatalogue) -> None:
    live.put([trained_picture("a", 1), trained_picture("b", 2)])
    revision = live.remove(["b"]).revision
    live.when_current(revision).result(LONG_S)
    assert live.recognizer.recognize(query(2)).found is None
    assert live.recognizer.object_ids == {"a"}


def test_the_old_snapshot_answers_while_the_next_is_built(gated: LiveCatalogue, gate: GatedBuild) -> None:
    gated.put([trained("a")])
    gate.permitted.release()
    gated.when_current(1).result(LONG_S)
    gated.put([trained("b")])
    assert gate.started.acquire(timeout=LONG_S)
    assert gate.started.acquire(timeout=LONG_S)
    assert gated.recognizer.object_ids == {"a"}
    assert (gated.state.revision, gated.state.indexed_revision) == (2, 1)
    gate.permitted.release()
    gated.when_current(2).result(LONG_S)
    assert gated.recognizer.object_ids == {"a", "b"}


def test_changes_during_a_build_share_the_next_build(gated: LiveCatalogue, gate: GatedBuild) -> None:
    gated.put([trained("a")])
    assert gate.started.acquire(timeout=LONG_S)
    for name in "bcdef":
        gated.put([trained(name)])
    gate.permitted.release(100)
    gated.when_current(6).result(LONG_S)
    assert gate.built == [{"a"}, set("abcdef")]


def test_builds_without_waiting_callers_pause_between_each_other(store: CatalogueStore) -> None:
    clock, gate = ManualClock(), GatedBuild()

    def slow_build(models: Iterable[ObjectModel], settings: RecognitionSettings) -> ObjectRecognizer:
        recognizer = gate(models, settings)
        clock.advance(100.0 if len(recognizer) else 0.0)
        return recognizer

    catalogue = LiveCatalogue("museum", store, SETTINGS, slow_build, clock)
    catalogue.start()
    gate.permitted.release(100)
    catalogue.when_current(catalogue.put([trained("a")]).revision).result(LONG_S)
    assert gate.started.acquire(timeout=LONG_S)
    revision = catalogue.put([trained("b")]).revision
    assert not gate.started.acquire(timeout=0.05), "the builder pauses"
    catalogue.when_current(revision).result(LONG_S)
    catalogue.stop()
    assert gate.built == [{"a"}, {"a", "b"}]


def test_a_replaced_snapshot_is_freed_by_the_builder_thread_after_a_delay(
    store: CatalogueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearsight.common.catalogue.live_catalogue.RETIREMENT_S", 0.05)
    clock, freed = ManualClock(), list[str]()
    catalogue = LiveCatalogue("museum", store, SETTINGS, clock=clock)
    catalogue.start()
    catalogue.when_current(catalogue.put([trained("a")]).revision).result(LONG_S)
    old = catalogue.recognizer
    weakref.finalize(old, lambda: freed.append(threading.current_thread().name))
    catalogue.when_current(catalogue.put([trained("b")]).revision).result(LONG_S)
    del old
    assert freed == []
    clock.advance(1.0)
    wait_until(lambda: bool(freed), what="the end of the old snapshot")
    catalogue.stop()
    assert freed == ["index-museum"]


def test_a_failed_build_is_reported_and_the_next_change_is_built(
    gated: LiveCatalogue, gate: GatedBuild
) -> None:
    gate.permitted.release(100)
    gated.when_current(gated.put([trained("a")]).revision).result(LONG_S)
    gate.failing = True
    revision = gated.put([trained("b")]).revision
    with pytest.raises(InternalError, match="could not be built"):
        gated.when_current(revision).result(LONG_S)
    with pytest.raises(InternalError):
        gated.when_current(revision).result(LONG_S)
    assert "no memory" in gated.state.problem
    assert gated.recognizer.object_ids == {"a"}
    gate.failing = False
    gated.when_current(gated.put([trained("c")]).revision).result(LONG_S)
    assert gated.recognizer.object_ids == {"a", "b", "c"}
    assert gated.state.problem == ""


def test_after_a_failed_build_a_caller_that_waits_starts_another_one(
    gated: LiveCatalogue, gate: GatedBuild, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_catalogue, "MAX_UNINDEXED", 0)
    gate.permitted.release(100)
    gate.failing = True
    revision = gated.put([trained("a")]).revision
    with pytest.raises(InternalError, match="could not be built"):
        gated.when_current(revision).result(LONG_S)
    with pytest.raises(InternalError, match="these objects are not stored"):
        gated.put([trained("b")])
    gate.failing = False
    assert gated.when_current(revision).result(LONG_S) == revision
    assert gated.put([trained("b")]).added == ("b",)


def test_stopping_ends_all_waiting_futures(gated: LiveCatalogue, gate: GatedBuild) -> None:
    future = gated.when_current(gated.put([trained("a")]).revision)
    assert gate.started.acquire(timeout=LONG_S)
    gate.permitted.release()  # the build may end before or after the stop
    gated.stop()
    assert future.exception(LONG_S) is None or isinstance(future.exception(), Unavailable)
    assert isinstance(gated.when_current(99).exception(LONG_S), Unavailable)


def test_a_stopped_catalogue_refuses_changes(live: LiveCatalogue, store: CatalogueStore) -> None:
    live.put([trained("a")])
    live.stop()
    for change in (lambda: live.put([trained("b")]), lambda: live.remove(["a"])):
        with pytest.raises(Unavailable, match="'museum' was removed, or the cloud is stopping"):
            change()
    assert [one.object_id for one in store.objects("museum")] == ["a"]


def test_a_restarted_catalogue_gives_the_same_answers_without_extraction(
    live: LiveCatalogue, store: CatalogueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = [query(seed) for seed in range(1, 6)]
    live.put([trained_picture(f"p{seed}", seed) for seed in range(4, 0, -1)])
    live.put([trained_picture("p2", 2)])
    live.when_current(live.content.revision).result(LONG_S)
    before = [live.recognizer.recognize(features).found for features in queries]
    monkeypatch.setattr("nearsight.common.recognition.extraction.extract_features", None)
    restarted = LiveCatalogue("museum", store, SETTINGS)
    restarted.load()
    try:
        assert restarted.content.revision == live.content.revision
        assert [restarted.recognizer.recognize(features).found for features in queries] == before
        assert before[4] is None
        assert all(found is not None for found in before[:4])
    finally:
        restarted.stop()


def test_an_index_is_built_in_the_same_order_as_after_a_restart(store: CatalogueStore) -> None:
    orders: list[list[str]] = []

    def recording_build(models: Iterable[ObjectModel], settings: RecognitionSettings) -> ObjectRecognizer:
        listed = list(models)
        orders.append([model.object_id for model in listed])
        return ObjectRecognizer.build(listed, settings)

    live = LiveCatalogue("museum", store, SETTINGS, recording_build)
    live.start()
    for name in "cab":
        live.when_current(live.put([trained(name)]).revision).result(LONG_S)
    live.stop()
    restarted = LiveCatalogue("museum", store, SETTINGS, recording_build)
    restarted.load()
    restarted.stop()
    assert orders[-1] == ["a", "b", "c"]
    assert orders[3] == orders[-1], "the last build of the running catalogue"


def test_loading_a_missing_catalogue_fails(store: CatalogueStore) -> None:
    with pytest.raises(NotFound):
        LiveCatalogue("museum", store, SETTINGS).load()


def test_changes_of_another_connection_are_applied(
    live: LiveCatalogue, store: CatalogueStore, tmp_path: Path
) -> None:
    live.put([trained("a"), trained("b")])
    with CatalogueStore(tmp_path / "cloud.db") as other:
        other.put("museum", [trained("c")])
        other.remove("museum", ["a"])
    live.put([trained("d")])  # own changes after those of others must not hide them
    live.when_current(4).result(LONG_S)
    assert live.recognizer.object_ids == {"b", "c", "d"}


def test_each_answer_belongs_to_one_revision_during_changes(live: LiveCatalogue) -> None:
    """Object "x" has one of two pictures, and "y" comes and goes; versions determine the expected answer."""
    pictures = {1: trained_picture("x", 1), 2: trained_picture("x", 2)}
    extra = trained_picture("y", 3)
    photos = {seed: query(seed) for seed in (1, 2, 3)}
    live.when_current(live.put([pictures[1]]).revision).result(LONG_S)
    done = threading.Event()
    wrong: list[str] = []
    answers = threading.Semaphore(0)

    def recognise() -> None:
        while not done.is_set():
            recognizer = live.recognizer
            versions = {name: model.version for name, model in recognizer.models.items()}
            expected = {2 - versions["x"] % 2: ("x", versions["x"]), 3: ("y", versions.get("y"))}
            for seed, photo in photos.items():
                found = recognizer.recognize(photo).found
                shown = (found.object_id, found.version) if found else None
                right = None if seed == 3 and "y" not in versions else expected.get(seed)
                if shown != right:
                    wrong.append(f"photo {seed}: {shown}, expected {right} of {versions}")
            answers.release()

    threads = [threading.Thread(target=recognise) for _ in range(4)]
    for thread in threads:
        thread.start()
    for step in range(2, 10):
        live.put([pictures[2 - step % 2]])
        live.put([extra]) if step % 2 else live.remove(["y"])
        assert answers.acquire(timeout=LONG_S)
    live.when_current(live.content.revision).result(LONG_S)
    wait_until(lambda: answers.acquire(blocking=False), what="an answer of the last revision")
    done.set()
    for thread in threads:
        thread.join(LONG_S)
    assert not wrong, wrong[:3]
    assert live.recognizer.models["x"].version == 9
