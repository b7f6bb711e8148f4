"""Photos made ready for the network: what passes unchanged, what is scaled, what is refused."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from nearsight.common.errors import ImageTooLarge, InvalidArgument, InvalidImage, NotFound
from nearsight.common.recognition.results import RecognizedObject
from nearsight.device.query import Query, prepare_query, snapshot
from nearsight.device.recognizer_settings import UploadSettings
from support.pictures import bomb_png, broken_images, jpeg, picture

SETTINGS = UploadSettings(longest_side=320, pass_through_bytes=100_000)


def content(query: Query) -> bytes:
    assert isinstance(query.content, bytes)
    return query.content


def size(data: bytes) -> tuple[int, int]:
    height, width = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE).shape
    return width, height


@pytest.mark.parametrize("extension", [".jpg", ".png", ".webp"])
def test_a_small_file_travels_unchanged(extension: str) -> None:
    data = cv2.imencode(extension, picture(1, side=240))[1].tobytes()
    query = prepare_query(data, SETTINGS)
    assert query.content is data
    assert query.scale == (1.0, 1.0)


def test_a_file_with_many_pixels_is_scaled_to_the_longest_side() -> None:
    data = jpeg(cv2.resize(picture(1), (1200, 900)))
    query = prepare_query(data, SETTINGS)
    assert size(content(query)) == (320, 240)
    assert query.scale == pytest.approx((3.75, 3.75))
    assert len(content(query)) < len(data)


def test_a_file_with_many_bytes_is_encoded_anew_at_its_size() -> None:
    noise = np.random.default_rng(1).integers(0, 256, (300, 300, 3)).astype(np.uint8)
    data = cv2.imencode(".png", noise)[1].tobytes()
    query = prepare_query(data, SETTINGS)
    assert content(query).startswith(b"\xff\xd8")
    assert size(content(query)) == (300, 300)
    assert query.scale == (1.0, 1.0)


@pytest.mark.parametrize("shape", [(200, 300, 3), (200, 300)])
def test_an_array_becomes_a_jpeg(shape: tuple[int, ...]) -> None:
    pixels = np.full(shape, 99, np.uint8)
    query = prepare_query(pixels, SETTINGS)
    assert size(content(query)) == (300, 200)
    assert query.scale == (1.0, 1.0)


def test_a_path_is_read(tmp_path: Path) -> None:
    data = jpeg(picture(2))
    (tmp_path / "photo.jpg").write_bytes(data)
    assert prepare_query(tmp_path / "photo.jpg", SETTINGS).content == data


def test_corners_are_scaled_back_to_the_image_that_the_application_gave() -> None:
    query = prepare_query(np.zeros((1000, 640, 3), np.uint8), SETTINGS)
    width, height = size(content(query))
    found = RecognizedObject("a", "A", 1, 0.5, 20, ((0, 0), (width, 0), (width, height), (0, height)))
    assert np.allclose(query.in_source(found).corners, [(0, 0), (640, 0), (640, 1000), (0, 1000)])


@pytest.mark.parametrize("kind", ["empty", "truncated", "no image"])
def test_what_is_no_image_is_refused_before_anything_is_sent(kind: str) -> None:
    with pytest.raises(InvalidImage):
        prepare_query(broken_images()[kind], SETTINGS)


def test_a_bomb_is_refused_without_decoding_it() -> None:
    with pytest.raises(ImageTooLarge):
        prepare_query(bomb_png(), SETTINGS)


def test_files_over_the_limit_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "large.jpg").write_bytes(b"\xff" * 2000)
    with pytest.raises(ImageTooLarge):
        prepare_query(tmp_path / "large.jpg", UploadSettings(max_bytes=1000))


def test_a_missing_file_and_a_folder_are_not_found(tmp_path: Path) -> None:
    for path in (tmp_path / "none.jpg", tmp_path, Path("a\0b")):
        with pytest.raises(NotFound):
            prepare_query(path, SETTINGS)


@pytest.mark.parametrize(
    "array", [np.zeros((0, 5), np.uint8), np.zeros((5, 5), np.float32), np.zeros((5, 5, 4), np.uint8)]
)
def test_arrays_of_another_form_are_refused(array: np.ndarray) -> None:
    with pytest.raises(InvalidArgument):
        prepare_query(array, SETTINGS)


def test_the_application_may_reuse_its_buffers_at_once() -> None:
    frame, raw = np.ones((4, 4), np.uint8), bytearray(b"abc")
    taken_frame, taken_raw, taken_view = snapshot(frame), snapshot(raw), snapshot(memoryview(raw))
    frame[:], raw[:] = 0, b"xyz"
    assert np.all(taken_frame == 1)
    assert taken_raw == taken_view == b"abc"


@pytest.mark.parametrize("image", [None, 3, ["photo.jpg"], object()])
def test_what_could_never_be_an_image_is_a_programming_error(image: object) -> None:
    with pytest.raises(TypeError):
        snapshot(image)
