"""Ways in which a network processes a clip: every frame anew, with a gate, or with reuse of regions.

All ways that reuse regions have the same engine. They differ in what they match. DeepMon matches the
histograms of blocks at the same place (in the paper also of the maps of all layers). The paper's DeepCache
matches blocks of the last frame by diamond search. Ours matches blocks of the composite by shifts of the
whole frame, with a threshold that adapts to the deviation of outputs, and changes end inside the network
where values hardly differ. The papers' threshold is fixed. Further ways are ours with exact maps, also with a
fixed threshold, and ours with a time budget or with a window that moves with the picture.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, partial
from math import lcm
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from nearsight.common.inference.classification import image_layout, scaled_tensor
from nearsight.common.inference.region_reuse import PartialNetwork
from nearsight.common.inference.runtime import Runtime
from nearsight.common.video.block_search import HistogramMatcher, SearchMatcher, diamond
from nearsight.common.video.matching import BlockMatcher, Blocks, Frame, Match, Offset
from nearsight.common.video.regions import Rectangle
from nearsight.device.video.session import VideoSession
from nearsight.device.video.settings import VideoSettings
from nearsight.experiments.studies.deepcache.networks import StudyNetwork, plain_session

_Result = TypeVar("_Result")
Answer = NDArray[np.float32]
Process = Callable[[Frame], Answer]
"""Returns the network's first output for a frame of its size."""

PLAIN, GATE, DEEPMON, DEEPCACHE = "plain", "gate", "DeepMon", "DeepCache"
OURS_LAST, FIXED, EXACT, OURS = "ours, last frame", "ours, T fixed", "ours, exact maps", "ours"
BUDGETED, WINDOW = "ours, budget", "ours, window"
_BUDGET = 0.7
"""Time budget of a frame, as a share of the time of a whole frame."""
_MARGIN = 0.08
"""Margin of the window that moves with the picture: `VideoSettings.margin`."""
BLOCK_FRAMES = 8
"""Frames of a clip for `in_turn`, beside the first one, which is not counted."""
COLOURS = {
    PLAIN: "#b8b8b8",
    GATE: "#7a9e3b",
    DEEPMON: "#e0a33a",
    DEEPCACHE: "#1f6f8b",
    OURS_LAST: "#8a6d9b",
    FIXED: "#24415c",
    EXACT: "#5c7fa3",
    OURS: "#c2571a",
    BUDGETED: "#e58f6a",
    WINDOW: "#d9b3a0",
}


class Settings(NamedTuple):
    """Settings of the paper, section 7.1."""

    threshold_db: float = 20.0
    """T: blocks above it match."""
    block_px: int = 10
    expiry: int = 10
    """N: a frame is computed anew after this number of frames."""


DEFAULT = Settings()


class Engines:
    """A network in unmodified onnxruntime, and in segments."""

    def __init__(self, network: StudyNetwork, partial: PartialNetwork) -> None:
        self._network = network
        self.partial = partial
        layout = image_layout(partial.input)
        self.size = (layout.width, layout.height)
        """Size of frames, width first, for all ways except `WINDOW`."""

    def tensor(self, frame: Frame) -> Answer:
        """Convert a frame to the network's input."""
        return np.asarray(scaled_tensor(frame, self.partial.input, self._network.pixels))

    def way(self, name: str, settings: Settings = DEFAULT) -> Process:
        """Create one of the ways, in its state at the start of a clip. No frame waits for its network."""
        if name == PLAIN:
            return partial(self._compute, self._plain)
        if name == GATE:
            return Gate(partial(self._compute, self._plain), settings)
        session = self._session(name, settings)
        return lambda frame: next(iter(session.run(frame).outputs.values()))

    def frame_size(self, name: str) -> tuple[int, int]:
        """Size of frames, width first, that a way processes without scaling them."""
        if name != WINDOW:
            return self.size
        rows, columns = self._session(name, DEFAULT).frame_size
        return columns, rows

    def _session(self, name: str, settings: Settings) -> VideoSession:
        stride = lcm(*self.partial.stride)
        matcher: BlockMatcher | None = None
        if name == DEEPMON:
            matcher = HistogramMatcher(settings.block_px)
        if name == DEEPCACHE:
            matcher = GridMatcher(settings, stride)
        defaults = VideoSettings()
        reuse = VideoSettings(
            **settings._asdict(),
            pixels=self._network.pixels,
            composite=name in {FIXED, EXACT, OURS, BUDGETED, WINDOW},
            margin=_MARGIN if name == WINDOW else 0.0,
            check_every=defaults.check_every if name in {EXACT, OURS, BUDGETED, WINDOW} else 0,
            map_tolerance=defaults.map_tolerance if name in {OURS, BUDGETED, WINDOW} else 0.0,
            budget_ms=_BUDGET * self.partial.whole_ms or None if name == BUDGETED else None,
        )
        return VideoSession(self.partial, settings=reuse, matcher=matcher)

    def whole(self, frame: Frame, changed: Sequence[Rectangle] | None = None) -> Answer:
        """Output of the engine, given the regions changed since the last frame; None: the whole frame."""
        return next(iter(self.partial.run(self.tensor(frame), changed).values()))

    def _compute(self, session: Any, frame: Frame) -> Answer:
        return np.asarray(session.run(None, {self.partial.input.name: self.tensor(frame)})[0])

    @cached_property
    def _plain(self) -> Any:
        """The unmodified network; executed twice when it is loaded, as `PartialNetwork` does."""
        session = plain_session(self._network.path)
        for _ in range(2):
            self._compute(session, np.zeros((*self.size[::-1], 3), np.uint8))
        return session


