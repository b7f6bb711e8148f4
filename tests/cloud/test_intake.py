import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from nearsight.cloud.catalogues import Catalogues
from nearsight.cloud.intake import ObjectIntake
from nearsight.common.catalogue.store import CatalogueStore
from nearsight.common.catalogue.training import NewObject, TrainingOutcome, train_objects
from nearsight.common.errors import DeadlineExceeded, NotFound, Overloaded, Unavailable
from nearsight.common.recognition.settings import RecognitionSettings
from support.pictures import picture_jpeg
from support.waiting import LONG_S, wait_until

SETTINGS = RecognitionSettings(training_features=200)


class HeldTraining:
    """Real training that waits for the test's permission."""

    def __init__(self) -> None:
        self.started = threading.Semaphore(0)
        self.permitted = threading.Semaphore(0)

    def __call__(self, objects: Sequence[NewObject], settings: RecognitionSettings) -> TrainingOutcome:
        self.started.release()
        assert self.permitted.acquire(timeout=LONG_S)
        return train_objects(objects, settings)


def item(object_id: str) -> NewObject:
    return NewObject(object_id, object_id, (picture_jpeg(ord(object_id[-1])),))


@pytest.fixture
def catalogues(tmp_path: Path) -> Iterator[Catalogues]:
    with CatalogueStore(tmp_path / "cloud.db") as store:
        served = Catalogues(store, SETTINGS)
        served.load()
        yield served
        served.stop()


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> HeldTraining:
    held = HeldTraining()
    monkeypatch.setattr("nearsight.cloud.intake.train_objects", held)
    return held


@pytest.fixture
def intake(catalogues: Catalogues, training: HeldTraining) -> Iterator[ObjectIntake]:
    taking = ObjectIntake(catalogues, SETTINGS, threads=1, max_pending=2)
    yield taking
    training.permitted.release(100)
    taking.stop()


def test_the_answer_follows_the_indexing_of_the_object(
    catalogues: Catalogues, intake: ObjectIntake, training: HeldTraining
) -> None:
    answer = intake.add("museum", [item("a")], index_later=False)
    assert training.started.acquire(timeout=LONG_S)
    assert not answer.done()
    training.permitted.release()
    assert answer.result(LONG_S).added == ("a",)
    assert catalogues.get("museum").recognizer.object_ids == {"a"}


def test_more_calls_than_may_be_pending_are_refused(intake: ObjectIntake, training: HeldTraining) -> None:
    accepted = [intake.add("museum", [item(name)], index_later=True) for name in "ab"]
    with pytest.raises(Overloaded):
        intake.add("museum", [item("c")], index_later=True)
    training.permitted.release(2)
    for answer in accepted:
        answer.result(LONG_S)
    training.permitted.release()
    assert intake.add("museum", [item("c")], index_later=True).result(LONG_S).added == ("c",)


def test_expired_calls_are_not_started(intake: ObjectIntake, training: HeldTraining) -> None:
    answer = intake.add("museum", [item("a")], index_later=True, expired=lambda: True)
    assert isinstance(answer.exception(LONG_S), DeadlineExceeded)
    assert not training.started.acquire(blocking=False)


def test_stopping_finishes_the_current_call_and_refuses_the_others(
    intake: ObjectIntake, training: HeldTraining
) -> None:
    first = intake.add("museum", [item("a")], index_later=True)
    assert training.started.acquire(timeout=LONG_S)
    second = intake.add("museum", [item("b")], index_later=True)
    stopping = threading.Thread(target=intake.stop)
    stopping.start()
    wait_until(lambda: intake._stopping, what="the stop")
    training.permitted.release()
    stopping.join(LONG_S)
    assert first.result(LONG_S).added == ("a",)
    assert isinstance(second.exception(LONG_S), Unavailable)
    with pytest.raises(Unavailable):
        intake.add("museum", [item("c")], index_later=True)


def test_an_empty_call_needs_an_existing_catalogue(intake: ObjectIntake, training: HeldTraining) -> None:
    training.permitted.release(100)
    assert isinstance(intake.add("museum", [], index_later=False).exception(LONG_S), NotFound)
    intake.add("museum", [item("a")], index_later=True).result(LONG_S)
    assert intake.add("", [], index_later=False).result(LONG_S).revision == 1


def test_an_unexpected_error_reaches_the_caller_and_the_intake_continues(
    intake: ObjectIntake, training: HeldTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    training.permitted.release(100)
    with monkeypatch.context() as patch:
        patch.setattr("nearsight.cloud.intake.train_objects", None)
        assert isinstance(intake.add("museum", [item("a")], index_later=True).exception(LONG_S), TypeError)
    assert intake.add("museum", [item("a")], index_later=True).result(LONG_S).added == ("a",)
