"""Keys of photos, with which photos of the same view share a result.

Photos of one view are never identical, because of camera shake, sensor noise and changing light. So a photo
is described by a few numbers that change little, and these are rounded coarsely. With any step, some number
is close to a rounding boundary, and a small movement changes the key. So a photo has several keys: the same
numbers, rounded with different boundaries. A single known key suffices, and each is found by an exact lookup.
Decision 040 has the measurements.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Generic, TypeVar

import cv2
import numpy as np
import xxhash
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument
from nearsight.common.recognition.models import Features
from nearsight.common.result_cache.approximations import SECRET, seed_within

Pixels = NDArray[np.uint8]
Rows = NDArray[Any]
P = TypeVar("P")

_FLAT_LEVELS = 4.0
"""Minimum standard deviation of grey levels: a wall or a finger on the lens has no content."""
_SIDE = 8
"""Cells per side of a layout, as in MPEG-7, and of a thumbnail."""
THUMBNAIL_BYTES = _SIDE * _SIDE
_HASH_SIDE_PX = 32
_FREQUENCIES, _FREQUENCIES_WITH_COLOUR = 6, 5
"""Horizontal plus vertical frequency must be below this limit; keeps 20 frequencies, or 14 with colour."""
_MEAN_LEVELS, _COLOUR_LEVELS = 25.0, 13.0
"""Units of mean brightness and mean colour [grey levels]. The frequencies are in standard deviations; with
these units all numbers have similar weight."""
_MIN_FEATURES = 20
"""Minimum number of features. Photos with fewer are rarely recognised, and their min-hashes are random."""
_STRONGEST = 300
"""Maximum number of features used; with fewer, descriptions of similar photos differ more."""
_FEATURE_STEP, _FEATURE_GRIDS = 1.1, 16
_WORD_BITS, _ROWS, _TABLES = 12, 2, 8
"""Of min-hashes: bits of a descriptor that form a word, hashes that form a key, and keys."""
_PLACE_GAIN = 6.0
"""Weight of a shift by the photo's longer side, relative to one bit of a mean byte."""
_MOST_NUMBERS = 64
_PRIME = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class PhotoKeys(Generic[P]):
    """A function from photos, or from their features, to alternative keys of 128 bits each."""

    describe: Callable[[P], Rows | None]
    """Computes numbers (alternatives, N); None if the photo has too little content to be distinguished."""
    seed: int = field(default=SECRET, repr=False)
    """Seed of the hash of the numbers."""

    def __call__(self, photo: P) -> tuple[bytes, ...]:
        """The keys of a photo, 16 bytes each; empty if its result should not be cached.

        Parameters
        ----------
        photo : ndarray, (H, W) or (H, W, 3) uint8, or Features
            Grey, or blue-green-red. About 80 px are enough; a JPEG decoder reduces to this size at little
            cost.

        Raises
        ------
        InvalidArgument
            If it is not an image.
        """
        rows = self.describe(photo)
        if rows is None:
            return ()
        data, width = rows.tobytes(), rows.nbytes // len(rows)
        return tuple(
            xxhash.xxh3_128_digest(data[start : start + width], self.seed ^ number)
            for number, start in enumerate(range(0, len(data), width))
        )

    def within(self, *context: str) -> PhotoKeys[P]:
        """The same function with separate keys for this context: a catalogue, its revision, a client."""
        return replace(self, seed=seed_within(self.seed, *context))


def layout_keys(step: float = 0.5, grids: int = 8) -> PhotoKeys[Pixels]:
    """Keys from mean brightness, mean colour (if available) and the lowest frequencies of 8 x 8 cells.

    Frequencies are of the brightness, in standard deviations, so that contrast has no effect. All numbers are
    rounded to multiples of ``step`` in each of ``grids``. Apart from the rounding, the layout is that of
    MPEG-7 (ISO/IEC 15938-3).

    Raises
    ------
    InvalidArgument
        If the step is not positive, or there is no grid.
    """
    rounded = _rounding(step, grids)

    def describe(pixels: Pixels) -> Rows | None:
        luma, below, means = _small(pixels, _SIDE), _FREQUENCIES, ()
        if luma.ndim == 3:
            planes, below = np.asarray(cv2.cvtColor(luma, cv2.COLOR_BGR2YCrCb)), _FREQUENCIES_WITH_COLOUR
            luma = np.ascontiguousarray(planes[:, :, 0])
            means = planes[:, :, 1:].mean(axis=(0, 1)) / _COLOUR_LEVELS
        # The first is the mean; the sum of squares equals that of the cells.
        frequencies = cv2.dct(luma).ravel()
        varying = frequencies[1:]
        spread = math.sqrt(varying @ varying)
        if spread < _SIDE * _FLAT_LEVELS:
            return None
        numbers = frequencies[_lowest(below)] / spread
        numbers[0] = frequencies[0] / (_SIDE * _MEAN_LEVELS)
        return rounded(np.concatenate([numbers, means]) if len(means) else numbers)

    return PhotoKeys(describe)


