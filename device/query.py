"""A photo in the device: looked up here, or sent as a file of bounded size or as features.

Recognition works on grey images of at most 640 pixels, so only that is sent: a 12 megapixel photo of 5 MB
becomes about 40 KB. Files that are small already are not decoded here. A network needs colours and no
features; photos are sent in colour until an answer shows which kind a catalogue is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsight.common.clock import Clock
from nearsight.common.errors import InternalError, InvalidArgument, NearsightError
from nearsight.common.recognition.extraction import extract_features, side_px_for
from nearsight.common.recognition.image_header import declared_size
from nearsight.common.recognition.images import (
    ColourImage,
    GrayImage,
    Image,
    load_colour,
    load_image,
    read_image_file,
)
from nearsight.common.recognition.models import Features
from nearsight.common.recognition.settings import ImageLimits, RecognitionSettings
from nearsight.common.request.answer import NETWORK, Answer
from nearsight.common.request.effects import Encode, Extract, Work
from nearsight.common.request.forms import FEATURES, IMAGE, Payload
from nearsight.common.request.next_tiers import BYTES_PER_FEATURE
from nearsight.common.result_cache.image_keys import thumbnail_of
from nearsight.common.result_cache.stage import KEY_SIDE_PX, LookState
from nearsight.device.image_sources import QuerySource
from nearsight.device.prefetching.predictions import Prediction
from nearsight.device.prefetching.snapshots import LocalSnapshot
from nearsight.device.recognizer_settings import UploadSettings

_NEWEST_WEIGHT = 0.2

_I = TypeVar("_I", bound=Image)


class FormCosts:
    """Costs of preparing a photo in each form on this device, as running means. Thread-safe.

    Attributes
    ----------
    encode_ms, extract_ms : float
        Time to encode an image file, and to extract features.
    image_bytes : float
        Size of a file that is encoded here.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.encode_ms, self.image_bytes, self.extract_ms = 3.0, 40_000.0, 10.0

    def encoded(self, size_bytes: int, spent_ms: float) -> None:
        """Record that an image was encoded."""
        with self._lock:
            self.encode_ms += _NEWEST_WEIGHT * (spent_ms - self.encode_ms)
            self.image_bytes += _NEWEST_WEIGHT * (size_bytes - self.image_bytes)

    def extracted(self, spent_ms: float) -> None:
        """Record that features were extracted for a tier."""
        with self._lock:
            self.extract_ms += _NEWEST_WEIGHT * (spent_ms - self.extract_ms)

    def payloads(
        self, file_bytes: int | None, features_bytes: int, *, extracted: bool
    ) -> tuple[Payload, Payload]:
        """The payloads of a photo in both forms; ``file_bytes`` is None if it must be encoded."""
        with self._lock:
            image = (
                Payload(IMAGE, round(self.image_bytes), self.encode_ms)
                if file_bytes is None
                else Payload(IMAGE, file_bytes)
            )
            return image, Payload(FEATURES, features_bytes, 0.0 if extracted else self.extract_ms)


class QueryContext:
    """Shared state of all queries of a device.

    Parameters
    ----------
    upload : UploadSettings
        Preparation of photos for sending.
    clock : Clock
        Measures encoding and extraction.
    recognition : RecognitionSettings, optional
        Settings of a device that recognises itself. Other devices only send the given images or features.

    Attributes
    ----------
    network : bool, optional
        Whether a network answers for the catalogue; None before the first answer.
    """

    def __init__(
        self, upload: UploadSettings, clock: Clock, recognition: RecognitionSettings | None = None
    ) -> None:
        self.upload = upload
        self.clock = clock
        self.recognition = recognition
        self.costs = FormCosts()
        self.network: bool | None = None


