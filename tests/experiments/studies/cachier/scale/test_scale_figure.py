"""Figures of chapter 6: cells, metrics, tables and pictures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from matplotlib.figure import Figure as Picture

from nearsight.common.errors import InvalidArgument
from nearsight.experiments.framework.experiment import RunOptions
from nearsight.experiments.framework.registry import experiments, find_experiment
from nearsight.experiments.framework.running import cells_of
from nearsight.experiments.studies.cachier.scale.configurations import FULL, NAMES, ORDER
from nearsight.experiments.studies.cachier.scale.operating_point import (
    BASELINE,
    VARIABLES,
    VISITORS,
    OperatingPoint,
)
from nearsight.experiments.studies.cachier.scale.picture import draw_answers, draw_lines, world_in_words
from nearsight.experiments.studies.cachier.scale.scale_figure import (
    Figure6x4,
    Figure6x12,
    ScaleFigure,
    world_of,
)
from nearsight.experiments.studies.cachier.scale.table6_4 import STRANGERS
from nearsight.experiments.studies.cachier.scale.table6_4 import Figure as Table
from nearsight.experiments.twin.session import ONLY_CLOUD
from support.figures import png_size
from support.scale_rows import stored_rows

TWIN = RunOptions(on="twin", costs="measured")
TESTBED = RunOptions(on="testbed")
FIGURES = [name for name, entry in experiments().items() if entry.module.endswith("scale.scale_figure")]


def p50(point: OperatingPoint, tiers: str) -> float:
    return 10.0 * point.visitors + 100.0 * ORDER.index(tiers)


def write(folder: Path, figure: ScaleFigure | Table, rows: list[dict[str, str]]) -> None:
    lines = [",".join(rows[0]), *(",".join(f'"{value}"' for value in row.values()) for row in rows)]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    (folder / "summary.json").write_text(json.dumps({"metrics": figure.metrics(rows)}))


def test_the_cell_of_a_row_is_found() -> None:
    figure = Table()
    cells = figure.cells(TWIN)
    assert len({figure.key(**cell) for cell in cells}) == len(cells)
    for cell in cells:
        values = {**cell["point"].parameters(), "unknown_share": cell["unknown_share"], "run": cell["run"]}
        assert figure.cell_of({name: str(value) for name, value in values.items()}) == cell


@pytest.mark.parametrize("options", [TWIN, TESTBED], ids=["twin", "testbed"])
def test_the_table_shares_cells_with_the_figures_and_adds_unknown_photos(options: RunOptions) -> None:
    figures = {key for name in FIGURES for key in cells_of(find_experiment(name), options)}
    added = cells_of(Table(), options).keys() - figures
    assert added == {f"v10-s3-c500-baseline-{STRANGERS:g}-{run}" for run in range(1, 5)}


def test_the_testbed_measures_fewer_points_than_the_twin() -> None:
    figure = Figure6x4()
    few, many = (cells_of(figure, options).keys() for options in (TESTBED, TWIN))
    assert few < many
    assert len(figure.cells(RunOptions(on="testbed", runs=1))) == len(few) / 4


def test_the_testbed_refuses_costs() -> None:
    with pytest.raises(InvalidArgument, match="has real costs"):
        Figure6x4().completed(RunOptions(on="testbed", costs="paper"), lambda _text: None)


def test_the_default_is_the_twin_with_measured_costs() -> None:
    found = Figure6x4().completed(RunOptions(smoke=True), lambda _text: None)
    assert (found.on, found.costs) == ("twin", "measured")
    paper = Figure6x4().completed(RunOptions(smoke=True, costs="paper"), lambda _text: None)
    assert len({found.costs_mark, paper.costs_mark, ""}) == 3


def test_numbers_are_medians_and_ranges_over_the_runs() -> None:
    rows = stored_rows([BASELINE], p50, runs=3)
    one = Figure6x4().metrics(rows)["values"]["5"][ONLY_CLOUD]
    assert one["p50_ms"] == {"median": 51.0, "min": 50.0, "max": 52.0}
    assert (one["requests"], one["runs"]) == (3, 3)


def test_networks_are_sorted_by_speed() -> None:
    rows = stored_rows(list(VARIABLES["network"]), p50)
    assert list(Figure6x12().metrics(rows)["values"]) == ["Slow", "Medium", "baseline", "Fast", "SuperFast"]


def test_shares_of_tiers_are_drawn_at_both_ends_of_the_variable() -> None:
    rows = stored_rows([OperatingPoint(visitors=number) for number in (1, 2, 4)], p50)
    of_the_cloud = {"by_edge": "0.0", "by_cloud": "1.0"}
    rows = [{**row, **of_the_cloud} if row["tiers"] == ONLY_CLOUD else row for row in rows]
    axes = Picture().subplots()
    draw_answers(axes, Figure6x4().metrics(rows))
    by_edge, by_cloud = ([bar.get_width() for bar in axes.containers[place]] for place in (1, 2))
    assert by_cloud == 2 * [100.0 * (tiers == ONLY_CLOUD) for tiers in ORDER]
    assert by_edge == 2 * [100.0 * (tiers != ONLY_CLOUD) for tiers in ORDER]


@pytest.mark.system
@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_a_table_and_a_picture(name: str) -> None:
    figure = find_experiment(name)
    assert isinstance(figure, ScaleFigure)
    points = [*VARIABLES[figure.variable][:2]]
    rows = stored_rows(points, p50)
    assert len([*figure.table(figure.metrics(rows))]) == len(points) * len(ORDER)
    assert png_size(figure, rows) > 10_000


def test_the_full_system_is_compared_with_only_cloud_with_and_without_unknown_photos(tmp_path: Path) -> None:
    points = list(dict.fromkeys(point for some in VARIABLES.values() for point in some))
    many = OperatingPoint(visitors=10)
    rows = [
        *stored_rows(points, lambda _point, tiers: 8.0 if tiers == FULL else 100.0, runs=1),
        *stored_rows(
            [many], lambda _point, tiers: 12.0 if tiers == FULL else 100.0, unknown=STRANGERS, runs=1
        ),
    ]
    table = Table()
    found = [target for target in table.targets(table.metrics(rows)) if "p50 of the full" in target.text]
    assert [(target.value, target.reached) for target in found] == [(0.08, True), (0.12, False)]
    assert png_size(table, rows) > 10_000


def test_sessions_with_unknown_photos_are_not_part_of_a_variable() -> None:
    points = list(VARIABLES[VISITORS])
    many = OperatingPoint(visitors=10)
    rows = [*stored_rows(points, p50), *stored_rows([many], p50, unknown=STRANGERS)]
    assert Table().metrics(rows)["variables"][VISITORS]["10"][FULL]["runs"] == 2


def test_an_idle_link_is_drawn_at_the_minimum_and_a_missing_edge_is_not_drawn() -> None:
    nothing = {"median": 0.0, "min": 0.0, "max": 0.0}
    numbers = {"traffic_kbps": nothing, "edge_cpu": nothing}
    found = {"variable": VISITORS, "values": {"1": {ONLY_CLOUD: numbers, FULL: numbers}}}
    drawn = {}
    for metric in numbers:
        axes = Picture().subplots()
        draw_lines(axes, found, metric)
        drawn[metric] = [list(line.get_ydata()) for line in axes.lines]
    assert drawn == {"traffic_kbps": [[1.0], [1.0]], "edge_cpu": [[], []]}


def test_a_picture_of_the_testbed_has_its_errors() -> None:
    measured = {"link_off_ms": "0.2", "link_off_percent": "1.5", "configuration": '{"on": "testbed"}'}
    rows = [{**row, **measured} for row in stored_rows([BASELINE], p50)]
    words = world_in_words(world_of(rows))
    assert "link off by at most 0.20 ms and 1.5 %" in words
    assert "late" not in words
    late = world_in_words(world_of([*rows, {**rows[0], "late_p99_ms": "300.0"}]))
    assert "NOT RELIABLE: photos sent up to 300 ms late" in late


def test_the_table_compares_the_values_that_are_judged_and_names_the_other_one() -> None:
    points = list(dict.fromkeys(point for some in VARIABLES.values() for point in some))
    rows = [
        *stored_rows(points, lambda point, _tiers: 900.0 if point.network == "Slow" else 300.0, runs=1),
        *stored_rows([OperatingPoint(visitors=10)], p50, unknown=STRANGERS, runs=1),
    ]
    lines = [*Table().table(Table().metrics(rows))]
    of_network = {line["system"]: line for line in lines if line["variable"] == "network"}
    cloud, full = of_network[NAMES[ONLY_CLOUD]], of_network[NAMES[FULL]]
    assert (cloud["dissertation"], cloud["most / least"]) == ("flat, except at Slow", "1.00")
    assert (full["dissertation"], full["most / least"]) == ("flat", "3.00")
