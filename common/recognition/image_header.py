"""Reads what an image file declares, without decoding it.

A decoder trusts the header: a few kilobytes that declare 60,000 x 60,000 pixels make it allocate gigabytes.
So only formats whose header is read here reach it. The walk also finds files that end too early, which the
JPEG decoder of OpenCV fills with grey without an error.
"""

from __future__ import annotations

from nearsight.common.errors import InvalidImage

_JPEG_SOI = b"\xff\xd8\xff"
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_JPEG_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
_JPEG_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD8)})


def declared_size(data: bytes) -> tuple[int, int]:
    """Width and height that a JPEG, PNG or WebP file declares, as stored (before any EXIF rotation).

    Raises
    ------
    InvalidImage
        If the data are none of these formats, or end before the image does.
    """
    if data.startswith(_JPEG_SOI):
        return _jpeg_size(data)
    if data.startswith(_PNG_SIGNATURE):
        return _png_size(data)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _webp_size(data)
    raise InvalidImage(
        f"these {len(data)} bytes are no image of a known format", advice="send a JPEG, PNG or WebP file"
    )


def _truncated(kind: str, size: int) -> InvalidImage:
    return InvalidImage(f"the {kind} file is truncated after {size} bytes", advice="send the whole file")


def _jpeg_size(data: bytes) -> tuple[int, int]:
    position, size = 2, None
    while position + 4 <= len(data):
        if data[position] != 0xFF:
            raise InvalidImage("the JPEG file is damaged", advice="send the original file")
        marker = data[position + 1]
        if marker == 0xFF:  # fill byte
            position += 1
            continue
        if marker in _JPEG_WITHOUT_LENGTH:
            position += 2
            continue
        length = int.from_bytes(data[position + 2 : position + 4])
        if marker in _JPEG_FRAMES:
            frame = data[position + 5 : position + 9]
            if len(frame) < 4:
                break
            size = (int.from_bytes(frame[2:]), int.from_bytes(frame[:2]))
        position += 2 + length
        if marker == 0xDA:
            position = _end_of_scan(data, position)
            if data[position : position + 2] == b"\xff\xd9":
                return _positive(size, "JPEG")
    if data[position : position + 2] == b"\xff\xd9":
        return _positive(size, "JPEG")
    raise _truncated("JPEG", len(data))


def _end_of_scan(data: bytes, position: int) -> int:
    """Position of the first marker after entropy-coded data, where 0xFF00 and restarts are data."""
    while (position := data.find(b"\xff", position)) >= 0 and position + 1 < len(data):
        marker = data[position + 1]
        if marker not in (0x00, 0xFF) and not 0xD0 <= marker <= 0xD7:
            return position
        position += 1 if marker == 0xFF else 2
    return len(data)


def _png_size(data: bytes) -> tuple[int, int]:
    if len(data) < 33 or data[12:16] != b"IHDR":
        raise _truncated("PNG", len(data))
    size = (int.from_bytes(data[16:20]), int.from_bytes(data[20:24]))
    position = len(_PNG_SIGNATURE)
    while position + 12 <= len(data):
        if data[position + 4 : position + 8] == b"IEND":
            return _positive(size, "PNG")
        position += 12 + int.from_bytes(data[position : position + 4])
    raise _truncated("PNG", len(data))


def _webp_size(data: bytes) -> tuple[int, int]:
    if len(data) < 30 or len(data) < 8 + int.from_bytes(data[4:8], "little"):
        raise _truncated("WebP", len(data))
    kind = data[12:16]
    if kind == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        width, height = int.from_bytes(data[26:28], "little"), int.from_bytes(data[28:30], "little")
        return _positive((width & 0x3FFF, height & 0x3FFF), "WebP")
    raise InvalidImage("the WebP file is damaged", advice="send the original file")


def _positive(size: tuple[int, int] | None, kind: str) -> tuple[int, int]:
    if size is None or min(size) < 1:
        raise InvalidImage(f"the {kind} file declares no pixels", advice="send the original file")
    return size
