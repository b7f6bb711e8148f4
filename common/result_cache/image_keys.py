"""Keys of photos: what makes photos of the same view share a result.

A photo is never the same twice: hands shake, sensors add noise, light changes. So it is described by few
numbers that change little, and these are rounded coarsely. However coarse, some number always lies near a
border, and then a tremble changes the key. So a photo has several keys: the same numbers, rounded with other
borders. One that is known is enough, and each is found by an exact look-up. Decision 040 has the figures.
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
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument
from nearsight.common.recognition.models import Features
from nearsight.common.result_cache.approximations import Approximation, identity

Pixels = NDArray[np.uint8]
Rows = NDArray[Any]
P = TypeVar("P")

_FLAT_LEVELS = 4.0
"""Standard deviation of grey levels below which an image shows nothing: a wall, a finger on the lens."""
_SIDE = 8
"""Cells across a layout, as in MPEG-7, and across a thumbnail."""
THUMBNAIL_BYTES = _SIDE * _SIDE
_HASH_SIDE_PX = 32
_FREQUENCIES, _FREQUENCIES_WITH_COLOUR = 6, 5
"""Horizontal and vertical ones that are together less than this are kept: 20, or 14 where there is colour."""
_MEAN_LEVELS, _COLOUR_LEVELS = 25.0, 13.0
"""Means of brightness and colour are counted in these, the shape in standard deviations: all weigh alike."""
_FEW = 20
"""Features; photos with fewer are hardly ever recognised, and their least hashes are chance."""
_STRONGEST = 300
"""Features that are summed up: fewer differ more from photo to photo."""
_PLACE_GAIN = 6.0
"""Weight of a shift by the photo's longer side beside one bit of a mean byte."""
_MOST_NUMBERS = 64
_PRIME = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class PhotoKeys(Generic[P]):
    """A function from photos, or from their features, to alternative keys of 128 bits each."""

    name: str
    describe: Callable[[P], Rows | None]
    """Numbers (alternatives, N); None if the photo shows too little to be told from others."""
    approximation: Approximation = field(default_factory=identity)
    """Of each row."""

    def __call__(self, photo: P) -> tuple[bytes, ...]:
        """The keys, 16 bytes each; none if a result for this photo is better not kept.

        Parameters
        ----------
        photo : ndarray, (H, W) or (H, W, 3) uint8, or Features
            Grey, or blue-green-red. Some 80 px are enough: a JPEG decoder shrinks to that at little cost.

        Raises
        ------
        InvalidArgument
            If it is no image.
        """
        rows = self.describe(photo)
        return self.approximation.of_each(rows) if rows is not None else ()

    def __or__(self, then: Approximation) -> PhotoKeys[P]:
        return replace(self, name=f"{self.name} | {then.name}", approximation=self.approximation | then)

    def within(self, *context: str) -> PhotoKeys[P]:
        """The same with keys of its own for this context: a catalogue, its revision, a client."""
        return replace(self, approximation=self.approximation.within(*context))


