"""The adapter: learns, shares, imports and uses views as a device does."""

import random
import threading
from dataclasses import replace

import numpy as np
import pytest

from nearsight.common.recognition.models import ObjectModel
from nearsight.device.adaptation.adapted_view import AdaptationRules, AdaptedView
from nearsight.device.adaptation.adapter import Adapter, SecondLook
from nearsight.device.adaptation.learning import is_plausible
from nearsight.experiments.studies.adaptation.forger import forged_view
from support.adaptation import EAGER, RULES, learned, recognized
from support.gallery import SETTINGS, exhibit_model, exhibit_models, photo_features
from support.waiting import LONG_S

ANSWERING = frozenset({("exhibit-1", 1), ("exhibit-2", 1)})


@pytest.fixture
def adapter() -> Adapter:
    one = Adapter(SETTINGS, random.Random(1), EAGER)
    one.serve([exhibit_model(1), exhibit_model(2)])
    one.refresh()
    return one


def taught(adapter: Adapter, seed: int = 1) -> bytes:
    item = adapter.on_recognized(photo_features(seed), recognized(seed), exhibit_model(seed))
    assert item is not None
    adapter.refresh()
    return item


def test_without_views_a_second_lookup_does_no_work(adapter: Adapter) -> None:
    assert adapter.second_look(ANSWERING, photo_features(1)) is None
    assert adapter.counts.looks == 0


def test_views_learned_by_one_device_are_used_by_another(adapter: Adapter) -> None:
    other = Adapter(SETTINGS, random.Random(2), EAGER)
    item = taught(other)
    assert adapter.offer(exhibit_model(1), [item])
    adapter.refresh()
    found = adapter.second_look(ANSWERING, photo_features(1))
    assert found is not None
    assert found.object_id == "exhibit-1"
    assert (adapter.counts.looks, adapter.counts.found, adapter.counts.learned) == (1, 1, 0)
    assert other.counts.learned == 1


def test_an_object_that_was_withdrawn_is_not_answered_with(adapter: Adapter) -> None:
    taught(adapter)
    assert adapter.second_look(frozenset({("exhibit-2", 1)}), photo_features(1)) is None
    assert adapter.second_look(frozenset({("exhibit-1", 2)}), photo_features(1)) is None
    assert adapter.second_look(ANSWERING, photo_features(1)) is not None


@pytest.mark.parametrize("served", [exhibit_model(2), replace(exhibit_model(1), version=2)])
def test_only_models_of_the_current_snapshot_are_looked_up(adapter: Adapter, served: ObjectModel) -> None:
    taught(adapter)
    adapter.serve([served])
    adapter.refresh()
    assert adapter.counts.objects == 0
    assert adapter.counts.views == 1, "kept for when the model comes back"
    adapter.serve([exhibit_model(1)])
    adapter.refresh()
    assert adapter.counts.objects == 1


def test_forgotten_views_are_not_found(adapter: Adapter) -> None:
    taught(adapter)
    adapter.forget(["exhibit-1"])
    adapter.refresh()
    assert adapter.second_look(ANSWERING, photo_features(1)) is None
    assert adapter.counts.views == 0


def test_unchanged_views_are_not_rebuilt(adapter: Adapter, monkeypatch: pytest.MonkeyPatch) -> None:
    item = taught(adapter)

    def no_building(*_: object) -> None:
        raise AssertionError("built for nothing")

    monkeypatch.setattr("nearsight.device.adaptation.adapter.SecondLook", no_building)
    adapter.serve([exhibit_model(1), exhibit_model(2)])
    adapter.offer(exhibit_model(1), [item])
    adapter.refresh()


def test_requests_continue_while_views_change(adapter: Adapter) -> None:
    item = taught(adapter)
    stop = threading.Event()
    answers: list[str] = []

    def ask() -> None:
        while not stop.is_set():
            found = adapter.second_look(ANSWERING, photo_features(1))
            answers.append(found.object_id if found else "")

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        for number in range(20):
            adapter.forget(["exhibit-1"])
            adapter.refresh()
            adapter.offer(exhibit_model(1), [item] if number % 2 else [])
            adapter.refresh()
    finally:
        stop.set()
        thread.join(LONG_S)
    assert set(answers) <= {"", "exhibit-1"}
    assert adapter.counts.objects == 1


def shared(view: AdaptedView, rules: AdaptationRules = RULES, objects: int = 3) -> SecondLook:
    return SecondLook(exhibit_models(objects), {}, {view.object_id: [view]}, SETTINGS, rules)


def own(view: AdaptedView) -> SecondLook:
    return SecondLook(exhibit_models(3), {view.object_id: [view]}, {}, SETTINGS, RULES)


@pytest.mark.parametrize("look_with", [own, shared])
def test_an_adapted_view_answers_in_coordinates_of_the_verified_model(look_with: type[SecondLook]) -> None:
    look = look_with(learned(1))
    assert len(look) == 1
    found = look.recognize(photo_features(1))
    assert found is not None
    assert (found.object_id, found.label, found.version) == ("exhibit-1", "Picture 1", 1)
    assert np.allclose(found.corners, recognized(1).corners, atol=3)


@pytest.mark.parametrize("look_with", [own, shared])
def test_photos_of_other_objects_stay_unknown(look_with: type[SecondLook]) -> None:
    look = look_with(learned(1))
    assert all(look.recognize(photo_features(seed)) is None for seed in (0, 2, 3, 4))


@pytest.mark.parametrize(("claimed", "victim"), [(1, 2), (2, 1), (0, 4)])
def test_a_forged_view_passes_all_checks_of_itself_and_is_never_used(claimed: int, victim: int) -> None:
    """An attack that no check of the view alone detects: the victim's model may not even be held."""
    view = forged_view(exhibit_model(claimed), exhibit_model(victim), RULES, np.random.default_rng(7))
    assert is_plausible(view, exhibit_model(claimed), RULES)
    look = shared(view, objects=claimed + 1)
    for photo in (photo_features(victim), exhibit_model(victim).views[0]):
        assert look.recognize(photo) is None


def test_a_forged_view_would_be_used_without_the_check_by_the_verified_model() -> None:
    """Shows that the attack of the test above works without the check."""
    view = forged_view(exhibit_model(1), exhibit_model(2), RULES, np.random.default_rng(7))
    trusting = replace(RULES, max_log10_false_alarms=np.inf)
    found = shared(view, trusting, objects=2).recognize(exhibit_model(2).views[0])
    assert found is not None
    assert found.object_id == "exhibit-1"


def test_own_views_are_checked_like_shared_ones() -> None:
    forged = forged_view(exhibit_model(1), exhibit_model(2), RULES, np.random.default_rng(7))
    look = SecondLook(exhibit_models(2), {"exhibit-1": [forged]}, {}, SETTINGS, RULES)
    assert look.recognize(exhibit_model(2).views[0]) is None


def test_a_forged_view_does_not_change_learned_views() -> None:
    forged = forged_view(exhibit_model(1), exhibit_model(2), RULES, np.random.default_rng(7))
    mine = {"exhibit-2": [learned(2)]}
    look = SecondLook(exhibit_models(3), mine, {"exhibit-1": [forged]}, SETTINGS, RULES)
    found = look.recognize(photo_features(2))
    assert found is not None
    assert found.object_id == "exhibit-2"
