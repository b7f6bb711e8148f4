"""Local features of an image, and of the training images of an object: ORB.

Keypoints and strengths are rounded to what the wire carries (1/32 pixel, float16), so features are the same
wherever they are matched: on the device, at the edge, or read back from a database.

ORB is asked for a FAST threshold as high as the image allows. With the threshold that low-contrast pictures
need, FAST finds thousands of corners, of which ORB keeps the few hundred strongest: most of the time goes
into scoring those that are dropped. A corner's score is the highest threshold at which it still is one, and
suppression compares neighbours by it, so a higher threshold finds exactly the corners that score as much,
with the same scores. As long as that fills the quota of every level of the pyramid, ORB keeps the same ones.
The threshold is guessed from the smallest level, which mostly runs out of corners first; what comes back
shows whether it was too high.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from functools import cache, lru_cache
from operator import attrgetter
from typing import Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument, InvalidImage
from nearsight.common.recognition.images import GrayImage, ImageSource, load_image
from nearsight.common.recognition.models import DESCRIPTOR_BYTES, Features, ObjectModel
from nearsight.common.recognition.settings import RecognitionSettings

KEYPOINT_STEPS_PER_PX = 32
"""Resolution of a keypoint's coordinates; a processed image may be 2047 px long (uint16 on the wire)."""

LEVELS, SCALE = 8, 1.2
"""Of the pyramid; OpenCV's defaults for ORB."""

_MIN_SIDE_PX = 32
"""ORB's patch is 31 px: smaller images have no features (OpenCV refuses some of them)."""
_BORDER_PX = 27
"""ORB keeps 31 px free around each level; FAST looks at 4 px around a corner and its neighbours."""
_PART = 0.5
"""Of the guessed threshold. Too high costs a second search: with 0.5 one photo in twenty, with 0.7 one in
three."""
_HIGHEST = 20
"""Above, so few corners are left that it saves nothing."""
_SMALLEST_SIDE = 0.7
"""Of the longest side: 200 features recall 0.91 of 16 objects at 640 px, 0.90 at 448, 0.75 at 320."""
_NO_DESCRIPTORS = np.empty((0, DESCRIPTOR_BYTES), np.uint8)
_PLACE, _STRENGTH, _LEVEL = attrgetter("pt"), attrgetter("response"), attrgetter("octave")  # of cv2.KeyPoint


class FeatureExtractor(Protocol):
    """Anything that finds keypoints and 256-bit descriptors."""

    def extract(self, image: GrayImage, count: int) -> Features:
        """At most ``count`` features, strongest first; none is legal (a blank wall)."""


class OrbExtractor:
    """ORB (Rublee et al., ICCV 2011): 8 levels, scale 1.2, patch 31.

    Equally strong keypoints come in the order of level and place, so that features depend on the image alone.

    Keypoints are ranked by FAST's own score, not by OpenCV's default, the Harris score: measured on Stanford
    Mobile Visual Search with 800 and 1000 features, recall was 0.98 against 0.96 (DVD covers), 0.92 against
    0.92 (museum paintings) and 1.00 against 0.96 (book covers), with more inliers in the weakest photos.

    Thread-safe: OpenCV's detectors keep state, so each thread has its own.

    Parameters
    ----------
    fast_threshold : int
        Grey levels; OpenCV's default of 20 starves low-contrast paintings.
    """

    def __init__(self, fast_threshold: int = 5) -> None:
        self.fast_threshold = fast_threshold

    def extract(self, image: GrayImage, count: int) -> Features:
        """At most ``count`` features, strongest first."""
        large_enough = min(image.size) >= _MIN_SIDE_PX and count > 0
        found, descriptors = self._strongest(image.pixels, count) if large_enough else ((), _NO_DESCRIPTORS)
        keypoints = np.array([*map(_PLACE, found)], np.float64).reshape(-1, 2)
        strengths = np.array([*map(_STRENGTH, found)], np.float64)
        levels = np.array([*map(_LEVEL, found)], np.int64)
        # Scores are whole numbers: without an order among equals it would be that of the search.
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

    def _strongest(
        self, pixels: NDArray[np.uint8], count: int
    ) -> tuple[Sequence[cv2.KeyPoint], NDArray[np.uint8]]:
        """Keypoints and descriptors as with the threshold that was set, mostly found with a higher one."""
        detector, quotas = _detector(count, threading.get_ident()), level_quotas(count)
        threshold = likely_threshold(pixels, quotas[-1], self.fast_threshold)
        detector.setFastThreshold(threshold)
        found, descriptors = detector.detectAndCompute(pixels, None)
        if threshold > self.fast_threshold:
            kept = np.bincount([*map(_LEVEL, found)], minlength=LEVELS)
            if (kept < quotas).any():  # a level has not as many corners as it may keep
                detector.setFastThreshold(self.fast_threshold)
                found, descriptors = detector.detectAndCompute(pixels, None)
        return found, np.asarray(descriptors, np.uint8) if len(found) else _NO_DESCRIPTORS


