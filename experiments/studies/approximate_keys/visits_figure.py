"""The visitors of figure 6.4 on the twin, without and with the result cache.

In our figure 6.4 a visitor photographs the exhibit once per second, and each photo is drawn independently, as
another view. Visitors who stand and hold up the phone see almost the same image every second. To obtain
realistic similarity, a clip of each stay is filmed before that exhibit, with the length of the stay, and the
photos get the keys of the clip's frames. Both variants are played. With independent views no result can be
reused, so the cache only has costs.

The visitors, photos, costs and networks are those of figure 6.4. ``--costs paper`` uses the dissertation's
costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, ClassVar

import numpy as np
from matplotlib.axes import Axes

from nearsight.common.errors import InvalidArgument
from nearsight.common.logging import configure_logging
from nearsight.common.recognition.images import load_image
from nearsight.common.request.answer import RESULT
from nearsight.common.result_cache.image_keys import layout_keys
from nearsight.common.result_cache.settings import ResultCacheSettings
from nearsight.experiments.framework import drawing, numbers
from nearsight.experiments.framework.experiment import Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.museum.art.exhibit import render_reference
from nearsight.experiments.museum.camera.handheld import Filming, Stay, film
from nearsight.experiments.rig.rows import RequestRow, summarise
from nearsight.experiments.rig.walks import Following
from nearsight.experiments.studies.approximate_keys.standing import KEY_LIMITS
from nearsight.experiments.studies.cachier.scale.configurations import EDGE, FULL
from nearsight.experiments.studies.cachier.scale.machines import machines_of
from nearsight.experiments.studies.cachier.scale.operating_point import (
    BASELINE,
    TESTBED,
    OperatingPoint,
    amount_of,
)
from nearsight.experiments.studies.cachier.scale.scale_figure import OnMachines
from nearsight.experiments.studies.cachier.scale.sessions import twin_session, with_workers
from nearsight.experiments.twin.cost_model import Hardware
from nearsight.experiments.twin.session import CONFIGURATIONS, TwinTiers, TwinVisitor

OTHER, CLIPS = "each photo another view", "views of clips"
VIEWS = (OTHER, CLIPS)
OFF, AT_EDGE, AT_DEVICE = "off", "edge", "device"
_NAMES = {EDGE: "edge", FULL: "full system"}
_VISITORS = (1, 5, 10)
_LIVELINESS, _PHOTOS_PER_S = 0.5, 1.0
_WORSE = 1.01
"""Largest ratio of latencies that counts as equal; the twin draws computing times in another order."""
_LOOKS = {
    (EDGE, OFF): ("#8a8a8a", "-"),
    (EDGE, AT_EDGE): ("#1f6f8b", "-"),
    (FULL, OFF): ("#8a8a8a", "--"),
    (FULL, AT_EDGE): ("#4f7a28", "--"),
    (FULL, AT_DEVICE): ("#e0a33a", "--"),
}
"""Played configuration of figure 6.4 and location of the result cache → colour and line."""


class Figure(OnMachines):
    """Figure 6.4's visitors, with independent views or standing still, without and with the result cache."""

    name: ClassVar[str] = "approximate-visits"
    source: ClassVar[str] = "beyond approximate-key caching, 5"

    def completed(self, options: RunOptions, say: Callable[[str], None]) -> RunOptions:
        """Fill in the options of a run; costs of the machines are measured if necessary.

        Raises
        ------
        InvalidArgument
            If the testbed is requested, which sends real files: see ``approximate-daemons``.
        """
        if options.on == TESTBED:
            raise InvalidArgument(
                f"{self.name} runs only on the twin",
                advice="for real daemons, use `nearsight experiment run approximate-daemons`",
            )
        return super().completed(options, say)

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per number of visitors and run."""
        runs = range(1, amount_of(options).runs + 1)
        return [
            {"visitors": visitors, "run": run}
            for visitors in ((2,) if options.smoke else _VISITORS)
            for run in runs
        ]

    def run(self, options: RunOptions, visitors: int, run: int) -> list[Row]:
        """Play all configurations with the same visitors; one row per views and configuration."""
        configure_logging(level="CRITICAL")  # messages of simulated daemons are part of the simulation
        amount, point = amount_of(options), replace(BASELINE, visitors=visitors)
        if options.smoke:
            point = OperatingPoint(visitors=2, sections=1, classes=50)
        following = Following(point.visitors, amount.seconds, 0.0)
        machines = machines_of(options)
        drawn = twin_session(point, run, machines, options.seed, following, amount.crowd)
        clips = replace(
            drawn,
            visitors=[
                filmed(visitor, options.seed, 1_000 * run + number)
                for number, visitor in enumerate(drawn.visitors)
            ],
        )
        played = {look: configured(*look, machines.hardware) for look in _LOOKS}
        return [
            {
                "visitors": point.visitors,
                "run": run,
                "views": views,
                "tiers": tiers,
                "result_cache": where,
                **_numbers_of(session.play(tiers, played[tiers, where]).rows, session.timeout_s),
            }
            for views, session in ((OTHER, drawn), (CLIPS, clips))
            for tiers, where in _LOOKS
        ]

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``views.<views>.<tiers>.<result cache>.<visitors>``: medians and ranges over the runs."""
        return {"views": numbers.nested(rows, ("views", "tiers", "result_cache", "visitors"), _of_runs)}

    def targets(self, summary: Mapping[str, Any]) -> Iterator[Target]:
        """No increase of latencies and wrong answers, which is the condition for enabling it by default."""
        for views, found in summary["views"].items():
            for tiers, where in _LOOKS:
                if where == OFF:
                    continue
                off, on = found[tiers][OFF], found[tiers][where]
                name = f"{views}, {_NAMES[tiers]}, result cache at the {where}"
                for tail in ("p50_ms", "p95_ms"):
                    ratios = {
                        count: one[tail]["median"] / off[count][tail]["median"] for count, one in on.items()
                    }
                    text = (
                        f"{name}: {tail[:3]} relative to no result cache, largest over visitors, "
                        f"at most {_WORSE:g}"
                    )
                    note = ", ".join(f"{count}: {ratio:.3f}" for count, ratio in ratios.items())
                    yield Target.at_most(text, max(ratios.values()), _WORSE, note, 3)
                wrong, before = (sum(int(one["wrong"]) for one in of.values()) for of in (on, off))
                text = f"{name}: wrong answers, at most as without result cache"
                yield Target.at_most(text, wrong, before)

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per views, configuration and number of visitors."""
        for views, tiers, where, count, one in numbers.leaves(summary["views"], 4):
            yield {
                "views": views,
                "configuration": _NAMES[tiers],
                "result cache": where,
                "visitors": count,
                "p50 ms": numbers.median_in_words(one["p50_ms"], 1),
                "p95 ms": numbers.median_in_words(one["p95_ms"], 1),
                "served": f"{one['served']:.3f}",
                "wrong": one["wrong"],
                "unanswered": one["failed"],
                "photos": one["requests"],
            }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw p50 and p95 over the number of visitors, for both kinds of views."""
        found = results.metrics["views"]
        picture = drawing.new_picture(12.0, 7.0)
        panels = picture.subplots(2, len(VIEWS), sharex=True)
        for row, tail in zip(panels, ("p50_ms", "p95_ms"), strict=True):
            for axes, views in zip(row, VIEWS, strict=True):
                _draw(axes, found[views], tail)
                axes.set_title(f"{tail[:3]}: {views}")
            row[0].set_ylabel("latency [ms]")
        for axes in panels[-1]:
            axes.set_xlabel("visitors")
            axes.set_xticks([float(one) for one in found[OTHER][EDGE][OFF]])
        drawing.legend_below(picture, panels[-1][0], columns=3)
        one = next(iter(found[OTHER][EDGE][OFF].values()))
        runs = numbers.counted(len(one["p50_ms"]["each"]), "run")
        drawing.caption(
            picture,
            f"Baseline of figure 6.4 on the twin, {runs}: median and range; "
            "one photo per second; shake of the clips as in real ones",
        )
        return picture


