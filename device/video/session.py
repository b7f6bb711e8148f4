"""A convolutional network over the frames of a video: what was seen before is not computed again.

`VideoSession.run` takes a frame and gives the network's outputs. It matches the frame with the pixels that
the cached maps were computed from, and has the network compute what depends on the rest. Every N frames all
of it is computed. Sources: DeepCache, sections 3 to 5; what differs is in decision 052.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.errors import InternalError, InvalidArgument, NotFound
from nearsight.common.inference.classification import fitted, image_layout, in_colour, scaled_tensor
from nearsight.common.inference.manifest import Manifest, Pixels
from nearsight.common.inference.region_reuse import PartialNetwork
from nearsight.common.inference.repository import ModelRepository
from nearsight.common.inference.runtime import Runtime
from nearsight.common.inference.tensors import Tensor
from nearsight.common.video.composite import Composite, LastFrame, Reference
from nearsight.common.video.matching import BlockMatcher, Blocks, Frame, Match, Offset, ShiftMatcher
from nearsight.common.video.regions import Rectangle, covering
from nearsight.common.video.time_budget import LOOSEST_DB, TimeBudget
from nearsight.common.video.window import MovingWindow
from nearsight.device.forks import check_process
from nearsight.device.video.back_off import BackOff
from nearsight.device.video.drift import DriftGuard, deviation_of

FIRST, EXPIRED = "first frame", "expired"
PAUSED = "reuse is paused, as outputs deviated"
UNLIKE, SKIPPED = "nothing matched", "not matched, as reuse did not pay before"
DEAR = "reuse would not pay"
_PROBED_ROWS = 8
"""Every eighth row tells, in 0.01 ms, how far a frame is from the reference."""
_SURELY = 1.5
"""Where one row of a block differs by so many times what is allowed of the block, it has changed."""
_SEARCHED_FROM_MS = 10.0
"""Looking for motion takes about 1 ms: only for networks that take longer than this."""
_WEIGHT = 0.2
"""Of the newest frame in the mean of how much longer it took than expected."""
_FASTEST = 0.1
"""Of the times that were measured when the network was cut, at least."""
_HICCUP, _HOLDS = 2.0, 8.0
"""A frame counts as this many times slower than the mean, at most; faster ones count so much less."""


@dataclass(frozen=True, slots=True)
class VideoSettings:
    """How a session reuses what it computed, and how frames become the network's input."""

    threshold_db: float = 20.0
    """T: blocks match above this peak signal-to-noise ratio; see `most_deviation`."""
    block_px: int = 10
    """Side of a block, in pixels of the network's input."""
    expiry: int = 10
    """N: of so many frames one is executed whole; under a budget each block is computed once, at least."""
    composite: bool = True
    """Match with the pixels that each cached value was computed from; else with the last frame, as the paper
    does: then small differences add up."""
    regions: int = 4
    """Rectangles that cover what did not match, at most."""
    margin: float = 0.0
    """The network is given a window of the frame that moves with the picture, if looking for motion pays; the
    frame is larger than the window by this share of its sides. 0: the whole frame."""
    check_every: int = 5
    """Of so many frames that expire, one is executed in both ways, to measure the deviation; 0: none."""
    most_deviation: float = 0.2
    """Of the outputs. Above it T rises, below half of it T falls, by 6 dB at most; see `DriftGuard`."""
    pixels: Pixels | None = None
    """Range of the network's input, as in `Manifest`. None: as the repository says, else "0..1"."""
    size: tuple[int, int] | None = None
    """Rows and columns of the input, if the network leaves them open. None: 224, 224."""
    threads: int = 1
    """For the network."""
    budget_ms: float | None = None
    """For a frame. What hardly matches waits while it does not fit; see `TimeBudget`. None: nothing waits."""

    def __post_init__(self) -> None:
        least = {"block_px": 1, "expiry": 1, "regions": 1, "check_every": 0, "threads": 1}
        wrong = [name for name, one in least.items() if getattr(self, name) < one]
        wrong += [] if math.isfinite(self.threshold_db) else ["threshold_db"]
        wrong += [] if 0 <= self.margin <= 1 else ["margin"]
        wrong += [] if self.most_deviation > 0 else ["most_deviation"]
        wrong += [] if self.budget_ms is None or (self.budget_ms > 0 and self.composite) else ["budget_ms"]
        wrong += [] if self.size is None or min(self.size) >= 1 else ["size"]
        if wrong:
            given = ", ".join(f"{name} = {getattr(self, name)}" for name in wrong)
            raise InvalidArgument(f"a video session cannot have {given}", advice="see docs/video.md")


