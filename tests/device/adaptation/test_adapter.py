"""The adapter: learns, shares, takes over and looks again, as a device uses it."""

import random
import threading
from dataclasses import replace

import numpy as np
import pytest

from nearsight.device.adaptation.adapted_view import AdaptationRules, AdaptedView
from nearsight.device.adaptation.adapter import Adapter, SecondLook
from nearsight.device.adaptation.learning import refusal
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


def test_before_anything_was_learned_a_second_look_costs_nothing(adapter: Adapter) -> None:
    assert adapter.second_look(ANSWERING, photo_features(1)) is None
    assert adapter.counts.looks == 0


def test_what_one_device_learned_another_finds(adapter: Adapter) -> None:
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


def test_only_objects_that_the_device_answers_with_are_looked_for(adapter: Adapter) -> None:
    taught(adapter)
    adapter.serve([exhibit_model(2)])
    adapter.refresh()
    assert adapter.counts.objects == 0
    assert adapter.counts.views == 1, "kept for when the model comes back"
    adapter.serve([exhibit_model(1)])
    adapter.refresh()
    assert adapter.counts.objects == 1


def test_a_new_version_is_not_looked_for_with_views_of_the_old(adapter: Adapter) -> None:
    taught(adapter)
    adapter.serve([replace(exhibit_model(1), version=2)])
    adapter.refresh()
    assert adapter.counts.objects == 0


def test_what_is_forgotten_is_not_found_any_more(adapter: Adapter) -> None:
    taught(adapter)
    adapter.forget(["exhibit-1"])
    adapter.refresh()
    assert adapter.second_look(ANSWERING, photo_features(1)) is None
    assert adapter.counts.views == 0


def test_nothing_is_built_if_nothing_changed(adapter: Adapter, monkeypatch: pytest.MonkeyPatch) -> None:
    item = taught(adapter)

    def no_building(*_: object) -> None:
        raise AssertionError("built for nothing")

    monkeypatch.setattr("nearsight.device.adaptation.adapter.SecondLook", no_building)
    adapter.serve([exhibit_model(1), exhibit_model(2)])
    adapter.offer(exhibit_model(1), [item])
    adapter.refresh()


def test_bad_shares_are_counted_and_harmless(adapter: Adapter) -> None:
    rubbish = [b"", b"rubbish", bytes(10**6)]
    assert not adapter.offer(exhibit_model(1), rubbish)
    adapter.refresh()
    assert adapter.counts.refused == len(rubbish)
    assert adapter.counts.objects == 0


def test_requests_go_on_while_views_come_and_go(adapter: Adapter) -> None:
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


def test_without_views_nothing_is_looked_for() -> None:
    look = SecondLook(exhibit_models(3), {}, {}, SETTINGS, RULES)
    assert len(look) == 0
    assert look.recognize(photo_features(1)) is None


@pytest.mark.parametrize("look_with", [own, shared])
def test_an_adapted_view_answers_in_the_frame_of_the_vouched_one(look_with: type[SecondLook]) -> None:
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
def test_a_forged_view_passes_every_check_of_its_own_and_is_never_believed(claimed: int, victim: int) -> None:
    """The attack that no check of the view alone can stop: the victim may not even be held."""
    view = forged_view(exhibit_model(claimed), exhibit_model(victim), RULES, np.random.default_rng(7))
    assert refusal(view, exhibit_model(claimed), RULES) is None
    look = shared(view, objects=claimed + 1)
    for photo in (photo_features(victim), exhibit_model(victim).views[0]):
        assert look.recognize(photo) is None


def test_a_forged_view_would_be_believed_if_the_vouched_model_were_not_asked() -> None:
    """Or the test above would show nothing."""
    view = forged_view(exhibit_model(1), exhibit_model(2), RULES, np.random.default_rng(7))
    trusting = replace(RULES, max_log10_false_alarms=np.inf)
    found = shared(view, trusting, objects=2).recognize(exhibit_model(2).views[0])
    assert found is not None
    assert found.object_id == "exhibit-1"


def test_an_own_view_is_believed_no_more_than_a_shared_one() -> None:
    forged = forged_view(exhibit_model(1), exhibit_model(2), RULES, np.random.default_rng(7))
    look = SecondLook(exhibit_models(2), {"exhibit-1": [forged]}, {}, SETTINGS, RULES)
    assert look.recognize(exhibit_model(2).views[0]) is None


def test_a_forged_view_takes_nothing_from_what_this_device_learned() -> None:
    forged = forged_view(exhibit_model(1), exhibit_model(2), RULES, np.random.default_rng(7))
    mine = {"exhibit-2": [learned(2)]}
    look = SecondLook(exhibit_models(3), mine, {"exhibit-1": [forged]}, SETTINGS, RULES)
    found = look.recognize(photo_features(2))
    assert found is not None
    assert found.object_id == "exhibit-2"
