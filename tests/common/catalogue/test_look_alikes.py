"""Twins and rivals: detection in pictures, and storage."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import cache
from typing import Any

import cv2
import numpy as np
import pytest

from nearsight.common.catalogue.database_catalogue import DatabaseCatalogue
from nearsight.common.catalogue.live_catalogue import LiveCatalogue
from nearsight.common.catalogue.look_alikes import compare
from nearsight.common.catalogue.store import CatalogueStore, PutOutcome
from nearsight.common.catalogue.training import NewObject, TrainedObject, train_objects
from nearsight.common.recognition.codec import object_model_to_bytes
from nearsight.common.recognition.extraction import extract_features
from nearsight.common.recognition.images import load_image
from nearsight.common.recognition.models import TWIN, ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.settings import RecognitionSettings
from support.pictures import jpeg, look_alike, photographed, picture

SETTINGS = RecognitionSettings(training_features=500, query_features=500)
SIDE = 320
FACE = 0.36
"""Part of a side that two portraits share: too little for twins."""


def images(**pixels: object) -> list[NewObject]:
    return [NewObject(name, name, (jpeg(np.asarray(one, np.uint8)),)) for name, one in pixels.items()]


PORTRAIT = picture(0, side=SIDE)
OTHER = look_alike(60, of=0, side=SIDE, part=FACE)
SMALLER = cv2.resize(PORTRAIT, None, fx=0.7, fy=0.7, interpolation=cv2.INTER_AREA)
LARGE = picture(3, side=2 * SIDE)
ELSE = picture(7, side=SIDE)


def trained(*objects: NewObject) -> list[TrainedObject]:
    return [_trained(one.object_id, one.images) for one in objects]


@cache
def _trained(name: str, photos: tuple[bytes, ...]) -> TrainedObject:
    (found,) = train_objects([NewObject(name, name, photos)], SETTINGS).trained
    return found


def compared(
    objects: list[NewObject], catalogue: list[NewObject], *, indexed: int = 0, allow_similar: bool = False
) -> tuple[dict[str, dict[str, int]], dict[str, str]]:
    """Rivals of accepted objects, and reasons of rejected ones; ``indexed`` objects are in the index."""
    models = {one.model.object_id: one.model for one in trained(*catalogue)}
    index = ObjectRecognizer.build([*models.values()][:indexed], SETTINGS)
    new = trained(*objects)
    alike = {one.model.object_id: index.resembling(one.model, one.photos) for one in new}
    accepted, rejected = compare(new, models, alike, index, allow_similar=allow_similar)
    return (
        {one.model.object_id: dict(one.model.rivals) for one in accepted},
        {one.object_id: one.reason for one in rejected},
    )


@pytest.mark.parametrize("indexed", [0, 2])
def test_a_copy_of_a_picture_is_refused_with_the_other_id(indexed: int) -> None:
    accepted, rejected = compared(images(copy=SMALLER), images(one=PORTRAIT, other=ELSE), indexed=indexed)
    assert accepted == {}
    assert "'one'" in rejected["copy"]
    assert "--allow-similar" in rejected["copy"]


@pytest.mark.parametrize(
    "copy",
    [
        pytest.param(cv2.resize(LARGE, None, fx=0.3, fy=0.3, interpolation=cv2.INTER_AREA), id="reduced"),
        pytest.param(LARGE[60:420, 40:400], id="cropped"),
        pytest.param(np.ascontiguousarray(LARGE[SIDE:, :SIDE]), id="a quarter"),
    ],
)
@pytest.mark.parametrize("copied_first", [False, True])
def test_a_reduced_or_cropped_copy_is_refused(copy: np.ndarray, copied_first: bool) -> None:
    first, second = (copy, LARGE) if copied_first else (LARGE, copy)
    accepted, rejected = compared(images(again=second), images(first=first, other=ELSE))
    assert accepted == {}
    assert "'first'" in rejected["again"]


def test_a_picture_within_another_picture_is_a_rival() -> None:
    room = LARGE.copy()
    room[40 : 40 + SIDE * 3 // 4, 40 : 40 + SIDE * 3 // 4] = cv2.resize(PORTRAIT, (SIDE * 3 // 4,) * 2)
    accepted, rejected = compared(images(room=room), images(one=PORTRAIT))
    assert rejected == {}
    assert accepted["room"].keys() == {"one"}


def test_the_first_of_two_copies_in_a_batch_is_accepted() -> None:
    accepted, rejected = compared(images(a=PORTRAIT, b=SMALLER, c=ELSE), [])
    assert accepted == {"a": {}, "c": {}}
    assert "'a'" in rejected["b"]


def test_allowed_copies_are_twins() -> None:
    assert compared(images(a=PORTRAIT, b=SMALLER), [], allow_similar=True) == (
        {"a": {"b": TWIN}, "b": {"a": TWIN}},
        {},
    )


@pytest.mark.parametrize("indexed", [0, 1])
def test_a_picture_that_shares_a_part_is_a_rival(indexed: int) -> None:
    accepted, rejected = compared(images(other=OTHER), images(one=PORTRAIT), indexed=indexed)
    assert rejected == {}
    assert accepted["other"]["one"] >= 10


@pytest.mark.parametrize("indexed", [0, 1])
def test_a_rival_that_is_only_visible_in_training_photos_is_found(indexed: int) -> None:
    """It is part of the other picture, smaller than any level of its own pyramid."""
    room = picture(9, side=2 * SIDE)
    room[60:207, 60:207] = cv2.resize(LARGE, (147, 147), interpolation=cv2.INTER_AREA)
    (one,), (other,) = trained(*images(one=LARGE)), trained(*images(room=room))
    index = ObjectRecognizer.build([other.model], SETTINGS)
    assert index.resembling(one.model) == {}
    accepted, rejected = compared(images(one=LARGE), images(room=room), indexed=indexed)
    assert rejected == {}
    assert accepted["one"]["room"] >= 20


def test_an_object_is_not_compared_with_its_previous_version() -> None:
    assert compared(images(one=SMALLER), images(one=PORTRAIT), indexed=1) == ({"one": {}}, {})


@pytest.mark.parametrize("indexed", [0, 2])
def test_new_objects_are_compared_with_the_picture_that_stays_after_a_rejection(indexed: int) -> None:
    accepted, rejected = compared(
        images(new=SMALLER, b=ELSE, d=LARGE), images(b=PORTRAIT, c=ELSE), indexed=indexed
    )
    assert accepted == {"d": {}}
    assert {name: reason.split("'")[1] for name, reason in rejected.items()} == {"b": "c", "new": "b"}


def test_an_outdated_picture_in_the_index_does_not_count() -> None:
    (old, new) = (trained(*images(one=pixels))[0].model for pixels in (PORTRAIT, ELSE))
    index = ObjectRecognizer.build([old], SETTINGS)
    copies = trained(*images(copy=SMALLER))
    alike = {"copy": index.resembling(copies[0].model)}
    assert alike["copy"]
    accepted, rejected = compare(copies, {"one": new}, alike, index, allow_similar=False)
    assert len(accepted) == 1
    assert rejected == []


@pytest.fixture
def catalogue(store: CatalogueStore) -> Iterator[DatabaseCatalogue]:
    with closing(DatabaseCatalogue(store, "museum", SETTINGS)) as opened:
        yield opened


def models(store: CatalogueStore) -> dict[str, ObjectModel]:
    return {model.object_id: model for model in store.changes_since("museum", 0).written}


def rivals(store: CatalogueStore) -> dict[str, set[str]]:
    return {name: set(model.rivals) for name, model in models(store).items()}


def put(catalogue: DatabaseCatalogue, **pixels: object) -> PutOutcome:
    return catalogue.put(images(**pixels))


def test_a_stored_object_is_updated_when_a_rival_is_added(
    store: CatalogueStore, catalogue: DatabaseCatalogue
) -> None:
    put(catalogue, one=PORTRAIT, unlike=ELSE)
    first = models(store)
    assert put(catalogue, other=OTHER).added == ("other",)
    assert rivals(store) == {"one": {"other"}, "other": {"one"}, "unlike": set()}
    now = models(store)
    assert now["one"].version == first["one"].version + 1
    assert now["unlike"].version == first["unlike"].version
    assert models(store)["one"].rivals["other"] == models(store)["other"].rivals["one"]


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_removed_or_replaced_rival_is_deleted_from_the_other_object(
    how: str, store: CatalogueStore, catalogue: DatabaseCatalogue
) -> None:
    put(catalogue, one=PORTRAIT, other=OTHER)
    assert rivals(store) == {"one": {"other"}, "other": {"one"}}
    if how == "removed":
        catalogue.remove(["other"])
    else:
        put(catalogue, other=ELSE)
    assert rivals(store)["one"] == set()


def test_repeating_a_call_changes_nothing_even_for_twins(
    store: CatalogueStore, catalogue: DatabaseCatalogue
) -> None:
    twins = images(a=PORTRAIT, b=SMALLER)
    assert catalogue.put(twins, allow_similar=True).added == ("a", "b")
    again = catalogue.put(twins)
    assert (again.unchanged, again.rejected, again.revision) == (("a", "b"), (), 1)
    assert [one.version for one in models(store).values()] == [1, 1]


def test_objects_added_by_another_process_are_compared_with(
    store: CatalogueStore, catalogue: DatabaseCatalogue
) -> None:
    put(catalogue, unlike=ELSE)
    store.put("museum", trained(*images(one=PORTRAIT)))
    outcome = put(catalogue, copy=SMALLER)
    assert [one.object_id for one in outcome.rejected] == ["copy"]


def test_objects_added_during_a_comparison_are_compared_with(
    store: CatalogueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process adds the picture, and the catalogue is refreshed, while its copy is compared."""
    live = LiveCatalogue("museum", store, SETTINGS)
    live.put(trained(*images(unlike=ELSE)))

    def interrupted(*arguments: Any, **options: Any) -> Any:
        found = compare(*arguments, **options)
        store.put("museum", trained(*images(one=PORTRAIT)))
        live.refresh()
        return found

    monkeypatch.setattr("nearsight.common.catalogue.live_catalogue.compare", interrupted)
    outcome = live.put(trained(*images(copy=SMALLER)))
    assert [one.object_id for one in outcome.rejected] == ["copy"]


