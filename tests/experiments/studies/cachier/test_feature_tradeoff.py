"""Figure 4.4 and table 4.1: with fewer features, lookups are faster and recall is lower."""

import json

import pytest

from nearsight.experiments.framework.experiment import StoredRow
from nearsight.experiments.studies.cachier.feature_tradeoff import PAPER, Figure4x4, Table4x1


def rows_on_the_papers_lines() -> list[StoredRow]:
    """Measurements of a Nexus 7: 150 ms of extraction, the rest for the lookup."""
    return [
        {
            "features": str(features),
            "objects": "400",
            "k": str(k),
            "subset": str(subset),
            "backend": "multihash",
            "relevant": "20",
            "noise": "100",
            "lookup_ms": repr(time[0] + time[1] * k - 150),
            "recall": repr(recall[0] + recall[1] * k),
            "precision": "0.97",
            "extraction_ms": "150.0",
            "device_ms": repr(time[0] + time[1] * k),
        }
        for features, (time, recall) in PAPER.items()
        for k in (1, 10, 50, 100)
        for subset in range(2)
    ]


def test_measurements_on_the_lines_of_table_4_1_give_its_coefficients() -> None:
    summary = Table4x1().metrics(rows_on_the_papers_lines())
    assert list(summary["features"]) == ["200", "400", "600", "800"]
    for features, (time, recall) in PAPER.items():
        found = summary["features"][str(features)]
        assert (found["device_ms"]["a"], found["device_ms"]["b"]) == pytest.approx(time)
        assert (found["recall"]["a"], found["recall"]["b"]) == pytest.approx(recall)
        assert found["points"][0]["device_ms"] == pytest.approx(time[0] + time[1])
    first, *_ = Table4x1().table(summary)
    assert first["f_D(k) [ms]"] == "170.34 + 0.7000 k"
    assert first["f_D(0) over largest"] == first["paper, f_D(0) over largest"] == "0.55"


def test_the_values_of_the_paper_reach_the_targets() -> None:
    faster, ahead = Figure4x4().targets(Figure4x4().metrics(rows_on_the_papers_lines()))
    assert faster.reached
    assert faster.value == pytest.approx((170.34 + 70) / (310.99 + 205))
    assert ahead.reached
    assert ahead.value == pytest.approx((0.87 - 0.146) - (0.81 - 0.619))


@pytest.mark.system
def test_figure_and_table_share_their_rows(smoke_runs) -> None:
    figure, table = smoke_runs.folder("fig4.4"), smoke_runs.folder("table4.1")
    assert (table / "rows.csv").read_text() == (figure / "rows.csv").read_text()
    found = json.loads((figure / "summary.json").read_text())["metrics"]["features"]
    assert set(found) == {"200", "800"}
    assert all(0 < one["extraction_ms"]["mean"] < one["points"][0]["device_ms"] for one in found.values())
