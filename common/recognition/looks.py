"""An image in, an answer out: the first look is cheap, and what it leaves unknown is looked at again.

The second look sees the photo larger, with more features and its local contrast evened out (CLAHE,
Zuiderveld, Graphics Gems IV, 1994): that finds dark, small and cluttered objects.

It is verified by the same rules, so it adds answers and never changes one, and a photo that is recognised at
first look pays nothing for it. It is for whoever answers last and has the image (the cloud, an evaluation): a
cache that looked again would pay at every miss.

A device may look with fewer features than that, and then looks at a smaller image.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import cv2
import numpy as np

from nearsight.common.recognition.extraction import FeatureExtractor
from nearsight.common.recognition.images import GrayImage, ImageSource, load_image
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.results import RecognitionResult
from nearsight.common.recognition.settings import RecognitionSettings

_CLIP_LIMIT = 2.0
_TILES = (8, 8)
_SMALLEST_PART = 0.7
"""Of the longest side: 200 features recall 0.91 of 16 objects at 640 px, 0.90 at 448, 0.75 at 320."""


@dataclass(frozen=True, slots=True)
class Look:
    """How a photo is seen.

    Attributes
    ----------
    longest_side : int
        Pixels of the processed image; smaller photos are not enlarged.
    features : int
        Features extracted at most.
    even_contrast : bool
        Whether contrast is first equalised within tiles.
    """

    longest_side: int
    features: int
    even_contrast: bool = False


def looks(settings: RecognitionSettings) -> tuple[Look, Look]:
    """The first and the second look."""
    limits = settings.limits
    return (
        Look(limits.longest_side, settings.query_features),
        Look(max(limits.longest_side, 960), max(settings.query_features, 2000), even_contrast=True),
    )


def quick_look(settings: RecognitionSettings, features: int) -> Look:
    """A look with fewer features than the first one: at an image in which they are as dense.

    ORB spends its time on pixels more than on the features that it keeps: 200 features of the whole image
    take 0.67 of the time of 800, of the smaller one 0.45. What is found in a smaller image are the larger
    structures, which the models hold as well, as they are trained on a pyramid of sizes.
    """
    part = min(1.0, max(_SMALLEST_PART, math.sqrt(features / settings.query_features)))
    return Look(max(32, round(part * settings.limits.longest_side)), features)


def recognize_image(
    source: ImageSource,
    recognizer: ObjectRecognizer,
    extractor: FeatureExtractor,
    *,
    go_on: Callable[[], bool] = lambda: True,
) -> RecognitionResult:
    """What an image shows, at first or at second look; times are sums over both.

    Parameters
    ----------
    source : bytes, path or ndarray
        As for `load_image`.
    recognizer : ObjectRecognizer
        Its settings say whether to look again.
    extractor : FeatureExtractor
    go_on : callable
        Asked before the second look; False: nobody waits any more.

    Raises
    ------
    InvalidImage, ImageTooLarge, NotFound
        As `load_image`.
    """
    settings = recognizer.settings
    first, second = looks(settings)
    result = _take(first, load_image(source, settings.limits), recognizer, extractor)
    if result.found is not None or not (settings.look_again and len(recognizer) and go_on()):
        return result
    larger = load_image(source, replace(settings.limits, longest_side=second.longest_side))
    again = _take(second, larger, recognizer, extractor)
    return RecognitionResult(
        again.found,
        result.match_ms + again.match_ms,
        result.verify_ms + again.verify_ms,
        result.extract_ms + again.extract_ms,
    )


def even_contrast(image: GrayImage) -> GrayImage:
    """The image with its contrast equalised in each of 8 x 8 tiles, noise held down by the clip limit."""
    equalizer = cv2.createCLAHE(_CLIP_LIMIT, _TILES)
    return replace(image, pixels=np.asarray(equalizer.apply(image.pixels), np.uint8))


def _take(
    look: Look, image: GrayImage, recognizer: ObjectRecognizer, extractor: FeatureExtractor
) -> RecognitionResult:
    started = time.perf_counter()
    seen = even_contrast(image) if look.even_contrast else image
    features = extractor.extract(seen, look.features)
    extract_ms = (time.perf_counter() - started) * 1e3
    return replace(recognizer.recognize(features), extract_ms=extract_ms)
