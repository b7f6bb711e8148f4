"""Every experiment runs in seconds with ``--smoke``, and leaves rows, numbers and a picture."""

import csv
import json
from pathlib import Path

import cv2
import pytest

from nearsight.experiments.framework.registry import experiments
from nearsight.experiments.framework.result_files import PROVENANCE

pytestmark = pytest.mark.system

# Those that start daemons, or take longer than five seconds on one core.
LONG = {
    *(
        "adaptation",
        "approximate-daemons",
        "burst",
        "crowd",
        "deepcache-depth",
        "edge-prefetching",
        "fig3.2",
        "fig6.15",
        "model-testbed",
        "multi-user",
        "peers",
        "prefetching",
        "stream-age",
    ),
    "twin-validation",
}
RUNS = [pytest.param(name, marks=pytest.mark.system if name in LONG else ()) for name in experiments()]


@pytest.mark.parametrize("name", RUNS)
def test_a_smoke_run_leaves_rows_numbers_and_a_picture(name: str, smoke_runs) -> None:
    folder: Path = smoke_runs.folder(name)
    with (folder / "rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows
    assert set(PROVENANCE) < set(rows[0])
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["experiment"] == name
    assert summary["metrics"]
    assert all(target["text"] for target in summary["targets"])
    picture = cv2.imread(str(folder / f"{name}.png"))
    assert picture is not None
    assert picture.std() > 10, "something is drawn"


def test_the_long_ones_are_experiments() -> None:
    assert set(experiments()) >= LONG
