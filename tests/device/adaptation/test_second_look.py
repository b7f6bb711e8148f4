"""The second look: finds what other light hid; believes no view that the vouched model does not confirm."""

from dataclasses import replace

import numpy as np
import pytest

from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.device.adaptation.adapted_view import AdaptationRules, AdaptedView
from nearsight.device.adaptation.adapter import SecondLook
from nearsight.device.adaptation.learning import refusal
from nearsight.experiments.studies.adaptation.forger import forged_view
from support.adaptation import RULES, learned, recognized
from support.gallery import SETTINGS, exhibit_model, exhibit_models, photo_features


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


def test_the_vouched_models_answer_as_before() -> None:
    """The first look never sees adapted views: no view can take an answer away or change it."""
    models = exhibit_models(4)
    before = ObjectRecognizer.build(models, SETTINGS)
    answers = [before.recognize(photo_features(seed)).found for seed in range(4)]
    shared(forged_view(models[1], models[2], RULES, np.random.default_rng(7)), objects=4)
    after = ObjectRecognizer.build(models, SETTINGS)
    assert [after.recognize(photo_features(seed)).found for seed in range(4)] == answers
