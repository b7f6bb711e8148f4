"""Figures 9, 12 and 18 of DeepCache, and the overhead of reuse if nothing can be reused.

The measurements are: the depth to which reuse reaches in a network; the time saved if one rectangle of the
frame changes; the cost of also matching internal maps ("MIL", section 5); memory compared with a plain
session, each in a separate process; and frames of noise, in which no block matches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any, ClassVar, NamedTuple

import cv2
import numpy as np

from nearsight.common.inference.runtime import Network, Runtime
from nearsight.common.video.matching import Frame, ShiftMatcher
from nearsight.common.video.regions import Rectangle
from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.framework.numbers import grouped, values
from nearsight.experiments.studies.deepcache import networks
from nearsight.experiments.studies.deepcache.clips import clip_of
from nearsight.experiments.studies.deepcache.separate_processes import memory_mb, noise_ms
from nearsight.experiments.studies.deepcache.ways import (
    BLOCK_FRAMES,
    DEFAULT,
    OURS,
    PLAIN,
    Answer,
    Engines,
    engines_of,
    in_turn,
    seen,
    timed,
)

SEGMENTS, PARTS, MATCHES, MEMORY, NOISE = "segments", "parts", "matches", "memory", "noise"
_NETWORKS: Mapping[str, Sequence[str]] = {
    SEGMENTS: ("GoogLeNet", "ResNet-50"),
    PARTS: (*networks.PAPER, networks.TODAY, "MobileNet-v1"),
    MATCHES: networks.PAPER,
    MEMORY: (*networks.PAPER, networks.TODAY, "MobileNet-v1", "SqueezeNet", "DeepFace"),
    NOISE: (*networks.PAPER, networks.TODAY, networks.TRAINED),
}
_MOST_EXTRA_MB = 44.0
_SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)
_UNCHANGED = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Reusable shares of the frame."""
_CENTRE, _CORNER = "centre", "corner"
_OTHER_WORK = "rest"


