"""Images of applications: accepted unchanged, or refused with advice."""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from nearsight.common.errors import ImageTooLarge, InvalidImage
from nearsight.common.recognition.settings import ImageLimits
from nearsight.device.image_sources import snapshot
from support.pictures import jpeg, picture, picture_jpeg

LIMITS = ImageLimits()
COLOURS = picture(1, side=64)


def taken(image: object, limits: ImageLimits = LIMITS) -> object:
    return snapshot(image, limits)


def pillow(pixels: NDArray[np.uint8] = COLOURS) -> Image.Image:
    """Convert pixels in OpenCV's order to a Pillow image."""
    return Image.fromarray(np.ascontiguousarray(pixels[..., ::-1]))


def test_the_application_may_reuse_its_buffers_immediately() -> None:
    frame, raw, canvas = np.ones((4, 4), np.uint8), bytearray(b"abc"), pillow()
    taken_frame, taken_raw, taken_view, taken_canvas = map(taken, (frame, raw, memoryview(raw), canvas))
    frame[:], raw[:] = 0, b"xyz"
    canvas.paste((0, 0, 0), (0, 0, 64, 64))
    assert np.all(taken_frame == 1)
    assert taken_raw == taken_view == b"abc"
    assert np.array_equal(taken_canvas, COLOURS)


@pytest.mark.parametrize("image", [3, ["photo.jpg"], object()])
def test_objects_of_other_types_are_a_programming_error(image: object) -> None:
    with pytest.raises(TypeError, match="an image is bytes, a path, an array"):
        taken(image)


def test_a_missing_frame_of_a_camera_is_reported() -> None:
    with pytest.raises(TypeError, match=r"VideoCapture\.read give if they fail"):
        taken(None)


def test_arrays_of_other_libraries_are_refused_with_advice() -> None:
    class Tensor:
        def __array__(self) -> NDArray[np.uint8]:
            return COLOURS

    with pytest.raises(TypeError, match=r"not Tensor: numpy.asarray\(image\)"):
        taken(Tensor())


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "CMYK", "P", "L", "LA", "1"])
def test_images_of_pillow_are_taken_without_their_transparency(mode: str) -> None:
    pixels = taken(pillow().convert(mode))
    assert isinstance(pixels, np.ndarray)
    assert pixels.shape == ((64, 64) if mode in {"L", "LA", "1"} else (64, 64, 3))
    if mode in {"RGB", "RGBA"}:
        assert np.array_equal(pixels, COLOURS)


def test_an_image_of_pillow_is_turned_upright() -> None:
    turned = pillow(COLOURS[:, :32]).transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = 6
    file = io.BytesIO()
    turned.save(file, "PNG", exif=exif)
    file.seek(0)
    assert np.array_equal(taken(Image.open(file)), COLOURS[:, :32])


@pytest.mark.parametrize("mode", ["F", "I", "I;16"])
def test_a_pillow_image_without_8_bits_is_refused_with_advice(mode: str) -> None:
    refused = taken(Image.new(mode, (8, 8)))
    assert isinstance(refused, InvalidImage)
    assert "astype('uint8')" in refused.advice


def test_a_damaged_file_that_pillow_opened_is_no_image() -> None:
    refused = taken(Image.open(io.BytesIO(picture_jpeg(1)[:2000])))
    assert isinstance(refused, InvalidImage)
    assert "Pillow cannot decode" in refused.message


def test_an_image_of_pillow_with_too_many_pixels_is_not_decoded() -> None:
    assert isinstance(taken(pillow(), ImageLimits(max_pixels=4095)), ImageTooLarge)


def test_pillow_is_not_imported_unless_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "PIL.Image")
    assert np.array_equal(taken(COLOURS), COLOURS)
    assert "PIL.Image" not in sys.modules


class Raw(io.RawIOBase):
    """A file that returns a few bytes per read."""

    def __init__(self, content: bytes) -> None:
        self._content = io.BytesIO(content)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        return self._content.readinto(memoryview(buffer)[:100])


@pytest.mark.parametrize("opened", [io.BytesIO, Raw])
def test_binary_files_are_read_to_their_end(opened: Callable[[bytes], io.IOBase]) -> None:
    photo = jpeg(COLOURS)
    assert taken(opened(photo)) == photo


def test_an_open_file_is_read_from_its_position(tmp_path: Path) -> None:
    (tmp_path / "mail").write_bytes(b"headers" + jpeg(COLOURS))
    with (tmp_path / "mail").open("rb") as file:
        file.seek(7)
        assert taken(file) == jpeg(COLOURS)


def test_a_file_at_its_end_is_reported() -> None:
    file = io.BytesIO()
    file.write(jpeg(COLOURS))
    refused = taken(file)
    assert isinstance(refused, InvalidImage)
    assert "seek(0)" in refused.advice


def test_no_more_is_read_of_a_file_than_shows_that_it_is_too_long() -> None:
    file = io.BytesIO(bytes(1000))
    assert len(taken(file, ImageLimits(max_bytes=100))) == 101
    assert file.tell() == 101


def test_a_file_of_text_or_one_to_be_awaited_is_a_programming_error() -> None:
    class Upload:
        async def read(self, size: int) -> bytes:
            return bytes(size)

    with pytest.raises(TypeError, match="gives str, not bytes"):
        taken(io.StringIO("photo"))
    with pytest.raises(TypeError, match="must be awaited"):
        taken(Upload())


def test_pixels_with_transparency_are_read_as_opencv_reads_such_a_file() -> None:
    cut_out = np.dstack([COLOURS, np.zeros((64, 64), np.uint8)])
    file = cv2.imencode(".png", cut_out)[1].tobytes()
    assert np.array_equal(cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR), COLOURS)