def feature_keys() -> PhotoKeys[Features]:
    """Keys from the bits per byte of the mean descriptor and the positions of keypoints.

    Single descriptors change with every movement; the mean of many is nearly constant. It distinguishes less
    than a layout: pictures with the same texture may share a key.
    """
    rounded = _rounding(_FEATURE_STEP, _FEATURE_GRIDS)

    def describe(features: Features) -> Rows | None:
        if len(features) < _MIN_FEATURES:
            return None
        bits = np.bitwise_count(features.descriptors[:_STRONGEST]).mean(axis=0)
        places = features.keypoints[:_STRONGEST] * (_PLACE_GAIN / max(features.image_size))
        return rounded(np.concatenate([bits, places.mean(axis=0), places.std(axis=0)]))

    return PhotoKeys(describe)


def perceptual_hash() -> PhotoKeys[Pixels]:
    """The signs of the lowest 8 x 8 frequencies relative to their median (pHash); one key."""

    def describe(pixels: Pixels) -> Rows | None:
        small = _small(pixels, _HASH_SIDE_PX)
        grey = small if small.ndim == 2 else cv2.cvtColor(small, cv2.COLOR_BGR2GRAY)
        if grey.std() < _FLAT_LEVELS:
            return None
        # Without the first, which depends on the exposure.
        numbers = cv2.dct(grey)[:_SIDE, :_SIDE].ravel()[1:]
        return np.asarray(numbers > np.median(numbers))[None]

    return PhotoKeys(describe)


def min_hash() -> PhotoKeys[Features]:
    """Eight keys, each of two min-hashes of the words formed by 12 bits of each descriptor.

    The probability that two photos share a certain key is the overlap of their sets of words, squared
    (Broder, 1997).
    """
    rng = np.random.default_rng(0)
    chosen = rng.choice(256, _WORD_BITS, replace=False)
    factors, terms = rng.integers(1, _PRIME, (2, _ROWS * _TABLES))

    def describe(features: Features) -> Rows | None:
        if len(features) < _MIN_FEATURES:
            return None
        words = np.unpackbits(features.descriptors, axis=1)[:, chosen] @ (1 << np.arange(_WORD_BITS))
        hashes = (words[:, None] * factors + terms) % _PRIME
        return np.asarray(hashes.min(axis=0)).reshape(_TABLES, _ROWS)

    return PhotoKeys(describe)


def thumbnail_of(pixels: Pixels) -> bytes:
    """Reduce a grey image (H, W) to 8 x 8 cells in 64 bytes; these determine its `layout_keys`."""
    return np.asarray(_small(pixels, _SIDE), np.uint8).tobytes()


def pixels_of(thumbnail: bytes) -> Pixels:
    """The cells (8, 8) of a thumbnail; they have the same keys as the original image."""
    return np.frombuffer(thumbnail, np.uint8).reshape(_SIDE, _SIDE)


class Alternatives:
    """Maps the alternative keys of a photo to one representative key.

    A photo is looked up, and its result is stored, under the key of an earlier photo of the same view. Keys
    are joined only after the classifier processed the photo; otherwise one view could drift into another.

    Parameters
    ----------
    size : int
        Maximum number of keys. Above it, the key that was joined first is deleted.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise InvalidArgument(f"the maximum number of keys must be at least 1, got {size}")
        self._size = size
        # A plain dict finds its first key slowly.
        self._representative: OrderedDict[Hashable, Hashable] = OrderedDict()

    def __len__(self) -> int:
        return len(self._representative)

    def resolve(self, keys: Sequence[Hashable]) -> Hashable | None:
        """The key to look up; None if there are no keys."""
        known = (self._representative.get(key) for key in keys)
        return next((key for key in known if key is not None), keys[0] if keys else None)

    def join(self, keys: Sequence[Hashable], key: Hashable) -> None:
        """Make ``key`` the representative of a photo's keys; keys that were joined before keep theirs."""
        for one in keys:
            if one not in self._representative:
                if len(self._representative) >= self._size:
                    self._representative.popitem(last=False)
                self._representative[one] = key

    def separate(self, keys: Sequence[Hashable]) -> None:
        """Separate these keys from their representative, because they turned out to be another view."""
        for one in keys:
            self._representative.pop(one, None)


def _small(pixels: Pixels, side: int) -> NDArray[np.float32]:
    grey_or_colour = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)
    if not grey_or_colour or pixels.dtype != np.uint8 or not pixels.size:
        raise InvalidArgument(
            f"an image is (H, W) or (H, W, 3) uint8 with pixels, got {pixels.shape} {pixels.dtype}",
            advice="load_image converts bytes, a path or an array",
        )
    return np.asarray(cv2.resize(pixels, (side, side), interpolation=cv2.INTER_AREA), np.float32)


@cache
def _lowest(below: int) -> NDArray[np.intp]:
    """Indices of the frequencies that are kept, row by row."""
    return np.flatnonzero(np.add.outer(np.arange(_SIDE), np.arange(_SIDE)) < below)


def _rounding(step: float, grids: int) -> Callable[[Rows], Rows]:
    """A function that rounds numbers (N,) down to integers (grids, N), with shifted boundaries per grid.

    The boundaries of each number are spread evenly over the grids, in a different order for each number.
    """
    if not (0 < step < np.inf and grids >= 1):
        raise InvalidArgument(f"rounding takes a positive step and a grid, got {step:g} and {grids}")
    rng = np.random.default_rng(0)
    shifts = [(rng.permutation(grids) + rng.uniform()) / grids for _ in range(_MOST_NUMBERS)]
    borders = np.column_stack(shifts)
    return lambda numbers: np.floor(numbers / step + borders[:, : len(numbers)]).astype(np.int32)
