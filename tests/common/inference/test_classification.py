from dataclasses import replace

import numpy as np
import pytest

from nearsight.common.errors import InvalidArgument
from nearsight.common.inference.classification import image_layout, label_of, photo_tensor
from nearsight.common.inference.manifest import Manifest, Pixels
from nearsight.common.inference.tensors import TensorSpec

LABELS = ("cat", "dog", "emu")
MANIFEST = Manifest("pets", 3, 10, "0" * 64, LABELS)
PHOTO = np.zeros((20, 30, 3), np.uint8)
PHOTO[:] = (10, 100, 250)
"""Blue, green, red."""


def spec(*shape: int | None, dtype: str = "float32") -> TensorSpec:
    return TensorSpec("photo", dtype, shape)


@pytest.mark.parametrize(
    ("pixels", "expected"),
    [
        ("0..255", (250, 100, 10)),
        ("0..1", (250 / 255, 100 / 255, 10 / 255)),
        ("-1..1", (250 / 127.5 - 1, 100 / 127.5 - 1, 10 / 127.5 - 1)),
        ("imagenet", ((250 / 255 - 0.485) / 0.229, (100 / 255 - 0.456) / 0.224, (10 / 255 - 0.406) / 0.225)),
        ("caffe", (10 - 103.939, 100 - 116.779, 250 - 123.68)),
    ],
)
def test_a_photo_is_preprocessed_as_by_keras_and_torch(
    pixels: Pixels, expected: tuple[float, float, float]
) -> None:
    last = photo_tensor(PHOTO, spec(None, 8, 6, 3), pixels)
    first = photo_tensor(PHOTO, spec(1, 3, 8, 6), pixels)
    assert (last.shape, first.shape, last.dtype) == ((1, 8, 6, 3), (1, 3, 8, 6), np.float32)
    np.testing.assert_allclose(last[0, 4, 3], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(first, np.moveaxis(last, 3, 1))


def test_photos_are_converted_to_the_channels_and_type_of_the_input() -> None:
    grey = photo_tensor(PHOTO, spec(None, 1, 8, 8, dtype="uint8"), "0..255")
    assert (grey.shape, grey.dtype) == ((1, 1, 8, 8), np.uint8)
    assert int(grey[0, 0, 0, 0]) == round(0.299 * 250 + 0.587 * 100 + 0.114 * 10)


def test_inputs_of_open_size_get_the_size_of_imagenet() -> None:
    assert photo_tensor(PHOTO, spec(None, None, None, 3), "0..1").shape == (1, 224, 224, 3)


@pytest.mark.parametrize("shape", [(None, 4), (8, 3, 8, 8), (1, 5, 8, 8), (1, 3, 8, 8, 8)])
def test_inputs_that_are_not_images_are_refused(shape: tuple[int | None, ...]) -> None:
    with pytest.raises(InvalidArgument, match="not an image"):
        image_layout(spec(*shape))


def test_the_strongest_class_is_the_label_of_logits_and_of_probabilities() -> None:
    sure = label_of(np.array([[0.1, 0.8, 0.1]]), MANIFEST)
    assert sure is not None
    assert (sure.object_id, sure.label, sure.version, sure.corners) == ("dog", "dog", 3, None)
    assert sure.confidence == pytest.approx(0.8)
    logits = label_of(np.array([[2.0, -1.0, 0.0]]), MANIFEST)
    assert logits is not None
    assert (logits.label, logits.confidence) == (
        "cat",
        pytest.approx(np.e**2 / (np.e**2 + np.e**-1 + 1)),
    )


def test_rounded_probabilities_of_many_classes_are_no_logits() -> None:
    manifest = replace(MANIFEST, labels=tuple(map(str, range(1000))))
    exact = np.full(1000, 0.4 / 999)
    exact[7] = 0.6
    found = label_of(np.rint(exact * 255)[None] / 255, manifest)
    assert found is not None
    assert (found.label, found.confidence) == ("7", pytest.approx(0.6))
    assert label_of(np.array([[2.0, *np.zeros(999)]]), manifest) is None, "logits, not more than certain"


@pytest.mark.parametrize("scores", [[0.4, 0.3, 0.3], [np.nan, 0.0, 0.0], [1.0, 1.0, 1.0]])
def test_scores_below_the_confidence_limit_are_unknown(scores: list[float]) -> None:
    assert label_of(np.array([scores]), MANIFEST) is None


def test_a_network_without_a_label_per_class_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="has 2 outputs and 3 labels"):
        label_of(np.array([[0.5, 0.5]]), MANIFEST)