def layout_keys(step: float = 0.5, grids: int = 8) -> PhotoKeys[Pixels]:
    """Mean brightness, mean colour if there is colour, and the lowest frequencies of 8 x 8 cells.

    Frequencies are those of the brightness, in standard deviations, so that contrast does not matter. All is
    rounded to multiples of ``step`` by each of ``grids``. But for this, the layout is MPEG-7's (ISO/IEC
    15938-3).

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
        frequencies = cv2.dct(luma).ravel()  # the first is the mean, the sum of all squares that of the cells
        varying = frequencies[1:]
        spread = math.sqrt(varying @ varying)
        if spread < _SIDE * _FLAT_LEVELS:
            return None
        numbers = frequencies[_lowest(below)] / spread
        numbers[0] = frequencies[0] / (_SIDE * _MEAN_LEVELS)
        return rounded(np.concatenate([numbers, means]) if len(means) else numbers)

    return PhotoKeys(f"layout({step:g}, {grids})", describe)


def feature_keys(step: float = 1.1, grids: int = 16) -> PhotoKeys[Features]:
    """How many bits the mean descriptor has in each byte, and where the keypoints lie; rounded by ``grids``.

    Single descriptors come and go with every tremble; the mean of many hardly changes. It tells less
    apart than a layout does: pictures of the same texture may share a key.

    Raises
    ------
    InvalidArgument
        If the step is not positive, or there is no grid.
    """
    rounded = _rounding(step, grids)

    def describe(features: Features) -> Rows | None:
        if len(features) < _FEW:
            return None
        bits = np.bitwise_count(features.descriptors[:_STRONGEST]).mean(axis=0)
        places = features.keypoints[:_STRONGEST] * (_PLACE_GAIN / max(features.image_size))
        return rounded(np.concatenate([bits, places.mean(axis=0), places.std(axis=0)]))

    return PhotoKeys(f"features({step:g}, {grids})", describe)


def perceptual_hash(side: int = 8) -> PhotoKeys[Pixels]:
    """Signs of the lowest ``side`` x ``side`` frequencies, against their median (pHash); one key."""
    if not 2 <= side <= _HASH_SIDE_PX:
        raise InvalidArgument(f"a perceptual hash has 2 to {_HASH_SIDE_PX} frequencies a side, got {side}")

    def describe(pixels: Pixels) -> Rows | None:
        small = _small(pixels, _HASH_SIDE_PX)
        grey = small if small.ndim == 2 else cv2.cvtColor(small, cv2.COLOR_BGR2GRAY)
        if grey.std() < _FLAT_LEVELS:
            return None
        numbers = cv2.dct(grey)[:side, :side].ravel()[1:]  # the first is the exposure's
        return np.asarray(numbers > np.median(numbers))[None]

    return PhotoKeys(f"perceptual_hash({side})", describe)


def min_hash(bits: int = 12, rows: int = 2, tables: int = 8) -> PhotoKeys[Features]:
    """Least hashes of the words that ``bits`` of each descriptor make; ``rows`` of them are one key.

    For each of the ``tables``, photos share a key with a probability that is the overlap of their sets of
    words to the power of ``rows`` (Broder, 1997).

    Raises
    ------
    InvalidArgument
        If a number is out of range.
    """
    if not (1 <= bits <= 62 and rows >= 1 and tables >= 1):
        raise InvalidArgument(f"min-hash takes 1 to 62 bits, rows and tables, got {bits}, {rows}, {tables}")
    rng = np.random.default_rng(0)
    chosen = rng.choice(256, bits, replace=False)
    factors, terms = rng.integers(1, _PRIME, (2, rows * tables))

    def describe(features: Features) -> Rows | None:
        if len(features) < _FEW:
            return None
        words = np.unpackbits(features.descriptors, axis=1)[:, chosen] @ (1 << np.arange(bits))
        hashes = (words[:, None] % _PRIME * factors + terms) % _PRIME
        return np.asarray(hashes.min(axis=0)).reshape(tables, rows)

    return PhotoKeys(f"min_hash({bits}, {rows}, {tables})", describe)


def thumbnail_of(pixels: Pixels) -> bytes:
    """A grey image (H, W) as cells: all that `layout_keys` look at, in 64 bytes."""
    return np.asarray(_small(pixels, _SIDE), np.uint8).tobytes()


def pixels_of(thumbnail: bytes) -> Pixels:
    """The cells (8, 8) of a thumbnail, whose keys are those of the image that it was made of."""
    return np.frombuffer(thumbnail, np.uint8).reshape(_SIDE, _SIDE)


class Alternatives:
    """Which key stands for all alternatives of a photo.

    A photo is looked up, and what it shows is learnt, under the key of an earlier photo of the same view.
    Keys are joined only when the classifier saw the photo: else one view could drift into another.

    Parameters
    ----------
    size : int
        Keys that are remembered. Of more, the one that was joined the longest time ago is forgotten.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise InvalidArgument(f"at least one key must be remembered, got {size}")
        self._size = size
        self._stand_in: OrderedDict[Hashable, Hashable] = OrderedDict()  # a dict is slow to find its first

    def __len__(self) -> int:
        return len(self._stand_in)

    def resolve(self, keys: Sequence[Hashable]) -> Hashable | None:
        """The key to look up; None if there are no keys."""
        known = (self._stand_in.get(key) for key in keys)
        return next((key for key in known if key is not None), keys[0] if keys else None)

    def join(self, keys: Sequence[Hashable], key: Hashable) -> None:
        """The classifier saw a photo with these keys, which was looked up under ``key``."""
        for one in keys:
            if one not in self._stand_in:
                if len(self._stand_in) >= self._size:
                    self._stand_in.popitem(last=False)
                self._stand_in[one] = key

    def part(self, keys: Sequence[Hashable]) -> None:
        """No key stands for these any more: what they were joined to was another view."""
        for one in keys:
            self._stand_in.pop(one, None)


def _small(pixels: Pixels, side: int) -> NDArray[np.float32]:
    grey_or_colour = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)
    if not grey_or_colour or pixels.dtype != np.uint8 or not pixels.size:
        raise InvalidArgument(
            f"an image is (H, W) or (H, W, 3) uint8 with pixels, got {pixels.shape} {pixels.dtype}",
            advice="load_image makes one of bytes, a path or an array",
        )
    return np.asarray(cv2.resize(pixels, (side, side), interpolation=cv2.INTER_AREA), np.float32)


@cache
def _lowest(below: int) -> NDArray[np.intp]:
    """Which frequencies are kept, row by row."""
    return np.flatnonzero(np.add.outer(np.arange(_SIDE), np.arange(_SIDE)) < below)


def _rounding(step: float, grids: int) -> Callable[[Rows], Rows]:
    """Numbers (N,) to (grids, N) whole ones: rounded down to multiples of the step, with shifted borders.

    The borders of one number are spread evenly over the grids, in another order for each number.
    """
    if not (0 < step < np.inf and grids >= 1):
        raise InvalidArgument(f"rounding takes a positive step and a grid, got {step:g} and {grids}")
    rng = np.random.default_rng(0)
    shifts = [(rng.permutation(grids) + rng.uniform()) / grids for _ in range(_MOST_NUMBERS)]
    borders = np.column_stack(shifts)
    return lambda numbers: np.floor(numbers / step + borders[:, : len(numbers)]).astype(np.int32)
