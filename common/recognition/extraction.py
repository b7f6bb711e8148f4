"""Extraction of local features (ORB) from images, and training of object models from images.

Keypoints and strengths are rounded to the precision of the wire format (1/32 pixel, float16). So features are
identical wherever they are matched: on the device, at the edge, or after reading them from a database.
Another descriptor of 256 bits would be another function with the parameters of `extract_features`.

ORB runs with a FAST threshold as high as the image allows without changing the result. With the low threshold
that low-contrast images need, FAST finds thousands of corners, and ORB keeps only the few hundred strongest.
Most of the time is spent on scoring corners that are dropped. The score of a corner is the highest threshold
at which it is still detected, and non-maximum suppression compares the scores of neighbours. So a higher
threshold finds exactly the corners with at least this score, with unchanged scores. As long as they fill the
quota of every pyramid level, ORB keeps the same corners. The threshold is estimated from the smallest level,
because that level usually has the fewest corners to spare. The number of corners per level then shows whether
the threshold was too high; if so, detection is repeated with the low one.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from functools import cache, lru_cache
from operator import attrgetter

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument, InvalidImage
from nearsight.common.recognition.images import GrayImage, ImageSource, load_image
from nearsight.common.recognition.models import DESCRIPTOR_BYTES, Features, ObjectModel
from nearsight.common.recognition.settings import RecognitionSettings

KEYPOINT_STEPS_PER_PX = 32
"""Steps per pixel of an encoded coordinate. With uint16, a processed image may be 2047 px long."""

LEVELS, SCALE = 8, 1.2
"""Number of pyramid levels and scale factor between them; OpenCV's defaults for ORB."""

_MIN_SIDE_PX = 32
"""Smallest image side [px] with features. ORB's patch is 31 px; OpenCV refuses some smaller images."""
_BORDER_PX = 27
"""Border of a level without keypoints [px]: ORB keeps 31 px free, FAST reads 4 px around a corner."""
_SAFETY_FACTOR = 0.5
"""Safety factor of the estimated threshold. Too high a threshold requires a second detection: of one photo in
twenty with a factor of 0.5, of one in three with 0.7."""
_MAX_THRESHOLD = 20
"""Upper limit of the threshold. Higher ones save no more time, because few corners remain."""
_MIN_SIDE_SHARE = 0.7
"""Smallest fraction of the longest side for small queries. Recall of 16 objects with 200 features: 0.91 at
640 px, 0.90 at 448 px, 0.75 at 320 px."""
_NO_DESCRIPTORS = np.empty((0, DESCRIPTOR_BYTES), np.uint8)
_PLACE, _STRENGTH, _LEVEL = attrgetter("pt"), attrgetter("response"), attrgetter("octave")  # of cv2.KeyPoint


def extract_features(image: GrayImage, count: int, fast_threshold: int = 5) -> Features:
    """Extract at most ``count`` ORB features (Rublee et al., ICCV 2011), strongest first.

    8 levels, scale 1.2, patch 31. Keypoints of equal strength are sorted by level and position, so that
    features depend on the image alone. A blank image may give none.

    Keypoints are ranked by the FAST score instead of OpenCV's default, the Harris score. Measured on Stanford
    Mobile Visual Search with 800 query and 1000 training features, recall was 0.98 instead of 0.96 (DVD
    covers), 0.92 with both (museum paintings) and 1.00 instead of 0.96 (book covers). The weakest photos had
    more inliers.

    Thread-safe: OpenCV's detectors have state, so each thread uses its own.

    Parameters
    ----------
    image : GrayImage
    count : int
        Maximum number of features.
    fast_threshold : int
        Grey levels. OpenCV's default of 20 finds too few corners in low-contrast paintings.
    """
    found, descriptors = _strongest(image.pixels, count, fast_threshold)
    keypoints = np.array([*map(_PLACE, found)], np.float64).reshape(-1, 2)
    strengths = np.array([*map(_STRENGTH, found)], np.float64)
    levels = np.array([*map(_LEVEL, found)], np.int64)
    # Scores are integers; without a defined order, equal ones would depend on the order of detection.
    order = np.lexsort((keypoints[:, 0], keypoints[:, 1], levels, -strengths))[:count]
    steps = np.rint(keypoints[order] * KEYPOINT_STEPS_PER_PX)
    relative = strengths[order] / (strengths.max(initial=0.0) or math.inf)
    return Features(
        keypoints=(steps / KEYPOINT_STEPS_PER_PX).astype(np.float32),
        descriptors=np.ascontiguousarray(descriptors[order]),
        strengths=np.clip(relative, 0, 1).astype(np.float16).astype(np.float32),
        image_size=image.size,
        source_size=image.source_size,
    )


def extract_query(source: ImageSource, settings: RecognitionSettings) -> Features:
    """Load an image, and extract the features of a query; raises the errors of `load_image`."""
    image = load_image(source, settings.limits)
    return extract_features(image, settings.query_features, settings.fast_threshold)


