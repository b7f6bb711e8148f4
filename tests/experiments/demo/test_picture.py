"""The demo's figure, drawn from the result files."""

import json
import math
from dataclasses import replace
from pathlib import Path

import cv2
import pytest

from nearsight.experiments.demo.picture import plot
from nearsight.experiments.demo.report import ConfigurationResult, summary
from nearsight.experiments.demo.scenario import FULL
from nearsight.experiments.rig.rows import RequestRow, write_rows

ROW = RequestRow("only-cloud", "v1", 0, 0.0, 0.1, "a", "a", "recognized", 1, "cloud", 100.0)
FAILED = replace(ROW, outcome="Overloaded", answered_by="", answered="")
LOST = replace(FAILED, outcome="lost", outcomes=0, latency_ms=math.nan)


@pytest.mark.parametrize("rows", [[ROW, replace(ROW, time_s=7.0)], [ROW, FAILED, LOST], [LOST]])
def test_a_figure_is_drawn_for_any_outcomes(tmp_path: Path, rows: list[RequestRow]) -> None:
    ways = {"to-cloud": {"up": 1, "down": 1}}
    result = ConfigurationResult("only-cloud", tuple(rows), ways, {}, {})
    write_rows(tmp_path / "requests.csv", rows)
    (tmp_path / "summary.json").write_text(json.dumps(summary(FULL, [result], {}, {})))
    picture = cv2.imread(str(plot(tmp_path)))
    assert picture is not None
    assert picture.shape[1] > picture.shape[0] > 500
    assert picture.min() < 100  # something is drawn
