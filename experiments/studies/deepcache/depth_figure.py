"""Figures 9, 12 and 18 of DeepCache, and what reuse costs where nothing can be reused.

How far into a network reuse reaches; what it would take to match internal maps, too ("MIL", section 5);
memory beside a plain session, each in a process of its own; and frames of noise, of which no block matches.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any, ClassVar, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsight.common.inference.process_memory import own_memory_bytes, return_freed_memory
from nearsight.common.inference.runtime import Runtime
from nearsight.common.video.matching import Frame, ShiftMatcher
from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import (
    Cell,
    Experiment,
    Results,
    Row,
    RunOptions,
    StoredRow,
    Table,
    Target,
)
from nearsight.experiments.framework.numbers import grouped, values
from nearsight.experiments.studies.deepcache.clips import clip_of
from nearsight.experiments.studies.deepcache.networks import (
    PAPER,
    TODAY,
    TRAINED,
    StudyNetwork,
    network_of,
    networks_of,
    plain_session,
    segments_in,
)
from nearsight.experiments.studies.deepcache.ways import (
    DEFAULT,
    OURS,
    PLAIN,
    Engines,
    engines_of,
    seen,
)

SEGMENTS, MATCHES, MEMORY, NOISE = "segments", "matches", "memory", "noise"
_NETWORKS: Mapping[str, Sequence[str]] = {
    SEGMENTS: ("GoogLeNet", "ResNet-50"),
    MATCHES: PAPER,
    MEMORY: (*PAPER, TODAY, "MobileNet-v1", "SqueezeNet", "DeepFace"),
    NOISE: (*PAPER, TODAY, TRAINED),
}
_PAPERS_MB = (2.5, 43.8)
_MOST_EXTRA_MB = 44.0
_BLOCKS, _BLOCK_FRAMES = 20, 8
"""Of the noise: blocks of plain and of reused frames take turns; a frame before each is not counted."""
_SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)


class Figure(Experiment):
    """DeepCache's figures 9, 12, 18: time by segment, matching internal maps, memory, overhead on noise."""

    name: ClassVar[str] = "deepcache-depth"
    source: ClassVar[str] = "DeepCache, 5, 7.2 and 7.7"
    takes_data: ClassVar[bool] = True

    def cells(self, options: RunOptions) -> tuple[Cell, ...]:
        """One per question and network."""
        return tuple(
            Cell(f"{kind}-{network}", {"kind": kind, "network": network})
            for kind, wanted in _NETWORKS.items()
            for network in networks_of(options, wanted)
        )

    def run(self, cell: Cell, options: RunOptions) -> list[Row]:
        """Rows of one kind; ``plain`` and ``reuse`` are ms, or MB of memory."""
        kind, network = cell.parameters["kind"], network_of(cell.parameters["network"], options.data)
        kept, found = segments_in(options), list[_Pair]()
        with engines_of(network, kept) as engines:
            frames = clip_of("standing", None, options.seed, engines.size, 12 if options.smoke else 60).frames
            tensors = [engines.tensor(frame) for frame in frames[:12]]
            if kind == SEGMENTS:
                found = _by_segment(engines, frames)
            elif kind == MATCHES:
                found = _by_map(network.path, engines, frames)
            elif kind == NOISE:
                found = _by_block(engines, options.rng(kind), 4 if options.smoke else _BLOCKS)
        if kind == MEMORY:  # weights that this process has mapped, too, would not be counted
            found = _memory(network, tensors, kept, frames[:12])
        return [
            {
                "kind": kind,
                "network": network.name,
                "place": place,
                "part": one.part,
                "plain": round(one.plain, 5),
                "reuse": round(one.reuse, 5),
            }
            for place, one in enumerate(found)
        ]

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``<kind>``: ``<network>``: numbers."""
        by_kind = grouped(rows, "kind")
        reads = {SEGMENTS: _segments, MATCHES: _matches, MEMORY: _megabytes, NOISE: _overhead}
        return {
            kind: {name: read(mine) for name, mine in grouped(by_kind.get(kind, ()), "network").items()}
            for kind, read in reads.items()
        }

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """Little memory, little overhead; matching inside costs more than it does at the input."""
        memory, noise, matches = summary[MEMORY], summary[NOISE], summary[MATCHES]
        most = max(memory, key=lambda name: memory[name]["extra_mb"])
        over = {name: one["overhead_ms"] / one["limit_ms"] for name, one in noise.items()}
        worst = max(over, key=over.__getitem__)
        dearest = max(matches, key=lambda name: matches[name]["times"]["50"])
        text = "overhead on noise over max(3 %, 0.1 ms), worst network"
        note = f"{worst}: {noise[worst]['overhead_ms']:.3f} ± {noise[worst]['interval_ms']:.3f} ms"
        return (
            Target.at_most(
                "extra memory, most of the networks [MB]; 2.5 to 43.8 in the paper",
                memory[most]["extra_mb"],
                _MOST_EXTRA_MB,
                most,
                1,
            ),
            Target.at_most(text, over[worst], 1.0, note, 2),
            Target.at_least(
                "matching half of the maps over matching the input, at most; up to 35 in the paper",
                matches[dearest]["times"]["50"],
                1.0,
                dearest,
                1,
            ),
        )

    def table(self, summary: Mapping[str, Any]) -> Table:
        """A line per kind and network."""
        lines: list[tuple[object, ...]] = []
        for name, one in summary[SEGMENTS].items():
            pairs = [*one["segments"].values()]
            early = len(pairs) // 3 + 1
            said = f"{_in_sum(pairs)}; the first {early} of {len(pairs)}: {_in_sum(pairs[:early])}"
            lines.append(("by segment, expected [ms]", name, said, "third convolution: 165 → 75 (GoogLeNet)"))
        for name, one in summary[MATCHES].items():
            times = ", ".join(f"{share} %: {times:.1f}" for share, times in one["times"].items())
            lines.append(("MIL-N % over one match", name, times, "up to 35 times (ResNet-50)"))
        for name, one in summary[MEMORY].items():
            said = f"{one['plain_mb']:.1f} + {one['extra_mb']:.1f}"
            lines.append(("memory, plain + extra [MB]", name, said, f"+ {_PAPERS_MB[0]} to {_PAPERS_MB[1]}"))
        for name, one in summary[NOISE].items():
            said = f"{one['plain_ms']:.2f} + {one['overhead_ms']:.3f} ± {one['interval_ms']:.3f}"
            lines.append(("on noise, plain + overhead [ms]", name, said, ""))
        return ("what", "network", "measured", "paper"), lines

    def draw(self, results: Results) -> drawing.Picture:
        """Four panels."""
        found = results.metrics
        picture = drawing.new_picture(11.5, 7.0)
        (segments, matches), (memory, noise) = picture.subplots(2, 2)
        name, one = next(iter(found[SEGMENTS].items()))
        pairs = np.array([*one["segments"].values()])
        places = np.arange(len(pairs))
        segments.bar(places - 0.2, pairs[:, 0], 0.38, color="#b8b8b8", label="plain")
        segments.bar(places + 0.2, pairs[:, 1], 0.38, color="#c2571a", label="reuse")
        segments.set_xticks(places, [str(place + 1) for place in places])
        segments.set(title=f"{name} by segment, expected (figure 12)", ylabel="ms", xlabel="segment")
        segments.legend()
        for name, one in found[MATCHES].items():
            matches.plot([float(share) for share in one["times"]], [*one["times"].values()], "o-", label=name)
        matches.axhline(1, color="#555555", linewidth=0.8)
        matches.set(title="Matching maps over matching the input (figure 9)", yscale="log")
        matches.set(xlabel="of the convolutions [%]", ylabel="times")
        drawing.plain_logarithmic(matches.yaxis)
        matches.legend()
        extra = {name: one["extra_mb"] for name, one in found[MEMORY].items()}
        memory.bar_label(memory.bar([*extra], [*extra.values()], color="#1f6f8b"), fmt="%.1f", fontsize=7)
        memory.axhline(_MOST_EXTRA_MB, color="#c2571a", linewidth=0.8)
        memory.set(title="Extra memory (figure 18); the paper's most", ylabel="MB")
        over = {name: one["overhead_ms"] for name, one in found[NOISE].items()}
        spread = [one["interval_ms"] for one in found[NOISE].values()]
        noise.bar([*over], [*over.values()], yerr=spread, color="#c2571a", capsize=3)
        limits = [one["limit_ms"] for one in found[NOISE].values()]
        noise.plot([*over], limits, "_", color="#24415c", markersize=18, label="max(3 %, 0.1 ms)")
        noise.set(title="Overhead where nothing matches", ylabel="ms per frame")
        noise.legend()
        for axes in (memory, noise):
            axes.tick_params("x", labelrotation=30)
        return picture


def _in_sum(pairs: Sequence[Sequence[float]]) -> str:
    return " → ".join(f"{sum(times):.1f}" for times in zip(*pairs, strict=True))


class _Pair(NamedTuple):
    """A number without and with reuse."""

    part: str
    plain: float
    reuse: float


def _by_segment(engines: Engines, frames: Sequence[Frame]) -> list[_Pair]:
    """Means over a clip, by the times that the engine measured for whole segments and crops."""
    see = engines.way(OURS)
    whole_ms: dict[str, float] = {}
    saved_ms: dict[str, list[float]] = {}
    for frame in frames:
        see(frame)
        for report in engines.partial.explain():
            whole_ms[report.name] = report.whole_ms
            saved_ms.setdefault(report.name, []).append(report.saved_ms)
    return [_Pair(name, ms, ms - mean(saved_ms[name])) for name, ms in whole_ms.items()]


def _by_map(path: Path, engines: Engines, frames: Sequence[Frame]) -> list[_Pair]:
    """The time to compare each convolution's map with that of the frame before, and one match at the input.

    Only blocks at the same place are compared. A search for motion would take a multiple of it.
    """
    now, before = frames[-1], frames[-2]
    maps = [_maps(path, engines.tensor(frame)) for frame in (now, before)]
    matcher = ShiftMatcher(DEFAULT.block_px, DEFAULT.threshold_db)
    input_ms = _taking(partial(matcher.match, now, before))
    width = engines.size[0]
    pairs = [(name, partial(_compared, one, maps[1][name], width)) for name, one in maps[0].items()]
    return [_Pair(name, _taking(compare), input_ms) for name, compare in pairs]


def _maps(path: Path, tensor: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
    """(C, H, W): what every convolution gives."""
    import onnx  # noqa: PLC0415  optional

    model = onnx.load(str(path))
    names = [node.output[0] for node in model.graph.node if node.op_type == "Conv"]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = plain_session(model.SerializeToString())
    found = session.run(None, {session.get_inputs()[0].name: tensor})
    return {name: one[0] for name, one in zip(names, found, strict=True)}


def _compared(one: NDArray[np.float32], other: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """Mean squared difference of each block that covers 10 px of the input."""
    apart = one - other
    squares = np.einsum("chw,chw->hw", apart, apart)
    side = max(1, round(DEFAULT.block_px * one.shape[2] / width))
    size = max(1, one.shape[2] // side), max(1, one.shape[1] // side)
    return np.asarray(cv2.resize(squares, size, interpolation=cv2.INTER_AREA), np.float32)


def _taking(work: Callable[[], object]) -> float:
    """CPU milliseconds; the median of nine."""
    times = []
    for _ in range(9):
        begun_s = time.process_time()
        work()
        times.append((time.process_time() - begun_s) * 1e3)
    return median(times)


def _by_block(engines: Engines, rng: np.random.Generator, blocks: int) -> list[_Pair]:
    """Mean times of alternated blocks of noise; one session with reuse sees all of its frames."""
    width, height = engines.size
    plain, reuse = engines.way(PLAIN), engines.way(OURS)
    rows = []
    for number in range(blocks):
        noise = rng.integers(0, 256, (_BLOCK_FRAMES + 1, height, width, 3), np.uint8)
        ways = (plain, reuse) if number % 2 else (reuse, plain)
        times = {way: float(seen(way, list(noise))[1][1:].mean()) for way in ways}
        rows.append(_Pair(f"block {number}", times[plain], times[reuse]))
    return rows


def _memory(
    network: StudyNetwork, tensors: Sequence[NDArray[np.float32]], kept: Path, frames: Sequence[Frame]
) -> list[_Pair]:
    """Memory that a process of its own takes to see a clip, with the network in it."""
    with _alone() as plain:
        plain_mb = plain.submit(_plain_mb, network.path, tensors).result()
    with _alone() as reuse:
        return [_Pair("a clip", plain_mb, reuse.submit(_reuse_mb, network, kept, list(frames)).result())]


def _alone() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


def _plain_mb(path: Path, tensors: Sequence[NDArray[np.float32]]) -> float:
    with _growth() as grown_mb:
        session = plain_session(path)
        for tensor in tensors:
            session.run(None, {session.get_inputs()[0].name: tensor})
        return grown_mb()


def _reuse_mb(network: StudyNetwork, kept: Path, frames: Sequence[Frame]) -> float:
    with _growth() as grown_mb, engines_of(network, kept) as engines:
        seen(engines.way(OURS), frames)
        return grown_mb()


@contextmanager
def _growth() -> Iterator[Callable[[], float]]:
    """Tells how much memory this process has taken since; the library itself is loaded before."""
    Runtime().close()
    before = own_memory_bytes()

    def grown_mb() -> float:
        return_freed_memory()
        return (own_memory_bytes() - before) / 1e6

    yield grown_mb


def _segments(rows: Sequence[StoredRow]) -> dict[str, Any]:
    return {"segments": {row["part"]: [float(row["plain"]), float(row["reuse"])] for row in rows}}


def _matches(rows: Sequence[StoredRow]) -> dict[str, Any]:
    maps_ms, input_ms = values(rows, "plain"), max(float(rows[0]["reuse"]), 1e-6)
    count = len(maps_ms)
    times = {
        f"{100 * share:.0f}": sum(maps_ms[: max(1, round(share * count))]) / input_ms for share in _SHARES
    }
    return {
        "times": {share: round(one, 2) for share, one in times.items()},
        "input_ms": input_ms,
        "maps": count,
    }


def _megabytes(rows: Sequence[StoredRow]) -> dict[str, Any]:
    plain, reuse = float(rows[0]["plain"]), float(rows[0]["reuse"])
    return {"plain_mb": round(plain, 2), "extra_mb": round(reuse - plain, 2)}


def _overhead(rows: Sequence[StoredRow]) -> dict[str, Any]:
    """Mean of the differences of neighbouring blocks, and its 95 % confidence interval."""
    plain, reuse = values(rows, "plain"), values(rows, "reuse")
    apart = [one - other for one, other in zip(reuse, plain, strict=True)]
    return {
        "plain_ms": round(mean(plain), 4),
        "overhead_ms": round(mean(apart), 4),
        "interval_ms": round(2.09 * stdev(apart) / len(apart) ** 0.5, 4),
        "limit_ms": round(max(0.03 * mean(plain), 0.1), 4),
        "blocks": len(apart),
    }