def filmed(visitor: TwinVisitor, seed: int, clip: int) -> TwinVisitor:
    """Return the same visitor with the keys of one clip's frames for the photos of each stay."""
    keys, plan = layout_keys(), []
    stays = groupby(visitor.plan, key=lambda one: one[0].object_id)
    for number, (object_id, photos) in enumerate(stays):
        stay = list(photos)
        shown = Stay(object_id, render_reference(seed, int(object_id) - 1), float(len(stay) + 1))
        frames = film([shown], Filming(_LIVELINESS, _PHOTOS_PER_S), 1_000 * (1_000 * seed + clip) + number)
        seen = [keys(load_image(one.image, KEY_LIMITS).pixels) for one in frames if one.object_id is not None]
        for place, (planned, photo) in enumerate(stay):
            plan.append((planned, replace(photo, keys=seen[place] if place < len(seen) else ())))
    return replace(visitor, plan=plan)


def configured(tiers: str, where: str, hardware: Hardware) -> TwinTiers:
    """A configuration of figure 6.4, with the result cache at the edge, at the devices, or off."""
    one = with_workers(hardware, CONFIGURATIONS[tiers])
    on = {"result_cache": ResultCacheSettings(enabled=True)}
    if where == AT_EDGE and one.edge is not None:
        return replace(one, edge=one.edge.model_copy(update=on))
    return replace(one, device=one.device.model_copy(update=on)) if where == AT_DEVICE else one


def _numbers_of(rows: Sequence[RequestRow], timeout_s: float) -> Row:
    found = summarise(rows, timeout_s)
    return {
        "requests": found.requests,
        "failed": found.requests - found.answered,
        "wrong": found.wrong,
        "served": sum(row.grain == RESULT for row in rows),
        **{f"{name}_ms": round(found.latency_ms[name], 4) for name in ("p50", "p95")},
    }


def _of_runs(rows: Sequence[StoredRow]) -> dict[str, Any]:
    counts = {name: sum(int(row[name]) for row in rows) for name in ("requests", "failed", "wrong")}
    return {
        **counts,
        "served": round(sum(numbers.values(rows, "served")) / counts["requests"], 4),
        **{name: numbers.median_and_range(numbers.values(rows, name)) for name in ("p50_ms", "p95_ms")},
    }


def _draw(axes: Axes, found: Mapping[str, Any], tail: str) -> None:
    for shift, (tiers, where) in enumerate(_LOOKS):
        by_count, (colour, line) = found[tiers][where], _LOOKS[tiers, where]
        places = np.array([float(count) for count in by_count]) + 0.08 * (shift - 2)
        middles, reach = drawing.error_bars([one[tail] for one in by_count.values()], "median")
        cache = "no result cache" if where == OFF else f"result cache at the {where}"
        axes.errorbar(
            places,
            middles,
            yerr=reach,
            color=colour,
            linestyle=line,
            marker="o",
            markersize=4,
            capsize=2,
            label=f"{_NAMES[tiers]}, {cache}",
        )
    axes.set_ylim(0, 1.08 * axes.dataLim.y1)
