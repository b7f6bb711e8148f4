"""Loading of images: accepted formats, refusals before decoding, and sizes."""

import struct
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearsight.common.errors import ImageTooLarge, InvalidImage, NearsightError, NotFound
from nearsight.common.recognition.image_header import declared_size
from nearsight.common.recognition.images import load_colour, load_image
from nearsight.common.recognition.settings import ImageLimits
from nearsight.experiments.bench.attacks import many_scans_jpeg
from support.pictures import SIDE_PX, bomb_png, jpeg, picture

WIDE = cv2.resize(picture(1), (301, 200))
ENCODINGS = {
    "jpeg": (".jpg", []),
    "progressive jpeg": (".jpg", [cv2.IMWRITE_JPEG_PROGRESSIVE, 1]),
    "jpeg with restarts": (".jpg", [cv2.IMWRITE_JPEG_RST_INTERVAL, 3]),
    "png": (".png", []),
    "webp": (".webp", [cv2.IMWRITE_WEBP_QUALITY, 80]),
    "lossless webp": (".webp", [cv2.IMWRITE_WEBP_QUALITY, 101]),
}


def encoded(name: str, pixels: np.ndarray = WIDE) -> bytes:
    extension, parameters = ENCODINGS[name]
    return cv2.imencode(extension, pixels, parameters)[1].tobytes()


def with_orientation(data: bytes, orientation: int) -> bytes:
    """A JPEG with an EXIF segment that states the orientation of the camera."""
    entry = struct.pack("<HHIHH", 0x0112, 3, 1, orientation, 0)
    tiff = b"II*\x00" + struct.pack("<IH", 8, 1) + entry + struct.pack("<I", 0)
    body = b"Exif\x00\x00" + tiff
    return data[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + data[2:]


@pytest.mark.parametrize("name", ENCODINGS)
def test_the_size_of_every_known_format_is_read(name: str) -> None:
    assert declared_size(encoded(name)) == (301, 200)
    image = load_image(encoded(name))
    assert image.source_size == image.size == (301, 200)
    assert image.pixels.dtype == np.uint8


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("kept", [3, 11, 29, 0.1, 0.5, 0.9, -1])
def test_a_truncated_file_is_refused(name: str, kept: float) -> None:
    whole = encoded(name)
    cut = whole[: int(kept * len(whole)) if isinstance(kept, float) else kept]
    with pytest.raises(InvalidImage):
        load_image(cut)


def test_a_truncated_jpeg_with_a_thumbnail_is_refused() -> None:
    thumbnail = jpeg(picture(2, side=48))
    whole = encoded("jpeg")
    with_thumbnail = whole[:2] + b"\xff\xe1" + struct.pack(">H", len(thumbnail) + 2) + thumbnail + whole[2:]
    assert load_image(with_thumbnail).size == (301, 200)
    with pytest.raises(InvalidImage, match="truncated"):
        load_image(with_thumbnail[:-50])


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00" * 500, b"GIF89a" + b"\x01" * 50, b"BM" + b"\x01" * 80, b"%PDF-1.7", "é".encode() * 99],
)
def test_data_of_unknown_formats_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidImage) as caught:
        load_image(data)
    assert "JPEG, PNG or WebP" in caught.value.advice


def test_a_decompression_bomb_is_refused_by_its_header() -> None:
    with pytest.raises(ImageTooLarge, match="30000 x 30000"):
        load_image(bomb_png())


def test_a_jpeg_with_a_false_size_in_its_header_is_refused() -> None:
    data = bytearray(encoded("jpeg"))
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = struct.pack(">HH", 65000, 65000)
    with pytest.raises(ImageTooLarge):
        load_image(bytes(data))


def test_a_jpeg_with_two_sizes_or_too_many_scans_is_refused() -> None:
    data = encoded("jpeg")
    frame = data.index(b"\xff\xc0")
    length = struct.unpack_from(">H", data, frame + 2)[0]
    segment = data[frame : frame + 2 + length]
    with pytest.raises(InvalidImage, match="two sizes"):
        load_image(data[:frame] + segment + data[frame:])
    scan = data.index(b"\xff\xda")
    empty_scan = data[scan : scan + 2 + struct.unpack_from(">H", data, scan + 2)[0]]
    with pytest.raises(InvalidImage, match="scans"):
        load_image(data[:scan] + empty_scan * 101 + data[scan:])


def test_a_small_jpeg_of_many_scans_is_refused_before_they_are_decoded() -> None:
    with pytest.raises(ImageTooLarge, match="86 scans of 7000 x 7000"):
        load_image(many_scans_jpeg(7000, 7000, scans=86))
    assert load_image(many_scans_jpeg(4000, 3000, scans=10)).source_size == (4000, 3000)


def test_too_many_markers_or_chunks_are_refused() -> None:
    with pytest.raises(InvalidImage, match="segments"):
        load_image(b"\xff\xd8" + b"\xff\x01" * 60_000)
    png = encoded("png")
    flood = png[:33] + struct.pack(">I4sI", 0, b"teSt", 0) * 60_000 + png[33:]
    with pytest.raises(InvalidImage, match="chunks"):
        load_image(flood)


def test_more_bytes_than_allowed_are_refused_for_bytes_and_for_files(tmp_path: Path) -> None:
    limits = ImageLimits(max_bytes=100)
    path = tmp_path / "photo.jpg"
    path.write_bytes(encoded("jpeg"))
    for source in (encoded("jpeg"), path):
        with pytest.raises(ImageTooLarge, match="limit is 100"):
            load_image(source, limits)


