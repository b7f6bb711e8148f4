"""The picture of edges that look ahead: latency of all and of first photos, and what became of the guests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from nearsight.experiments.framework.drawing import Picture, caption, new_picture
from nearsight.experiments.framework.experiment import Results
from nearsight.experiments.links.link import TABLE_6_3, in_words
from nearsight.experiments.studies.cachier.fig3_2 import LSH, OURS
from nearsight.experiments.studies.guests.guests import NETWORK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ALL, _FIRST = "#1f6f8b", "#e0a33a"
_FATES = {"useful": "#7a9e3b", "wasted": "#c2571a", "in the cache at the end": "#bbbbbb"}
_NAMES = {LSH: "LSH of FLANN, as in the paper", OURS: "our default"}


def draw(results: Results) -> Picture:
    """Draw the picture of rows and their metrics."""
    found: Mapping[str, Any] = results.metrics["backends"]
    bars = [len(configurations) for configurations in found.values()]
    picture = new_picture(10.5, 1.6 + 0.75 * sum(bars))
    panels = picture.subplots(
        len(found), 2, squeeze=False, sharey="row", width_ratios=[1.6, 1], height_ratios=bars
    )
    for (latency, guests), (backend, configurations) in zip(panels, found.items(), strict=True):
        _latency(latency, configurations)
        latency.set_title(f"Mean latency, {_NAMES[backend]}")
        _fates(guests, configurations)
        guests.set_title("Guests")
    one = next(iter(next(iter(found.values())).values()))
    runs, network = one["mean_ms"]["runs"], in_words(TABLE_6_3[NETWORK])
    caption(
        picture,
        f"{one['requests']} photos per edge, the same for all; to the cloud {network}"
        + (f"; bars: least and most of {runs} repetitions" if runs > 1 else ""),
    )
    for axes, columns in zip(panels[-1], (2, 3), strict=True):
        axes.legend(
            loc="upper center", bbox_to_anchor=(0.5, -0.22 * 4 / bars[-1] / 2), ncols=columns, fontsize=8
        )
    return picture


def _latency(axes: Axes, configurations: Mapping[str, Any]) -> None:
    places = np.arange(len(configurations))
    kinds: Sequence[tuple[float, str, str, list[Any]]] = (
        (-0.18, _ALL, "all photos", [one["mean_ms"] for one in configurations.values()]),
        (
            0.18,
            _FIRST,
            "first photos of an exhibit",
            [one["first_photos"]["mean_ms"] for one in configurations.values()],
        ),
    )
    for offset, colour, label, values in kinds:
        means = [value["mean"] for value in values]
        spread = [
            [value["mean"] - value["min"] for value in values],
            [value["max"] - value["mean"] for value in values],
        ]
        axes.barh(places + offset, means, height=0.34, color=colour, label=label)
        axes.errorbar(means, places + offset, xerr=spread, fmt="none", ecolor="#555555", capsize=2)
        for place, mean, most in zip(places, means, spread[1], strict=True):
            axes.text(mean + most, place + offset, f"  {mean:.0f} ms", va="center", fontsize=8)
    axes.set_yticks(places, list(configurations))
    axes.set(xlabel="ms", xlim=(0, None))
    axes.margins(x=0.12)
    axes.invert_yaxis()


def _fates(axes: Axes, configurations: Mapping[str, Any]) -> None:
    places = np.arange(len(configurations))
    left = np.zeros(len(configurations))
    counts = {
        "useful": [one["guests"]["useful"] for one in configurations.values()],
        "wasted": [one["guests"]["wasted"] for one in configurations.values()],
        "in the cache at the end": [
            max(0, one["guests"]["entered"] - one["guests"]["useful"] - one["guests"]["wasted"])
            for one in configurations.values()
        ],
    }
    for fate, colour in _FATES.items():
        values = np.array(counts[fate], dtype=float)
        bars = axes.barh(places, values, left=left, height=0.5, color=colour, label=fate)
        axes.bar_label(
            bars, [f"{value:.0f}" if value else "" for value in values], label_type="center", fontsize=8
        )
        left += values
    axes.tick_params(labelleft=False)
    axes.set(xlabel="objects", xlim=(0, max(1.0, float(left.max()) * 1.05)))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