def test_a_stored_object_that_is_removed_during_a_repeated_call_is_compared_again(
    store: CatalogueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process stores its picture under another id."""
    live = LiveCatalogue("museum", store, SETTINGS)
    live.put(trained(*images(old=PORTRAIT, unlike=ELSE)))

    def interrupted(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        store.remove("museum", ["old"])
        store.put("museum", trained(*images(new=PORTRAIT)))
        return compare(*arguments, **options)

    monkeypatch.setattr("nearsight.common.catalogue.live_catalogue.compare", interrupted)
    outcome = live.put(trained(*images(old=PORTRAIT)))
    assert [one.object_id for one in outcome.rejected] == ["old"]
    assert [one.object_id for one in store.objects("museum")] == ["new", "unlike"]


def test_a_damaged_rival_does_not_prevent_a_removal(
    store: CatalogueStore, catalogue: DatabaseCatalogue
) -> None:
    put(catalogue, one=PORTRAIT, other=OTHER)
    with store.transaction() as connection:
        connection.execute("UPDATE objects SET model = x'00' WHERE object_id = 'other'")
    assert catalogue.remove(["one"]).removed == ("one",)


def test_models_stored_by_older_versions_are_compared_with(
    store: CatalogueStore,
) -> None:
    (old,) = trained(*images(one=PORTRAIT))
    assert b"rivals" not in object_model_to_bytes(old.model)
    store.put("museum", [replace(old, training="OrbExtractor generation=2")])
    live = LiveCatalogue("museum", store, SETTINGS)
    live.load()
    try:
        live.put(trained(*images(other=OTHER)))
    finally:
        live.stop()
    assert rivals(store) == {"one": {"other"}, "other": {"one"}}


def test_a_cache_without_the_right_object_gives_no_wrong_answer(
    store: CatalogueStore, catalogue: DatabaseCatalogue
) -> None:
    put(catalogue, one=PORTRAIT, other=OTHER, unlike=ELSE)
    photo = extract_features(load_image(photographed(OTHER)), SETTINGS.query_features)

    def answer(margin: float, *names: str) -> str | None:
        settings = SETTINGS.model_copy(update={"rival_margin": margin})
        found = ObjectRecognizer.build([models(store)[name] for name in names], settings).recognize(photo)
        return found.found.object_id if found.found else None

    assert answer(1.5, "one", "other", "unlike") == "other"
    assert answer(0.0, "one", "unlike") == "one"  # the wrong answer without the margin
    assert answer(1.5, "one", "unlike") is None
