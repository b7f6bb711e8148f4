"""Views learned from photos, and refusal of forged views."""

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from nearsight.common.errors import InvalidArgument
from nearsight.device.adaptation.adapted_view import AdaptedView, hamming, view_to_bytes
from nearsight.device.adaptation.evidence import evidence_for
from nearsight.device.adaptation.learning import AdaptedViews, adds_something, is_plausible, learn
from nearsight.experiments.studies.adaptation.forger import moved
from support.adaptation import RULES, learned, noisy, plain, recognized
from support.gallery import exhibit_model, photo_features


def test_a_photo_provides_new_descriptors_of_the_model() -> None:
    view, model = learned(1), exhibit_model(1)
    base = model.views[0]
    assert RULES.min_features <= len(view) <= RULES.max_features
    assert hamming(view.descriptors, base.descriptors[view.indices]).max() <= RULES.max_bits
    assert is_plausible(view, model, RULES)
    features = view.features(model)
    assert np.array_equal(features.keypoints, base.keypoints[view.indices]), "places are the vouched ones"
    assert features.image_size == base.image_size
    photo = {row.tobytes() for row in photo_features(1).descriptors}
    assert all(row.tobytes() in photo for row in view.descriptors), "descriptors are those of the photo"


@pytest.mark.parametrize(
    ("seed", "changes"),
    [
        (1, {"confidence": 0.5}),
        (1, {"version": 2}),
        (1, {"object_id": "other"}),
        (2, {"object_id": "exhibit-2"}),
    ],
    ids=["uncertain", "another version", "another object", "wrong"],
)
def test_nothing_is_learned_from_a_doubtful_answer(seed: int, changes: dict[str, object]) -> None:
    assert learn(photo_features(1), replace(recognized(1), **changes), exhibit_model(seed), RULES) is None


def test_nothing_is_learned_from_agreement_by_chance() -> None:
    few = replace(RULES, min_features=1)
    photo, model = photo_features(1).strongest(3), exhibit_model(1)
    agreeing = evidence_for(photo, model, recognized(1), few).agreement.bits <= few.max_bits
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
def test_nothing_is_learned_from_corners_of_another_object(
    corners: tuple[tuple[float, float], ...],
) -> None:
    elsewhere = replace(recognized(1), corners=corners)
    assert learn(photo_features(1), elsewhere, exhibit_model(1), RULES) is None


def test_nothing_is_learned_from_a_photo_without_features() -> None:
    nothing = photo_features(1).strongest(0)
    assert learn(nothing, recognized(1), exhibit_model(1), RULES) is None


def test_a_view_is_kept_if_it_differs_from_existing_ones() -> None:
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


def views(**changes: int) -> AdaptedViews:
    return AdaptedViews(replace(RULES, **changes), random.Random(1))


def test_only_the_latest_own_views_are_kept() -> None:
    kept, model = views(), exhibit_model(1)
    taught = [noisy(plain(1), 30, seed) for seed in range(5)]
    assert all(kept.add_own(view, model) for view in taught)
    assert kept.own(model) == tuple(taught[-RULES.own_views :])
    assert kept.size_bytes == sum(view.size_bytes for view in taught[-RULES.own_views :])


def test_redundant_views_are_not_kept() -> None:
    kept, model = views(), exhibit_model(1)
    assert not kept.add_own(plain(1), model)
    assert kept.refused == 1
    assert len(kept) == 0


def test_a_flood_of_shared_views_is_bounded_and_removes_no_own_views() -> None:
    kept, model = views(), exhibit_model(1)
    own = noisy(plain(1), 30, 1000)
    kept.add_own(own, model)
    flood = [view_to_bytes(noisy(plain(1, 30), 30, seed)) for seed in range(1, 400)]
    assert kept.take_shared(flood, model)
    assert kept.own(model) == (own,)
    assert len(kept) == 1 + RULES.shared_views
    assert not kept.take_shared(flood, model), "the places are taken"