class Figure(Experiment):
    """DeepCache's figures 9, 12, 18: time by segment and by change, matching of maps, memory, noise."""

    name: ClassVar[str] = "deepcache-depth"
    source: ClassVar[str] = "DeepCache, 5, 7.2 and 7.7"
    takes: ClassVar[tuple[str, ...]] = ("data",)

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per question and network."""
        return [
            {"kind": kind, "name": network}
            for kind, wanted in _NETWORKS.items()
            for network in networks.networks_of(options, wanted)
        ]

    def run(self, options: RunOptions, kind: str, name: str) -> list[Row]:
        """Rows of one kind; ``plain`` and ``reuse`` are times [ms], or memory [MB]."""
        network, kept = networks.network_of(name, options.data), networks.segments_in(options)
        if kind == NOISE:
            times = noise_ms(network, kept, options)
            found = [_Pair(f"process {number}", *pair) for number, pair in enumerate(times)]
        else:
            found = _on_a_clip(kind, network, kept, options)
        return [
            {"kind": kind, "network": network.name, "place": place, "part": part, **times}
            for place, (part, plain, reuse) in enumerate(found)
            for times in ({"plain": round(plain, 5), "reuse": round(reuse, 5)},)
        ]

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``<kind>``: ``<network>``: numbers."""
        by_kind = grouped(rows, "kind")
        reads = {SEGMENTS: _segments, PARTS: _saved, MATCHES: _matches, MEMORY: _megabytes, NOISE: _overhead}
        return {
            kind: {name: read(mine) for name, mine in grouped(by_kind.get(kind, ()), "network").items()}
            for kind, read in reads.items()
        }

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """Little memory and overhead; matching of internal maps costs more than at the input."""
        memory, noise, matches = summary[MEMORY], summary[NOISE], summary[MATCHES]
        theirs = [name for name in memory if name != networks.TODAY]
        most = max(theirs, key=lambda name: memory[name]["extra_mb"])
        over = {name: one["overhead_ms"] / one["limit_ms"] for name, one in noise.items()}
        worst = max(over, key=over.__getitem__)
        slowest = max(matches, key=lambda name: matches[name]["times"]["50"])
        note = f"{worst}: {noise[worst]['overhead_ms']:.3f} ± {noise[worst]['interval_ms']:.3f} ms"
        texts = (
            "largest extra memory of the paper's networks [MB]; 2.5 to 43.8 in the paper",
            "overhead on noise relative to max(3 %, 0.1 ms), worst network",
            "matching half of the maps relative to the input, largest ratio; up to 35 in the paper, "
            "share of the maps not stated",
        )
        return (
            Target.at_most(texts[0], memory[most]["extra_mb"], _MOST_EXTRA_MB, most, 1),
            Target.at_most(texts[1], over[worst], 1.0, note, 2),
            Target.at_least(texts[2], matches[slowest]["times"]["50"], 1.0, slowest, 1),
        )

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per kind and network."""

        def line(quantity: str, network: str, measured: str, paper: str = "") -> dict[str, object]:
            return {"quantity": quantity, "network": network, "measured": measured, "paper": paper}

        for name, one in summary[SEGMENTS].items():
            pairs = [*one["segments"].values()]
            early = len(pairs) // 3
            said = _sums(pairs)
            if early:
                said += f"; the first {early} of {len(pairs) - 1}: {_sums(pairs[:early])}"
            yield line("by segment [ms]", name, said, "third convolution: 165 → 75 (GoogLeNet)")
        for name, one in summary[PARTS].items():
            sides = zip(one[_CENTRE].items(), one[_CORNER].values(), strict=True)
            said = ", ".join(f"{share} %: {centre:.0f} / {corner:.0f}" for (share, centre), corner in sides)
            yield line("time saved by reusable share, centre / corner [%]", name, said)
        for name, one in summary[MATCHES].items():
            times = ", ".join(f"{share} %: {times:.1f}" for share, times in one["times"].items())
            yield line("matching N % of the maps, relative to the input", name, times, "up to 35 (ResNet-50)")
        for name, one in summary[MEMORY].items():
            said = f"{one['plain_mb']:.1f} + {one['extra_mb']:.1f}"
            yield line("memory, plain + extra [MB]", name, said, "+ 2.5 to 43.8")
        for name, one in summary[NOISE].items():
            said = f"{one['plain_ms']:.2f} + {one['overhead_ms']:.3f} ± {one['interval_ms']:.3f}"
            yield line("on noise, plain + overhead [ms]", name, said)

    def draw(self, results: Results) -> drawing.Picture:
        """Draw five panels."""
        found = results.metrics
        picture = drawing.new_picture(14.0, 7.0)
        panels = picture.subplot_mosaic([[SEGMENTS, SEGMENTS, PARTS], [MATCHES, MEMORY, NOISE]])
        segments, parts, matches, memory, noise = (panels[kind] for kind in _NETWORKS)
        name, one = next(iter(found[SEGMENTS].items()))
        pairs = np.array([*one["segments"].values()])
        places = np.arange(len(pairs))
        segments.bar(places - 0.2, pairs[:, 0], 0.38, color="#b8b8b8", label="whole")
        segments.bar(places + 0.2, pairs[:, 1], 0.38, color="#c2571a", label="reuse")
        segments.set_xticks(places, [part.removeprefix("segment-") for part in one["segments"]], rotation=60)
        segments.set(title=f"{name} by segment (figure 12)", ylabel="time [ms]")
        segments.legend()
        for number, (name, one) in enumerate(found[PARTS].items()):
            for (place, saved), style in zip(one.items(), ("o-", "s:"), strict=True):
                label = name if place == _CENTRE else None
                x = [int(share) for share in saved]
                parts.plot(x, [*saved.values()], style, color=f"C{number}", label=label, markersize=4)
        parts.axhline(0, color="#555555", linewidth=0.8)
        parts.set(title="One rectangle changes: centre (—), corner (···)", xlabel="reusable [%]")
        parts.set_ylabel("saved [%]")
        parts.legend(fontsize=7)
        for name, one in found[MATCHES].items():
            matches.plot([float(share) for share in one["times"]], [*one["times"].values()], "o-", label=name)
        matches.axhline(1, color="#555555", linewidth=0.8)
        matches.set(title="Matching maps over matching the input (figure 9)", yscale="log")
        matches.set(xlabel="share of the convolutions [%]", ylabel="ratio")
        drawing.plain_logarithmic(matches.yaxis)
        matches.set_ylim(top=6 * matches.get_ylim()[1])  # room for the legend
        matches.legend(fontsize=7, ncols=3, loc="upper center")
        extra = {name: one["extra_mb"] for name, one in found[MEMORY].items()}
        memory.bar_label(memory.bar([*extra], [*extra.values()], color="#1f6f8b"), fmt="%.1f", fontsize=7)
        memory.axhline(_MOST_EXTRA_MB, color="#c2571a", linewidth=0.8)
        memory.set(title="Extra memory (figure 18); line: paper", ylabel="memory [MB]")
        over = {name: one["overhead_ms"] for name, one in found[NOISE].items()}
        spread = [one["interval_ms"] for one in found[NOISE].values()]
        noise.bar([*over], [*over.values()], yerr=spread, color="#c2571a", capsize=3)
        limits = [one["limit_ms"] for one in found[NOISE].values()]
        noise.plot([*over], limits, "_", color="#24415c", markersize=18, label="max(3 %, 0.1 ms)")
        noise.set(title="Overhead if no block matches", ylabel="ms per frame")
        noise.legend()
        for axes in (memory, noise):
            axes.tick_params("x", labelrotation=30)
        return picture


def _on_a_clip(kind: str, network: networks.StudyNetwork, kept: Path, options: RunOptions) -> list[_Pair]:
    """Results of all kinds but `NOISE`, on frames of the clip "standing"."""
    with engines_of(network, kept) as engines:
        frames = clip_of("standing", None, options.seed, engines.size, 12 if options.smoke else 60).frames
        tensors = [engines.tensor(frame) for frame in frames[:12]]
        if kind == PARTS:
            return _by_part(engines, frames[0], options.rng(kind), 1 if options.smoke else 3)
        if kind == MATCHES:
            return _by_map(network.path, engines, frames)
    if kind == SEGMENTS:
        return _by_segment(network, kept, frames)
    # The engines are closed: weights that this process also maps would not be counted.
    return [_Pair("a clip", *memory_mb(network, tensors, kept, frames[:12]))]


def _sums(pairs: Sequence[Sequence[float]]) -> str:
    return " → ".join(f"{sum(times):.1f}" for times in zip(*pairs, strict=True))


class _Pair(NamedTuple):
    """A number without and with reuse."""

    part: str
    plain: float
    reuse: float


class _TimedRuntime(Runtime):
    """Sums the CPU time of executions per file [ms]."""

    def __init__(self) -> None:
        super().__init__()
        self.spent_ms: defaultdict[str, float] = defaultdict(float)

    def load(self, path: Path, name: str, **how: Any) -> Network:
        """As `Runtime.load`."""
        network: Any = super().load(path, name, **how)
        run, bind = network.run, network.bind
        network.run = partial(self._timed, path.stem, run)
        network.bind = lambda *places: partial(self._timed, path.stem, bind(*places))
        return network  # type: ignore[no-any-return]

    def _timed(self, file: str, execute: Callable[..., Any], *inputs: Any, **how: Any) -> Any:
        found, ms = timed(partial(execute, *inputs, **how))
        self.spent_ms[file] += ms
        return found


def _by_segment(network: networks.StudyNetwork, kept: Path, frames: Sequence[Frame]) -> list[_Pair]:
    """Mean execution times over a clip, whole and with reuse; then the remaining time.

    If segments were executed as one, their time is divided in proportion to their own times.
    """
    runtime, found = _TimedRuntime(), list[dict[str, float]]()
    with engines_of(network, kept, runtime) as engines:
        for see in (engines.whole, engines.way(OURS)):
            engines.partial.reset()
            runtime.spent_ms.clear()
            total_ms = float(seen(see, frames)[1].sum())
            found.append({**runtime.spent_ms, _OTHER_WORK: total_ms - sum(runtime.spent_ms.values())})
    whole, reuse = found
    for rest in reuse.keys() - whole.keys():
        number = rest.partition("-")[2]  # empty for the uncut network
        after = [one for one in whole if one.startswith("segment") and one.partition("-")[2] >= number]
        behind = after if number else [one for one in whole if one != _OTHER_WORK]
        share = reuse[rest] / sum(whole[one] for one in behind)
        reuse |= {one: reuse.get(one, 0.0) + share * whole[one] for one in behind}
    return [_Pair(name, ms / len(frames), reuse.get(name, 0.0) / len(frames)) for name, ms in whole.items()]


def _by_part(engines: Engines, frame: Frame, rng: np.random.Generator, blocks: int) -> list[_Pair]:
    """Mean times if a rectangle in the centre or in a corner changes; it is given, so nothing is matched."""
    width, height = engines.size
    found = []
    for share in _UNCHANGED:
        size = round(height * (1 - share) ** 0.5), round(width * (1 - share) ** 0.5)
        middle = (height - size[0]) // 2, (width - size[1]) // 2
        for place, (top, left) in ((_CENTRE, middle), (_CORNER, (0, 0))):
            changed = Rectangle(top, left, top + size[0], left + size[1])
            clips = []
            for _ in range(blocks):
                frames = np.repeat(frame[None], BLOCK_FRAMES + 1, axis=0)
                within = frames[:, changed.top : changed.bottom, changed.left : changed.right]
                within[...] = rng.integers(0, 256, within.shape, np.uint8)
                clips.append(frames)
            times = np.median(
                [*in_turn(engines.way(PLAIN), partial(engines.whole, changed=[changed]), clips)], axis=0
            )
            found.append(_Pair(f"{100 * share:.0f} % {place}", *times))
    return found


def _by_map(path: Path, engines: Engines, frames: Sequence[Frame]) -> list[_Pair]:
    """Time to compare each convolution's map with that of the previous frame; time of a match at the input.

    Only blocks at the same place are compared. A motion search would take several times as long.
    """
    now, before = frames[-1], frames[-2]
    maps = [_maps(path, engines.tensor(frame)) for frame in (now, before)]
    matcher = ShiftMatcher(DEFAULT.block_px, DEFAULT.threshold_db)
    input_ms = _cpu_ms(partial(matcher.match, now, before))
    width = engines.size[0]
    pairs = [(name, partial(_compared, one, maps[1][name], width)) for name, one in maps[0].items()]
    return [_Pair(name, _cpu_ms(compare), input_ms) for name, compare in pairs]


def _maps(path: Path, tensor: Answer) -> dict[str, Answer]:
    """(C, H, W): the output of every convolution."""
    import onnx  # noqa: PLC0415  optional

    model = onnx.load(str(path))
    names = [node.output[0] for node in model.graph.node if node.op_type == "Conv"]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = networks.plain_session(model.SerializeToString())
    found = session.run(None, {session.get_inputs()[0].name: tensor})
    return {name: one[0] for name, one in zip(names, found, strict=True)}


def _compared(one: Answer, other: Answer, width: int) -> Answer:
    """Mean squared difference of each block that corresponds to 10 px of the input."""
    apart = one - other
    squares = np.einsum("chw,chw->hw", apart, apart)
    side = max(1, round(DEFAULT.block_px * one.shape[2] / width))
    size = max(1, one.shape[2] // side), max(1, one.shape[1] // side)
    return np.asarray(cv2.resize(squares, size, interpolation=cv2.INTER_AREA), np.float32)


def _cpu_ms(work: Callable[[], object]) -> float:
    """CPU time of ``work`` [ms], median of nine."""
    return median(timed(work)[1] for _ in range(9))


def _segments(rows: Sequence[StoredRow]) -> dict[str, Any]:
    return {"segments": {row["part"]: [float(row["plain"]), float(row["reuse"])] for row in rows}}


def _saved(rows: Sequence[StoredRow]) -> dict[str, dict[str, float]]:
    """Time saved [%], by place and share."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        share, place = row["part"].split(" % ")
        found.setdefault(place, {})[share] = round(100 * (1 - float(row["reuse"]) / float(row["plain"])), 2)
    return found


