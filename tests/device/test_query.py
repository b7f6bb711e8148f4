"""Photos prepared for the network: unchanged, scaled, or refused."""

from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import pytest

from nearsight.common.clock import SYSTEM_CLOCK, ManualClock
from nearsight.common.errors import ImageTooLarge, InvalidArgument, InvalidImage, NotFound
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.common.request.answer import Answer
from nearsight.common.request.effects import Encode, Extract
from nearsight.common.request.forms import FEATURES, IMAGE
from nearsight.device.image_sources import QuerySource
from nearsight.device.query import DeviceQuery, QueryContext
from nearsight.device.recognizer_settings import UploadSettings
from support.pictures import bomb_png, broken_images, jpeg, picture

SETTINGS = UploadSettings(longest_side=320, pass_through_bytes=100_000)


class EncodedImage(NamedTuple):
    """A file that is sent, and the corner (1, 1) of it in pixels of the application's image."""

    data: bytes
    scale: tuple[float, float]


def encoded(image: QuerySource, settings: UploadSettings = SETTINGS) -> EncodedImage:
    """The image as sent by a device without local recognition."""
    query = DeviceQuery(image, QueryContext(settings, SYSTEM_CLOCK))
    (payload,) = query.payloads(1)
    assert payload.form == IMAGE
    work = query.missing(IMAGE)
    if work is not None:
        query.do(work)
    data = query.content(IMAGE)
    assert isinstance(data, bytes)
    found = RecognizedObject("a", "A", 1, 0.5, 20, ((0, 0), (1, 0), (1, 1), (0, 1)))
    return EncodedImage(data, query.answered(Answer(found, "edge"), IMAGE).found.corners[2])


def size(data: bytes) -> tuple[int, int]:
    height, width = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE).shape
    return width, height


@pytest.mark.parametrize("extension", [".jpg", ".png", ".webp"])
def test_a_small_file_travels_unchanged(extension: str) -> None:
    data = cv2.imencode(extension, picture(1, side=240))[1].tobytes()
    query = encoded(data)
    assert query.data is data
    assert query.scale == (1.0, 1.0)


def test_a_file_with_many_pixels_is_scaled_to_the_longest_side() -> None:
    data = jpeg(cv2.resize(picture(1), (1200, 900)))
    query = encoded(data)
    assert size(query.data) == (320, 240)
    assert query.scale == pytest.approx((3.75, 3.75))
    assert len(query.data) < len(data)


def test_a_file_with_many_bytes_is_encoded_again_at_its_size() -> None:
    noise = np.random.default_rng(1).integers(0, 256, (300, 300, 3)).astype(np.uint8)
    data = cv2.imencode(".png", noise)[1].tobytes()
    query = encoded(data)
    assert query.data.startswith(b"\xff\xd8")
    assert size(query.data) == (300, 300)
    assert query.scale == (1.0, 1.0)


@pytest.mark.parametrize("shape", [(200, 300, 3), (200, 300)])
def test_an_array_becomes_a_jpeg(shape: tuple[int, ...]) -> None:
    pixels = np.full(shape, 99, np.uint8)
    query = encoded(pixels)
    assert size(query.data) == (300, 200)
    assert query.scale == (1.0, 1.0)


def test_a_path_is_read(tmp_path: Path) -> None:
    data = jpeg(picture(2))
    (tmp_path / "photo.jpg").write_bytes(data)
    assert encoded(tmp_path / "photo.jpg").data == data


def test_corners_are_scaled_back_to_the_image_that_the_application_gave() -> None:
    query = DeviceQuery(np.zeros((1000, 640, 3), np.uint8), QueryContext(SETTINGS, SYSTEM_CLOCK))
    query.do(Encode())
    width, height = size(bytes(query.content(IMAGE)))  # type: ignore[arg-type]
    found = RecognizedObject("a", "A", 1, 0.5, 20, ((0, 0), (width, 0), (width, height), (0, height)))
    corners = query.answered(Answer(found, "edge"), IMAGE).found.corners
    assert np.allclose(corners, [(0, 0), (640, 0), (640, 1000), (0, 1000)])


@pytest.mark.parametrize(
    ("image", "error"),
    [
        *((broken_images()[kind], InvalidImage) for kind in ("empty", "truncated", "no image")),
        (bomb_png(), ImageTooLarge),
        (np.zeros((0, 5), np.uint8), InvalidArgument),
        (np.zeros((5, 5), np.float32), InvalidArgument),
        (Path("none.jpg"), NotFound),
        (Path(), NotFound),
        (Path("a\0b"), NotFound),
    ],
)
def test_invalid_images_are_refused_before_sending(image: QuerySource, error: type[Exception]) -> None:
    with pytest.raises(error):
        encoded(image)


def test_files_over_the_limit_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "large.jpg").write_bytes(b"\xff" * 2000)
    with pytest.raises(ImageTooLarge):
        encoded(tmp_path / "large.jpg", UploadSettings(max_bytes=1000))


# A device that recognises by itself

RECOGNITION = RecognitionSettings(query_features=400)
SMALL = jpeg(picture(1))


def context() -> QueryContext:
    return QueryContext(UploadSettings(), ManualClock(), RECOGNITION)


def test_features_of_a_lookup_are_sent_if_their_number_matches() -> None:
    query = DeviceQuery(SMALL, context())
    work = query.missing_features(400)
    assert work == Extract(400)
    query.do(work)
    assert query.missing_features(400) is None
    assert query.missing(FEATURES) is None
    features = query.content(FEATURES)
    assert features is query.features(400)
    sizes = {payload.form: (payload.size_bytes, payload.before_ms) for payload in query.payloads(1)}
    assert sizes == {IMAGE: (len(SMALL), 0.0), FEATURES: (len(features) * 38, 0.0)}


def test_features_of_a_fast_lookup_are_never_sent() -> None:
    query = DeviceQuery(SMALL, context())
    query.do(Extract(200))
    assert {payload.form: payload.size_bytes for payload in query.payloads(15_000)}[FEATURES] == 15_000
    work = query.missing(FEATURES)
    assert work == Extract(400)
    query.do(work)
    assert len(query.content(FEATURES)) > 200


def test_features_of_an_application_are_always_sent_as_features() -> None:
    features = DeviceQuery(SMALL, context())
    features.do(Extract(400))
    query = DeviceQuery(features.features(400), context())
    assert not query.has_image
    assert [payload.form for payload in query.payloads(1)] == [FEATURES]
    assert query.missing_features(200) is query.missing(FEATURES) is None
    assert len(query.features(200)) == 200


def test_a_blank_wall_has_no_features_and_may_travel_in_any_form() -> None:
    query = DeviceQuery(jpeg(np.full((240, 240, 3), 90, np.uint8)), context())
    query.do(Extract(400))
    assert query.missing(FEATURES) is query.missing(IMAGE) is None
    assert len(query.content(FEATURES)) == 0


def test_encoding_and_extraction_are_measured() -> None:
    clock = ManualClock()
    queries = QueryContext(UploadSettings(), clock, RECOGNITION)
    before = queries.costs.encode_ms, queries.costs.extract_ms
    query = DeviceQuery(picture(1, side=1200), queries)
    assert query.missing(IMAGE) == Encode()
    query.do(Encode())
    work = query.missing(FEATURES)
    assert work is not None
    query.do(work)
    after = queries.costs.encode_ms, queries.costs.extract_ms
    assert after == pytest.approx((0.8 * before[0], 0.8 * before[1])), "the clock stood still"
    assert query.content(FEATURES).source_size == (1200, 1200)
