import pytest

from nearsight.common.catalogue.training import (
    MAX_IMAGES_PER_OBJECT,
    NewObject,
    train_objects,
    training_fingerprint,
)
from nearsight.common.recognition.settings import RecognitionSettings
from support.pictures import broken_images, picture_jpeg

SETTINGS = RecognitionSettings(training_features=200)


@pytest.mark.parametrize("name", broken_images())
def test_an_unusable_image_rejects_its_object_and_no_other(name: str) -> None:
    bad = NewObject("bad", "Bad", (broken_images()[name],))
    outcome = train_objects([bad, NewObject("good", "Good", (picture_jpeg(1),))], SETTINGS)
    assert [item.model.object_id for item in outcome.trained] == ["good"]
    assert [item.object_id for item in outcome.rejected] == ["bad"]
    assert outcome.rejected[0].reason


def test_an_object_is_trained_from_its_usable_images() -> None:
    item = NewObject("a", "A", (b"", picture_jpeg(1), b"x", memoryview(picture_jpeg(2))), {"artist": "Monet"})
    outcome = train_objects([item], SETTINGS)
    assert len(outcome.trained[0].model.views) == 2
    assert outcome.trained[0].model.metadata == {"artist": "Monet"}
    assert [(skip.object_id, skip.image) for skip in outcome.skipped] == [("a", 0), ("a", 2)]
    assert outcome.rejected == ()


@pytest.mark.parametrize(
    "item",
    [
        NewObject("", "no id", (picture_jpeg(1),)),
        NewObject("tab\t", "control character", (picture_jpeg(1),)),
        NewObject("x" * 201, "long id", (picture_jpeg(1),)),
        NewObject("a", "l" * 1001, (picture_jpeg(1),)),
        NewObject("a", "metadata", (picture_jpeg(1),), {"k": "v" * 20_000}),
        NewObject("a", "no images", ()),
        NewObject("a", "many images", (picture_jpeg(1),) * (MAX_IMAGES_PER_OBJECT + 1)),
    ],
    ids=lambda item: item.label[:20],
)
def test_an_object_that_breaks_a_limit_is_rejected(item: NewObject) -> None:
    outcome = train_objects([item], SETTINGS)
    assert outcome.trained == ()
    assert len(outcome.rejected) == 1


def test_content_hashes_are_equal_exactly_for_equal_content() -> None:
    """Parts that move between label, metadata and images are other content."""
    hashes = {
        NewObject("a", label, images, metadata).content_hash
        for label, images, metadata in (
            ("A", (), {}),
            ("Ab", (), {}),
            ("A", (b"b",), {}),
            ("A", (b"", b"b"), {}),
            ("A", (b"k", b"v"), {}),
            ("A", (b"kv",), {}),
            ("A", (), {"k": "v"}),
            ("A", (), {"kv": ""}),
            ("A", (b"v",), {"k": "v"}),
        )
    }
    assert len(hashes) == 9
    there, back = {"a": "1", "b": "2"}, {"b": "2", "a": "1"}
    assert NewObject("x", "X", (), there).content_hash == NewObject("x", "X", (), back).content_hash


def test_the_fingerprint_depends_on_the_training_settings() -> None:
    def fingerprint(**settings: int) -> str:
        return training_fingerprint(RecognitionSettings(**settings))

    assert fingerprint(query_features=100) == fingerprint()
    assert len({fingerprint(), fingerprint(training_features=99), fingerprint(fast_threshold=9)}) == 3
