"""Figure 4.4: latency, recall and precision on a device, by number of features (dissertation, 4.5.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from nearsight.experiments.framework.drawing import SEQUENCE, Picture
from nearsight.experiments.framework.experiment import Results, Target
from nearsight.experiments.studies.cachier.feature_tradeoff import FEATURE_COUNTS, FeatureTradeoff
from nearsight.experiments.studies.cachier.offline_picture import Series, TimeAxis, draw_analysis

MARKERS = ("s", "D", "^", "o")


class Figure(FeatureTradeoff):
    """Latency, recall and precision on a device, for several numbers of features."""

    name: ClassVar[str] = "fig4.4"
    source: ClassVar[str] = "Cachier dissertation, 4.5.2"

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:  # noqa: D102
        return tradeoff_targets(summary)

    def table(  # noqa: D102
        self, summary: Mapping[str, Any]
    ) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        rows = [
            (
                features,
                point["k"],
                *(
                    f"{point[name]:.{digits}f} ± {point[f'{name}_std']:.{digits}f}"
                    for name, digits in (("device_ms", 2), ("recall", 3), ("precision", 3))
                ),
            )
            for features, found in summary["features"].items()
            for point in found["points"]
        ]
        return ("features", "k", "f_D(k) [ms]", "recall", "precision"), rows

    def draw(self, results: Results) -> Picture:  # noqa: D102
        found = results.metrics
        series = [
            Series(f"{features} features", colour_of(int(features)), _marker_of(int(features)), one["points"])
            for features, one in found["features"].items()
        ]
        caption = (
            f"{found['objects']} objects; means of random subsets of k, and their deviation; CPU "
            "times of one thread of this machine; recall and precision are set apart a little"
        )
        time = TimeAxis("device_ms", "f_D(k) [ms], extraction included", logarithmic=False)
        return draw_analysis(series, time, caption)


def tradeoff_targets(summary: Mapping[str, Any]) -> tuple[Target, ...]:
    """The shape of the paper's curves: the fewest features are the fastest, the most find the most."""
    fewest, most = (summary["features"][key] for key in (min(summary["features"], key=int), _most(summary)))
    last_fewest, last_most = fewest["points"][-1], most["points"][-1]
    faster = last_fewest["device_ms"] / last_most["device_ms"]
    ahead = last_most["recall"] - last_fewest["recall"]
    return (
        Target("largest k: f_D of the fewest features over that of the most, below 1", faster, faster < 1),
        Target("largest k: recall of the most features minus that of the fewest, over 0", ahead, ahead > 0),
    )


def colour_of(features: int) -> str:
    """The same in all pictures; numbers of features of a data set of one's own are in the list."""
    return SEQUENCE[FEATURE_COUNTS.index(features)]


def _most(summary: Mapping[str, Any]) -> str:
    return str(max(summary["features"], key=int))


def _marker_of(features: int) -> str:
    return MARKERS[FEATURE_COUNTS.index(features)]