@dataclass(frozen=True, slots=True, eq=False)
class VideoResult:
    """What a network says of a frame, and what was done for it.

    Attributes
    ----------
    number : int
        Of the frame, from 0.
    outputs : mapping of str to ndarray
        By name, read-only.
    whole : str
        Why the frame was executed whole; empty: it was not.
    matched : float
        Share of the blocks that were found in the reference.
    recomputed : float
        Share of the network's time that was expected to be spent again.
    offset : tuple of int
        Rows, columns: how far the picture has moved, in pixels of the network's input.
    blocks : ndarray, (R, C) bool
        Which blocks were reused.
    match_ms, network_ms : float
        Making the frame ready and matching it; all the rest.
    deviation : float or None
        Of the outputs that reuse gave for this frame from these; measured on a sample of the frames.
    window : tuple of float
        Top, left, bottom, right of what the network was given, as shares of the frame's sides.
    """

    number: int
    outputs: Mapping[str, Tensor]
    whole: str
    matched: float
    recomputed: float
    offset: Offset
    blocks: NDArray[np.bool_]
    match_ms: float
    network_ms: float
    deviation: float | None
    window: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0)


class VideoSession:
    """Runs a network over the frames of one video. One thread may use it; close it afterwards.

    Parameters
    ----------
    model : path, str or PartialNetwork
        A file in the format ONNX as it is, with one input for photos; or the name of a network in
        ``repository``; or a network that is in memory, which stays the caller's.
    repository : path, optional
        Folder of networks, as `nearsight models` manages it.
    folder : path, optional
        Where the network's segments are kept for the next time. Default: beside its file.
    settings : VideoSettings
    matcher : BlockMatcher, optional
        Default: `ShiftMatcher`, whose threshold the drift guard moves.
    clock : Clock
        Of the times in the results.

    Attributes
    ----------
    manifest : Manifest or None
        Of a network of a repository.
    labels : tuple of str
        Of the network's classes, if that knows them.

    Raises
    ------
    NotFound, CorruptStore, InvalidArgument, MissingDependency
        If there is no such network, it cannot be used, or a library is missing.
    """

    def __init__(
        self,
        model: str | Path | PartialNetwork,
        *,
        repository: str | Path | None = None,
        folder: str | Path | None = None,
        settings: VideoSettings = VideoSettings(),
        matcher: BlockMatcher | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._runtime: Runtime | None = None
        self.manifest: Manifest | None = None
        self.labels: tuple[str, ...] = ()
        self._pixels = settings.pixels or "0..1"
        if not isinstance(model, PartialNetwork):
            path, stored = find_network(str(model), repository)
            if stored is not None:
                self.manifest = stored
                self.labels, self._pixels = stored.labels, settings.pixels or stored.pixels
            kept = Path(folder) if folder is not None else path.with_suffix(".segments")
            self._runtime = Runtime(settings.threads)
            model = PartialNetwork(self._runtime, path, path.stem, kept, size=settings.size)
        self.network = model
        self._process = os.getpid()
        self.settings, self._clock = settings, clock
        layout = image_layout(model.input)
        size = settings.size if settings.size and None in model.input.shape[1:] else layout[:2]
        self._grid = Blocks(*size, settings.block_px)
        stride = math.lcm(*model.stride)
        self._shifts = ShiftMatcher(settings.block_px, settings.threshold_db, stride, gives_up=True)
        self._shifts.searches = model.whole_ms >= _SEARCHED_FROM_MS
        margin = settings.margin if self._shifts.searches else 0.0
        self._window = MovingWindow(self._grid, stride, margin, model.whole_ms)
        self._no_blocks = np.zeros((self._grid.rows, self._grid.columns), np.bool_)
        self._no_blocks.flags.writeable = False
        self._matcher = matcher or self._shifts
        # Where a picture that moved is found again, a comparison at offset 0 tells nothing.
        self._glances = matcher is None and not self._shifts.searches
        self._reference: Reference = Composite() if settings.composite else LastFrame()
        self._guard = DriftGuard(settings.most_deviation)
        self._budget: TimeBudget | None = None
        if settings.budget_ms is not None and not model.why_whole:
            self._budget = TimeBudget(self._grid, settings.expiry, settings.regions)
        self._pace = 1.0
        self._number = self._since_whole = self._expiries = 0
        self._back_off = BackOff(model.whole_ms)
        self._difference = 0.0

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the network's input."""
        return self._grid.height, self._grid.width

    @property
    def threshold_db(self) -> float:
        """In force: above the setting where outputs deviated far, below it where they hardly did."""
        return self.settings.threshold_db + self._guard.moved_db

    def run(self, frame: NDArray[np.uint8], attend: Sequence[Rectangle] = ()) -> VideoResult:
        """The network's outputs for the next frame.

        Parameters
        ----------
        frame : ndarray, (H, W, 3), (H, W, 4) or (H, W), uint8
            Blue, green, red, as OpenCV reads it. Size and format may change from frame to frame.
        attend : sequence of Rectangle
            Where the application looks, in pixels of the frame: blocks there do not wait under a budget.

        Raises
        ------
        InvalidImage
            If it is no frame. The session goes on with the next one.
        RuntimeError
            In a forked process, if the network has several threads.
        """
        if self.settings.threads > 1:
            check_process(self._process, type(self).__name__)
        began_s = self._clock.monotonic()
        photo = fitted(in_colour(frame), *self._window.at.frame_size)
        why, found = self._known_before(self._window.at.cut(photo)), None
        if not why or self._is_checked(why):
            found = self._match(photo, began_s, attend, frame.shape)
        else:
            self._window.centre()
        photo = self._window.at.cut(photo)
        matched_s = self._clock.monotonic()
        outputs, why, deviation = self._answer(photo, why, found)
        ended_s = self._clock.monotonic()
        self._learn(why, found, 1e3 * (ended_s - began_s), 1e3 * (ended_s - matched_s))
        return VideoResult(
            number=self._number - 1,
            outputs=outputs,
            whole=why,
            matched=np.count_nonzero(found.match.matched) / found.match.matched.size if found else 0.0,
            recomputed=1.0 if why else self._recomputed() if found and found.is_other else 0.0,
            offset=found.match.offset if found else (0, 0),
            blocks=found.kept if found and not why else self._no_blocks,
            match_ms=1e3 * (matched_s - began_s),
            network_ms=1e3 * (ended_s - matched_s),
            deviation=deviation,
            window=self._window.at.shares,
        )

    def tensor(self, frame: NDArray[np.uint8]) -> Tensor:
        """A frame as the network's input, as `run` makes it."""
        window = self._window.centred
        return self._tensor(window.cut(fitted(in_colour(frame), *window.frame_size)))

    def close(self) -> None:
        """Drop the network, unless it is the caller's."""
        if self._runtime is not None:
            self.network.close()
            self._runtime.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _tensor(self, photo: Frame) -> Tensor:
        return scaled_tensor(photo, self.network.input, self._pixels)

    def _known_before(self, photo: Frame) -> str:
        """Why the frame must be executed whole, whatever would match; empty if nothing is known."""
        reference = self._reference.pixels
        if reference is None:
            return FIRST
        if self._guard.pauses():
            return PAUSED
        probed = photo[::_PROBED_ROWS]
        self._difference = cv2.norm(probed, reference[::_PROBED_ROWS], cv2.NORM_L2SQR) / probed.size
        if self.network.why_whole and self._difference > 255**2 / 10 ** (self.threshold_db / 10):
            return self.network.why_whole
        if self._back_off.skips(self._difference):
            return SKIPPED
        if self._glances:
            least = _SURELY * 255 / 10 ** (self.threshold_db / 20)
            changed = np.count_nonzero(self._grid.glance(photo, reference) > least)
            if changed > self.network.most_changed * self._no_blocks.size:
                return self.network.why_whole or DEAR
        return EXPIRED if self._since_whole + 1 >= self._whole_every() else ""

    def _whole_every(self) -> float:
        """Frames from one that expires to the next; under a budget these are for the drift guard alone."""
        expiry, checked = self.settings.expiry, self.settings.check_every
        if self._budget is None or expiry == 1:
            return expiry
        return expiry * (checked if self._expiries else 1) if checked else math.inf

    def _is_checked(self, why: str) -> bool:
        """Whether this frame, which expires, is executed in both ways: at first all, then a sample."""
        if why != EXPIRED or not self.settings.check_every or self.settings.expiry == 1:
            return False
        self._expiries += 1
        sample = self._expiries % self.settings.check_every == 1 % self.settings.check_every
        return sample or not self._guard.settled or self._budget is not None

    def _match(
        self, photo: Frame, began_s: float, attend: Sequence[Rectangle], shape: tuple[int, ...]
    ) -> _Found:
        reference = self._reference.pixels
        if reference is None:
            raise InternalError("a frame was matched before the first one")
        match = self._matcher.match(self._window.at.cut(photo), reference)
        match = self._window.follow(photo, reference, match, self.threshold_db)
        if self._budget is not None and self.settings.budget_ms is not None:
            errors = self._grid.squared_errors(self._window.at.cut(photo), reference, match.offset)
            strict = self._grid.meeting([self._window.at.seen(one, shape) for one in attend])
            spent_ms = 1e3 * (self._clock.monotonic() - began_s)
            left_ms = (self.settings.budget_ms - spent_ms) / self._pace
            computed = self._budget.choose(match, errors, strict, left_ms, self.network.expected_ms)
        elif match.matched.all():
            return _Found(match, match.matched, [])
        elif self.network.why_whole:
            computed = (Rectangle(0, 0, self._grid.rows, self._grid.columns),)
        else:
            computed = covering(~match.matched, self.settings.regions)
        kept, changed = np.ones_like(match.matched), list[Rectangle]()
        for blocks in computed:
            kept[blocks.top : blocks.bottom, blocks.left : blocks.right] = False
            changed.append(self._grid.region(blocks))
        return _Found(match, kept, changed)

    def _answer(
        self, photo: Frame, why: str, found: _Found | None
    ) -> tuple[dict[str, Tensor], str, float | None]:
        """The outputs; why all of it was computed; and how far reused outputs deviated, if that is known."""
        reused = self._reuse(photo, found) if found else None
        if found and not why and reused is None:
            why = self.network.why_whole or (DEAR if found.match.matched.any() else UNLIKE)
        if reused is not None and not why:
            return reused, "", None
        outputs = self._compute(photo, why, found)
        return outputs, why, None if reused is None else self._note_deviation(reused, outputs)

    def _reuse(self, photo: Frame, found: _Found) -> dict[str, Tensor] | None:
        """The outputs with what was computed before; None if that would not pay."""
        offset, changed = found.match.offset, found.changed
        if not found.kept.any() or (found.is_other and not self.network.pays(changed, offset)):
            return None
        given = self._reference.update(photo, offset, changed)
        if not found.is_other and (answer := self.network.unchanged()):
            return answer
        return self.network.run(self._tensor(given), changed, offset)

    def _compute(self, photo: Frame, why: str, found: _Found | None) -> dict[str, Tensor]:
        """The outputs of a whole execution.

        What changed tells the network whether to keep its maps; under a budget the next frame needs them.
        """
        tensor = self._tensor(self._reference.restart(photo))
        if found is not None and why != EXPIRED and self._budget is None:
            return self.network.run(tensor, found.changed, found.match.offset)
        unlike = found is None and why in (SKIPPED, DEAR)
        return self.network.run(tensor, [Rectangle(0, 0, *self.size)] if unlike else None)

    def _learn(self, why: str, found: _Found | None, took_ms: float, network_ms: float) -> None:
        """From what became of a frame: what is worth trying with the next ones."""
        if why == SKIPPED:
            self._back_off.whole(took_ms)
        elif found is None and why == DEAR:
            self._back_off.in_vain(self._difference, took_ms - network_ms, network_ms)
        elif found and why != EXPIRED and (found.is_other or self.network.why_whole):
            if not why:
                self._back_off.reused(self._difference, took_ms)
            elif why == DEAR and self.network.pays(found.changed, found.match.offset):
                self._back_off.try_next()  # its maps were empty, and are filled now
            else:
                self._back_off.in_vain(self._difference, took_ms - network_ms, network_ms)
        if self._budget is not None:
            self._budget.note(~found.kept if found and not why else None)
            if found and found.is_other and why != EXPIRED:
                expected_ms = max(self.network.expected_ms(found.changed, found.match.offset), 1e-3)
                ratio = min(max(network_ms / expected_ms, _FASTEST), _HICCUP * self._pace)
                self._pace += _WEIGHT * (ratio - self._pace) / (1 if ratio > self._pace else _HOLDS)
        self._since_whole = 0 if why else self._since_whole + 1
        self._number += 1

    def _note_deviation(self, found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
        deviation = deviation_of(found, expected)
        self._guard.note(deviation)
        self._shifts.threshold_db = self.threshold_db
        if self._budget is not None:
            self._budget.loosest_db = LOOSEST_DB + max(self._guard.moved_db, 0.0)
        return deviation

    def _recomputed(self) -> float:
        reports = self.network.explain()
        whole_ms = sum(one.whole_ms for one in reports)
        return sum(one.share * one.whole_ms for one in reports) / whole_ms if whole_ms else 0.0


class _Found(NamedTuple):
    """What the reference has of a frame."""

    match: Match
    kept: NDArray[np.bool_]
    """(R, C): blocks that need not be computed."""
    changed: list[Rectangle]
    """In pixels; the rest of the frame."""

    @property
    def is_other(self) -> bool:
        """Whether anything changed."""
        return bool(self.changed) or self.match.offset != (0, 0)


def find_network(model: str, repository: str | Path | None) -> tuple[Path, Manifest | None]:
    """The file of a network, and what a repository knows of it."""
    if repository is not None:
        models = ModelRepository(Path(repository))
        stored = models.get(model)
        return models.checked_path(stored), stored
    if not Path(model).is_file():
        raise NotFound(f"there is no file {model!r}", advice="give the path of a network (.onnx)")
    return Path(model), None
