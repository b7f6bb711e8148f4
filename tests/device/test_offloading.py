"""Image or features: what is sent, to whom, and that the tier always gets all the features it expects."""

from __future__ import annotations

import numpy as np
import pytest

from nearsight.common.caching.offload_choice import FEATURES, IMAGE
from nearsight.common.clock import ManualClock
from nearsight.common.recognition.extraction import OrbExtractor
from nearsight.common.recognition.images import load_image
from nearsight.common.recognition.models import Features
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.common.rpc.client import Hop
from nearsight.device.offloading import Extracted, Offloading
from nearsight.device.query import Photo, Query
from nearsight.device.recognizer_settings import UploadSettings
from support.pictures import jpeg, picture

SETTINGS = RecognitionSettings(query_features=400)
EXTRACTOR = OrbExtractor()
UPLOAD = UploadSettings()
SMALL = jpeg(picture(1))
LARGE = picture(1, side=1200)


def offloading() -> Offloading:
    return Offloading(["edge", "cloud"], EXTRACTOR, SETTINGS, ManualClock())


def extracted(count: int, image: bytes = SMALL) -> Extracted:
    return Extracted(EXTRACTOR.extract(load_image(image), count), count)


def teach(choice: Offloading, mbps: float, *, tier: str = "edge", features_ms: float = 1.0) -> None:
    """Let a link be measured with both forms."""
    for _ in range(30):
        for form, size, computed_ms in ((IMAGE, 60_000, 10.0), (FEATURES, 15_000, features_ms)):
            spent_ms = 5.0 + size * 8e-3 / mbps + computed_ms
            choice.observe(tier, form, size, spent_ms, Hop(tier, 0.0, computed_ms, 0.0, size, 100))


def test_before_anything_is_known_a_photo_travels_as_it_is() -> None:
    assert offloading().query("edge", Photo(SMALL, UPLOAD), None).content == SMALL


def test_over_a_slow_link_the_smaller_form_is_sent() -> None:
    choice = offloading()
    teach(choice, 0.5)
    few = extracted(400)
    query = choice.query("edge", Photo(SMALL, UPLOAD), few)
    smaller = len(few.features) * 38 < len(SMALL)
    assert isinstance(query.content, Features) == smaller
    assert "Mbit/s" in choice.why()["edge"]


def test_features_that_are_there_already_are_sent_where_computing_them_again_costs_more() -> None:
    choice = offloading()
    teach(choice, 1000.0)
    features = extracted(400)
    query = choice.query("edge", Photo(SMALL, UPLOAD), features)
    assert query.content is features.features


def test_features_of_a_hasty_lookup_are_never_sent_for_want_of_recall() -> None:
    choice = offloading()
    teach(choice, 0.2)
    query = choice.query("edge", Photo(LARGE, UPLOAD), extracted(200))
    assert isinstance(query.content, Features)
    assert len(query.content) == 400


def test_where_features_are_often_unknown_the_image_is_sent_at_once() -> None:
    choice = offloading()
    teach(choice, 1000.0)
    features = extracted(400)
    assert choice.query("edge", Photo(SMALL, UPLOAD), features).content is features.features
    for _ in range(50):
        choice.observe_outcome("edge", unknown=True, behind_ms=0.0)
    assert choice.query("edge", Photo(SMALL, UPLOAD), features).content == SMALL
    for _ in range(100):
        choice.observe_outcome("edge", unknown=False, behind_ms=0.0)
    assert choice.query("edge", Photo(SMALL, UPLOAD), features).content is features.features


def test_corners_of_features_are_in_the_frame_of_the_application() -> None:
    choice = offloading()
    teach(choice, 0.2)
    query = choice.query("edge", Photo(LARGE, UPLOAD), None)
    assert isinstance(query.content, Features)
    assert query.content.source_size == (1200, 1200)
    assert query.scale == (1.0, 1.0)


def test_each_tier_has_a_link_of_its_own() -> None:
    choice = offloading()
    teach(choice, 0.5, tier="cloud")
    teach(choice, 1000.0, tier="edge", features_ms=300.0)
    assert isinstance(choice.query("cloud", Photo(LARGE, UPLOAD), None).content, Features)
    assert isinstance(choice.query("edge", Photo(LARGE, UPLOAD), None).content, bytes)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -5.0])
def test_times_that_cannot_be_are_ignored(value: float) -> None:
    choice = offloading()
    for _ in range(10):
        choice.observe("edge", IMAGE, 1000, value, Hop("edge", 0.0, value, 0.0, 1000, 10))
        choice.observe("edge", IMAGE, 1000, value, None)
    assert isinstance(choice.query("edge", Photo(SMALL, UPLOAD), None), Query)


def test_a_blank_wall_has_no_features_and_may_travel_in_any_form() -> None:
    wall = jpeg(np.full((240, 240, 3), 90, np.uint8))
    assert offloading().query("edge", Photo(wall, UPLOAD), extracted(400, wall)).content is not None
