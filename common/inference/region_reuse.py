"""Executes a network frame by frame, and recomputes only what changed since the last frame.

On first use the network is cut into segments for the shape of its frames, this version of the runtime and
this processor. This takes seconds; the result is stored in a folder. A network that cannot be cut, or whose
segments give different outputs, runs whole. While the folder cannot be written, all networks run whole. The
execution of a frame is in `segmented_network`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from nearsight.common.errors import Cancelled, CorruptStore, InvalidArgument, NearsightError
from nearsight.common.folder_lock import locked
from nearsight.common.inference.graph_partitioning import OptimisedGraph
from nearsight.common.inference.process_memory import return_freed_memory
from nearsight.common.inference.reuse_cost import Costs, choose_cuts, middle_of, typical_changes
from nearsight.common.inference.runtime import ANY_SIDE_PX, Network, Runtime
from nearsight.common.inference.saved_graphs import (
    SavedGraphs,
    complete,
    digest_of,
    save_optimised,
    temporary_folder,
)
from nearsight.common.inference.segmented_network import UNMOVED, SegmentedNetwork, SegmentReport
from nearsight.common.inference.segments import REUSED, Layout, Segments
from nearsight.common.inference.tensors import Tensor, check_inputs
from nearsight.common.logging import get_logger
from nearsight.common.video.regions import Rectangle

_SEGMENTS, _FORMAT = "segments.json", 4
"""``_FORMAT`` increases when segments are stored in another way or other operators end the reuse."""
_MAPS_MB = 32.0
"""Maximum memory of the cached maps. The maps at the end of the last segment are stored even if they exceed
it."""
_SHARES = tuple(tenths / 10 for tenths in range(1, 10))
_TOLERANCE = 1e-5
"""Tolerance relative to the largest value. Another order of additions causes smaller differences."""


@dataclass(frozen=True)
class _Stored:
    """Result of cutting a network, for a file and these settings."""

    digest: str
    settings: tuple[int, float, float]
    why_whole: str = ""
    warns: bool = False
    """Whether the reason is unexpected."""
    segments: Segments | None = None
    """None: the network always runs whole."""
    costs: Costs | None = None


_STORED = TypeAdapter(_Stored)


class PartialNetwork:
    """A network that recomputes only what changed from frame to frame. Not thread-safe.

    On first use the network is cut into segments and measured, which takes seconds. The result is stored in a
    folder, for this version of the runtime and this processor.

    Parameters
    ----------
    runtime : Runtime
    path : Path
        The network's file. The network must have one input, of images.
    name : str
    folder : Path
        Folder in which its segments are stored.
    size : tuple of int, optional
        Rows and columns of frames if the network leaves them open. Default: 224, 224.
    least_saved_ms : float
        Minimum saving for a frame of which a tenth changed. Matching, planning and calls take about as long.

    Attributes
    ----------
    threads : int
        Threads of an execution.
    input : TensorSpec
    outputs : tuple of TensorSpec
    stride : tuple of int
        Rows, columns. Offsets between frames should be multiples of it: then segments with at least half of
        the time can be reused. (1, 1) if no regions are reused.
    why_whole : str
        Reason why every changed frame runs whole; empty if regions are reused.
    most_changed : float
        Largest changed share of a frame, in its middle, for which reuse is expected to save at least
        `least_saved_ms`.

    Raises
    ------
    CorruptStore
        If the file is not a network.
    InvalidArgument
        If the network takes anything but single images.
    """

    def __init__(
        self,
        runtime: Runtime,
        path: Path,
        name: str,
        folder: Path,
        *,
        size: tuple[int, int] | None = None,
        least_saved_ms: float = 1.0,
    ) -> None:
        self._runtime, self._path, self._name, self._folder = runtime, path, name, folder
        self.threads = runtime.threads
        self._least_saved_ms, self._closed = least_saved_ms, False
        self._log = get_logger("models")
        self._plain: Network | None = runtime.load(path, name, pooled=True)
        if len(self._plain.inputs) != 1:
            raise InvalidArgument(
                f"{name} has {len(self._plain.inputs)} inputs", advice="use a network with one input"
            )
        self.input, self.outputs = self._plain.inputs[0], self._plain.outputs
        self._shape, self._dtype = self._shape_of(size), np.dtype(self.input.dtype)
        self._segmented: SegmentedNetwork
        self._open()

    def run(
        self, frame: Tensor, changed: Sequence[Rectangle] | None = None, offset: tuple[int, int] = UNMOVED
    ) -> dict[str, Tensor]:
        """Execute the network for one frame; returns the outputs by name, read-only.

        Parameters
        ----------
        frame : ndarray
            (1, C, H, W) or (1, H, W, C), as the network's input. If the shape differs from the last frame's
            and the network accepts it, the network is cut again.
        changed : sequence of Rectangle, optional
            Rows and columns that differ from the last frame, at the offset. None: the whole frame is
            computed.
        offset : tuple of int
            Rows, columns: pixel p of this frame corresponds to p + offset of the last frame. Segments whose
            stride does not divide it run whole.

        Raises
        ------
        InvalidArgument
            If the frame does not match the input.
        InternalError
            If the library fails.
        Cancelled
            If the network is closed.
        """
        if self._closed:
            raise Cancelled(f"{self._name} is closed", advice="open the network or the session again")
        tensor = frame
        if frame.shape != self._shape or frame.dtype != self._dtype:
            tensor = check_inputs(self._name, (self.input,), {"": frame})[self.input.name]
        tensor = np.ascontiguousarray(tensor)
        if tensor.shape != self._shape:
            if tensor.shape[0] != 1:
                raise InvalidArgument(f"{self._name} got {tensor.shape[0]} frames at once, expected one")
            tolerance = self.tolerance
            self._segmented.close()
            self._shape, changed = tensor.shape, None
            self._open()
            self.tolerance = tolerance
        return self._in_order(self._segmented.run(tensor, changed, offset))

    def run_whole(self, frame: Tensor) -> dict[str, Tensor]:
        """As `run` for a frame that changed everywhere: no maps are stored, the next frame cannot reuse any.

        Takes few steps. After an execution each step is slow, because the processor's caches hold the
        network's data.
        """
        if self._closed or frame.shape != self._shape or frame.dtype != self._dtype:
            return self.run(frame, [Rectangle(0, 0, *self._segmented.source.layout.size)])
        return self._in_order(self._segmented.run_whole(frame))

    def unchanged(self) -> dict[str, Tensor]:
        """Outputs of a frame without changes, for which no tensor is needed; empty before the first frame."""
        return self._in_order(self._segmented.unchanged())

    def explain(self) -> tuple[SegmentReport, ...]:
        """How each segment was executed for the last frame."""
        return self._segmented.explain()

    def would_reuse(self, changed: Sequence[Rectangle], offset: tuple[int, int] = UNMOVED) -> bool:
        """Whether `run` would reuse maps of the last frame."""
        return self._segmented.would_reuse(changed, offset)

    def expected_ms(self, changed: Sequence[Rectangle], offset: tuple[int, int] = UNMOVED) -> float:
        """Expected time of `run` from measured costs [ms], if the maps of the last frame are cached."""
        return self._segmented.expected_ms(changed, offset)

    @property
    def tolerance(self) -> float:
        """Tolerance inside the network, as a share of the standard deviation of a map's values.

        Recomputed cells that differ by less keep their cached values and count as unchanged. 0, the default:
        outputs are those of a whole execution.
        """
        return self._segmented.tolerance

    @tolerance.setter
    def tolerance(self, share: float) -> None:
        self._segmented.tolerance = share

    @property
    def whole_ms(self) -> float:
        """Time of a whole execution, measured when the network was cut; 0 if it always runs whole."""
        return self._segmented.whole_ms

    def reset(self) -> None:
        """Discard the last frame, before the first frame of another clip."""
        self._segmented.reset()

    def close(self) -> None:
        """Drop the network and free its memory."""
        self._segmented.close()
        self._segmented = self._without_segments(None)
        self._drop_plain()
        self._closed = True

    def _shape_of(self, size: tuple[int, int] | None) -> tuple[int, ...]:
        """Shape of one frame, for which the graph is optimised."""
        shape = self.input.shape
        if (
            len(shape) != 4
            or shape[0] not in (None, 1)
            or (None in (shape[1], shape[3]) and shape[1] == shape[3])
        ):
            raise InvalidArgument(f"the input of {self._name} is {self.input}, expected one image")
        last = shape[3] is not None and (shape[1] is None or shape[3] < shape[1])
        rows, columns = size or (None, None)
        sizes = (1, rows, columns, None) if last else (1, None, rows, columns)
        return tuple(
            known if known is not None else given or ANY_SIDE_PX
            for known, given in zip(shape, sizes, strict=True)
        )

    def _in_order(self, answer: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Sort outputs in the order that the network declares."""
        return {one.name: answer[one.name] for one in self.outputs} if answer else {}

    def _whole_network(self) -> Network:
        if self._plain is None:
            self._plain = self._runtime.load(self._path, self._name, pooled=True)
        return self._plain

    def _drop_plain(self) -> None:
        if self._plain is not None:
            self._plain.close()
            self._plain = None

    def _without_segments(self, uncut: Network | None) -> SegmentedNetwork:
        """Executes every changed frame whole, with this network."""
        layouts = {self.input.name: Layout.of_frame(self._shape, self.input.dtype)}
        segments = Segments(self.input.name, layouts, (), (), (), (), 0)
        return SegmentedNetwork(self._runtime, self._folder, self._name, segments, uncut=uncut)

    def _open(self) -> None:
        """Load the segments for the current shape, and create them first if there are none."""
        self._segmented = self._without_segments(self._whole_network())
        folder = self._folder / "x".join(map(str, self._shape))
        key = _Stored(digest_of(self._path), (_FORMAT, _MAPS_MB, self._least_saved_ms))
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
        with locked(self._folder):  # another process that opens this network would delete unfinished segments
            found = self._find(folder, key) or self._prepare(folder, key)
        self.why_whole, self.stride, self.most_changed = found.why_whole, (1, 1), 0.0
        if found.segments is None:
            log = self._log.warning if found.warns else self._log.info
            log("changed frames are executed whole", network=self._name, reason=self.why_whole)
            self._segmented.warm_up()
            return
        self._segmented = SegmentedNetwork(self._runtime, folder, self._name, found.segments, found.costs)
        self._segmented.warm_up()
        self.stride = self._segmented.stride
        self.most_changed = max(
            (
                share
                for share in _SHARES
                if self._segmented.saved_ms(middle_of(self._segmented.source.layout.size, share**0.5))
                >= self._least_saved_ms
            ),
            default=0.0,
        )
        self._drop_plain()
        return_freed_memory()

    def _find(self, folder: Path, key: _Stored) -> _Stored | None:
        """Load what was stored for this file and these settings; None if it is missing or outdated."""
        try:
            if SavedGraphs(self._runtime.version).find(folder) is not None:
                found = _STORED.validate_json((folder / _SEGMENTS).read_bytes())
                if (found.digest, found.settings) == (key.digest, key.settings):
                    return found
        except ValidationError:
            self._log.info("stored segments have another format", network=self._name)
        except CorruptStore as error:
            self._log.warning(
                "stored segments are unusable and are prepared again", network=self._name, error=error.message
            )
        return None

    def _prepare(self, folder: Path, key: _Stored) -> _Stored:
        """Cut, measure, compare outputs, and store the result; returns what `_find` would return."""
        temporary = temporary_folder(folder)
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            temporary.mkdir(parents=True)
            try:
                stored = replace(key, **self._cut(temporary))
            except InvalidArgument as error:
                stored = replace(key, why_whole=error.message, warns=True)
            (temporary / _SEGMENTS).write_text(json.dumps(_STORED.dump_python(stored, mode="json")))
            complete(self._runtime.version, folder)
        except (NearsightError, OSError) as error:  # such as a full disk; tried again the next time
            done = "saved" if isinstance(error, OSError) else "executed"
            return replace(key, why_whole=f"its segments cannot be {done}: {error}", warns=True)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return stored

    def _cut(self, temporary: Path) -> dict[str, Any]:
        """Segments with their costs, or the reason why segments would save no time.

        Raises
        ------
        InvalidArgument
            If nothing can be reused.
        """
        if self._dtype.name not in REUSED:
            raise InvalidArgument(f"its input is {self._dtype}; only {', '.join(REUSED)} can be reused")
        rng = np.random.default_rng(0)
        sample = _noise(rng, self._shape, self._dtype)
        plain, name = self._whole_network(), self._name
        sizes = plain.axis_sizes({self.input.name: self._shape})
        save_optimised(self._runtime, self._path, name, temporary, sizes).close()
        graph = OptimisedGraph(self._runtime, temporary, sample)
        positions = [cut.position for cut in graph.cuts]
        pieces = SegmentedNetwork(self._runtime, temporary, name, graph.write(positions, rests=1))
        pieces.source.use_memory(sample)
        positions = choose_cuts(
            graph.cuts, pieces.loaded, pieces.measured(), graph.layouts, int(_MAPS_MB * 1e6)
        )
        pieces.close()
        for file in temporary.glob("segment-*"):
            file.unlink()
        segments = graph.write(positions)
        loaded = SegmentedNetwork(self._runtime, temporary, name, segments)
        loaded.source.use_memory(sample)
        loaded.costs = costs = loaded.measured()
        saved_ms = loaded.saved_ms(typical_changes(loaded.source.layout.size)[0])
        if saved_ms < self._least_saved_ms:
            saved = f"{max(saved_ms, 0.0):.2f} of {loaded.whole_ms:.2f} ms"
            loaded.close()
            return {"why_whole": f"reuse would save {saved}, less than matching takes"}
        self._compare(loaded, sample, rng)
        loaded.close()
        return {"segments": segments, "costs": costs}

    def _compare(self, loaded: SegmentedNetwork, sample: Tensor, rng: np.random.Generator) -> None:
        """Raise `InvalidArgument` if outputs differ from those of the uncut network, whole or in part."""
        height, width = loaded.source.layout.size
        plain, frame = self._whole_network(), sample.copy()
        loaded.source.use_memory(frame)
        loaded.costs = Costs.preferring_crops(len(loaded.loaded))
        answers = [(plain.run({"": frame}), loaded.run(frame, None, UNMOVED))]
        for region in (
            Rectangle(height // 3, width // 3, height // 2, width // 2),
            Rectangle(0, 0, height // 9 + 1, width // 4),
        ):
            inside = loaded.source.cells(region)
            inside[...] = _noise(rng, inside.shape, inside.dtype)
            answers.append((plain.run({"": frame}), loaded.run(frame, [region], UNMOVED)))
        for expected, found in answers:
            for name, values in expected.items():
                most = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
                if found[name].shape != values.shape or not np.allclose(
                    found[name], values, rtol=0.0, atol=_TOLERANCE * most, equal_nan=True
                ):
                    raise InvalidArgument(f"the output {name!r} of its segments differs")


def _noise(rng: np.random.Generator, shape: Sequence[int], dtype: np.dtype[Any]) -> Tensor:
    """Random values: floats in [0, 1), or bytes of the full range."""
    if dtype == np.float32:
        return rng.random(shape, np.float32)
    return rng.integers(0, 256, shape, np.uint8).view(dtype)
