"""A snapshot is used until all models of the next decision are held (dissertation, section 4.7.1)."""

from collections.abc import Sequence
from concurrent.futures import Future

import numpy as np
import pytest

from nearsight.common.background.futures import completed, failed
from nearsight.common.catalogue.answers import FetchedModels, Listing
from nearsight.common.clock import ManualClock
from nearsight.common.errors import NearsightError, Unavailable
from nearsight.common.object_cache.next_objects import NextObjects
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.results import RecognizedObject
from nearsight.device.prefetching.controller import Note, PrefetchController, PrefetchSources
from nearsight.device.prefetching.device_profile import default_device_profile
from nearsight.device.prefetching.held_models import HeldModels
from nearsight.device.prefetching.predictions import Prediction
from nearsight.device.prefetching.profiler import DeviceProfiler
from nearsight.device.prefetching.snapshots import LocalSnapshot, Snapshots
from nearsight.device.recognizer_settings import PrefetchSettings
from support.gallery import SETTINGS, exhibit_models
from support.manual_background import ManualBackground

MODELS = {model.object_id: model for model in exhibit_models(6)}
A, B, C, D, E, F = MODELS


class Edge:
    """An edge that sends models when the test says so."""

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[str, ...], Future[FetchedModels]]] = []

    def get_models(
        self, catalogue: str, object_ids: Sequence[str], timeout_s: float
    ) -> Future[FetchedModels]:
        self.calls.append((tuple(object_ids), Future()))
        return self.calls[-1][1]

    def get_next_objects(self, object_id: str, timeout_s: float) -> Future[Prediction]:
        return failed(Unavailable("away"))

    def list_objects(self, timeout_s: float) -> Future[Listing]:
        return completed(Listing({name: model.version for name, model in MODELS.items() if name != A}, 2))

    def get_revision(self, timeout_s: float) -> Future[int]:
        raise NotImplementedError


def found_object(name: str) -> RecognizedObject:
    return RecognizedObject(name, name, MODELS[name].version, 1.0, 50, ((0.0, 0.0),) * 4, {})


class Scene:
    """A device that holds A, B and C, with a manual clock, and memory for a number of models."""

    def __init__(self, room: int = 6) -> None:
        self.clock = ManualClock(100.0)
        self.background = ManualBackground(self.clock)
        self.edge = Edge()
        memory_bytes = room * max(model.size_bytes for model in MODELS.values())
        settings = PrefetchSettings(recognition=SETTINGS, k_max=4, memory_bytes=memory_bytes)
        profile = default_device_profile(SETTINGS.backend)
        empty = LocalSnapshot(ObjectRecognizer.build((), SETTINGS), profile.feature_counts[-1])
        self.snapshots = Snapshots(empty, settings.snapshots, SETTINGS, self.clock)
        self.controller = PrefetchController(
            "museum",
            self.snapshots,
            DeviceProfiler(profile, 1000.0),
            HeldModels(settings.memory_bytes),
            PrefetchSources(self.edge, self.edge, self.edge),  # type: ignore[arg-type]
            settings,
            self.clock,
            self.background,
        )
        self.sees(A, {B: 0.5, C: 0.4})
        self.come(A, B, C)

    def sees(self, name: str, following: dict[str, float]) -> None:
        """The edge recognises this object, and predicts the next ones."""
        expected = NextObjects(tuple(following), np.array(list(following.values())))
        self._note(name, Prediction(expected, 1))

    def sees_alone(self, name: str) -> None:
        """The device recognises this object, and the edge does not answer."""
        self._note(name, None)

    def _note(self, name: str, prediction: Prediction | None) -> None:
        self.controller.note(Note(found_object(name), None, prediction, seen_by_edge=prediction is not None))
        self.controller.process_notes()
        self.background.advance(0.2)

    def come(self, *names: str) -> None:
        """Send the models of these objects."""
        self._answer(names, None)

    def fail(self, *names: str) -> None:
        """Fail the requests for models of these objects."""
        self._answer(names, Unavailable("gone"))

    def _answer(self, names: Sequence[str], error: NearsightError | None) -> None:
        left = set(names)
        while left:
            asked = [(ids, call) for ids, call in self.edge.calls if not call.done() and left & set(ids)]
            assert asked, f"nobody asks for {left}"
            for ids, call in asked:
                left -= set(ids)
                if error is not None:
                    call.set_exception(error)
                else:
                    models = tuple(MODELS[name] for name in ids)
                    call.set_result(FetchedModels(models, (), {}, (), 1, 1000))
            self.background.advance(0.2)

    @property
    def known(self) -> set[str]:
        """Objects that the device recognises."""
        return set(self.snapshots.current.names)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_snapshot_is_used_until_all_models_of_the_next_one_are_held(scene: Scene) -> None:
    assert scene.known == {A, B, C}
    scene.sees(D, {E: 0.5, F: 0.4})
    assert scene.known == {A, B, C}, "B must still be recognised"
    scene.come(D, E)
    assert scene.known >= {D, E, A}, "held models must answer while old ones are replaced"
    assert len(scene.known) == 4
    scene.come(F)
    assert scene.known == {D, E, F}


def test_a_failed_model_keeps_no_old_objects(scene: Scene) -> None:
    scene.sees(D, {E: 0.5, F: 0.4})
    scene.come(D, E)
    scene.fail(F)
    assert scene.known == {D, E}


def test_an_object_without_a_model_keeps_no_old_objects(scene: Scene) -> None:
    scene.sees(D, {E: 0.5, F: 0.4})
    scene.come(D, E)
    (call,) = [call for ids, call in scene.edge.calls if ids == (F,)]
    call.set_result(FetchedModels((), (F,), {}, (), 1, 100))
    scene.background.advance(1.0)
    assert scene.known == {D, E}


def test_a_decision_whose_models_are_held_is_used_immediately(scene: Scene) -> None:
    scene.sees(B, {A: 0.95})
    assert scene.known == {A, B}


def test_a_recognition_is_processed_only_after_the_outcome_of_its_request(scene: Scene) -> None:
    prediction = Prediction(NextObjects((A,), np.array([0.95])), 1)
    scene.controller.note(Note(found_object(B), None, prediction, seen_by_edge=True))
    scene.background.advance(1.0)
    assert scene.known == {A, B, C}
    scene.controller.process_notes()
    scene.background.advance(1.0)
    assert scene.known == {A, B}


def test_a_device_that_moves_repeatedly_keeps_its_limit(scene: Scene) -> None:
    scene.sees(D, {E: 0.5, F: 0.4})
    scene.come(D)
    scene.sees(E, {F: 0.9})
    scene.come(E)
    assert len(scene.known) <= 4
    assert scene.known >= {D, E}


def test_models_used_without_the_edge_are_kept_until_its_next_decision(scene: Scene) -> None:
    scene.sees(B, {A: 0.95})
    scene.sees_alone(A)
    assert scene.known == {A, B, C}, "all held models must answer"
    scene.sees(D, {E: 0.5, F: 0.4})
    assert scene.known == {A, B, C}
    scene.come(D, E, F)
    assert scene.known == {D, E, F}


def test_a_removed_object_that_only_a_snapshot_still_has_is_dropped() -> None:
    scene = Scene(room=3)
    scene.sees(D, {E: 0.5, F: 0.4})
    scene.come(D)  # in the memory of A, which continues to answer until E and F are here
    assert scene.known >= {A, D}
    scene.controller.list_objects()
    scene.background.advance(0.0)
    assert A not in scene.known
    scene.sees_alone(B)
    scene.sees_alone(D)
    assert A not in scene.known, "a kept snapshot has it"
