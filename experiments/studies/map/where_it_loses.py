"""A map of the operating points where the full system loses to a simpler one; in none of the papers.

The dissertation varies one variable at a time around its baseline and finds the full system "the best or at
par" with edge caches "in most scenarios" (6.7). Here all combinations of its four variables are played, with
phones and edges of two speeds, which it did not vary: 216 operating points on the twin, all configurations on
the same traces. Some points are repeated with other traces to measure the variation by chance.

A shallow decision tree describes regions in words (`regions`). `losses` computes the numbers.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, TwoSlopeNorm

from nearsight.common.errors import InvalidArgument
from nearsight.common.logging import configure_logging
from nearsight.common.text import percent
from nearsight.experiments.framework import drawing, numbers
from nearsight.experiments.framework.experiment import Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.studies.cachier.scale.configurations import NAMES
from nearsight.experiments.studies.cachier.scale.machines import machines_of
from nearsight.experiments.studies.cachier.scale.operating_point import NETWORKS, TESTBED, OperatingPoint
from nearsight.experiments.studies.cachier.scale.scale_figure import OnMachines, world_of
from nearsight.experiments.studies.cachier.scale.sessions import play_on_twin
from nearsight.experiments.studies.map.losses import METRICS, SIMPLER, Loss, Metric, digits, losses_of
from nearsight.experiments.studies.map.places import MACHINES, Grid, Place
from nearsight.experiments.studies.map.regions import regions_of
from nearsight.experiments.twin.session import ADAPTIVE, COOPERATIVE

FULL_SYSTEMS = (ADAPTIVE, COOPERATIVE)
"""The dissertation's full system, and the same with cooperating devices (5.4)."""
CONFIGURATIONS = (*SIMPLER, *FULL_SYSTEMS)
_MOST_REGRET = 1.1
_ROUNDING = 0.01
SHOWN = ("p50", "mean", "p95", "bytes", "edge")
_LEVEL = "#f1f1ef"
_COLOURS = LinearSegmentedColormap.from_list(
    "losses", [(0.0, "#124a60"), (0.35, "#7fb6c6"), (0.5, _LEVEL), (0.65, "#eba176"), (1.0, "#a83c08")]
)
_NORM = TwoSlopeNorm(0.0, -1.0, 1.0)
"""Limits of the colours: base-2 logarithms of the ratios 0.5 and 2."""
_TICKS = {-1.0: "half or less", -float(np.log2(1.25)): "-20 %", 0.0: "tie", float(np.log2(1.25)): "+25 %"}
_MORE = "twice or more"
_TITLE = "Where the full system loses (red) and wins (blue) against the best simpler configuration"
_TEXT_WIDTH, _LINE_HEIGHT, _MAPS_HEIGHT = 172, 0.185, 11.0
_LABEL_WIDTH = 20
_DARK = 0.55
"""Absolute value of a tile's logarithm above which its number is white."""


