"""Adaptation to the light (dissertation, 5.1.1.1): recall, precision and lookup time with and without it.

The dissertation proposes the adaptation and does not measure it. Here the same photos of a museum are
modified to different lights; `measuring` describes which photos are used for learning. Compared are the
vouched models (those of the catalogue) alone, a device that learned from its own photos, a device that has
only views shared by others, and one with both. In addition, the effect of forged shared views is measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from matplotlib.axes import Axes

from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.experiments.framework import drawing, numbers
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.museum.camera.lighting import DAYLIGHT, Light
from nearsight.experiments.museum.settings import MuseumSettings
from nearsight.experiments.studies.adaptation.measuring import (
    BOTH,
    COUNTS,
    FORGED,
    OWN,
    SHARED,
    TRUSTED,
    VOUCHED,
    WAYS,
    photographed,
    rows_of,
)
from nearsight.experiments.studies.museums import dataset_of

LIGHTS: Mapping[str, Light] = {
    "daylight": DAYLIGHT,
    "lamps": Light(gains=(0.12, 0.5, 1.3)),
    "dusk": Light(exposure=0.05, noise_levels=6),
    "misted glass": Light(blur_px=2.5, veil=0.4, noise_levels=3),
    "evening": Light(gains=(0.15, 0.5, 1.2), exposure=0.15, blur_px=1.5, veil=0.1, noise_levels=5),
}
"""Models are trained on references in daylight; evening combines lamps, dusk and mist."""

FEATURES, FEWER_FEATURES = 800, 400
_CONDITIONS = (
    *((light, FEATURES) for light in LIGHTS),
    ("daylight", FEWER_FEATURES),
    ("evening", FEWER_FEATURES),
)
_SMOKE_CONDITIONS = (("daylight", FEATURES), ("evening", FEATURES))
_MUSEUM = MuseumSettings(objects=120, photos_per_object=6, unknown_photos=100)
_SMOKE_MUSEUM = MuseumSettings(objects=6, photos_per_object=2, unknown_photos=2)
_ATTACKED = ("daylight", FEATURES)

_COLOURS = dict(zip(WAYS, ("#9aa3ab", *drawing.SEQUENCE[:3]), strict=True))


class Figure(Experiment):
    """Recall, precision and lookup time with models adapted to the light, own and shared; forged views."""

    name: ClassVar[str] = "adaptation"
    source: ClassVar[str] = "Cachier dissertation, 5.1.1.1"

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per light and number of features."""
        conditions = _SMOKE_CONDITIONS if options.smoke else _CONDITIONS
        return [{"light": light, "features": features} for light, features in conditions]

    def run(self, options: RunOptions, light: str, features: int) -> list[Row]:
        """Photograph the museum and recognise in every way; one row per way and third of the museum."""
        museum = _SMOKE_MUSEUM if options.smoke else _MUSEUM
        dataset = dataset_of(options, replace(museum, seed=options.seed))
        settings = RecognitionSettings(query_features=features)
        photos = photographed(dataset, LIGHTS[light], settings, options)
        attacked = (light, features) == _ATTACKED
        return [
            {"light": light, "features": features, "objects": len(photos.models), **row}
            for row in rows_of(photos, settings, options, forged=attacked)
        ]

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """Per light and way: counts over all parts of the museum, and means over the parts."""
        named = [{**row, "condition": condition(row["light"], int(row["features"]))} for row in rows]
        found = numbers.nested(named, ("condition", "way"), _measured)
        return {"objects": int(rows[0]["objects"]), "held": int(rows[0]["held"]), "conditions": found}

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """Recall must rise without a loss of precision, and forged views must cause no wrong answer."""
        conditions = summary["conditions"]
        targets = []
        for way in (OWN, SHARED, BOTH):
            gain = _sum_gain(conditions, way, "right") / max(
                1, sum(ways[VOUCHED]["relevant"] for ways in conditions.values())
            )
            loss = min(_precision(ways[way]) - _precision(ways[VOUCHED]) for ways in conditions.values())
            targets.append(Target(f"{way}: recall minus that of vouched models, over 0", gain, gain > 0))
            text = f"{way}: precision minus that of vouched models, in the worst light, at least 0"
            targets.append(Target.at_least(text, loss, 0))
        wrong = _wrong_gain(conditions, FORGED)
        targets.append(Target("wrong answers because of forged views, 0", wrong, wrong == 0))
        return tuple(targets)

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per light and way."""
        for light, way, one in numbers.leaves(summary["conditions"], 2):
            yield {
                "light": light,
                "models": way,
                "recall": f"{one['recall']['mean']:.3f}",
                "right": f"{one['right']} of {one['relevant']}",
                "precision": f"{one['precision']['mean']:.4f}",
                "wrong": f"{one['confused'] + one['noise_answered']} of {one['relevant'] + one['noise']}",
                "lookup [ms]": f"{one['lookup_ms']['mean']:.2f}",
                "views": one["views"],
            }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw recall, precision and time, one below the other."""
        summary = results.metrics
        conditions = summary["conditions"]
        picture = drawing.new_picture(10.0, 7.6)
        recall, precision, time = picture.subplots(3, 1, sharex=True)
        for axes, name in ((recall, "recall"), (precision, "precision"), (time, "lookup_ms")):
            _draw(axes, conditions, name)
        low, imprecise = (
            min(one[name]["min"] for ways in conditions.values() for one in ways.values())
            for name in ("recall", "precision")
        )
        recall.set(title="Recall", ylim=(max(0.0, low - 0.08), 1.005))
        precision.set(title="Precision", ylim=(max(-0.02, min(0.88, imprecise - 0.02)), 1.005))
        time.set(title="Lookup on the device, extraction not included", ylabel="CPU time [ms]")
        time.set_xticks(range(len(conditions)), [name.replace(", ", ",\n") for name in conditions])
        _mark_forged(precision, conditions)
        drawing.caption(picture, _caption(summary))
        drawing.legend_below(picture, recall, 4)
        return picture


