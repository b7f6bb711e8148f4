"""Reads the size that an image file declares, without decoding the file.

Decoders trust the header. A file of a few kilobytes that declares 60,000 x 60,000 pixels makes a decoder
allocate gigabytes; 100 KB with 86 empty scans of 50 megapixels keep it busy for seconds. So only files whose
header was validated here are decoded. This check also detects truncated files, which OpenCV's JPEG decoder
fills with grey without reporting an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nearsight.common.errors import ImageTooLarge, InvalidImage

JPEG_SOI = b"\xff\xd8\xff"
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_JPEG_EOI = b"\xff\xd9"
_JPEG_SCAN = 0xDA
_JPEG_MARKER_IN_SCAN = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
"""Ends entropy-coded data. Not markers: 0xFF00 (a data byte), 0xFFD0 to 0xFFD7 (restarts), 0xFFFF (fill)."""
_JPEG_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
_JPEG_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD8)})


_MAX_PARTS = 50_000
"""Maximum number of JPEG segments or PNG chunks. A 20 MB PNG in chunks of 8 KB has 2500."""
_MAX_SCANS = 100
"""Maximum number of JPEG scans. Progressive JPEGs have about ten; even empty ones cost a pass over all
pixels."""
_MAX_SCANNED_PIXELS = 250_000_000
"""Maximum of scans times pixels of a JPEG: ten scans of 25 megapixels. The decoder cannot be interrupted. It
takes 0.6 ns per pixel of an empty scan and 1.5 ns in photos, so at most about 0.4 s."""


def declared_size(data: bytes) -> tuple[int, int]:
    """Width and height that a JPEG, PNG or WebP file declares, as stored (before any EXIF rotation).

    Raises
    ------
    InvalidImage
        If the data have none of these formats, declare no pixels, have too many parts or scans, or are
        truncated or damaged.
    ImageTooLarge
        If a JPEG has too many scans times pixels to be decoded in reasonable time.
    """
    if data.startswith(JPEG_SOI):
        kind, size = "JPEG", _jpeg_size(data)
    elif data.startswith(_PNG_SIGNATURE):
        kind, size = "PNG", _png_size(data)
    elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind, size = "WebP", _webp_size(data)
    else:
        raise InvalidImage(
            f"these {len(data)} bytes are not an image of a known format",
            advice="send a JPEG, PNG or WebP file",
        )
    if min(size) < 1:
        raise InvalidImage(f"the {kind} file declares no pixels", advice="send the original file")
    return size


def _truncated(kind: str, size: int) -> InvalidImage:
    return InvalidImage(f"the {kind} file is truncated after {size} bytes", advice="send the whole file")


def _jpeg_size(data: bytes) -> tuple[int, int]:
    size, scans = None, 0
    for marker, body in _jpeg_segments(data):
        if marker in _JPEG_FRAMES:
            if size is not None:
                raise InvalidImage("the JPEG file declares two sizes", advice="send the original file")
            size = (int.from_bytes(data[body + 3 : body + 5]), int.from_bytes(data[body + 1 : body + 3]))
        scans += marker == _JPEG_SCAN
        if scans > _MAX_SCANS:
            raise InvalidImage(f"the JPEG file has more than {_MAX_SCANS} scans", advice="save it again")
    width, height = size or (0, 0)
    if scans * width * height > _MAX_SCANNED_PIXELS:
        raise ImageTooLarge(
            f"the JPEG file has {scans} scans of {width} x {height} pixels, "
            f"the limit is {_MAX_SCANNED_PIXELS} pixels in all scans",
            advice="save it without progressive scans, or scale it down",
        )
    return width, height


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, int]]:
    """Marker and start of the body of each segment up to the end of the image, which must be complete."""
    position = 2
    for _ in range(_MAX_PARTS):
        if data[position : position + 2] == _JPEG_EOI:
            return
        if position + 4 > len(data):
            raise _truncated("JPEG", len(data))
        if data[position] != 0xFF:
            raise InvalidImage("the JPEG file is damaged", advice="send the original file")
        marker = data[position + 1]
        if marker == 0xFF:  # a fill byte
            position += 1
        elif marker in _JPEG_WITHOUT_LENGTH:
            position += 2
        else:
            yield marker, position + 4
            position += 2 + int.from_bytes(data[position + 2 : position + 4])
            if marker == _JPEG_SCAN:
                following = _JPEG_MARKER_IN_SCAN.search(data, position)
                position = following.start() if following else len(data)
    raise InvalidImage(f"the JPEG file has more than {_MAX_PARTS} segments", advice="save it again")


def _png_size(data: bytes) -> tuple[int, int]:
    if len(data) < 33 or data[12:16] != b"IHDR":
        raise _truncated("PNG", len(data))
    size = (int.from_bytes(data[16:20]), int.from_bytes(data[20:24]))
    position = len(_PNG_SIGNATURE)
    for _ in range(_MAX_PARTS):
        if position + 12 > len(data):
            raise _truncated("PNG", len(data))
        if data[position + 4 : position + 8] == b"IEND":
            return size
        position += 12 + int.from_bytes(data[position : position + 4])
    raise InvalidImage(f"the PNG file has more than {_MAX_PARTS} chunks", advice="save it again")


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
        return width & 0x3FFF, height & 0x3FFF
    raise InvalidImage("the WebP file is damaged", advice="send the original file")
