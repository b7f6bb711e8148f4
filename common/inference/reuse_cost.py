"""Measured costs of a network's segments, from which cuts are chosen and the benefit of reuse is estimated.

Executing a segment on crops takes ``sum(call_ms + area_ms * share)`` over the crops, executing it whole takes
``whole_ms``. Inside a segment a crop needs a margin for all of its windows, so more cuts allow more reuse.
But each cut costs a call and the memory of a cached map (decision 054). The cuts are therefore chosen per
model and machine, with the lowest expected time over typical changes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from statistics import median
from typing import NamedTuple

import numpy as np

from nearsight.common.inference.segment_execution import Crop, LoadedSegment
from nearsight.common.inference.segments import Cut, Layout
from nearsight.common.video.regions import EMPTY, Rectangle

MARGIN = 0.95
"""Crops are executed only if they take less than this share of a whole execution."""
CALL_MS = 0.04
"""Typical time of executing the smallest segment on one crop."""
HANDLING_MS = 0.03
"""Typical time per segment beyond its crops: planning, and comparing cells. Measured while a network runs."""
_SHARES = (0.1, 0.3, 0.5, 0.7)
"""Changed shares of the frame, in the middle or in a corner, for which cuts are chosen."""
_MOST_PIECES = 16
"""Maximum number of pieces between two cuts. More do not help and would make the choice slow."""
_REPEATS = 5
"""Number of counted repetitions of a measurement."""


class SegmentCost(NamedTuple):
    """Measured times of one segment."""

    whole_ms: float
    call_ms: float
    area_ms: float
    """Time of a crop as large as the map, in addition to ``call_ms``."""

    def crops_ms(self, crops: Sequence[Crop], units: int) -> float:
        """Expected time of crops, for a segment of ``units`` units."""
        return sum(self.call_ms + self.area_ms * one.units.area / units for one in crops)


class Costs(NamedTuple):
    """Measured times of a network in segments.

    Attributes
    ----------
    segments : tuple of SegmentCost
    rests_ms : tuple of float
        ``rests_ms[i]`` is the time of all segments from number i on, executed as one; the last element is 0.
    tail_ms : float
        Time of the tail, which is always executed whole.
    """

    segments: tuple[SegmentCost, ...]
    rests_ms: tuple[float, ...]
    tail_ms: float

    @classmethod
    def unknown(cls, segments: int) -> Costs:
        """Zeros: no crop takes less than a whole execution."""
        return cls((SegmentCost(0.0, 0.0, 0.0),) * segments, (0.0,) * (segments + 1), 0.0)

    @classmethod
    def preferring_crops(cls, segments: int) -> Costs:
        """Artificial costs with which every segment that can run on crops does so; used to check outputs."""
        rests_ms = (math.inf,) * segments
        return cls((SegmentCost(math.inf, 0.0, 1.0),) * segments, (*rests_ms, 0.0), 0.0)


def measured_ms(runs: Sequence[Callable[[], object]]) -> list[float]:
    """Least CPU time of this thread for each function; other processes delay it by using the same caches.

    The functions are called in turn, so that the processor's caches are in the same state as during a frame.
    The first round is a warm-up and is not counted.
    """
    taken: list[list[float]] = [[] for _ in runs]
    for turn in range(_REPEATS + 1):
        for run, times in zip(runs, taken, strict=True):
            began_s = time.thread_time()
            run()
            if turn:
                times.append((time.thread_time() - began_s) * 1e3)
    return [min(times) for times in taken]


def sample_crops(segment: LoadedSegment) -> list[Crop]:
    """Crops of three sizes in the middle of the map, whose times `fitted_cost` needs."""
    crops = []
    for share in (0.0, 0.3, 0.8):
        side = math.sqrt(share)
        parts = [
            segment.crop(number, middle_of(one.layout.size, side))
            for number, one in enumerate(segment.targets)
        ]
        crops.append(reduce(segment.merged_crop, parts))
    return crops


def fitted_cost(
    segment: LoadedSegment, whole_ms: float, crops: Sequence[Crop], times_ms: Sequence[float]
) -> SegmentCost:
    """Fit a line through the times of crops of several sizes."""
    rows, columns = segment.size
    shares = [crop.units.area / (rows * columns) for crop in crops]
    if max(shares) - min(shares) < 0.05:
        return SegmentCost(whole_ms, CALL_MS, max(whole_ms, median(times_ms)))
    slope, start = np.polyfit(shares, times_ms, 1)
    return SegmentCost(whole_ms, max(CALL_MS, float(start)), max(0.0, float(slope)))


def merged(crops: Sequence[Crop], segment: LoadedSegment, cost: SegmentCost, most: int) -> list[Crop]:
    """Merge two crops into one if this saves time, or while there are more than ``most``."""
    found, per_unit = list(crops), cost.area_ms / (segment.size[0] * segment.size[1])
    while len(found) > 1:
        best, first, second = -math.inf, 0, 0
        for number, one in enumerate(found):  # plain integers for speed: runs for each segment of each frame
            top, left, bottom, right = one.units
            for at in range(number):
                up, before, down, behind = found[at].units
                height = (bottom if bottom > down else down) - (top if top < up else up)
                width = (right if right > behind else behind) - (left if left < before else before)
                separate = (bottom - top) * (right - left) + (down - up) * (behind - before)
                if separate - height * width > best:
                    best, first, second = separate - height * width, at, number
        if cost.call_ms + per_unit * best <= 0 and len(found) <= most:
            break
        found[first] = segment.merged_crop(found[first], found.pop(second))
    return found


def typical_changes(size: tuple[int, int]) -> list[Rectangle]:
    """Rectangles of a frame that change, in the middle and in a corner, of several sizes."""
    sides = [math.sqrt(share) for share in _SHARES]
    return [middle_of(size, side) for side in sides] + [
        Rectangle(0, 0, int(size[0] * side), int(size[1] * side)) for side in sides
    ]


def choose_cuts(
    cuts: Sequence[Cut],
    pieces: Sequence[LoadedSegment],
    costs: Costs,
    layouts: Mapping[str, Layout],
    limit_bytes: int,
) -> list[int]:
    """Choose the cuts with the lowest expected time whose maps fit into memory; returns their positions.

    Parameters
    ----------
    cuts : sequence of Cut
        All possible cuts.
    pieces : sequence of LoadedSegment
        Segments between these cuts.
    costs : Costs
        Costs of the pieces.
    layouts : mapping of str to Layout
    limit_bytes : int
        Limit of the memory of all cached maps.
    """
    model = _SegmentModel(pieces, costs)
    shares = _shares(pieces)
    sizes = _bytes_of(cuts, layouts, pieces[0].segment.sources[0])
    rate = 0.0
    while True:
        chosen = _cheapest(model, shares, [rate * one for one in sizes])
        kept = {name for at in chosen for name in cuts[at - 1].alive}
        if sum(layouts[name].size_bytes for name in kept) <= limit_bytes or len(chosen) == 1:
            return [cuts[at - 1].position for at in chosen]
        rate = max(1.5 * rate, 1e-9)


class _SegmentModel:
    """Estimates the time of a segment that joins consecutive pieces, from the measured costs of the pieces.

    Crops take longer than their share of the whole map, because they are copied at both ends of a segment.
    """

    def __init__(self, pieces: Sequence[LoadedSegment], costs: Costs) -> None:
        self._written = [sum(one.layout.size_bytes for one in piece.targets) for piece in pieces]
        self._read = [sum(one.layout.size_bytes for one in piece.sources) for piece in pieces]
        body_ms, whole_ms = costs.rests_ms[0], [one.whole_ms for one in costs.segments]
        scale = min(1.0, body_ms / sum(whole_ms))
        calls_ms = [max(0.0, one.call_ms - CALL_MS) for one in costs.segments]
        self._sums_ms = np.concatenate([[0.0], np.cumsum(whole_ms) * scale])
        self._calls_ms = np.concatenate([[0.0], np.cumsum(calls_ms)])
        copied_ms = max(0.0, sum(one.area_ms for one in costs.segments) - body_ms)
        self._copy_ms = copied_ms / (sum(self._written) + sum(self._read))

    def expected_ms(self, start: int, stop: int, shares: Sequence[float]) -> float:
        """Mean expected time over changes; ``shares``: executed share of the segment's area for each."""
        inner_ms = self._sums_ms[stop] - self._sums_ms[start]
        call_ms = CALL_MS + self._calls_ms[stop] - self._calls_ms[start]
        area_ms = inner_ms + self._copy_ms * (self._written[stop - 1] + self._read[start])
        return float(np.mean([min(inner_ms, call_ms * (share > 0) + area_ms * share) for share in shares]))