class Figure(OnMachines):
    """Where the full system loses to a simpler one, and by how much: 216 operating points."""

    style: ClassVar[Any] = {"axes.grid": False}
    name: ClassVar[str] = "map"
    source: ClassVar[str] = "beyond the Cachier dissertation's 6.7"

    def completed(self, options: RunOptions, say: Callable[[str], None]) -> RunOptions:
        """Fill in the options of a run on the twin; costs are measured if necessary."""
        if TESTBED in {options.on, options.costs}:
            raise InvalidArgument(
                "the map has machines that no testbed has", advice="leave out --on, or give --costs paper"
            )
        return super().completed(options, say)

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per point and run."""
        return Grid.of(options).cells()

    def run(self, options: RunOptions, point: OperatingPoint, run: int) -> Iterator[Row]:
        """Play all configurations with all machines; one row each."""
        configure_logging(level="CRITICAL")  # messages of simulated daemons are part of the simulation
        machines, grid = machines_of(options), Grid.of(options)
        for name in grid.machines:
            played = play_on_twin(
                point,
                CONFIGURATIONS,
                run,
                replace(machines, hardware=MACHINES[name].of(machines.hardware)),
                options.seed,
                grid.amount,
            )
            for row in played:
                yield {"machines": name, **row}

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """Count points; compute losses per full system and metric, with their places and rivals.

        ``systems.<configuration>.<metric>`` has the counts of points ``lost``, ``won`` and ``level``; the
        median loss of the lost points (``middle``) and the ``worst``; the ``chance`` by visitors; ``regions``
        in words with the accuracy of the tree; and the comparison ``against`` each simpler configuration.
        """
        return {
            **world_of(rows),
            "points": len({Place.of(row) for row in rows}),
            "sessions": len(rows),
            "systems": {
                full: {name: _summed_up(rows, full, name) for name in METRICS} for full in FULL_SYSTEMS
            },
        }

    def targets(self, summary: Mapping[str, Any]) -> Iterator[Target]:
        """Targets for the size of the map, and for the ratio at its worst point."""
        points, worst = summary["points"], summary["systems"][ADAPTIVE]["mean"]["worst"]
        yield Target.at_least("operating points that were compared, at least 200", points, 200)
        yield Target(
            "mean latency, which the decisions minimise: full system over the best simpler one, at the "
            "worst point that is beyond chance and noticeable, at most 1.1",
            worst["ratio"],
            worst["ratio"] <= _MOST_REGRET or not worst["lost"],
            ("" if worst["lost"] else "no such point; the largest ratio: ")
            + _point_in_words(worst, METRICS["mean"]),
        )

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per full system and metric."""
        for full, name, one in numbers.leaves(summary["systems"], 2):
            worst = one["worst"]
            yield {
                "full system": NAMES[full],
                "metric": METRICS[name].title,
                "lost": one["lost"],
                "tied": one["level"],
                "won": one["won"],
                "at the worst point": _point_in_words(worst, METRICS[name]) if worst["lost"] else "-",
                "largest region": one["regions"][0]["where"] if one["regions"] else "-",
            }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw a tile per operating point, coloured by the loss or gain of the full system.

        There is a small map per metric (rows) and pair of machines (columns). In each map, visitors increase
        to the right within a network, and sections and classes increase upwards. Grey is a tie: within
        chance, or too small to be noticed.
        """
        rows, found = results.rows, results.metrics
        losses = {metric: losses_of(rows, ADAPTIVE, metric) for metric in SHOWN}
        played = {one.place.machines for one in losses[SHOWN[0]]}
        machines = [name for name in MACHINES if name in played]
        sentences = _sentences(found["systems"][ADAPTIVE])
        text_height = _LINE_HEIGHT * len(sentences) + 0.25
        picture = drawing.new_picture(12.0, _MAPS_HEIGHT + text_height)
        parts: Any = picture.subfigures(2, 1, height_ratios=[_MAPS_HEIGHT, text_height])
        maps, words = parts
        panels = maps.subplots(len(SHOWN), len(machines), squeeze=False, sharey=True, sharex="col")
        for row, metric in zip(panels, SHOWN, strict=True):
            for axes, name in zip(row, machines, strict=True):
                _draw_map(axes, [one for one in losses[metric] if one.place.machines == name])
            title = "\n".join(textwrap.wrap(drawing.capital(METRICS[metric].title), _LABEL_WIDTH))
            row[0].set_ylabel(title, fontsize=9, fontweight="bold", labelpad=8)
        for axes, name in zip(panels[0], machines, strict=True):
            bold: Any = {"ha": "center", "fontsize": 10, "fontweight": "bold"}
            axes.annotate(drawing.capital(name), (0.5, 1.2), xycoords="axes fraction", **bold)
        maps.suptitle(_TITLE, fontsize=12, fontweight="bold")
        _draw_scale(maps, panels)
        words.text(0.012, 0.98, "\n".join(sentences), va="top", fontsize=8, linespacing=1.35)
        return picture


def _summed_up(rows: Sequence[StoredRow], full: str, name: str) -> dict[str, Any]:
    losses = losses_of(rows, full, name)
    lost = [one for one in losses if one.lost]
    regions = regions_of(losses)
    return {
        "lost": len(lost),
        "won": sum(one.won for one in losses),
        "level": sum(not (one.lost or one.won) for one in losses),
        "middle": round(float(np.median([one.difference for one in lost])), 4) if lost else 0.0,
        "worst": _worst(losses),
        "chance": {str(one.place.visitors): round(one.chance, 5) for one in losses},
        "regions": [{"where": one.where, "sentence": one.sentence(name)} for one in regions.regions],
        "accuracy": round(regions.accuracy, 4),
        "unseen_accuracy": round(regions.unseen_accuracy, 4),
        "always": round(regions.always, 4),
        "against": {rival: _against(rows, full, name, rival) for rival in SIMPLER},
    }


def _worst(losses: Sequence[Loss]) -> dict[str, Any]:
    """The largest ratio among the losses beyond chance and noticeable; if there are none, of all points."""
    worst = max(losses, key=lambda one: (one.lost, one.ratio))
    return {
        "place": asdict(worst.place),
        "full": round(worst.full, 4),
        "best": round(worst.best, 4),
        "rival": worst.rival,
        "ratio": round(worst.ratio, 4),
        "lost": worst.lost,
    }


def _against(rows: Sequence[StoredRow], full: str, name: str, rival: str) -> dict[str, Any]:
    losses = losses_of(rows, full, name, (rival,))
    return {
        "lost": sum(one.lost for one in losses),
        "won": sum(one.won for one in losses),
        "middle_ratio": round(float(np.median([one.ratio for one in losses])), 4),
    }


def _point_in_words(worst: Mapping[str, Any], metric: Metric) -> str:
    place = worst["place"]
    # Over several runs the ratio is the geometric mean of their ratios, which may differ from the ratio of
    # the two means.
    plain = worst["full"] / worst["best"] if worst["best"] else worst["ratio"]
    of_runs = "" if abs(plain / worst["ratio"] - 1.0) < _ROUNDING else " in the mean of the runs' ratios"
    return (
        f"{digits(worst['full'])} against {digits(worst['best'])} {metric.unit} "
        f"with {NAMES[worst['rival']]} "
        f"(x{worst['ratio']:.2f}{of_runs}): {place['visitors']} visitors, {place['sections']} sections, "
        f"{place['classes']} classes, {place['network']}, {place['machines']}"
    )


def _draw_scale(maps: Any, panels: Any) -> None:
    bar = maps.colorbar(
        ScalarMappable(_NORM, _COLOURS), ax=panels, location="right", shrink=0.5, aspect=35, pad=0.01
    )
    bar.set_ticks([*_TICKS, 1.0], labels=[*_TICKS.values(), _MORE], fontsize=8)
    bar.outline.set_visible(False)


def _draw_map(axes: Axes, losses: Sequence[Loss]) -> None:
    networks = sorted({one.place.network for one in losses}, key=lambda name: NETWORKS[name].up_mbps)
    visitors = sorted({one.place.visitors for one in losses})
    sizes = sorted({(one.place.sections, one.place.classes) for one in losses})
    tiles = np.zeros((len(sizes), len(networks) * len(visitors)))
    for one in losses:
        place = one.place
        column = networks.index(place.network) * len(visitors) + visitors.index(place.visitors)
        line = sizes.index((place.sections, place.classes))
        if not (one.lost or one.won):
            continue
        shade = tiles[line, column] = float(np.clip(np.log2(one.ratio), -1, 1))
        if one.lost:
            colour = "white" if shade > _DARK else "#40200c"
            label = f"+{one.difference:.2g}" if one.difference < 100 else f"+{one.difference:.0f}"
            axes.text(column, line, label, ha="center", va="center", fontsize=6, color=colour)
    axes.imshow(tiles, cmap=_COLOURS, norm=_NORM, origin="lower", aspect="auto", interpolation="none")
    axes.set_xticks(range(tiles.shape[1]), [str(count) for _ in networks for count in visitors], fontsize=7)
    axes.set_yticks(range(len(sizes)), [f"{44 * one} of {classes}" for one, classes in sizes], fontsize=6.5)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xticks(np.arange(tiles.shape[1] + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(sizes) + 1) - 0.5, minor=True)
    axes.grid(which="minor", axis="both", color="white", linewidth=0.8)
    axes.tick_params(which="minor", length=0)
    for number, network in enumerate(networks):
        if number:
            axes.axvline(number * len(visitors) - 0.5, color="#555555", linewidth=0.9)
        middle = (number + 0.5) * len(visitors) - 0.5
        axes.text(middle, len(sizes) - 0.4, network, ha="center", va="bottom", fontsize=6.5, color="#555555")
    lost, won = sum(one.lost for one in losses), sum(one.won for one in losses)
    axes.set_xlabel(f"lost at {lost}, won at {won} of {len(losses)} points", fontsize=7)


def _sentences(found: Any) -> list[str]:
    lines = [
        "A tile is an operating point: objects at the edge of classes in the cloud upwards, visitors to the "
        "right in each network. Grey: within chance, or too small to be noticed. Numbers: the loss in ms, "
        "kbit/s or % of the edge's cores."
    ]
    for metric in SHOWN:
        one = found[metric]
        name = drawing.capital(METRICS[metric].title)
        if not one["regions"]:
            said = f"{one['lost']} points lost, outside any region" if one["lost"] else "no losses"
            lines.append(f"{name}: {said}.")
            continue
        lines.append(
            f"{name}: regions with losses (decision tree; accuracy {percent(one['unseen_accuracy'])} "
            f"at unseen points, {percent(one['always'])} without a tree):"
        )
        lines.extend(f"   \u2022 {region['sentence']}" for region in one["regions"])
    return [part for line in lines for part in textwrap.wrap(line, _TEXT_WIDTH, subsequent_indent="      ")]
