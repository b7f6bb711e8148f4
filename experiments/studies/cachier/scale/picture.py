"""Pictures of figures 6.4 to 6.14 and table 6.4: each metric over the variable, a line per configuration.

The parts of the mean latency and the shares of the answering tiers are bars, at both ends of the variable.
The picture of the table shows p50 of three systems over each variable, with the dissertation's statements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from nearsight.experiments.framework import drawing
from nearsight.experiments.links.link import in_words
from nearsight.experiments.rig.rows import LATE_MS
from nearsight.experiments.studies.cachier.scale.configurations import COLOURS, EDGE, NAMES
from nearsight.experiments.studies.cachier.scale.expectations import COLUMNS, EXPECTED
from nearsight.experiments.studies.cachier.scale.operating_point import (
    AS_TESTBED,
    CLASSES,
    MEASURED,
    NETWORK,
    NETWORKS,
    PAPER,
    SECTIONS,
    TESTBED,
    VISITORS,
)

_WORLDS = {
    MEASURED: "machines of table 6.1, costs measured on this machine",
    AS_TESTBED: "everything on one machine as on the testbed, costs measured there",
    PAPER: "machines of table 6.1, the dissertation's own costs",
}
_AXES = {
    VISITORS: "visitors",
    SECTIONS: "sections of 44 exhibits under one edge",
    CLASSES: "classes in the cloud's catalogue",
    NETWORK: "network between edge and cloud",
}
_PANELS = {
    "p50_ms": ("Latency: median", "latency [ms]"),
    "traffic_kbps": ("Bandwidth, building and cloud", "kbit/s, both ways"),
    "edge_cpu": ("CPU of the edge", "% of its cores"),
    "cloud_cpu": ("CPU of the cloud", "% of its cores"),
    "recall": ("Recall", ""),
    "precision": ("Precision", ""),
}
_DEVICE, _EDGE, _CLOUD = "#4f7a28", "#1f6f8b", "#c2571a"
_PARTS = {
    "device_ms": (_DEVICE, "device and link to the edge"),
    "edge_ms": (_EDGE, "edge computing"),
    "cloud_ms": (_CLOUD, "cloud computing"),
    "queue_ms": ("#777777", "queues"),
    "link_ms": ("#e0a33a", "link to the cloud"),
}
_ANSWERS = {
    "by_device": (_DEVICE, "the device"),
    "by_edge": (_EDGE, "the edge"),
    "by_cloud": (_CLOUD, "the cloud"),
}
_SHARES = frozenset(("edge_cpu", "cloud_cpu"))
_LOGARITHMIC = frozenset(("p50_ms", "traffic_kbps", *_SHARES))
_PROBABILITIES = frozenset(("recall", "precision"))
_DRAWN_FOR = {"up_kbps": "traffic_kbps"}
"""Tables show both directions, the picture their sum."""
_LEAST = {"traffic_kbps": 1.0, "edge_cpu": 1e-3, "cloud_cpu": 1e-3}
_ABSENT_IF_ZERO = frozenset(("p50_ms", "edge_cpu"))
"""Metrics whose zeros are not drawn: nothing was answered, or there is no edge. An idle cloud or link is
drawn at the value in `_LEAST`."""
_BAR = 0.75
_UNDER = 4.0
"""Width of the edge's line; it stays visible below that of the full system where both are equal."""
_CLIPPED_FROM = 4.0
"""Bars longer than this multiple of the median bar are cut off; their label has an arrow."""