def _bytes_of(cuts: Sequence[Cut], layouts: Mapping[str, Layout], source: str) -> list[int]:
    """Memory of the maps that each cut adds to those of the cut before."""
    sizes, before = [], {source}
    for cut in cuts:
        sizes.append(sum(layouts[name].size_bytes for name in cut.alive if name not in before))
        before = set(cut.alive)
    return sizes


def _cheapest(
    model: _SegmentModel, shares: Sequence[Mapping[int, Sequence[float]]], penalties: Sequence[float]
) -> list[int]:
    """Cheapest path from the first piece to the last; returns the number of pieces before each cut."""
    best, previous = [0.0], [0]
    for stop, starts in enumerate(shares, start=1):
        cost, start = min(
            (best[start] + model.expected_ms(start, stop, of_change) + penalties[stop - 1], start)
            for start, of_change in starts.items()
        )
        best.append(cost)
        previous.append(start)
    cuts, at = list[int](), len(shares)
    while at:
        cuts.append(at)
        at = previous[at]
    return cuts[::-1]


def _shares(pieces: Sequence[LoadedSegment]) -> list[dict[int, list[float]]]:
    """For each end of a segment, by start: the share of its area that a crop covers, for each change."""
    source = pieces[0].segment.sources[0]
    found: list[dict[int, list[float]]] = [{} for _ in pieces]
    for change in typical_changes(pieces[0].sources[0].layout.size):
        changed = {source: change}
        for piece in pieces:
            reached = piece.changed({name: (changed[name],) for name in piece.segment.sources}, (0, 0))
            for number, target in enumerate(piece.segment.targets):
                parts = [one for to, one in reached if to == number]
                changed[target] = reduce(Rectangle.union, parts, EMPTY)
        for stop in range(1, len(pieces) + 1):
            needed = dict(changed)  # cells that are needed of each map; extended on the way back
            for start in range(stop - 1, max(-1, stop - 1 - _MOST_PIECES), -1):
                share = _add_needed_cells(pieces[start], needed)
                found[stop - 1].setdefault(start, []).append(share)
    return found


def _add_needed_cells(piece: LoadedSegment, needed: dict[str, Rectangle]) -> float:
    """Add the cells that a piece reads to ``needed``; returns the share of the piece that is executed."""
    crops = [
        piece.crop(number, needed[target])
        for number, target in enumerate(piece.segment.targets)
        if needed[target].area
    ]
    units = reduce(Rectangle.union, (one.units for one in crops), EMPTY)
    for source in piece.sources:
        needed[source.name] = needed[source.name].union(piece.cells_of(source, units))
    return units.area / (piece.size[0] * piece.size[1])


def middle_of(size: tuple[int, int], side: float) -> Rectangle:
    """Rectangle in the middle of a map with this share of its rows and columns, at least one of each."""
    height, width = (max(1, round(one * side)) for one in size)
    top, left = (size[0] - height) // 2, (size[1] - width) // 2
    return Rectangle(top, left, top + height, left + width)
