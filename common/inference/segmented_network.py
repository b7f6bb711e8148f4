"""Executes a network in segments, frame by frame: each segment is kept, executed on crops, or executed whole.

For each segment the cells that may change are determined, and the action with the lowest expected time is
chosen. Feature maps between segments stay in memory. If nothing can be reused, a frame runs as one segment,
as in a session without a cache. No maps are stored then, until a frame arrives for which they would have
paid.

With a tolerance, recomputed cells that hardly differ count as unchanged. So changes may end inside the
network, and the actions are chosen again from segment to segment.

Sources: DeepCache, section 5; `map_changes`. Differences: decisions 054 and 062.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from nearsight.common.inference.process_memory import in_huge_pages
from nearsight.common.inference.reuse_cost import (
    HANDLING_MS,
    MARGIN,
    Costs,
    SegmentCost,
    fitted_cost,
    measured_ms,
    merged,
    middle_of,
    sample_crops,
)
from nearsight.common.inference.runtime import SAVED_GRAPH, Network, Runtime
from nearsight.common.inference.segment_execution import (
    CachedMap,
    Crop,
    LoadedSegment,
    Scratch,
    WholeSegment,
)
from nearsight.common.inference.segments import TAIL, Segments
from nearsight.common.inference.tensors import Tensor
from nearsight.common.video.regions import Rectangle, without_contained

_MOST_CROPS = 4
"""Maximum number of crops per segment and frame."""
UNMOVED = (0, 0)
"""Offset between frames of a camera at rest."""
_MOST_CHANGED = 0.9
"""If more than this share of a map changed, all segments after it run whole."""
_WEIGHT, _DECAY = 0.2, 0.98
"""Weight of the newest measurement in a running mean; factor by which that mean decays per frame."""
_COMPARED_MS = 5.0
"""Recomputed cells are compared only if this much time follows the segment. Comparing a crop takes 0.1 ms."""
_SHORT_TAIL_BYTES = 8_000_000
"""Limit for a second copy of the tail's weights. Up to it a whole frame is one call, tail included."""


class SegmentReport(NamedTuple):
    """How one segment was executed for the last frame.

    Attributes
    ----------
    name : str
        Name of the segment's last output map.
    done : str
        "kept", "regions" or "whole".
    share : float
        Share of the segment's area that was executed.
    whole_ms : float
        Measured time of a whole execution.
    """

    name: str
    done: str
    share: float
    whole_ms: float


class _Action(NamedTuple):
    """Action for a segment: no crops (keep the maps), some crops, or a whole execution (None)."""

    crops: Sequence[Crop] | None
    expected_ms: float


_WHOLE, _KEPT = _Action(None, math.inf), _Action((), 0.0)


