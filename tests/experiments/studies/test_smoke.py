"""Every experiment with ``--smoke`` writes rows, a summary and a picture."""

import csv
import json
from pathlib import Path

import cv2
import pytest

from nearsight.experiments.framework.registry import experiments
from nearsight.experiments.framework.result_files import PROVENANCE

pytestmark = pytest.mark.system


@pytest.mark.parametrize("name", experiments())
def test_a_smoke_run_writes_rows_summary_and_picture(name: str, smoke_runs) -> None:
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