def _matches(rows: Sequence[StoredRow]) -> dict[str, Any]:
    maps_ms, input_ms = values(rows, "plain"), max(float(rows[0]["reuse"]), 1e-6)
    count = len(maps_ms)
    sums_ms = {share: sum(maps_ms[: max(1, round(share * count))]) for share in _SHARES}
    times = {f"{100 * share:.0f}": round(ms / input_ms, 2) for share, ms in sums_ms.items()}
    return {"times": times, "input_ms": input_ms, "maps": count}


def _megabytes(rows: Sequence[StoredRow]) -> dict[str, Any]:
    plain, reuse = float(rows[0]["plain"]), float(rows[0]["reuse"])
    return {"plain_mb": round(plain, 2), "extra_mb": round(reuse - plain, 2)}


def _overhead(rows: Sequence[StoredRow]) -> dict[str, Any]:
    """Mean difference over processes, and its 95 % confidence interval."""
    from scipy.stats import t  # noqa: PLC0415  takes long to import

    plain, reuse = values(rows, "plain"), values(rows, "reuse")
    apart = [one - other for one, other in zip(reuse, plain, strict=True)]
    student = float(t.ppf(0.975, len(apart) - 1))
    return {
        "plain_ms": round(mean(plain), 4),
        "overhead_ms": round(mean(apart), 4),
        "interval_ms": round(student * stdev(apart) / len(apart) ** 0.5, 4),
        "limit_ms": round(max(0.03 * mean(plain), 0.1), 4),
        "processes": len(apart),
    }