class DeviceQuery:
    """A photo in the device: a `Query` of the request flow. Used by one thread at a time.

    Parameters
    ----------
    source : bytes, path, ndarray or Features
        Result of `snapshot`.
    context : QueryContext
        Settings and measurements.

    Raises
    ------
    NotFound, ImageTooLarge
        If it is a path that cannot be read, or a file that is too large.
    InvalidImage
        If it is not an image, or an incomplete one.
    """

    asked_again = False
    client = ""
    one_look = False

    def __init__(self, source: QuerySource, context: QueryContext) -> None:
        if isinstance(source, InvalidArgument):
            raise source
        self._context = context
        if isinstance(source, Path):
            source = read_image_file(source, ImageLimits(context.upload.max_bytes))
        self.source = source
        """The image, or its features."""
        self.has_image = not isinstance(source, Features)
        """Whether there is an image, and not only features that were extracted elsewhere."""
        self._image: bytes | None = None  # a file of bounded size
        self._scale = (1.0, 1.0)  # pixels of the application's image per pixel of the file, along x and y
        if (
            isinstance(self.source, bytes)
            and 0 < len(self.source) <= context.upload.pass_through_bytes  # else `load_image` checks it
            and max(declared_size(self.source)) <= context.upload.longest_side
        ):
            self._image = self.source
        self._decoded: dict[int, GrayImage] = {}
        self._features: Features | None = None
        self._asked_for = 0  # number requested; an image may have fewer features
        self._to_send = False
        self.snapshot: LocalSnapshot | None = None
        """The snapshot that answers this query on the device."""
        self.began_s = 0.0
        """Start of the work for a lookup."""
        self.lookup_features: Features | None = None
        """Features that the device looked up itself; a tier's answer names their object."""
        self.prediction: Prediction | None = None
        """The edge's prediction of the next objects."""
        self.result_look: LookState | None = None
        """State of the result cache for this query."""
        self.reused = 0.0
        """Share of execution time that a network on the device saved."""

    def payloads(self, features_bytes: int) -> Sequence[Payload]:
        """The possible forms for sending; ``features_bytes`` is the size of features not extracted yet."""
        if isinstance(self.source, Features):
            return (Payload(FEATURES, len(self.source) * BYTES_PER_FEATURE),)
        ready = self._complete_features()
        file_bytes = len(self._image) if self._image is not None else None
        if ready is not None:
            features_bytes = len(ready) * BYTES_PER_FEATURE
        both = self._context.costs.payloads(file_bytes, features_bytes, extracted=ready is not None)
        return both[:1] if self._context.network or self._context.recognition is None else both

    def missing(self, form: str) -> Work | None:
        """The work that is needed before it can be sent in this form."""
        if form == IMAGE:
            return Encode() if self._image is None else None
        recognition = self._context.recognition
        if recognition is None or not self.has_image or self._complete_features() is not None:
            return None
        self._to_send = True
        return Extract(recognition.query_features)

    def missing_features(self, count: int) -> Work | None:
        """The work that is needed before the device can look up this many features."""
        return Extract(count) if self.has_image and self._asked_for < count else None

    def do(self, work: Work) -> None:
        """Extract features, or encode the image.

        Raises
        ------
        InvalidImage, ImageTooLarge
            As `load_image`.
        """
        context, started_s = self._context, self._context.clock.monotonic()
        if isinstance(work, Encode):
            data = self._image = self._encoded()
            context.costs.encoded(len(data), (context.clock.monotonic() - started_s) * 1e3)
            return
        recognition = context.recognition
        if recognition is None:
            raise InternalError("this device does not extract features")
        pixels = self._gray(side_px_for(work.features, recognition))
        self._features = extract_features(pixels, work.features, recognition.fast_threshold)
        self._asked_for = work.features
        if self._to_send:
            context.costs.extracted((context.clock.monotonic() - started_s) * 1e3)

    def features(self, count: int) -> Features:
        """At most this many features, for a lookup."""
        if isinstance(self.source, Features):
            return self.source.strongest(count)
        if self._features is None:
            raise InternalError("features were not extracted")
        return self._features

    def content(self, form: str) -> bytes | Features:
        """The content to send."""
        if form == IMAGE and self._image is not None:
            return self._image
        features = self.source if isinstance(self.source, Features) else self._features
        if form != FEATURES or features is None:
            raise InternalError(f"a query is not ready to be sent as {form}")
        return features

    def thumbnail(self) -> bytes:
        """For tiers that want a thumbnail; empty without a readable image (the tier reports the error)."""
        if not self._context.upload.thumbnails:
            return b""
        with suppress(NearsightError):
            source = self.for_key()
            if isinstance(source, GrayImage):
                return thumbnail_of(source.pixels)
        return b""

    def answered(self, answer: Answer, form: str) -> Answer:
        """A tier's answer to this form, with its corners in pixels of the application's image.

        Its grain decides the form of the next photos.
        """
        self._context.network = answer.grain == NETWORK
        found, (across, down) = answer.found, self._scale
        if form != IMAGE or self._scale == (1.0, 1.0) or not (found and found.corners):
            return answer
        top_left, top_right, bottom_right, bottom_left = ((x * across, y * down) for x, y in found.corners)
        return replace(answer, found=replace(found, corners=(top_left, top_right, bottom_right, bottom_left)))

    def for_key(self) -> GrayImage | Features:
        """The photo, reduced; its features if the application passed features.

        Raises
        ------
        InvalidImage, ImageTooLarge
            As `load_image`.
        """
        source = self.source
        if isinstance(source, Features):
            return source
        if isinstance(source, np.ndarray) and source.ndim > 1:  # a subset of the pixels is enough
            step = max(1, max(source.shape[:2]) // (4 * KEY_SIDE_PX))
            source = source[::step, ::step]
        upload = self._context.upload
        return load_image(source, ImageLimits(upload.max_bytes, upload.max_pixels, KEY_SIDE_PX))

    def colour(self) -> ColourImage:
        """The photo in colour, in the size in which it is sent.

        Raises
        ------
        InvalidImage, ImageTooLarge
            As `load_image`.
        """
        return self._load(load_colour, self._context.upload.longest_side)

    def _gray(self, longest_side: int) -> GrayImage:
        """The pixels; decoded once per size."""
        if longest_side not in self._decoded:
            self._decoded[longest_side] = self._load(load_image, longest_side)
        return self._decoded[longest_side]

    def _load(self, load: Callable[[bytes | NDArray[np.uint8], ImageLimits], _I], longest_side: int) -> _I:
        """The pixels, with at most ``longest_side`` rows and columns."""
        if isinstance(self.source, Features):
            raise InternalError("features that were extracted elsewhere have no pixels")
        upload = self._context.upload
        return load(self.source, ImageLimits(upload.max_bytes, upload.max_pixels, longest_side))

    def _encoded(self) -> bytes:
        """The image file to send; notes its scale."""
        upload = self._context.upload
        image: Image = self._gray(upload.longest_side) if self._context.network is False else self.colour()
        self._scale = (image.source_size[0] / image.size[0], image.source_size[1] / image.size[1])
        encoded, data = cv2.imencode(".jpg", image.pixels, [cv2.IMWRITE_JPEG_QUALITY, upload.jpeg_quality])
        if not encoded:
            raise InternalError(f"an image of {image.size} pixels cannot be encoded as JPEG")
        return data.tobytes()

    def _complete_features(self) -> Features | None:
        """Features as tiers expect them. Fewer, as from a lookup, would reduce recall there."""
        recognition = self._context.recognition
        if recognition is None or self._asked_for < recognition.query_features:
            return None
        return self._features