def condition(light: str, features: int) -> str:
    """Name of a light and number of features in tables and pictures."""
    return light if features == FEATURES else f"{light}, {features} features"


def _measured(rows: Sequence[StoredRow]) -> dict[str, Any]:
    parts = [{name: int(row[name]) for name in COUNTS} for row in rows]
    return {
        **{name: sum(part[name] for part in parts) for name in COUNTS},
        "recall": numbers.mean_and_spread([part["right"] / part["relevant"] for part in parts]),
        "precision": numbers.mean_and_spread([_precision(part) for part in parts]),
        "lookup_ms": numbers.mean_and_spread(numbers.values(rows, "lookup_ms")),
    }


def _precision(counts: Mapping[str, Any]) -> float:
    """Share of right answers among all answers; 1 if nothing was answered."""
    answered = counts["right"] + counts["confused"] + counts["noise_answered"]
    return float(counts["right"] / answered) if answered else 1.0


def _sum_gain(conditions: Mapping[str, Any], way: str, *names: str) -> float:
    """Increase of counts over vouched models, summed over the conditions in which this way was measured."""
    measured = [ways for ways in conditions.values() if way in ways]
    return float(sum(ways[way][name] - ways[VOUCHED][name] for ways in measured for name in names))


def _wrong_gain(conditions: Mapping[str, Any], way: str) -> float:
    return _sum_gain(conditions, way, "confused", "noise_answered")


def _draw(axes: Axes, conditions: Mapping[str, Any], name: str) -> None:
    """Draw means with minimum and maximum; bars only for times, because their axis starts at zero."""
    width = 0.8 / len(WAYS)
    for number, way in enumerate(WAYS):
        found = [ways[way][name] for ways in conditions.values()]
        places = [index + (number - (len(WAYS) - 1) / 2) * width for index in range(len(found))]
        means, spread = drawing.error_bars(found)
        if name == "lookup_ms":
            lines = {"elinewidth": 0.8, "ecolor": "#555555"}
            axes.bar(places, means, width * 0.94, yerr=spread, error_kw=lines, color=_COLOURS[way])
        else:
            axes.errorbar(
                places, means, spread, fmt="o", color=_COLOURS[way], elinewidth=1, capsize=2, label=way
            )


def _mark_forged(axes: Axes, conditions: Mapping[str, Any]) -> None:
    """Mark the precision under attack if shared views were used without confirmation."""
    text = "forged views without confirmation"
    for index, ways in enumerate(conditions.values()):
        if TRUSTED in ways:
            at = (index, ways[TRUSTED]["precision"]["mean"])
            axes.plot(*at, "x", color="#8b1e1e", markersize=8)
            axes.annotate(text, at, (8, 0), textcoords="offset points", va="center", fontsize=8)


def _caption(summary: Mapping[str, Any]) -> str:
    conditions = summary["conditions"]
    text = (
        f"{summary['held']} of {summary['objects']} objects are on the device, each third in turn; mean and "
        f"range over the thirds; the other photos show objects not held or in no catalogue"
    )
    if not any(FORGED in ways for ways in conditions.values()):
        return text
    forged, blind = (_wrong_gain(conditions, way) for way in (FORGED, TRUSTED))
    return f"{text}\nwrong answers because of forged views: {forged:g}; {blind:g} without confirmation"