@contextmanager
def engines_of(network: StudyNetwork, kept: Path, runtime: Runtime | None = None) -> Iterator[Engines]:
    """Load a network in both forms; ``kept``: folder of the segments, which are computed once."""
    runtime = runtime or Runtime()
    partial = PartialNetwork(runtime, network.path, network.name, kept / network.path.stem)
    try:
        yield Engines(network, partial)
    finally:
        partial.close()
        runtime.close()


def timed(work: Callable[[], _Result]) -> tuple[_Result, float]:
    """Do some work; return its result and its CPU time [ms]."""
    begun_s = time.process_time()
    result = work()
    return result, (time.process_time() - begun_s) * 1e3


def seen(see: Process, frames: Sequence[Frame]) -> tuple[list[Answer], NDArray[np.float64]]:
    """Process all frames; return the answers, and the CPU time of each [ms]."""
    found = [timed(partial(see, frame)) for frame in frames]
    return [answer.copy() for answer, _ in found], np.array([ms for _, ms in found])


def in_turn(
    plain: Process, reuse: Process, clips: Iterable[NDArray[np.uint8]]
) -> Iterator[tuple[float, float]]:
    """Mean times of each clip without its first frame; the two ways alternate in order."""
    for number, frames in enumerate(clips):
        ways = (plain, reuse) if number % 2 else (reuse, plain)
        times = {way: float(seen(way, list(frames))[1][1:].mean()) for way in ways}
        yield times[plain], times[reuse]


def changes(frames: Sequence[Frame]) -> NDArray[np.bool_]:
    """Whether each frame has a block that differs from that of the previous frame; True for the first."""
    pairs = zip(frames[1:], frames, strict=False)
    return np.array([True, *(not _matching_blocks(*pair, DEFAULT).all() for pair in pairs)])


def _matching_blocks(
    frame: Frame, other: Frame, settings: Settings, offset: Offset = (0, 0)
) -> NDArray[np.bool_]:
    """(R, C): whether each block matches that at this offset."""
    blocks = _blocks(frame.shape[0], frame.shape[1], settings.block_px)
    return blocks.matched(frame, other, settings.threshold_db, offset)


_blocks = cache(Blocks)


class Gate:
    """Repeats the last answer for a frame in which all blocks match those of the last computed frame."""

    def __init__(self, compute: Process, settings: Settings) -> None:
        self._compute, self._settings = compute, settings
        self._known: tuple[Frame, Answer] | None = None
        self._age = 0

    def __call__(self, frame: Frame) -> Answer:
        """See `Process`."""
        known, self._age = self._known, self._age + 1
        expired = self._age >= self._settings.expiry
        if known is None or expired or not _matching_blocks(frame, known[0], self._settings).all():
            known, self._age = (frame, self._compute(frame)), 0
        self._known = known
        return known[1]


class GridMatcher:
    """The paper's matcher, with its offset rounded to the stride; other offsets cannot be reused."""

    def __init__(self, settings: Settings, stride: int) -> None:
        self._matcher = SearchMatcher(diamond, settings.block_px, settings.threshold_db, skip=2, reuse=True)
        self._settings, self._stride = settings, stride

    def match(self, frame: Frame, reference: Frame) -> Match:
        """See `BlockMatcher`."""
        found = self._matcher.match(frame, reference)
        down, right = (self._stride * round(one / self._stride) for one in found.offset)
        if (down, right) == found.offset:
            return found
        return Match((down, right), _matching_blocks(frame, reference, self._settings, (down, right)))


def bars(axes: Axes, found: Mapping[str, Mapping[str, float]], numbers: str = "") -> None:
    """Draw a group of bars per name with one bar per way; ``numbers``: format of the labels, if any."""
    names = list(dict.fromkeys(way for one in found.values() for way in one))
    width, places = 0.85 / len(names), np.arange(len(found))
    for number, way in enumerate(names):
        heights = [one[way] for one in found.values()]
        at = places + width * (number - (len(names) - 1) / 2)
        drawn = axes.bar(at, heights, 0.94 * width, color=COLOURS[way], label=way)
        if numbers:
            axes.bar_label(drawn, fmt=numbers, fontsize=7)
    axes.set_xticks(places, [*found])