@lru_cache(maxsize=64)  # the device turns the count freely; detectors are cheap to make
def _detector(count: int, thread: int) -> cv2.ORB:
    """The detector of one thread for so many features."""
    del thread
    return cv2.ORB.create(nfeatures=count, scaleFactor=SCALE, nlevels=LEVELS, scoreType=cv2.ORB_FAST_SCORE)


def side_px_for(features: int, settings: RecognitionSettings) -> int:
    """Longest side of the image in which so few features are as dense as ``query_features`` are.

    ORB spends its time on pixels more than on the features that it keeps: 200 features of the whole image
    take 0.67 of the time of 800, of the smaller one 0.45. What is found in a smaller image are the larger
    structures, which the models hold as well, as they are trained on a pyramid of sizes.
    """
    part = min(1.0, max(_SMALLEST_SIDE, math.sqrt(features / settings.query_features)))
    return max(32, round(part * settings.limits.longest_side))


@cache
def level_quotas(count: int) -> tuple[int, ...]:
    """Corners that ORB keeps of each level, the largest level first; all together ``count``.

    In single precision, as OpenCV counts.
    """
    factor = np.float32(1 / SCALE)
    wanted = np.float32(count) * (1 - factor) / (1 - np.float32(float(factor) ** LEVELS))
    quotas: list[int] = []
    for _ in range(LEVELS - 1):
        quotas.append(int(np.rint(wanted)))
        wanted *= factor
    return (*quotas, max(0, count - sum(quotas)))


def likely_threshold(pixels: NDArray[np.uint8], quota: int, lowest: int) -> int:
    """A threshold at which an image (H, W) most likely still has enough corners on every level.

    Parameters
    ----------
    pixels : ndarray, (H, W) uint8
    quota : int
        Of the smallest level.
    lowest : int
        The threshold that finds all corners; also the answer if a higher one finds too few.
    """
    height, width = pixels.shape
    shrink = SCALE ** (LEVELS - 1)
    even = pixels[: height // 2 * 2, : width // 2 * 2]  # halving is quick, other sizes are not
    half = cv2.resize(even, (width // 2, height // 2), interpolation=cv2.INTER_AREA)
    smallest = cv2.resize(half, (round(width / shrink), round(height / shrink)))
    inner = smallest[_BORDER_PX:-_BORDER_PX, _BORDER_PX:-_BORDER_PX]
    corners = cv2.FastFeatureDetector.create(lowest).detect(inner) if inner.size else ()
    if not 0 < quota <= len(corners):
        return lowest
    scores = sorted(map(_STRENGTH, corners), reverse=True)
    return max(lowest, min(_HIGHEST, int(_PART * scores[quota - 1])))


def train_object(
    object_id: str,
    label: str,
    images: Sequence[ImageSource],
    settings: RecognitionSettings,
    *,
    extractor: FeatureExtractor | None = None,
) -> ObjectModel:
    """Extract the features of each training image and keep them as views of one object.

    Raises
    ------
    InvalidImage
        If an image cannot be read or has too few features to be recognised by (a blank picture).
    ImageTooLarge, NotFound
        As `load_image`.
    InvalidArgument
        If there is no image.
    """
    extractor = extractor or OrbExtractor(settings.fast_threshold)
    loaded = (load_image(image, settings.limits) for image in images)
    views = tuple(train_view(object_id, image, settings, extractor) for image in loaded)
    if not views:
        raise InvalidArgument(f"object {object_id!r} has no training image", advice="give at least one image")
    return ObjectModel(object_id, label, views)


def train_view(
    object_id: str, image: GrayImage, settings: RecognitionSettings, extractor: FeatureExtractor
) -> Features:
    """The features of one training image of an object; raises `InvalidImage` if they are too few."""
    features = extractor.extract(image, settings.training_features)
    if len(features) < settings.min_training_features:
        raise InvalidImage(
            f"a training image of {object_id!r} has {len(features)} features, "
            f"at least {settings.min_training_features} are needed",
            advice="use a sharp, well-lit photo that shows the object's texture",
        )
    return features