def test_a_path_is_read_and_a_missing_one_is_not_found(tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(encoded("jpeg"))
    assert np.array_equal(load_image(path).pixels, load_image(str(path)).pixels)
    for missing in (tmp_path / "none.jpg", tmp_path, "a\x00b"):
        with pytest.raises(NotFound):
            load_image(missing)


def test_bytes_bytearray_and_memoryview_are_the_same_image() -> None:
    data = encoded("png")
    images = [load_image(source).pixels for source in (data, bytearray(data), memoryview(data))]
    assert all(np.array_equal(images[0], other) for other in images)


@pytest.mark.parametrize(
    ("array", "advice"),
    [
        (np.zeros((10, 10), np.float32), r"\(image \* 255\).clip"),
        (np.full((10, 10, 3), 200.0), r"\(image\).clip"),
        (np.zeros((10, 10), np.uint16), "// 257"),
        (np.zeros((10, 10), np.int64), r"\(image\).clip"),
        (np.zeros((10, 10), bool), "mask"),
        (np.zeros((10,), np.uint8), "rows and columns"),
        (np.zeros((0, 10), np.uint8), "with pixels"),
        (np.array([]), "with pixels"),
        (np.zeros((10, 10, 1), np.uint8), r"image\[:, :, 0\]"),
        (np.zeros((1, 10, 10), np.uint8), r"image\[0\]"),
        (np.zeros((3, 10, 10), np.float32), r"transpose\(1, 2, 0\)"),
        (np.zeros((10, 10, 7), np.uint8), "rows and columns"),
        (np.zeros((2, 10, 10, 3), np.uint8), "for image in batch"),
    ],
)
def test_arrays_of_another_shape_or_type_are_refused_with_advice(array: np.ndarray, advice: str) -> None:
    with pytest.raises(InvalidImage, match=advice) as raised:
        load_image(array)
    assert "\n" not in str(raised.value)


def test_the_fourth_channel_of_an_array_is_ignored() -> None:
    colours = picture(1)
    with_alpha = np.dstack([colours, np.zeros(colours.shape[:2], np.uint8)])
    assert np.array_equal(load_colour(with_alpha).pixels, load_colour(colours).pixels)
    assert np.array_equal(load_image(with_alpha).pixels, load_image(colours).pixels)


def test_an_array_over_the_pixel_limit_is_refused() -> None:
    with pytest.raises(ImageTooLarge):
        load_image(np.zeros((100, 100), np.uint8), ImageLimits(max_pixels=9_999))


def test_an_image_source_of_another_type_is_refused() -> None:
    with pytest.raises(InvalidImage, match="int"):
        load_image(7)  # type: ignore[arg-type]


def test_a_large_array_is_scaled_with_its_aspect_kept() -> None:
    image = load_image(np.zeros((1000, 2000, 3), np.uint8))
    assert image.size == (640, 320)
    assert image.source_size == (2000, 1000)


def test_an_array_that_is_a_view_of_another_is_accepted() -> None:
    image = load_image(np.asfortranarray(picture(1))[::2, ::-1])
    assert image.pixels.flags.c_contiguous
    assert image.size == (SIDE_PX, SIDE_PX / 2)


def test_a_small_image_is_not_enlarged() -> None:
    assert load_image(np.zeros((1, 1), np.uint8)).size == (1, 1)
    assert load_image(np.zeros((1, 5000), np.uint8)).size == (640, 1)


@pytest.mark.parametrize(
    ("orientation", "upright"), [(1, (301, 200)), (3, (301, 200)), (6, (200, 301)), (8, (200, 301))]
)
def test_exif_orientation_is_applied_to_pixels_and_source_size(
    orientation: int, upright: tuple[int, int]
) -> None:
    image = load_image(with_orientation(encoded("jpeg"), orientation))
    assert image.source_size == image.size == upright
    turned = {3: cv2.ROTATE_180, 6: cv2.ROTATE_90_CLOCKWISE, 8: cv2.ROTATE_90_COUNTERCLOCKWISE}
    plain = load_image(encoded("jpeg")).pixels
    expected = cv2.rotate(plain, turned[orientation]) if orientation in turned else plain
    assert np.abs(image.pixels.astype(int) - expected).mean() < 3


@pytest.mark.parametrize("name", ["jpeg", "png", "webp"])
@pytest.mark.parametrize("size", [(2600, 130), (1003, 1501), (1301, 1300), (6007, 5), (1, 1301)])
def test_a_large_image_of_any_format_and_proportions_keeps_its_source_size(
    name: str, size: tuple[int, int]
) -> None:
    pixels = cv2.resize(picture(3), size)
    data = encoded(name, pixels)
    image = load_colour(data)
    assert image.source_size == load_image(data).source_size == size
    assert max(image.size) == 640
    if name == "jpeg":
        assert load_image(with_orientation(data, 6)).source_size == size[::-1]
    if name == "png":
        assert (image.pixels == load_colour(pixels).pixels).all(), "as free of noise as the array"


def test_decoding_at_a_reduced_size_shows_the_same_picture() -> None:
    large = cv2.resize(picture(4), (2600, 2600))
    from_file, from_array = load_image(jpeg(large)).pixels, load_image(large).pixels
    assert np.abs(from_file.astype(int) - from_array).mean() < 4


@settings(max_examples=150)
@given(st.data())
def test_damaged_files_give_an_image_or_a_typed_error(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(ENCODINGS)))
    damaged = bytearray(encoded(name, picture(5, side=48)))
    for _ in range(data.draw(st.integers(1, 8))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert load_image(bytes(damaged)).pixels.size > 0
    except NearsightError as error:
        assert isinstance(error, InvalidImage | ImageTooLarge)
