"""The demo's figure, drawn from the result files."""

import json
import math
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from matplotlib.figure import Figure

from nearsight.experiments.demo import picture
from nearsight.experiments.demo.picture import plot
from nearsight.experiments.demo.report import ConfigurationResult, summary
from nearsight.experiments.demo.scenario import FULL
from nearsight.experiments.rig.rows import RequestRow, write_rows

ROW = RequestRow("only-cloud", "v1", 0, 0.0, 0.1, "a", "a", "recognized", 1, "cloud", 100.0)
FAILED = replace(ROW, outcome="Overloaded", answered_by="", answered="")
LOST = replace(FAILED, outcome="lost", outcomes=0, latency_ms=math.nan)


@pytest.mark.parametrize("rows", [[ROW, FAILED, LOST], [LOST]])
def test_a_figure_is_drawn_for_any_outcomes(tmp_path: Path, rows: list[RequestRow]) -> None:
    ways = {"to-cloud": {"up": 1, "down": 1}}
    result = ConfigurationResult("only-cloud", tuple(rows), ways, {}, {}, FULL.timeout_s)
    write_rows(tmp_path / "requests.csv", rows)
    (tmp_path / "summary.json").write_text(json.dumps(summary(FULL, [result], {}, {})))
    image = cv2.imread(str(plot(tmp_path)))
    assert image is not None
    assert image.shape[1] > image.shape[0] > 500
    assert image.min() < 100  # something is drawn


def test_the_distribution_is_that_of_all_requests_and_states_the_failed_ones() -> None:
    axes = Figure().subplots()
    picture._latency_distribution(axes, {"only-cloud": [ROW, FAILED, FAILED], "edge-cache": [LOST]}, 5.0)
    assert [label.get_text() for label in axes.get_legend().get_texts()] == [
        "only-cloud: p50 ≥ 5000 ms, p95 ≥ 5000 ms, 2 failed",
        "edge-cache: p50 ≥ 5000 ms, p95 ≥ 5000 ms, 1 failed",
    ]
    assert np.max(axes.lines[0].get_ydata()) == pytest.approx(1 / 3)
