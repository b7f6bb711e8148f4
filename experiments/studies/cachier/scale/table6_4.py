"""Table 6.4, measured: numbers of visitors, objects and classes, and networks, that each system can serve.

It needs the rows of all four variables; existing rows of figures 6.4, 6.7, 6.10 and 6.12 are used. In
addition, the full system is compared with only cloud at the baseline with 10 visitors: with photos as in the
dissertation (all show an exhibit of the sections), and with 5 % photos of unknown objects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from nearsight.common.text import percent
from nearsight.experiments.framework.drawing import Picture
from nearsight.experiments.framework.experiment import Results, RunOptions, StoredRow, Target
from nearsight.experiments.studies.cachier.scale.configurations import FULL, NAMES
from nearsight.experiments.studies.cachier.scale.expectations import (
    COLUMNS,
    EXPECTED,
    growth,
    spread,
    targets_of,
)
from nearsight.experiments.studies.cachier.scale.operating_point import (
    BASELINE,
    VARIABLES,
    OperatingPoint,
    amount_of,
    points_of,
)
from nearsight.experiments.studies.cachier.scale.picture import draw_table
from nearsight.experiments.studies.cachier.scale.scale_figure import (
    TRAFFIC,
    AtPoints,
    by_value,
    cells_at,
    numbers,
    world_of,
)
from nearsight.experiments.twin.session import ONLY_CLOUD

STRANGERS = 0.05
"""Share of photos of unknown objects in the second comparison."""
TENTH = 0.1
_COMPARED = {"p50_ms": "p50", TRAFFIC: "bytes to and from the cloud", "cloud_cpu": "CPU of the cloud"}
_MANY = 10
_DEARER = 1.5


class Figure(AtPoints):
    """Growth with each variable, and the full system against only cloud; uses figures' rows."""

    name: ClassVar[str] = "table6.4"
    source: ClassVar[str] = "Cachier dissertation, 6.7"
    shares_cells_with: ClassVar[tuple[str, ...]] = ("fig6.4", "fig6.7", "fig6.10", "fig6.12")

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """The cells of all variables, and those with many visitors and unknown photos."""
        runs = amount_of(options).runs
        points = dict.fromkeys(point for variable in VARIABLES for point in points_of(variable, options))
        many = _many(options)
        return cells_at([*dict.fromkeys((*points, many))], runs) + cells_at((many,), runs, STRANGERS)

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``variables.<variable>``: as in its figures; ``compared``: both systems with many visitors."""
        known = [row for row in rows if not float(row["unknown_share"])]
        strange = [row for row in rows if float(row["unknown_share"])]
        at = [row for row in known if OperatingPoint.of(row) == OperatingPoint.of(strange[0])]
        return {
            **world_of(rows),
            "variables": {variable: by_value(_along(known, variable), variable) for variable in VARIABLES},
            "compared": {
                f"{share:g}": {
                    tiers: numbers([row for row in found if row["tiers"] == tiers])
                    for tiers in (ONLY_CLOUD, FULL)
                }
                for share, found in ((0.0, at), (STRANGERS, strange))
            },
            "visitors": int(strange[0]["visitors"]),
        }

    def targets(self, summary: Mapping[str, Any]) -> Iterator[Target]:
        """The targets of all variables, and a tenth of the values of only cloud."""
        for variable, values in summary["variables"].items():
            yield from targets_of({**summary, "variable": variable, "values": values})
        yield from _tenths(summary)

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One row per variable and system of table 6.4."""
        for variable, values in summary["variables"].items():
            first, last = next(iter(values)), next(reversed(values))
            for tiers in COLUMNS:
                expected = EXPECTED[variable][tiers]
                judged = expected.judged(values)
                yield {
                    "variable": variable,
                    "system": NAMES[tiers],
                    "from, to": f"{first} to {last}",
                    "p50 ms first": f"{values[first][tiers]['p50_ms']['median']:.1f}",
                    "p50 ms last": f"{values[last][tiers]['p50_ms']['median']:.1f}",
                    "heavy / light": f"{growth(variable, tiers, values):.2f}",
                    "most / least": f"{spread(tiers, judged):.2f}" if judged else "-",
                    "dissertation": str(expected),
                    "its table 6.4": expected.printed,
                }

    def draw(self, results: Results) -> Picture:
        """Draw one panel per variable."""
        return draw_table(results.metrics)


def _many(options: RunOptions) -> OperatingPoint:
    """The point at which the full system is compared with only cloud."""
    if options.smoke:
        return points_of("visitors", options)[-1]
    return replace(BASELINE, visitors=_MANY)


def _along(rows: Sequence[StoredRow], variable: str) -> list[StoredRow]:
    """The rows at which all other variables have their most frequent value: the baseline."""
    others = [name for name in VARIABLES if name != variable]
    usual = {name: Counter(row[name] for row in rows).most_common(1)[0][0] for name in others}
    return [row for row in rows if all(row[name] == usual[name] for name in others)]


def _tenths(summary: Mapping[str, Any]) -> Iterator[Target]:
    for share, found in summary["compared"].items():
        full, cloud = found[FULL], found[ONLY_CLOUD]
        strangers = float(share)
        what = f"{percent(strangers)} unknown photos" if strangers else "all photos of exhibits"
        for metric, words in _COMPARED.items():
            ratio = full[metric]["median"] / cloud[metric]["median"]
            text = (
                f"baseline, {summary['visitors']} visitors, {what}: {words} of the full system over "
                f"only-cloud's, at most {TENTH:g}"
            )
            note = "" if ratio <= TENTH else _why(metric, full, cloud)
            yield Target.at_most(text, ratio, TENTH, note, digits=4)


def _why(metric: str, full: Mapping[str, Any], cloud: Mapping[str, Any]) -> str:
    """Explain the ratio with numbers of both systems."""
    if metric == "p50_ms":
        parts = ", ".join(
            f"{part} {full[f'{part}_ms']['median']:.1f}" for part in ("device", "edge", "queue")
        )
        ours, theirs = (one["p50_ms"]["median"] for one in (full, cloud))
        link_ms = cloud["link_ms"]["median"]
        return (
            f"p50 is {ours:.1f} ms, only-cloud's {theirs:.1f} ms (network {link_ms:.1f} ms of its mean); "
            f"parts of the full system's mean [ms]: {parts}"
        )
    found = (
        f"{percent(full['by_cloud']['median'], 1)} of the full system's photos reach the cloud; "
        f"{percent(1.0 - full['recall']['median'], 1)} of those of exhibits are recognised by no tier, "
        "so no cache can answer them"
    )
    if metric == TRAFFIC:
        models = full["down_kbps"]["median"] / full[TRAFFIC]["median"]
        return f"{found}; {percent(models)} of the bytes come from the cloud, nearly all of them models"
    each = [one["cloud_cpu"]["median"] / max(1e-9, one["by_cloud"]["median"]) for one in (full, cloud)]
    again = " (it needs a second look)" if each[0] > _DEARER * each[1] else ""
    return (
        f"{found}; such a photo costs {each[0] / each[1]:.1f} times as much as an average photo of "
        f"only-cloud{again}; {percent(cloud['failed'] / cloud['requests'])} of only-cloud's photos "
        "get no answer"
    )