def draw(found: Mapping[str, Any], shown: Sequence[str]) -> drawing.Picture:
    """Draw the picture of the metrics."""
    drawn = {_DRAWN_FOR.get(metric, metric) for metric in shown}
    metrics = [metric for metric in _PANELS if metric in drawn]
    stacks = [
        stack for first, stack in (("link_ms", _latency_parts), ("by_edge", draw_answers)) if first in shown
    ]
    count = len(metrics) + len(stacks)
    picture = drawing.new_picture(5.2 * count, 4.3)
    panels = picture.subplots(1, count, squeeze=False)[0]
    for axes, metric in zip(panels, metrics, strict=False):
        draw_lines(axes, found, metric)
    for axes, stack in zip(panels[len(metrics) :], stacks, strict=True):
        stack(axes, found)
    drawing.legend_below(picture, panels[0])
    text = world_in_words(found)
    if "precision" in shown and found["on"] != TESTBED:
        text += ". The twin gives no wrong answers: its precision is 1"
    drawing.caption(picture, text)
    return picture


def world_in_words(found: Mapping[str, Any]) -> str:
    """Describe machines and costs of the measurement, for a caption."""
    if found["on"] == TESTBED:
        world = f"Testbed: real daemons, all on one machine{_quality(found.get('worst', {}))}"
    elif found.get("smoke") and found["costs"] != PAPER:
        world = "Twin: a smoke run, with built-in costs"
    else:
        world = f"Twin: {_WORLDS[found['costs'] or MEASURED]}"
    return f"{world}. Medians and ranges of the runs"


def _quality(worst: Mapping[str, float]) -> str:
    """Describe the accuracy of the testbed, if known."""
    said = []
    if "link_off_ms" in worst:
        said.append(
            f"link off by at most {worst['link_off_ms']:.2f} ms and {worst['link_off_percent']:.1f} %"
        )
    if worst.get("late_p99_ms", 0.0) > LATE_MS:
        said.append(f"NOT RELIABLE: photos sent up to {worst['late_p99_ms']:.0f} ms late")
    return "".join(f"; {one}" for one in said)


def draw_lines(axes: Axes, found: Mapping[str, Any], metric: str) -> None:
    """Draw a metric over the variable, one line per configuration."""
    values = found["values"]
    title, unit = _PANELS[metric]
    factor = 100.0 if metric in _SHARES else 1.0
    least = smallest = _LEAST.get(metric, 0.0)
    names = list(dict.fromkeys(tiers for one in values.values() for tiers in one))
    for number, tiers in enumerate(names):
        drawn = [
            (place, one[tiers][metric])
            for place, one in enumerate(values.values())
            if one[tiers][metric]["median"] is not None
            and (metric not in _ABSENT_IF_ZERO or one[tiers][metric]["median"] > 0)
        ]
        places = [place + 0.06 * (number - (len(names) - 1) / 2) for place, _ in drawn]
        smallest = min([smallest, *(factor * one["min"] for _, one in drawn)])
        medians = [max(least, factor * one["median"]) for _, one in drawn]
        colour = COLOURS[tiers]
        axes.plot(places, medians, "o-", color=colour, label=NAMES[tiers], markersize=4, linewidth=1.4)
        axes.vlines(
            places,
            [max(least, factor * one["min"]) for _, one in drawn],
            [max(least, factor * one["max"]) for _, one in drawn],
            color=colour,
            alpha=0.45,
        )
    axes.set_xticks(range(len(values)), [_label(found["variable"], value) for value in values])
    if smallest < least:
        unit = f"{unit}; smaller values are drawn at {least:g}"
    axes.set(title=title, ylabel=unit, xlabel=_AXES[found["variable"]])
    if metric in _LOGARITHMIC:
        drawing.plain_logarithmic(axes.yaxis)
    if metric in _PROBABILITIES:
        axes.set_ylim(-0.03, 1.05)


def _label(variable: str, value: str) -> str:
    if variable != NETWORK:
        return value
    return f"{value}\n" + in_words(NETWORKS[value]).replace(", ", "\n").replace(" Mbit/s", "")