def test_a_flood_of_invalid_items_is_decoded_only_partly() -> None:
    kept = views()
    kept.take_shared([f"rubbish {number}".encode() for number in range(1000)], exhibit_model(1))
    assert kept.refused == RULES.max_items
    assert len(kept) == 0


def test_rubbish_before_a_view_does_not_hide_it() -> None:
    good = view_to_bytes(noisy(plain(1), 30))
    items = [b"\x00" * 10, b"", b"\xff" * 100_000, good, view_to_bytes(learned(2))]
    kept = views()
    assert kept.take_shared(items, exhibit_model(1))
    assert [view_to_bytes(view) for view in kept.shared(exhibit_model(1))] == [good]


def beyond_the_model() -> AdaptedView:
    indices = learned(1).indices.copy()
    indices[-1] = len(exhibit_model(1).views[0])
    return replace(learned(1), indices=indices)


def with_one_feature_of_another_object() -> AdaptedView:
    descriptors = learned(1).descriptors.copy()
    descriptors[3] = exhibit_model(2).views[0].descriptors[3]
    return replace(learned(1), descriptors=descriptors)


BAD_VIEWS: dict[str, Callable[[], AdaptedView]] = {
    "one feature of another object": with_one_feature_of_another_object,
    "another object under this name": lambda: replace(learned(2), object_id="exhibit-1"),
    "another object": lambda: learned(2),
    "another version": lambda: replace(learned(1), version=7),
    "another view of the model": lambda: replace(plain(1), view=4),
    "a feature that the model lacks": beyond_the_model,
    "no features": lambda: plain(1, 0),
    "too few features": lambda: plain(1, RULES.min_features - 1),
    "too many features": lambda: plain(1, RULES.max_features + 1),
    "descriptors that differ too much": lambda: noisy(plain(1), RULES.max_bits + 1),
}


@pytest.mark.parametrize("make_bad", BAD_VIEWS.values(), ids=BAD_VIEWS)
def test_every_shared_view_is_checked_against_the_verified_model(make_bad: Callable[[], AdaptedView]) -> None:
    kept, bad = views(), make_bad()
    assert not is_plausible(bad, exhibit_model(1), RULES)
    assert not kept.take_shared([view_to_bytes(bad)], exhibit_model(1))
    assert (kept.refused, len(kept)) == (1, 0)


def test_views_that_are_no_longer_listed_are_forgotten() -> None:
    kept, model = views(), exhibit_model(1)
    first, second, third = (view_to_bytes(noisy(plain(1), 30, seed)) for seed in range(3))
    kept.take_shared([first, second], model)
    assert kept.take_shared([second, third], model)
    assert {view_to_bytes(view) for view in kept.shared(model)} == {second, third}
    assert kept.take_shared([], model)
    assert kept.shared(model) == ()


def test_an_own_view_in_the_shared_list_is_not_kept_twice() -> None:
    kept, model = views(), exhibit_model(1)
    own = noisy(plain(1), 30)
    kept.add_own(own, model)
    assert not kept.take_shared([view_to_bytes(own)], model)
    assert len(kept) == 1


def test_a_new_version_of_the_model_begins_without_views() -> None:
    kept, model = views(), exhibit_model(1)
    kept.add_own(noisy(plain(1), 30), model)
    later = replace(model, version=2)
    assert kept.own(later) == ()
    assert not kept.take_shared([view_to_bytes(noisy(plain(1), 30))], later)
    assert kept.refused == 1
    assert len(kept) == 0


def test_objects_unused_for_longest_are_forgotten() -> None:
    kept = views(objects=2)
    for seed in (1, 2, 3):
        kept.add_own(noisy(plain(seed), 30), exhibit_model(seed))
    assert [len(kept.own(exhibit_model(seed))) for seed in (1, 2, 3)] == [0, 1, 1]
    kept.forget(["exhibit-2", "unknown"])
    assert [len(kept.own(exhibit_model(seed))) for seed in (2, 3)] == [0, 1]