class SegmentedNetwork:
    """All segments of a network in memory, and the maps between them.

    The maps of the first segments are kept for the next frame, as far as this saves time. The other segments
    run as one. Not thread-safe.

    Parameters
    ----------
    runtime : Runtime
    folder : Path
        Folder of the segments' files.
    name : str
    segments : Segments
    costs : Costs, optional
        Measured costs. By default all segments run whole.
    uncut : Network, optional
        Executes whole frames; the caller closes it. Required without segments.

    Attributes
    ----------
    source : CachedMap
        The input.
    tolerance : float
        Recomputed cells count as unchanged if they differ by less than this share of the standard deviation
        of their map. 0: all count as changed.
    loaded : list of LoadedSegment
    rests : list of WholeSegment
        ``rests[i]`` executes all segments from number i on as one.
    """

    def __init__(
        self,
        runtime: Runtime,
        folder: Path,
        name: str,
        segments: Segments,
        costs: Costs | None = None,
        *,
        uncut: Network | None = None,
    ) -> None:
        self._networks = list[Network]()

        def load(file: str, *, pooled: bool = True) -> Network:
            network = runtime.load(folder / file, f"{name} ({file})", saved=True, pooled=pooled)
            self._networks.append(network)
            return network

        maps, scratch = {one: CachedMap(one, layout) for one, layout in segments.layouts.items()}, Scratch()
        self.source = maps[segments.source]
        self.costs, self.tolerance = costs or Costs.unknown(len(segments.segments)), 0.0
        self.loaded = [LoadedSegment(one, load(one.file), maps, scratch) for one in segments.segments]
        self.rests = [WholeSegment(one, load(one.file), maps) for one in segments.rests]
        self._outputs = [maps[one] for one in segments.outputs]
        self._tail: Network | None = None
        if (folder / TAIL).is_file():
            # Fully connected layers take 5 to 14 % longer if their packed weights are in the pool.
            with in_huge_pages():
                self._tail = load(TAIL, pooled=False)
        short = self._tail is None or segments.tail_bytes <= _SHORT_TAIL_BYTES
        self._uncut = load(SAVED_GRAPH) if short and costs is not None else uncut
        self._tail_sources = [maps[one] for one in segments.tail_sources]
        self._read_later = _maps_read_later(segments)
        self.reset()

    def reset(self) -> None:
        """Discard the maps of the last frame."""
        self._valid_segments = 0
        """Number of segments whose maps belong to the last frame."""
        self._usable_segments = len(self.loaded)
        """Number of segments whose maps the last frames could have used."""
        self._handling_ms = HANDLING_MS
        """Time per segment, in partial executions, beyond that of the crops [ms]; a decaying mean."""
        self._slowdown = 1.0
        """Time of whole executions relative to their measured costs, as a running mean. Other processes delay
        crops and whole executions alike, and do not make reuse less useful."""
        self._whole_spent_ms = 0.0
        """Time of the last frame's whole executions, of segments or more."""
        self._answer: dict[str, Tensor] = {}
        self._answer_kept = False
        self._last_actions: list[_Action] = []
        self._last_plan: tuple[object, list[_Action]] | None = None
        self._differing = [1.0] * len(self.loaded)
        """Share of the recomputed cells of each segment that differed, as a running mean."""

    def warm_up(self) -> None:
        """Execute all segments, and the network as one, on zeros.

        The first executions are slow, because memory is allocated. No frame should wait for them.
        """
        for actions in ([_WHOLE] * len(self.loaded), ()):
            self.execute(actions, UNMOVED)
        self.reset()

    def run(
        self, frame: Tensor, changed: Sequence[Rectangle] | None, offset: tuple[int, int]
    ) -> dict[str, Tensor]:
        """As `PartialNetwork.run`, for a frame in C order that was already checked."""
        self.source.use_memory(frame)
        if changed is None:
            return self.execute([_WHOLE] * self._usable_segments, UNMOVED)
        if changed and (not self.loaded or _is_mostly_changed(self.source, changed)):
            self._usable_segments = 0
            return self.execute((), UNMOVED)
        if offset == UNMOVED and not any(one.area for one in changed) and (answer := self.unchanged()):
            return answer
        actions = self._planned(changed, offset)
        self._handling_ms *= _DECAY  # or else it would not be measured again after some slow executions
        self._usable_segments = len(actions)
        in_part = len(actions) <= self._valid_segments and any(action.crops is not None for action in actions)
        actions[self._valid_segments :] = [_WHOLE] * (len(actions) - self._valid_segments)
        before, began_s = self._answer, time.thread_time()
        answer = self.execute(actions, offset, changed)
        if in_part and answer is not before:
            spent_ms = 1e3 * (time.thread_time() - began_s) - self._whole_spent_ms
            crops = [one for one in self._last_actions[: len(actions)] if one.crops is not None]
            excess_ms = spent_ms / self._slowdown - sum(one.expected_ms for one in crops)
            self._handling_ms += _WEIGHT * (excess_ms / len(actions) - self._handling_ms)
            self._last_plan = None
        return answer

    def run_whole(self, frame: Tensor) -> dict[str, Tensor]:
        """As `PartialNetwork.run_whole`, for a frame as in `run`."""
        self._usable_segments = 0
        if self._uncut is None:
            self.source.use_memory(frame)
            return self.execute((), UNMOVED)
        self._valid_segments = 0
        self._last_actions, self._answer_kept = [_WHOLE] * len(self.loaded), False
        self._answer = self._uncut.run_checked({self.source.name: frame})
        for tensor in self._answer.values():
            tensor.setflags(write=False)
        return self._answer

    @property
    def whole_ms(self) -> float:
        """Measured time of a whole execution; 0 if it is unknown."""
        return self.costs.rests_ms[0] + self.costs.tail_ms

    @property
    def stride(self) -> tuple[int, int]:
        """Stride of offsets [pixels] at which segments with at least half of the time can be reused."""
        stride = (1, 1)
        for segment, rest_ms in zip(self.loaded, self.costs.rests_ms, strict=False):
            if rest_ms <= self.costs.rests_ms[0] / 2:
                break
            stride = math.lcm(stride[0], segment.unit[0]), math.lcm(stride[1], segment.unit[1])
        return stride

    def would_reuse(self, changed: Sequence[Rectangle], offset: tuple[int, int]) -> bool:
        """As `PartialNetwork.would_reuse`."""
        return bool(self._valid_segments) and any(
            action.crops is not None for action in self._planned(changed, offset)
        )

    def expected_ms(self, changed: Sequence[Rectangle], offset: tuple[int, int]) -> float:
        """As `PartialNetwork.expected_ms`."""
        unchanged = offset == UNMOVED and not any(one.area for one in changed)
        return 0.0 if unchanged else self._sum_ms(self._planned(changed, offset))

    def saved_ms(self, changed: Rectangle) -> float:
        """Expected saving against a whole execution if this rectangle changed and nothing moved."""
        return self.whole_ms - self._sum_ms(self.plan([changed], UNMOVED))

    def _sum_ms(self, actions: Sequence[_Action]) -> float:
        """Expected time of a plan, including the segments after it and the tail."""
        behind_ms = self.costs.rests_ms[len(actions)] + self.costs.tail_ms
        return sum(one.expected_ms for one in actions) + behind_ms

    def _planned(self, changed: Sequence[Rectangle], offset: tuple[int, int]) -> list[_Action]:
        """As `plan`; the last plan is reused for the same changes."""
        key = tuple(changed), offset
        if self._last_plan is None or self._last_plan[0] != key:
            self._last_plan = key, self.plan(changed, offset)
        return list(self._last_plan[1])

    def plan(self, changed: Sequence[Rectangle], offset: tuple[int, int]) -> list[_Action]:
        """Actions for the first segments; the others run as one. Empty if reuse does not pay."""
        found: dict[str, Sequence[Rectangle]] = {self.source.name: self._inside(changed)}
        actions, spent_ms, handling_ms = list[_Action](), 0.0, max(0.0, self._handling_ms)
        best_ms, best = MARGIN * self.costs.rests_ms[0], 0
        for number, (segment, cost, rest_ms) in enumerate(
            zip(self.loaded, self.costs.segments, self.costs.rests_ms[1:], strict=True)
        ):
            if any(offset[axis] % segment.unit[axis] for axis in (0, 1)):
                break
            action = self._choose_action(segment, cost, found, offset)
            actions.append(action)
            if self._compares(number) and action.crops is not None:
                for target in segment.targets:
                    found[target.name] = [
                        middle_of((one.height, one.width), math.sqrt(self._differing[number])).moved(*one[:2])
                        for one in found[target.name]
                    ]
            spent_ms += action.expected_ms + handling_ms
            if spent_ms + rest_ms < best_ms:
                best_ms, best = spent_ms + rest_ms, len(actions)
            if spent_ms > best_ms or all(_is_mostly_changed(one, found[one.name]) for one in segment.targets):
                break
        return actions[:best]

    def _choose_action(
        self,
        segment: LoadedSegment,
        cost: SegmentCost,
        found: dict[str, Sequence[Rectangle]],
        offset: tuple[int, int],
    ) -> _Action:
        """Choose the action for a segment, and add the changed cells of its targets to ``found``."""
        reached = segment.changed(found, offset)
        crops = []
        for number, target in enumerate(segment.targets):
            changed = found[target.name] = without_contained([one for to, one in reached if to == number])
            crops += [segment.crop(number, one) for one in changed]
        crops = merged(crops, segment, cost, _MOST_CROPS)
        expected_ms = cost.crops_ms(crops, segment.size[0] * segment.size[1])
        if expected_ms >= MARGIN * cost.whole_ms:
            return _Action(None, cost.whole_ms)
        # All cells that a crop writes count as changed. So the next segment has no more rectangles than this
        # one.
        for number, target in enumerate(segment.targets):
            found[target.name] = [wanted for one in crops if (wanted := one.wanted[number]).area]
        return _Action(crops, expected_ms)

    def execute(
        self, actions: Sequence[_Action], offset: tuple[int, int], changed: Sequence[Rectangle] | None = None
    ) -> dict[str, Tensor]:
        """Execute a plan. Crops need maps of the last frame, and the rectangles for which they were planned.

        With a tolerance, actions for the maps of the last frame are chosen again, as fewer cells may have
        changed than the plan could know. If none is left that the others read, the outputs are the last ones.
        """
        self._last_actions = [*actions, *[_WHOLE] * (len(self.loaded) - len(actions))]
        self._whole_spent_ms = 0.0
        if self._run_segments(len(actions), offset, changed):
            self._run_rest(len(actions))
        return self._answer

    def _note_whole(self, began_s: float, cost_ms: float) -> None:
        """Record a whole execution with this measured cost."""
        spent_ms = 1e3 * (time.thread_time() - began_s)
        self._whole_spent_ms += spent_ms
        if 0.0 < cost_ms < math.inf:
            weight = _WEIGHT * cost_ms / self.whole_ms  # short executions say little
            self._slowdown += weight * (spent_ms / cost_ms - self._slowdown)

    def _run_segments(self, count: int, offset: tuple[int, int], changed: Sequence[Rectangle] | None) -> bool:
        """Execute the first segments; returns False if all maps that the others read are unchanged."""
        valid, self._valid_segments = self._valid_segments, 0  # until all maps belong to this frame
        adapted = valid if valid and changed is not None and self._compares(0) else 0
        found: dict[str, Sequence[Rectangle]] = {self.source.name: self._inside(changed or ())}
        for number, segment in enumerate(self.loaded[:count]):
            action = self._last_actions[number]
            if number < adapted:
                action = self._choose_action(segment, self.costs.segments[number], found, offset)
                self._last_actions[number] = action
            compares = number < adapted and self._compares(number)
            if offset != UNMOVED and (action.crops is not None or compares):
                for target in segment.targets:
                    pitch = target.layout.pitch
                    target.shift((int(offset[0] / pitch[0]), int(offset[1] / pitch[1])))
            if action.crops is None:
                before = [one.stored.copy() for one in segment.targets] if compares else []
                began_s = time.thread_time()
                segment.run_whole()
                self._note_whole(began_s, self.costs.segments[number].whole_ms)
                for target, values in zip(segment.targets, before, strict=False):
                    found[target.name] = target.keep_similar(values, self.tolerance)
                if self._compares(number):
                    for target in segment.targets:
                        if changed is None or not target.variance:
                            target.estimate_variance()
                continue
            found |= self._run_crops(number, action.crops)
            if adapted and offset == UNMOVED and not any(map(found.get, self._read_later[number])):
                self._last_actions[number + 1 :] = [_KEPT] * (len(self.loaded) - number - 1)
                self._valid_segments, self._answer_kept = valid, True
                return False
        return True

    def _run_crops(self, number: int, crops: Sequence[Crop]) -> dict[str, list[Rectangle]]:
        """Execute crops of a segment; returns the cells of its targets that changed."""
        segment, tolerance = self.loaded[number], self.tolerance if self._compares(number) else 0.0
        changed: dict[str, list[Rectangle]] = {one.name: [] for one in segment.targets}
        recomputed = differing = 0.0
        for crop in crops:
            stored = segment.run_crop(crop, tolerance)
            for target, wanted, parts in zip(segment.targets, crop.wanted, stored, strict=True):
                changed[target.name] += parts
                recomputed += wanted.area / target.whole.area
                differing += sum(one.area for one in parts) / target.whole.area
        if recomputed and tolerance:
            self._differing[number] += _WEIGHT * (differing / recomputed - self._differing[number])
        return changed

    def _run_rest(self, start: int) -> None:
        """Execute everything from segment number ``start`` on."""
        began_s = time.thread_time()
        if not start and self._uncut is not None:
            self._answer = self._uncut.run_checked({self.source.name: self.source.stored})
        else:
            if start < len(self.loaded):
                self.rests[start].run_whole()
            self._answer = self.run_tail() | {one.name: one.values() for one in self._outputs}
        self._valid_segments, self._answer_kept = start, False
        self._note_whole(began_s, self.costs.rests_ms[start] + self.costs.tail_ms)
        for tensor in self._answer.values():
            tensor.setflags(write=False)

    def unchanged(self) -> dict[str, Tensor]:
        """Outputs of a frame without changes: those of the last frame. Empty before the first one."""
        self._last_actions, self._answer_kept = [_KEPT] * len(self.loaded), True
        return self._answer

    def _compares(self, number: int) -> bool:
        """Whether a segment's recomputed cells are compared with the cached ones."""
        return bool(self.tolerance) and self.costs.rests_ms[number + 1] + self.costs.tail_ms >= _COMPARED_MS

    def _inside(self, changed: Sequence[Rectangle]) -> list[Rectangle]:
        """The parts of these rectangles that lie inside the frame."""
        return [one for given in changed if (one := given.intersection(self.source.whole)).area]

    def run_tail(self) -> dict[str, Tensor]:
        """Execute the tail on the current maps, and return its outputs."""
        if self._tail is None:
            return {}
        return self._tail.run_checked(
            {one.name: one.stored.reshape(one.layout.shape) for one in self._tail_sources}
        )

    def measured(self) -> Costs:
        """Measure the costs of all segments. `source` must hold a sample."""
        runs = [one.run_whole for one in (*self.loaded, *self.rests)]
        *times_ms, tail_ms = measured_ms([*runs, self.run_tail])
        crops = [sample_crops(one) for one in self.loaded]
        by_size = [
            measured_ms([partial(one.run_crop, crop) for one, crop in zip(self.loaded, same, strict=True)])
            for same in zip(*crops, strict=True)
        ]
        segments = tuple(map(fitted_cost, self.loaded, times_ms, crops, zip(*by_size, strict=True)))
        return Costs(segments, (*times_ms[len(self.loaded) :], 0.0), tail_ms)

    def explain(self) -> tuple[SegmentReport, ...]:
        """As `PartialNetwork.explain`. The last report describes the tail."""
        reports = []
        for segment, action, cost in zip(self.loaded, self._last_actions, self.costs.segments, strict=False):
            units = segment.size[0] * segment.size[1]
            areas = [units] if action.crops is None else [one.units.area for one in action.crops]
            done = "whole" if action.crops is None else "regions" if action.crops else "kept"
            reports.append(SegmentReport(segment.targets[-1].name, done, sum(areas) / units, cost.whole_ms))
        if self._tail is not None and reports:
            done = "kept" if self._answer_kept else "whole"
            reports.append(SegmentReport("tail", done, float(not self._answer_kept), self.costs.tail_ms))
        return tuple(reports)

    def close(self) -> None:
        """Drop all segments and free their memory."""
        for network in self._networks:
            network.close()


def _is_mostly_changed(target: CachedMap, regions: Sequence[Rectangle]) -> bool:
    return sum(one.area for one in regions) > _MOST_CHANGED * target.whole.area


def _maps_read_later(segments: Segments) -> list[frozenset[str]]:
    """For each segment: the maps that are read by later segments or the tail, or are outputs."""
    read, found = frozenset((*segments.tail_sources, *segments.outputs)), list[frozenset[str]]()
    for segment in reversed(segments.segments):
        found.append(read)
        read |= frozenset(segment.sources)
    return found[::-1]