def _stacked(
    axes: Axes, found: Mapping[str, Any], parts: Mapping[str, tuple[str, str]], factor: float = 1.0
) -> tuple[list[int], list[float]]:
    """Draw a bar per configuration at both ends of the variable; return positions and lengths of the bars.

    ``parts`` are metrics with their colours and labels.
    """
    values = found["values"]
    ends = list(dict.fromkeys((next(iter(values)), next(reversed(values)))))
    bars = [(value, tiers, one) for value in ends for tiers, one in values[value].items()]
    places = [number + number // len(values[ends[0]]) for number in range(len(bars))]
    lefts = [0.0] * len(bars)
    for metric, (colour, label) in parts.items():
        widths = [factor * (one[metric]["median"] or 0.0) for _, _, one in bars]
        axes.barh(places, widths, left=lefts, color=colour, label=label, height=_BAR)
        lefts = [left + width for left, width in zip(lefts, widths, strict=True)]
    axes.set_yticks(places, [f"{NAMES[tiers]}, {value}" for value, tiers, _ in bars], fontsize=7)
    axes.invert_yaxis()
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")
    return places, lefts


def draw_answers(axes: Axes, found: Mapping[str, Any]) -> None:
    """Draw the shares of the answering tiers at both ends of the variable."""
    _stacked(axes, found, _ANSWERS, 100.0)
    axes.set(title="Answered by", xlabel="% of photos, medians of the runs; the rest had no answer")
    axes.set_xlim(0, 104)
    axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=len(_ANSWERS))


def _latency_parts(axes: Axes, found: Mapping[str, Any]) -> None:
    """Draw the parts of the mean latency at both ends of the variable."""
    places, lefts = _stacked(axes, found, _PARTS)
    axes.set(title="Parts of the mean latency", xlabel="mean latency of answered photos [ms]")
    most = _CLIPPED_FROM * sorted(lefts)[len(lefts) // 2]
    axes.set_xlim(0, min(1.15 * max(lefts), most))
    for place, total in zip(places, lefts, strict=True):
        beyond = total > most
        axes.text(
            0.99 * most if beyond else total,
            place,
            f"{total:,.0f} →" if beyond else f" {total:,.0f}",
            ha="right" if beyond else "left",
            va="center",
            fontsize=7,
            color="white" if beyond else "#333333",
        )
    axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3)


def draw_table(found: Mapping[str, Any]) -> drawing.Picture:
    """Draw the picture of the metrics of table 6.4."""
    picture = drawing.new_picture(4.0 * len(found["variables"]), 4.6)
    panels = picture.subplots(1, len(found["variables"]), squeeze=False, sharey=True)[0]
    for axes, (variable, values) in zip(panels, found["variables"].items(), strict=True):
        _panel(axes, variable, values)
    panels[0].set_ylabel("latency: median [ms]")
    drawing.legend_below(picture, panels[0])
    drawing.caption(picture, world_in_words(found))
    return picture


def _panel(axes: Axes, variable: str, values: Mapping[str, Any]) -> None:
    """Draw the three systems over one variable."""
    for tiers in COLUMNS:
        p50 = [one[tiers]["p50_ms"] for one in values.values()]
        axes.plot(
            range(len(values)),
            [one["median"] for one in p50],
            "o-",
            color=COLOURS[tiers],
            label=NAMES[tiers],
            markersize=7 if tiers == EDGE else 4,
            linewidth=_UNDER if tiers == EDGE else 1.5,
        )
        axes.fill_between(
            range(len(values)),
            [one["min"] for one in p50],
            [one["max"] for one in p50],
            color=COLOURS[tiers],
            alpha=0.15,
            linewidth=0,
        )
    axes.set_xticks(range(len(values)), list(values), fontsize=8)
    drawing.plain_logarithmic(axes.yaxis)
    axes.set_title(variable)
    expected = EXPECTED[variable]
    words = "\n".join(f"{NAMES[tiers]}: {expected[tiers]} ({expected[tiers].printed})" for tiers in COLUMNS)
    axes.set_xlabel(f"Dissertation:\n{words}", fontsize=7, color="#555555", loc="left")
