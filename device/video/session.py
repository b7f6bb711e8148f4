"""Runs a convolutional network over the frames of a video without recomputing what earlier frames contain.

`VideoSession.run` takes a frame and returns the network's outputs. It matches the frame with the pixels of
the cached maps, and lets the network recompute what depends on the other pixels. Every N-th frame is computed
completely. Sources: DeepCache, sections 3 to 5; differences: decision 052.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.errors import InternalError, NotFound
from nearsight.common.inference.classification import (
    check_pixels_fit,
    fitted,
    image_layout,
    in_colour,
    scaled_tensor,
)
from nearsight.common.inference.manifest import Manifest
from nearsight.common.inference.region_reuse import PartialNetwork
from nearsight.common.inference.repository import ModelRepository
from nearsight.common.inference.runtime import Runtime
from nearsight.common.inference.tensors import Tensor
from nearsight.common.video.composite import Composite
from nearsight.common.video.matching import (
    BlockMatcher,
    Blocks,
    Frame,
    Match,
    ShiftMatcher,
    sampled_difference,
)
from nearsight.common.video.regions import Rectangle, covering
from nearsight.common.video.time_budget import LOOSEST_DB, TimeBudget
from nearsight.common.video.window import MovingWindow
from nearsight.device.forks import check_process
from nearsight.device.video.back_off import BackOff, FollowedGate
from nearsight.device.video.drift import DriftGuard, deviation_of
from nearsight.device.video.expiry import Expiry
from nearsight.device.video.result import (
    EXPIRED,
    FIRST,
    NO_MATCH,
    NO_SAVING,
    PAUSED,
    RESTING,
    SKIPPED,
    VideoResult,
)
from nearsight.device.video.settings import VideoSettings

_PROBED_ROWS = 8
"""The difference between frame and reference is measured on every eighth row, in 0.01 ms."""
_SEARCHED_FROM_MS = 10.0
"""Motion is searched only for networks that take longer than this; the search takes about 1 ms."""
_FEW_REGIONS = 2
"""Maximum number of rectangles for faster networks; each takes about 0.1 ms beside its execution."""


class VideoSession:
    """Runs a network over the frames of one video. Not thread-safe. Must be closed.

    Parameters
    ----------
    model : path, str or PartialNetwork
        An ONNX file with one input for photos; or the name of a network in ``repository``; or a network in
        memory, which the caller keeps and closes. Until then only this session may use it.
    repository : path, optional
        Folder of networks, as managed by `nearsight models`.
    folder : path, optional
        Folder in which the network's segments are stored. Default: beside the network's file.
    settings : VideoSettings, optional
    matcher : BlockMatcher, optional
        Default: a `ShiftMatcher`, whose threshold the drift guard adjusts.
    clock : Clock
        Clock of the times in results.

    Attributes
    ----------
    manifest : Manifest or None
        Manifest of a network in a repository.
    labels : tuple of str
        Labels of the network's classes; empty if unknown.

    Raises
    ------
    NotFound, CorruptStore, InvalidArgument, MissingDependency
        If the network does not exist or cannot be used, or a library is missing.
    """

    def __init__(
        self,
        model: str | Path | PartialNetwork,
        *,
        repository: str | Path | None = None,
        folder: str | Path | None = None,
        settings: VideoSettings | None = None,
        matcher: BlockMatcher | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        settings = settings or VideoSettings()
        self._runtime: Runtime | None = None
        self.manifest: Manifest | None = None
        self.labels: tuple[str, ...] = ()
        pixels = settings.pixels
        if not isinstance(model, PartialNetwork):
            path, stored = find_network(str(model), repository)
            if stored is not None:
                self.manifest = stored
                self.labels, pixels = stored.labels, settings.pixels or stored.pixels
            kept = Path(folder) / path.stem if folder is not None else path.with_suffix(".segments")
            self._runtime = Runtime(settings.threads)
            model = PartialNetwork(self._runtime, path, path.stem, kept, size=settings.size)
        self.network = model
        self._pixels = pixels or ("0..255" if model.input.dtype == "uint8" else "0..1")
        check_pixels_fit(model.input, self._pixels)
        self._process = os.getpid()
        self.settings, self._clock = settings, clock
        layout = image_layout(model.input)
        sides = model.input.shape[2:] if layout.channels_first else model.input.shape[1:3]
        wanted = zip(sides, settings.size or layout[:2], strict=True)
        height, width = (one or given for one, given in wanted)
        self._grid = Blocks(height, width, settings.block_px)
        stride = math.lcm(*model.stride)
        self._shifts = ShiftMatcher(settings.block_px, settings.threshold_db, stride, backs_off=True)
        self._shifts.searches = model.whole_ms >= _SEARCHED_FROM_MS
        margin = settings.margin if self._shifts.searches else 0.0
        self._regions = settings.regions if self._shifts.searches else min(settings.regions, _FEW_REGIONS)
        self._window = MovingWindow(self._grid, stride, margin, model.whole_ms)
        self._no_blocks = np.zeros((self._grid.rows, self._grid.columns), np.bool_)
        self._all_blocks = ~self._no_blocks
        self._no_blocks.flags.writeable = self._all_blocks.flags.writeable = False
        self._matcher = matcher or self._shifts
        # If motion is searched, differences at offset 0 say nothing about blocks that moved.
        self._glances = matcher is None and not self._shifts.searches
        self._reference = Composite()
        self._guard = DriftGuard(settings.most_deviation)
        self._budget: TimeBudget | None = None
        if settings.budget_ms is not None and not model.why_whole:
            self._budget = TimeBudget(self._grid, settings.expiry, self._regions)
        self._expiry = Expiry(settings, self._guard, budgeted=self._budget is not None)
        self._back_off = BackOff(model.whole_ms)
        self._number, self._difference = 0, 0.0
        self._gate = FollowedGate(self._grid)
        self._gate_repeats = False
        """Whether a gate would repeat its last outputs for the current frame."""
        self._rested = False
        """Whether the reference is not the last frame whose outputs the network has."""
        self._everything = [Rectangle(0, 0, height, width)]
        black = np.zeros((height, width, 3), np.uint8)
        self._grid.all_match(black, black, settings.threshold_db)  # the first comparison is slow

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the network's input."""
        return self._grid.height, self._grid.width

    @property
    def frame_size(self) -> tuple[int, int]:
        """Rows and columns to which frames are scaled: those of the input, and the margin if it is used."""
        return self._window.centred.frame_size

    @property
    def threshold_db(self) -> float:
        """The current threshold: above the setting after large deviations, below it after small ones."""
        return self.settings.threshold_db + self._guard.adjustment_db

    @property
    def map_tolerance(self) -> float:
        """The current tolerance inside the network. It is halved when T rises by 6 dB."""
        return self.settings.map_tolerance * 10 ** (-self._guard.adjustment_db / 20)

    def run(self, frame: NDArray[np.uint8], attend: Sequence[Rectangle] = ()) -> VideoResult:
        """Compute the network's outputs for the next frame.

        Parameters
        ----------
        frame : ndarray, (H, W, 3), (H, W, 4) or (H, W), uint8
            In OpenCV's order: blue, green, red. Size and format may change from frame to frame.
        attend : sequence of Rectangle
            Parts of the frame [pixels] whose blocks must not be postponed under a budget.

        Raises
        ------
        InvalidImage
            If the frame is not a valid image. The session can continue with the next frame.
        Cancelled
            If the session is closed.
        InternalError
            If the library fails.
        RuntimeError
            In a forked process, if the network has several threads.
        """
        if self.network.threads > 1:
            check_process(self._process, type(self).__name__)
        began_s = self._clock.monotonic()
        photo = fitted(in_colour(frame), *self._window.at.frame_size)
        if self._glances and (result := self._at_a_glance(photo, began_s)) is not None:
            return result
        self.network.tolerance = self.map_tolerance  # another session may have used the network before
        why, found = self._reason_before_matching(self._window.at.cut(photo)), None
        if not why or (why == EXPIRED and self._expiry.measures()):
            found = self._match(photo, began_s, attend, frame.shape)
        else:
            self._window.at = self._window.centred
        photo = self._window.at.cut(photo)
        matched_s = self._clock.monotonic()
        try:
            outputs, why, deviation = self._answer(photo, why, found)
        except BaseException:
            self._reference.pixels = None  # it may be a frame whose outputs the network does not have
            raise
        ended_s = self._clock.monotonic()
        self._rested = False
        self._record(why, found, 1e3 * (ended_s - began_s), 1e3 * (ended_s - matched_s))
        return VideoResult(
            number=self._number - 1,
            outputs=outputs,
            whole=why,
            matched=np.count_nonzero(found.match.matched) / found.match.matched.size if found else 0.0,
            recomputed=1.0 if why else self._recomputed() if found and found.differs else 0.0,
            offset=found.match.offset if found else (0, 0),
            blocks=found.kept if found and not why else self._no_blocks,
            match_ms=1e3 * (matched_s - began_s),
            network_ms=1e3 * (ended_s - matched_s),
            deviation=deviation,
            window=self._window.at.shares,
        )

    def tensor(self, frame: NDArray[np.uint8]) -> Tensor:
        """Convert a frame to the network's input, as `run` does without motion."""
        window = self._window.centred
        return self._tensor(window.cut(fitted(in_colour(frame), *window.frame_size)))

    def close(self) -> None:
        """Drop the network, unless the caller passed it."""
        if self._runtime is not None:
            self.network.close()
            self._runtime.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _at_a_glance(self, photo: Frame, began_s: float) -> VideoResult | None:
        """Result for a frame that does not differ, or is certainly executed whole; None for all others.

        The steps are few, because each execution evicts this code from the processor's caches, and every step
        then takes several times as long.
        """
        if self._back_off.rests():
            self._rested = True
            return self._executed(photo, RESTING, began_s)
        reference = self._reference.pixels
        if reference is None or self._guard.paused:
            return None
        if self._rested:
            result = self._executed(photo, self.network.why_whole or SKIPPED, began_s)
            self._reference.restart(photo)
            self._rested = False
            return result
        self._difference = sampled_difference(photo, reference, _PROBED_ROWS)
        differs = self._difference > Blocks.mean_squared_error(self.threshold_db)
        skips = self._back_off.skips(self._difference)
        if differs and (skips or self.network.why_whole):
            changed = 1  # at least, and the frame is executed whole
        else:
            changed = self._grid.changed_at_a_glance(photo, reference, self.threshold_db)
        if not changed and self._grid.matched(photo, reference, self.threshold_db).all():
            renewed = self._expiry.expires(still=True) or self._budget is not None
            outputs = {} if renewed else self.network.unchanged()
            return self._repeated(photo, outputs, began_s) if outputs else None
        if self.network.why_whole:
            self._back_off.compared_in_vain()
            result = self._executed(photo, self.network.why_whole, began_s)
            if not self._back_off.rests_next:  # else the next frame is not compared
                self._reference.restart(photo)
            return result
        if skips:
            result = self._executed(photo, SKIPPED, began_s)
            self._back_off.whole(result.match_ms + result.network_ms)
        elif changed > self.network.most_changed * self._no_blocks.size:
            result = self._executed(photo, NO_SAVING, began_s)
            self._back_off.not_reused(self._difference, result.match_ms, result.network_ms)
        else:
            return None
        self._reference.restart(photo)
        return result

    def _executed(self, photo: Frame, why: str, began_s: float) -> VideoResult:
        """Execute the network on a frame that is neither matched nor stored."""
        tensor = self._tensor(photo)
        prepared_s = self._clock.monotonic()
        outputs = self.network.run_whole(tensor)
        ended_s = self._clock.monotonic()
        before_ms, network_ms = 1e3 * (prepared_s - began_s), 1e3 * (ended_s - prepared_s)
        self._expiry.note(whole=True)
        self._number += 1
        if self._budget is not None:
            self._budget.note()
        return VideoResult(
            self._number - 1, outputs, why, 0.0, 1.0, (0, 0), self._no_blocks, before_ms, network_ms, None
        )

    def _repeated(self, photo: Frame, outputs: Mapping[str, Tensor], began_s: float) -> VideoResult:
        """The last outputs, for a frame of which all blocks match."""
        self._back_off.repeated()
        if not self.settings.composite:
            self._reference.restart(photo)
        self._expiry.note(whole=False)
        self._number += 1
        took_ms = 1e3 * (self._clock.monotonic() - began_s)
        return VideoResult(
            self._number - 1, outputs, "", 1.0, 0.0, (0, 0), self._all_blocks, took_ms, 0.0, None
        )

    def _tensor(self, photo: Frame) -> Tensor:
        return scaled_tensor(photo, self.network.input, self._pixels)

    def _reason_before_matching(self, photo: Frame) -> str:
        """Reason, known before matching, why the frame must be executed whole; empty if there is none."""
        self._gate_repeats = not self._glances and self._gate.repeats(photo, self.threshold_db)
        reference = self._reference.pixels
        if reference is None:
            return FIRST
        if self._guard.pauses():
            return PAUSED
        if self._rested:
            return self.network.why_whole or SKIPPED
        if not self._glances:
            self._difference = sampled_difference(photo, reference, _PROBED_ROWS)
            if self.network.why_whole and self._difference > Blocks.mean_squared_error(self.threshold_db):
                return self.network.why_whole
            skips = self._back_off.skips(self._difference)
            if skips and not self._grid.all_match(photo, reference, self.threshold_db):
                return SKIPPED
        expires = self._expiry.expires(still=False) or (
            self._expiry.expires(still=True) and self._grid.all_match(photo, reference, self.threshold_db)
        )
        return EXPIRED if expires else ""

    def _match(
        self, photo: Frame, began_s: float, attend: Sequence[Rectangle], shape: tuple[int, ...]
    ) -> _Matched:
        reference = self._reference.pixels
        if reference is None:
            raise InternalError("the first frame has no reference to match")
        match = self._matcher.match(self._window.at.cut(photo), reference)
        match = self._window.follow(photo, reference, match, self.threshold_db)
        if self._budget is not None and self.settings.budget_ms is not None:
            errors = self._grid.squared_errors(self._window.at.cut(photo), reference, match.offset)
            strict = self._grid.intersecting([self._window.at.in_window(one, shape) for one in attend])
            spent_ms = 1e3 * (self._clock.monotonic() - began_s)
            left_ms = self.settings.budget_ms - spent_ms
            computed = self._budget.choose(match, errors, strict, left_ms, self.network.expected_ms)
        elif match.matched.all():
            return _Matched(match, match.matched, [])
        elif self.network.why_whole:
            computed = (Rectangle(0, 0, self._grid.rows, self._grid.columns),)
        else:
            computed = covering(~match.matched, self._regions)
        kept, changed = np.ones_like(match.matched), list[Rectangle]()
        for blocks in computed:
            kept[blocks.top : blocks.bottom, blocks.left : blocks.right] = False
            changed.append(self._grid.region(blocks))
        return _Matched(match, kept, changed)

    def _answer(
        self, photo: Frame, why: str, found: _Matched | None
    ) -> tuple[dict[str, Tensor], str, float | None]:
        """Outputs; the reason for a whole execution; and the deviation of reused outputs, if measured."""
        reused = self._reuse(photo, found) if found else None
        if found and not why and reused is None:
            why = self.network.why_whole or (NO_SAVING if found.match.matched.any() else NO_MATCH)
        if reused is not None and not why:
            return reused, "", None
        outputs = self._compute(photo, why, found)
        return outputs, why, None if reused is None else self._note_deviation(reused, outputs)

    def _reuse(self, photo: Frame, found: _Matched) -> dict[str, Tensor] | None:
        """Outputs with reuse of cached maps; None if reuse would save no time."""
        offset, changed = found.match.offset, found.changed
        if not found.kept.any() or (found.differs and not self.network.would_reuse(changed, offset)):
            return None
        if self.settings.composite:
            given = self._reference.update(photo, offset, changed)
        else:
            given = self._reference.restart(photo)
        if not found.differs and (answer := self.network.unchanged()):
            return answer
        return self.network.run(self._tensor(given), changed, offset)

    def _compute(self, photo: Frame, why: str, found: _Matched | None) -> dict[str, Tensor]:
        """Outputs of a whole execution.

        The changed rectangles let the network decide whether to store its maps. Under a budget the next frame
        needs them in any case.
        """
        tensor = self._tensor(self._reference.restart(photo))
        if found is not None and why != EXPIRED and self._budget is None:
            return self.network.run(tensor, found.changed, found.match.offset)
        all_changed = found is None and why in (SKIPPED, NO_SAVING)
        return self.network.run(tensor, self._everything if all_changed else None)

    def _record(self, why: str, found: _Matched | None, took_ms: float, network_ms: float) -> None:
        """Update the back-off, the budget and the counters from a frame's result."""
        if why == SKIPPED:
            self._back_off.whole(took_ms)
        elif found and why != EXPIRED and (found.differs or not (self._glances or self._gate_repeats)):
            if not why:
                self._back_off.reused(self._difference, took_ms, repeats=self._gate_repeats)
            elif why == NO_SAVING and self.network.would_reuse(found.changed, found.match.offset):
                self._back_off.try_next()  # no maps were cached for this frame; now they are
            else:
                self._back_off.not_reused(
                    self._difference, took_ms - network_ms, network_ms, repeats=self._gate_repeats
                )
        if self._budget is not None:
            self._budget.note(~found.kept if found and not why else None)
            if found and found.differs and why != EXPIRED:
                expected_ms = self.network.expected_ms(found.changed, found.match.offset)
                self._budget.note_time(network_ms, expected_ms)
        self._expiry.note(whole=bool(why))
        self._number += 1

    def _note_deviation(self, found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
        deviation = deviation_of(found, expected)
        self._guard.note(deviation)
        self._shifts.threshold_db = self.threshold_db
        if self._budget is not None:
            self._budget.loosest_db = LOOSEST_DB + max(self._guard.adjustment_db, 0.0)
        return deviation

    def _recomputed(self) -> float:
        reports = self.network.explain()
        whole_ms = sum(one.whole_ms for one in reports)
        return sum(one.share * one.whole_ms for one in reports) / whole_ms if whole_ms else 0.0


class _Matched(NamedTuple):
    """Result of matching a frame with the reference."""

    match: Match
    kept: NDArray[np.bool_]
    """(R, C): blocks that are reused."""
    changed: list[Rectangle]
    """Rectangles of all other blocks [pixels]."""

    @property
    def differs(self) -> bool:
        """Whether anything changed or moved."""
        return bool(self.changed) or self.match.offset != (0, 0)


def find_network(model: str, repository: str | Path | None) -> tuple[Path, Manifest | None]:
    """Path of a network's file, and its manifest if it is in a repository."""
    if repository is not None:
        models = ModelRepository(Path(repository))
        stored = models.get(model)
        return models.checked_path(stored), stored
    if not Path(model).is_file():
        raise NotFound(f"there is no file {model!r}", advice="give the path of a network (.onnx)")
    return Path(model), None
