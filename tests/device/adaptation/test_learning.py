"""What a photo teaches, and what nobody can pass off as a view."""

from dataclasses import replace

import numpy as np
import pytest

from nearsight.common.errors import InvalidArgument
from nearsight.device.adaptation.adapted_view import AdaptedView, hamming
from nearsight.device.adaptation.evidence import evidence_for
from nearsight.device.adaptation.learning import Refusal, adds_something, learn, refusal
from nearsight.experiments.studies.adaptation.forger import moved
from support.adaptation import RULES, learned, noisy, plain, recognized
from support.gallery import exhibit_model, photo_features


def test_a_photo_teaches_how_features_of_the_model_look() -> None:
    view, model = learned(1), exhibit_model(1)
    base = model.views[0]
    assert RULES.min_features <= len(view) <= RULES.max_features
    assert hamming(view.descriptors, base.descriptors[view.indices]).max() <= RULES.max_bits
    assert refusal(view, model, RULES) is None
    features = view.features(model)
    assert np.array_equal(features.keypoints, base.keypoints[view.indices]), "places are the vouched ones"
    assert features.image_size == base.image_size
    photo = {row.tobytes() for row in photo_features(1).descriptors}
    assert all(row.tobytes() in photo for row in view.descriptors), "descriptors are those of the photo"


def test_a_doubtful_answer_teaches_nothing() -> None:
    doubtful = replace(recognized(1), confidence=0.5)
    assert learn(photo_features(1), doubtful, exhibit_model(1), RULES) is None


def test_an_answer_of_another_version_or_object_teaches_nothing() -> None:
    model = exhibit_model(1)
    assert learn(photo_features(1), replace(recognized(1), version=2), model, RULES) is None
    assert learn(photo_features(1), replace(recognized(1), object_id="other"), model, RULES) is None


def test_a_wrong_answer_teaches_nothing() -> None:
    wrong = replace(recognized(1), object_id="exhibit-2")
    assert learn(photo_features(1), wrong, exhibit_model(2), RULES) is None


def test_agreement_that_may_be_luck_teaches_nothing_however_few_features_are_enough() -> None:
    few = replace(RULES, min_features=1)
    photo, model = photo_features(1).strongest(3), exhibit_model(1)
    agreeing = evidence_for(photo, model, recognized(1), few).bits <= few.max_bits
    assert 0 < agreeing.sum() <= 3
    assert learn(photo, recognized(1), model, few) is None


@pytest.mark.parametrize(
    "corners",
    [
        ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)),
        ((0.0, 0.0), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0)),
        ((350.0, 350.0), (30.0, 350.0), (30.0, 30.0), (350.0, 30.0)),
        ((1e30, 0.0), (0.0, 1e30), (1e30, 1e30), (-1e30, 0.0)),
    ],
    ids=["tiny", "a point", "upside down", "far away"],
)
def test_corners_of_something_else_teach_nothing(
    corners: tuple[tuple[float, float], ...],
) -> None:
    elsewhere = replace(recognized(1), corners=corners)
    assert learn(photo_features(1), elsewhere, exhibit_model(1), RULES) is None


def test_a_photo_without_features_teaches_nothing() -> None:
    nothing = photo_features(1).strongest(0)
    assert learn(nothing, recognized(1), exhibit_model(1), RULES) is None


def test_the_model_itself_is_never_touched() -> None:
    before = exhibit_model(1).views[0].descriptors.copy()
    learned(1)
    assert np.array_equal(exhibit_model(1).views[0].descriptors, before)


def test_a_view_of_another_object_is_refused() -> None:
    assert refusal(learned(2), exhibit_model(1), RULES) is Refusal.OTHER_OBJECT
    renamed = replace(learned(2), object_id="exhibit-1")
    assert refusal(renamed, exhibit_model(1), RULES) is Refusal.NOT_SIMILAR


def test_a_view_with_a_single_feature_of_another_object_is_refused() -> None:
    view = learned(1)
    descriptors = view.descriptors.copy()
    descriptors[len(view) // 2] = exhibit_model(2).views[0].descriptors[0]
    assert refusal(replace(view, descriptors=descriptors), exhibit_model(1), RULES) is Refusal.NOT_SIMILAR


def test_a_view_of_an_outdated_or_later_version_is_refused() -> None:
    view = learned(1)
    later = replace(exhibit_model(1), version=2)
    assert refusal(view, later, RULES) is Refusal.OUTDATED
    assert refusal(replace(view, version=2), exhibit_model(1), RULES) is Refusal.OUTDATED


def test_features_that_the_model_does_not_have_are_refused() -> None:
    model = exhibit_model(1)
    view = learned(1)
    beyond = view.indices.copy()
    beyond[-1] = len(model.views[0])
    assert refusal(replace(view, indices=beyond), model, RULES) is Refusal.NO_SUCH_FEATURE
    assert refusal(replace(view, view=1), model, RULES) is Refusal.NO_SUCH_FEATURE


@pytest.mark.parametrize("count", [0, RULES.min_features - 1, RULES.max_features + 1])
def test_views_too_small_or_too_large_are_refused(count: int) -> None:
    assert refusal(plain(1, count), exhibit_model(1), RULES) is Refusal.WRONG_SIZE


def test_a_view_adds_something_if_it_differs_from_what_is_there() -> None:
    model = exhibit_model(1)
    assert not adds_something(plain(1), model, (), RULES)
    other = noisy(plain(1), 30)
    assert adds_something(other, model, (), RULES)
    assert not adds_something(other, model, (other,), RULES)
    assert adds_something(noisy(plain(1), 30, seed=2), model, (other,), RULES)


def test_a_view_names_each_feature_once() -> None:
    view = plain(1)
    with pytest.raises(InvalidArgument):
        replace(view, indices=np.zeros(len(view), np.int32))
    with pytest.raises(InvalidArgument):
        replace(view, indices=view.indices[:-1])
    with pytest.raises(InvalidArgument):
        AdaptedView("x", 1, 0, view.indices.astype(np.int64), view.descriptors)  # type: ignore[arg-type]


def test_a_forger_stays_within_the_bits_that_he_may_change() -> None:
    start = exhibit_model(1).views[0].descriptors[:50]
    towards = exhibit_model(2).views[0].descriptors[:50]
    forged = moved(start, towards, 20)
    assert (hamming(forged, start) == np.minimum(20, hamming(start, towards))).all()
    assert (hamming(forged, towards) == np.maximum(0, hamming(start, towards) - 20)).all()
