"""Image classification with a network: preprocessing of a photo, and the label from the network's output."""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument, InvalidImage
from nearsight.common.inference.leases import Lease
from nearsight.common.inference.manifest import Manifest, Pixels
from nearsight.common.inference.tensors import Tensor, TensorSpec
from nearsight.common.recognition.images import load_colour
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.recognition.settings import ImageLimits

_DEFAULT_SIDE_PX = 224
_ROUNDING = 0.01
_FRAMES = "a frame must be uint8 of shape (H, W), (H, W, 3) or (H, W, 4)"


class _Range(NamedTuple):
    """Normalisation ``(pixel · scale - mean) / spread`` per channel, in the network's channel order."""

    scale: float
    mean: tuple[float, float, float]
    spread: tuple[float, float, float]
    blue_first: bool = False


_RANGES = MappingProxyType(
    {
        "0..255": _Range(1.0, (0, 0, 0), (1, 1, 1)),
        "0..1": _Range(1 / 255, (0, 0, 0), (1, 1, 1)),
        "-1..1": _Range(1 / 127.5, (1, 1, 1), (1, 1, 1)),
        "imagenet": _Range(1 / 255, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        "caffe": _Range(1.0, (103.939, 116.779, 123.68), (1, 1, 1), blue_first=True),
    }
)


def classify(
    lease: Lease, image: bytes | memoryview, limits: ImageLimits, within_s: float
) -> RecognizedObject | None:
    """Classify a photo with a network. Returns None if the confidence is too low.

    Raises
    ------
    InvalidImage, ImageTooLarge
        If the bytes are not a valid image, or it exceeds ``limits``.
    InvalidArgument
        If the network does not take photos or has no labels.
    DeadlineExceeded
        If the execution takes longer than ``within_s``.
    """
    network, manifest = lease.network, lease.manifest
    if len(network.inputs) != 1:
        raise InvalidArgument(
            f"network {manifest.name} has {len(network.inputs)} inputs, and cannot classify photos",
            advice="use Recognizer.infer with tensors",
        )
    tensor = photo_tensor(load_colour(image, limits).pixels, network.inputs[0], manifest.pixels)
    outputs = lease.run({"": tensor}, within_s)
    return label_of(next(iter(outputs.values())), manifest)


class _Layout(NamedTuple):
    """Height, width, channels and axis order of an image input."""

    height: int
    width: int
    channels: int
    channels_first: bool


@cache
def image_layout(spec: TensorSpec) -> _Layout:
    """Image layout of an input: ``(N, C, H, W)`` or ``(N, H, W, C)`` with C = 3 or 1.

    Raises
    ------
    InvalidArgument
        If the input does not take an image.
    """
    shape = spec.shape
    if len(shape) == 4 and shape[0] in (None, 1):
        for channels_first, channels, sides in ((True, shape[1], shape[2:]), (False, shape[3], shape[1:3])):
            if channels in (1, 3):
                height, width = (_DEFAULT_SIDE_PX if side is None else side for side in sides)
                return _Layout(height, width, channels, channels_first)
    raise InvalidArgument(
        f"input {spec.name!r} is {spec}, not an image: (N, 3, H, W) or (N, H, W, 3)",
        advice="use Recognizer.infer with tensors",
    )


def check_pixels_fit(spec: TensorSpec, pixels: Pixels) -> None:
    """Raise `InvalidArgument` if an input of integers cannot hold pixels in this range."""
    dtype = np.dtype(spec.dtype)
    if np.issubdtype(dtype, np.integer) and (pixels != "0..255" or np.iinfo(dtype).max < 255):
        advice = "use Recognizer.infer with tensors" if pixels == "0..255" else "choose pixels 0..255"
        raise InvalidArgument(
            f"input {spec.name!r} is {spec}, which cannot hold pixels {pixels}", advice=advice
        )


def photo_tensor(photo: NDArray[np.uint8], spec: TensorSpec, pixels: Pixels) -> Tensor:
    """Convert a photo to the input tensor of a network; the photo is stretched to the input's size.

    Parameters
    ----------
    photo : ndarray, (H, W, 3) uint8
        In OpenCV's channel order: blue, green, red.
    spec : TensorSpec
    pixels : Pixels

    Returns
    -------
    ndarray, shape and dtype of ``spec``
    """
    layout = image_layout(spec)
    return scaled_tensor(fitted(photo, layout.height, layout.width), spec, pixels)


def in_colour(frame: Any) -> NDArray[np.uint8]:
    """Convert a frame to (H, W, 3) uint8 in the order blue, green, red.

    Raises
    ------
    InvalidImage
        If ``frame`` is empty, or not a uint8 array with 1, 3 or 4 channels.
    """
    if not isinstance(frame, np.ndarray) or frame.dtype != np.uint8 or not frame.size:
        got = f"{frame.shape} of {frame.dtype}" if isinstance(frame, np.ndarray) else type(frame).__name__
        raise InvalidImage(f"{_FRAMES}, got {got}", advice="skip this frame")
    channels = 1 if frame.ndim == 2 else frame.shape[2] if frame.ndim == 3 else 0
    if channels == 3:
        return frame
    if channels not in (1, 4):
        raise InvalidImage(f"{_FRAMES}, got {frame.shape}", advice="skip this frame")
    return np.asarray(
        cv2.cvtColor(frame, cv2.COLOR_GRAY2BGR if channels == 1 else cv2.COLOR_BGRA2BGR), np.uint8
    )


def fitted(photo: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """Stretch a photo (H, W, 3) to this height and width [px]; returned unchanged if it has this size."""
    if photo.shape[:2] == (height, width):
        return photo
    shrinks = photo.shape[0] > height and photo.shape[1] > width
    interpolation = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(photo, (width, height), interpolation=interpolation), np.uint8)


def scaled_tensor(photo: NDArray[np.uint8], spec: TensorSpec, pixels: Pixels) -> Tensor:
    """As `photo_tensor`, for a photo that already has the input's size."""
    layout, blue_first = image_layout(spec), _RANGES[pixels].blue_first
    table = _table(pixels)
    if layout.channels == 1:
        grey, levels = cv2.cvtColor(photo, cv2.COLOR_BGR2GRAY), np.ascontiguousarray(table[:, 3])
        values = np.asarray(cv2.LUT(grey, levels))[None, None]
        return np.ascontiguousarray(
            values if layout.channels_first else np.moveaxis(values, 1, 3), spec.dtype
        )
    if not layout.channels_first:
        ordered = photo if blue_first else cv2.cvtColor(photo, cv2.COLOR_BGR2RGB)
        values = np.asarray(cv2.LUT(ordered, np.ascontiguousarray(table[None, :, :3])))[None]
        return np.ascontiguousarray(values, spec.dtype)
    planes = cv2.split(photo) if blue_first else cv2.split(photo)[::-1]
    found = np.empty((1, 3, *photo.shape[:2]), np.float32)
    for channel, plane in enumerate(planes):
        cv2.LUT(plane, np.ascontiguousarray(table[:, channel]), dst=found[0, channel])
    return np.ascontiguousarray(found, spec.dtype)


@cache
def _table(pixels: Pixels) -> NDArray[np.float32]:
    """Lookup table, (256, 4): normalised value of each pixel level in three colour channels and in grey."""
    wanted, levels = _RANGES[pixels], np.arange(256, dtype=np.float32)[:, None]
    mean, spread = np.array(wanted.mean, np.float32), np.array(wanted.spread, np.float32)
    colours = (levels * np.float32(wanted.scale) - mean) / spread
    grey = (levels * np.float32(wanted.scale) - sum(wanted.mean) / 3) / (sum(wanted.spread) / 3)
    return np.concatenate([colours, grey], axis=1).astype(np.float32)


def label_of(outputs: Tensor, manifest: Manifest) -> RecognizedObject | None:
    """Return the label with the highest confidence; None if the confidence is too low.

    Parameters
    ----------
    outputs : ndarray, (1, C)
        Probabilities. If they do not sum to 1 they are taken as logits, and softmax is applied. Each
        probability may be rounded to a multiple of 1/255, as in quantised networks.
    manifest : Manifest

    Raises
    ------
    InvalidArgument
        If the number of labels differs from the number of classes.
    """
    if not manifest.labels or outputs.size != len(manifest.labels):
        raise InvalidArgument(
            f"network {manifest.name} has {outputs.size} outputs and {len(manifest.labels)} labels, and "
            "cannot classify photos",
            advice="state one label per class: nearsight models add --labels FILE; or use Recognizer.infer",
        )
    best, confidence = best_class(outputs)
    if not confidence >= manifest.least_confidence or confidence <= 0:  # NaN counts as not confident
        return None
    label = manifest.labels[best]
    return RecognizedObject(label, label, manifest.version, min(1.0, confidence), 0, None)


def best_class(outputs: Tensor) -> tuple[int, float]:
    """Return the most probable class and its probability; ``outputs`` as in `label_of`."""
    scores = np.asarray(outputs, np.float64).reshape(-1)
    rounding = max(_ROUNDING, scores.size / (2 * 255))
    if scores.min() < 0 or scores.max() > 1 + _ROUNDING or not abs(scores.sum() - 1) <= rounding:
        scores = np.exp(scores - scores.max())
        scores /= scores.sum()
    best = int(scores.argmax())
    return best, float(scores[best])
