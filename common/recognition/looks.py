"""An image in, an answer out: the first look is cheap, and what it leaves unknown is looked at again.

A further look sees the photo larger and with more features, once with its local contrast evened out (CLAHE,
Zuiderveld, Graphics Gems IV, 1994): that finds dark, small and cluttered objects. Each look is verified on
its own by the same rules, so further looks add answers and never change one, and a photo that is recognised
at first look pays nothing for them. They are for whoever answers last and has the image (the cloud, an
evaluation): a cache that looked again would pay at every miss.
"""

from __future__ import annotations

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


def looks(settings: RecognitionSettings) -> tuple[Look, ...]:
    """The first look and the further ones, in the order in which they find most for their time."""
    side = max(settings.limits.longest_side, 960)
    count = max(settings.query_features, 2000)
    first = Look(settings.limits.longest_side, settings.query_features)
    further = (Look(side, count, even_contrast=True), Look(side, count))
    return (first, *further[: settings.further_looks])


def recognize_image(
    source: ImageSource,
    recognizer: ObjectRecognizer,
    extractor: FeatureExtractor,
    *,
    go_on: Callable[[], bool] = lambda: True,
) -> RecognitionResult:
    """What an image shows, by the first look that can tell; times are sums over the looks taken.

    Parameters
    ----------
    source : bytes, path or ndarray
        As for `load_image`.
    recognizer : ObjectRecognizer
        Its settings say how many looks there may be.
    extractor : FeatureExtractor
    go_on : callable
        Asked before each further look; False ends the search (nobody waits any more).

    Raises
    ------
    InvalidImage, ImageTooLarge, NotFound
        As `load_image`.
    """
    limits = recognizer.settings.limits
    first, *further = looks(recognizer.settings)
    result = _take(first, load_image(source, limits), recognizer, extractor)
    larger: GrayImage | None = None
    for look in further:
        if result.found is not None or not go_on():
            break
        larger = larger or load_image(source, replace(limits, longest_side=look.longest_side))
        again = _take(look, larger, recognizer, extractor)
        result = RecognitionResult(
            again.found,
            result.match_ms + again.match_ms,
            result.verify_ms + again.verify_ms,
            result.extract_ms + again.extract_ms,
        )
    return result


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
