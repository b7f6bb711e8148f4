"""The map of operating points: its cells, metrics, table and picture."""

import json
from typing import Any

import pytest

from nearsight.experiments.framework.experiment import RunOptions, StoredRow
from nearsight.experiments.framework.result_files import ResultFolder
from nearsight.experiments.framework.running import cells_of
from nearsight.experiments.studies.cachier.scale.machines import HARDWARE, NEXUS_7
from nearsight.experiments.studies.map.places import FAST_PHONE, MACHINES, Grid, Place
from nearsight.experiments.studies.map.where_it_loses import Figure
from nearsight.experiments.twin.session import ADAPTIVE, BOUNDED, COOPERATIVE
from support.figures import png_size
from support.map_rows import FAST, NEXUS, SMALL_FAST, SMALL_NEXUS, every_place, map_rows

FIGURE = Figure()


@pytest.fixture(scope="module")
def rows() -> list[StoredRow]:
    """The full system takes twice as long with a Nexus 7 and half as long with fast phones."""

    def latency_ms(place: Place, tiers: str, _run: int) -> float:
        if tiers in {ADAPTIVE, COOPERATIVE}:
            return 40.0 if place.machines in {NEXUS, SMALL_NEXUS} else 10.0
        return 20.0 if tiers == BOUNDED else 30.0

    return map_rows(latency_ms, every_place(), runs=2)


@pytest.fixture(scope="module")
def found(rows: list[StoredRow]) -> dict[str, Any]:
    return FIGURE.metrics(rows)


def test_at_least_two_hundred_points_are_measured_and_some_are_repeated() -> None:
    grid = Grid.of(RunOptions())
    assert len(set(grid.points)) * len(grid.machines) >= 200
    cells = [*cells_of(FIGURE, RunOptions()).values()]
    assert [cell["point"] for cell in cells[: len(grid.points)]] == list(grid.points)
    again = [cell["point"] for cell in cells if cell["run"] != 1]
    assert {point.visitors for point in again} == {one.visitors for one in grid.points}


def test_machines_have_the_speed_of_their_names() -> None:
    fast, nexus, small = (MACHINES[name].of(HARDWARE) for name in (FAST, NEXUS, SMALL_NEXUS))
    assert fast.device_slowness == FAST_PHONE
    assert nexus == HARDWARE
    assert small.device_slowness == NEXUS_7
    assert (small.edge, small.edge_slowness, small.cloud) == (1, 4.0, HARDWARE.cloud)


def test_losses_and_wins_are_counted(found: dict[str, Any]) -> None:
    assert found["points"] == 96
    median = found["systems"][ADAPTIVE]["p50"]
    assert (median["lost"], median["won"], median["level"]) == (48, 48, 0)
    assert median["middle"] == 20.0
    assert median["worst"]["ratio"] == 2.0
    assert [region["where"] for region in median["regions"]] == ["Nexus 7"]
    assert median["against"][BOUNDED]["lost"] == 48
    assert median["against"]["only-cloud"] == {"lost": 48, "won": 48, "middle_ratio": 0.8333}
    assert found["systems"][ADAPTIVE]["bytes"]["level"] == 96


def test_a_system_whose_decisions_cost_more_than_a_tenth_misses_its_target(found: dict[str, Any]) -> None:
    enough, regret = FIGURE.targets(found)
    assert not enough.reached
    assert enough.value == 96
    assert (regret.reached, regret.value) == (False, 2.0)
    assert "at the worst point that is beyond chance and noticeable" in regret.text
    assert regret.note.startswith("40 against 20 ms with bounded edge (x2.00)")
    worst = found["systems"][ADAPTIVE]["mean"]["worst"]
    by_chance = {**found, "systems": {ADAPTIVE: {"mean": {"worst": {**worst, "lost": False}}}}}
    _, regret = FIGURE.targets(by_chance)
    assert regret.reached
    assert regret.note.startswith("no such point; the largest ratio: 40 against 20 ms")


def test_each_row_of_the_table_has_one_system_and_metric(found: dict[str, Any]) -> None:
    named = [(line["full system"], line["metric"]) for line in FIGURE.table(found)]
    assert len(set(named)) == len(named)


@pytest.mark.system
def test_a_picture_is_drawn(rows: list[StoredRow]) -> None:
    assert png_size(FIGURE, rows) > 50_000


@pytest.mark.system
def test_a_smoke_run_measures_all_systems(smoke_runs) -> None:
    folder = smoke_runs.folder("map")
    systems = json.loads((folder / "summary.json").read_text())["metrics"]["systems"]
    assert set(systems) == {ADAPTIVE, COOPERATIVE}
    assert SMALL_FAST not in {row["machines"] for row in ResultFolder(folder).rows()}, (
        "a smoke run has no fast phones"
    )
