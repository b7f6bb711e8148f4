"""Features and models: what is extracted, and what is no use for training."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from nearsight.common.errors import ImageTooLarge, InvalidArgument, InvalidImage
from nearsight.common.recognition.extraction import KEYPOINT_STEPS_PER_PX, OrbExtractor
from nearsight.common.recognition.features import Features
from nearsight.common.recognition.images import load_image
from nearsight.common.recognition.settings import ImageLimits, RecognitionSettings
from nearsight.common.recognition.training import train_object
from support.gallery import EXTRACTOR, SETTINGS
from support.objects import same_model
from support.pictures import broken_images, picture, picture_jpeg


def test_features_are_strongest_first_and_as_many_as_asked() -> None:
    features = EXTRACTOR.extract(load_image(picture(1)), 300)
    assert 200 < len(features) <= 300
    assert (np.diff(features.strengths) <= 0).all()
    assert features.strengths[0] == 1
    assert features.image_size == (240, 240)


def test_fewer_features_are_the_strongest_of_more() -> None:
    assert len(EXTRACTOR.extract(load_image(picture(1)), 0)) == 0
    assert len(EXTRACTOR.extract(load_image(picture(1)), 300).strongest(40)) == 40


def test_keypoints_and_strengths_are_what_the_wire_carries() -> None:
    features = EXTRACTOR.extract(load_image(picture(2)), 300)
    steps = features.keypoints * KEYPOINT_STEPS_PER_PX
    assert np.array_equal(steps, np.rint(steps))
    assert np.array_equal(features.strengths, features.strengths.astype(np.float16))


@pytest.mark.parametrize("shape", [(1, 1), (5, 640), (31, 31), (32, 32), (33, 400), (480, 640)])
def test_images_without_texture_or_too_small_have_no_features(shape: tuple[int, int]) -> None:
    assert len(EXTRACTOR.extract(load_image(np.zeros(shape, np.uint8)), 500)) == 0


def test_noise_of_any_shape_is_no_problem() -> None:
    rng = np.random.default_rng(0)
    for shape in [(2, 2), (20, 600), (40, 40), (60, 640), (640, 33), (37, 51)]:
        EXTRACTOR.extract(load_image(rng.integers(0, 256, shape, np.uint8)), 500)


def test_threads_share_one_extractor() -> None:
    images = [load_image(picture(seed)) for seed in range(6)]
    expected = [EXTRACTOR.extract(image, 200).descriptors for image in images]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda image: EXTRACTOR.extract(image, 200).descriptors, images * 4))
    assert all(np.array_equal(one, expected[index % 6]) for index, one in enumerate(found))


def test_a_lower_fast_threshold_finds_features_at_low_contrast() -> None:
    dim = (picture(3).astype(float) * 0.06 + 100).astype(np.uint8)
    few, many = (len(OrbExtractor(threshold).extract(load_image(dim), 500)) for threshold in (20, 5))
    assert few < many / 2


def test_images_become_views_of_one_model() -> None:
    model = train_object(
        "a", "A", [picture(1), picture_jpeg(2)], SETTINGS, metadata={"year": "1901"}, version=3
    )
    assert (model.object_id, model.label, model.version, model.metadata) == ("a", "A", 3, {"year": "1901"})
    assert len(model.views) == 2
    assert all(isinstance(view, Features) and len(view) <= SETTINGS.training_features for view in model.views)


def test_training_twice_gives_the_same_model() -> None:
    assert same_model(*(train_object("a", "A", [picture_jpeg(1)], SETTINGS) for _ in range(2)))


@pytest.mark.parametrize("kind", sorted(broken_images()))
def test_an_image_that_is_no_use_is_refused(kind: str) -> None:
    with pytest.raises((InvalidImage, ImageTooLarge)) as caught:
        train_object("a", "A", [picture(1), broken_images()[kind]], SETTINGS)
    assert caught.value.advice


def test_an_object_needs_an_image() -> None:
    with pytest.raises(InvalidArgument, match="no training image"):
        train_object("a", "A", [], SETTINGS)


def test_any_extractor_behind_the_interface_will_do() -> None:
    class Halved:
        def extract(self, image: object, count: int) -> Features:
            return EXTRACTOR.extract(load_image(picture(1)), count // 2)

    model = train_object("a", "A", [picture(2)], SETTINGS, extractor=Halved())
    assert len(model.views[0]) <= SETTINGS.training_features // 2


def test_settings_refuse_what_cannot_work() -> None:
    for wrong in ({"ratio": 1.5}, {"min_inliers": 4}, {"query_features": 0}, {"no_such_setting": 1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            RecognitionSettings(**wrong)
    with pytest.raises(ValueError, match="longest_side"):
        RecognitionSettings(limits={"longest_side": 5000})
    assert RecognitionSettings(limits={"longest_side": 320}).limits == ImageLimits(longest_side=320)
    assert RecognitionSettings.thorough().training_features > RecognitionSettings().training_features
