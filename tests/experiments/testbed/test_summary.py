"""The summary of a sweep, from the files of its cells."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from nearsight.experiments.rig.rows import RECOGNIZED, RequestRow, write_rows
from nearsight.experiments.testbed import summary
from nearsight.experiments.testbed.campaign import Cell, Point
from nearsight.experiments.testbed.summary import FACTS, ROWS, draw, notes, summarise_sweep, tables

ROW = RequestRow(
    *("edge-cache", "ann", 0, 0.0, 1.0, "mona", "mona", RECOGNIZED, 1, "cloud", 100.0),
    edge_queue_ms=5.0,
    edge_compute_ms=10.0,
    edge_next_tier_ms=80.0,
    cloud_queue_ms=3.0,
    cloud_compute_ms=12.0,
)
TIMEOUT_S = 5.0
FACTS_OF_A_RUN = {
    "environment": {"commit": "aa11"},
    "seconds": 10.0,
    "cpu_s": {"box/edge-main": 1.0, "box/link-to-cloud": 9.0, "server/cloud": 0.5},
    "links": {
        "box/link-to-cloud": {"up_bytes": 1500, "down_bytes": 500, "via": ""},
        "phone/link-to-cloud": {"up_bytes": 700, "down_bytes": 100, "via": "box"},
        "phone/link-to-edge-main": {"up_bytes": 9000, "down_bytes": 900, "via": ""},
    },
    "daemons": [
        {"calibration": None},
        {
            "calibration": {
                "rtt_error_ms": -0.7,
                "up_error_percent": 0.1,
                "down_error_percent": -0.2,
                "within_target": False,
            }
        },
    ],
}


@pytest.fixture
def cells(tmp_path: Path) -> list[Cell]:
    made = [Cell(name, Point(), run) for name in ("bounded", "none answered") for run in (1, 2)]
    for cell in made:
        folder = tmp_path / cell.name
        folder.mkdir(parents=True)
        row = replace(ROW, latency_ms=ROW.latency_ms * cell.run)
        if cell.configuration != "bounded":
            row = replace(row, answered="", outcome="Overloaded", answered_by="")
        write_rows(folder / ROWS, [row, row])
        (folder / FACTS).write_text(json.dumps(FACTS_OF_A_RUN))
    return made


def test_latencies_are_those_of_each_run_and_bytes_to_the_cloud_count_once(
    cells: list[Cell], tmp_path: Path
) -> None:
    bounded, silent = summarise_sweep(cells, tmp_path, TIMEOUT_S)
    assert bounded.each_run_ms == {"p50": (100.0, 200.0), "p95": (100.0, 200.0)}
    assert bounded.split_ms == {"compute": 22.0, "queue": 8.0, "rest": 120.0}
    assert bounded.cpu_percent == {"edge": 10.0, "cloud": 5.0}
    assert bounded.cloud_bytes == 1000.0
    assert silent.each_run_ms == {"p50": (5000.0, 5000.0), "p95": (5000.0, 5000.0)}


def test_the_tables_have_a_row_for_each_configuration_also_without_answers(
    cells: list[Cell], tmp_path: Path
) -> None:
    found = tables(summarise_sweep(cells, tmp_path, TIMEOUT_S))
    assert all({len(row) for row in table.rows} == {len(table.columns)} for table in found)
    latency, cost = found
    assert latency.rows[0][2:4] == ("4/4", "150 (100\N{EN DASH}200)")
    assert latency.rows[1][2:] == ("0/4", *["≥ 5000 (≥ 5000\N{EN DASH}≥ 5000)"] * 2)
    assert cost.rows[1][2:4] == ("0.0", "-")


def test_a_median_over_runs_is_not_interpolated_between_a_latency_and_a_lower_bound(
    cells: list[Cell], tmp_path: Path
) -> None:
    write_rows(tmp_path / cells[1].name / ROWS, [replace(ROW, answered="", outcome="Overloaded")])
    parts = summarise_sweep(cells, tmp_path, TIMEOUT_S)
    assert tables(parts)[0].rows[0][3] == "≥ 5000 (100\N{EN DASH}≥ 5000)"
    axes = Figure().subplots()
    summary._panel(axes, parts[:1], {"baseline": ""}, "")
    assert [line.get_ydata()[0] for line in axes.lines if line.get_marker() == "^"] == [5000.0]


def test_links_outside_the_target_are_counted(cells: list[Cell], tmp_path: Path) -> None:
    (links,) = notes(summarise_sweep(cells, tmp_path, TIMEOUT_S))
    assert "at most 0.70 ms and 0.2 %; 4 of 4 missed the target" in links


def test_runs_with_late_photos_are_named(cells: list[Cell], tmp_path: Path) -> None:
    write_rows(tmp_path / cells[1].name / ROWS, [replace(ROW, late_ms=300.0)])
    late = notes(summarise_sweep(cells, tmp_path, TIMEOUT_S))[1]
    assert "bounded/baseline/run-2 (300 ms)" in late
    assert "run-1" not in late


def test_commits_of_a_sweep_that_was_continued_later_are_named(cells: list[Cell], tmp_path: Path) -> None:
    assert not any("commits" in note for note in notes(summarise_sweep(cells, tmp_path, TIMEOUT_S)))
    later = {**FACTS_OF_A_RUN, "environment": {"commit": "bb22"}}
    (tmp_path / cells[-1].name / FACTS).write_text(json.dumps(later))
    note = notes(summarise_sweep(cells, tmp_path, TIMEOUT_S))[-1]
    assert note.startswith("Runs were measured at several commits of nearsight: aa11, bb22.")


def test_the_picture_shows_lower_bounds_of_configurations_without_answers(
    cells: list[Cell], tmp_path: Path
) -> None:
    axes = Figure().subplots()
    summary._panel(axes, summarise_sweep(cells, tmp_path, TIMEOUT_S), {"baseline": ""}, "")
    (bounds,) = (line for line in axes.lines if line.get_marker() == "^")
    assert np.all(bounds.get_ydata() == 5000.0)


def test_a_picture_is_drawn(cells: list[Cell], tmp_path: Path) -> None:
    assert (
        draw(summarise_sweep(cells, tmp_path, TIMEOUT_S), tmp_path / "summary.png", {}).stat().st_size > 5_000
    )