def _strongest(
    pixels: NDArray[np.uint8], count: int, fast_threshold: int
) -> tuple[Sequence[cv2.KeyPoint], NDArray[np.uint8]]:
    """Keypoints and descriptors at the configured threshold, usually found faster with a higher one."""
    if min(pixels.shape) < _MIN_SIDE_PX or count <= 0:
        return (), _NO_DESCRIPTORS
    detector, quotas = _detector(count, threading.get_ident()), level_quotas(count)
    threshold = likely_threshold(pixels, quotas[-1], fast_threshold)
    detector.setFastThreshold(threshold)
    found, descriptors = detector.detectAndCompute(pixels, None)
    if threshold > fast_threshold:
        kept = np.bincount([*map(_LEVEL, found)], minlength=LEVELS)
        if (kept < quotas).any():  # a level has fewer corners than its quota
            detector.setFastThreshold(fast_threshold)
            found, descriptors = detector.detectAndCompute(pixels, None)
    return found, np.asarray(descriptors, np.uint8) if len(found) else _NO_DESCRIPTORS


@lru_cache(maxsize=64)  # the device changes the count at any time; detectors are cheap to create
def _detector(count: int, thread: int) -> cv2.ORB:
    """The detector of one thread for ``count`` features."""
    del thread
    return cv2.ORB.create(nfeatures=count, scaleFactor=SCALE, nlevels=LEVELS, scoreType=cv2.ORB_FAST_SCORE)


def side_px_for(features: int, settings: RecognitionSettings) -> int:
    """Longest side [px] of an image in which ``features`` are as dense as ``query_features`` usually are.

    ORB's time depends more on the number of pixels than on the number of features kept. Extracting 200
    features takes 0.67 of the time of 800 at full size, and 0.45 in the smaller image. A smaller image gives
    the larger structures. Object models contain them as well, because they are trained on a pyramid of sizes.
    """
    part = min(1.0, max(_MIN_SIDE_SHARE, math.sqrt(features / settings.query_features)))
    return max(32, round(part * settings.limits.longest_side))


@cache
def level_quotas(count: int) -> tuple[int, ...]:
    """Number of corners that ORB keeps on each level, largest level first; the sum is ``count``.

    Computed in single precision, as OpenCV does.
    """
    factor = np.float32(1 / SCALE)
    wanted = np.float32(count) * (1 - factor) / (1 - np.float32(float(factor) ** LEVELS))
    quotas: list[int] = []
    for _ in range(LEVELS - 1):
        quotas.append(int(np.rint(wanted)))
        wanted *= factor
    return (*quotas, max(0, count - sum(quotas)))


def likely_threshold(pixels: NDArray[np.uint8], quota: int, lowest: int) -> int:
    """Estimate a high FAST threshold at which every level of an image most likely has enough corners.

    Parameters
    ----------
    pixels : ndarray, (H, W) uint8
    quota : int
        Corners wanted on the smallest level.
    lowest : int
        The configured threshold, returned if a higher one would find too few corners.

    Returns
    -------
    int
        Threshold in grey levels, at least ``lowest``.
    """
    height, width = pixels.shape
    shrink = SCALE ** (LEVELS - 1)
    even = pixels[: height // 2 * 2, : width // 2 * 2]  # resizing by exactly one half is faster
    half = cv2.resize(even, (width // 2, height // 2), interpolation=cv2.INTER_AREA)
    smallest = cv2.resize(half, (round(width / shrink), round(height / shrink)))
    inner = smallest[_BORDER_PX:-_BORDER_PX, _BORDER_PX:-_BORDER_PX]
    corners = cv2.FastFeatureDetector.create(lowest).detect(inner) if inner.size else ()
    if not 0 < quota <= len(corners):
        return lowest
    scores = sorted(map(_STRENGTH, corners), reverse=True)
    return max(lowest, min(_MAX_THRESHOLD, int(_SAFETY_FACTOR * scores[quota - 1])))


def train_object(
    object_id: str, label: str, images: Sequence[ImageSource], settings: RecognitionSettings
) -> ObjectModel:
    """Train an object model: one view with features per training image.

    Raises
    ------
    InvalidImage
        If an image cannot be read or has too few features for recognition (such as a blank picture).
    ImageTooLarge, NotFound
        As `load_image`.
    InvalidArgument
        If ``images`` is empty.
    """
    loaded = (load_image(image, settings.limits) for image in images)
    views = tuple(train_view(object_id, image, settings) for image in loaded)
    if not views:
        raise InvalidArgument(f"object {object_id!r} has no training image", advice="give at least one image")
    return ObjectModel(object_id, label, views)


def train_view(object_id: str, image: GrayImage, settings: RecognitionSettings) -> Features:
    """Extract the features of one training image; raises `InvalidImage` if there are too few."""
    features = extract_features(image, settings.training_features, settings.fast_threshold)
    if len(features) < settings.min_training_features:
        raise InvalidImage(
            f"a training image of {object_id!r} has {len(features)} features, "
            f"at least {settings.min_training_features} are needed",
            advice="use a sharp, well-lit photo that shows the object's texture",
        )
    return features
