"""The cells of a sweep: configurations, points, the inventory of each cell, and its visitors."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearsight.common.errors import ConfigurationError
from nearsight.device.recognizer_settings import RecognizerSettings
from nearsight.edge.settings import EdgeSettings
from nearsight.experiments.testbed.campaign import (
    BUILT_IN,
    Cell,
    Point,
    at_point,
    cells,
    compared_configurations,
    fingerprint,
    inventory_of,
    points,
    visitors_of,
)
from nearsight.experiments.testbed.inventory import Inventory, Value
from nearsight.experiments.testbed.reading import read_inventory
from nearsight.experiments.twin.session import CONFIGURATIONS

SLOW = Point("network", "slow")
MINIMAL = """
[nodes.here]
kind = "process"
[cloud]
node = "here"
[edges.main]
node = "here"
[devices.visitors]
node = "here"
[replay]
photos = "museum"
"""
BUILDING = """
[nodes.server]
kind = "process"
[nodes.box]
kind = "process"
[nodes.phone]
kind = "process"
count = {phones}
[cloud]
node = "server"
files = {{ database = "museum.db" }}
[edges.main]
node = "box"
settings = {{ "cache.policy" = "adaptive" }}
[devices.visitors]
node = "phone"
edge = "main"
[[links]]
from = "box"
to = "server"
rtt_ms = 30
"""
CELLS = (
    BUILDING.format(phones=2)
    + """
[[links]]
from = "phone"
to = "server"
rtt_ms = 30
[[links]]
from = "phone"
to = "box"
rtt_ms = 3
[replay]
photos = "museum"
trace = "visits.csv"
runs = 2
[configurations.only-cloud]
edges = false
[configurations.bounded]
edge = { multi_user = "bounded" }
device = { "recognizer.prefetch.enabled" = true }
[networks.slow]
rtt_ms = 40
up_mbps = 2
[networks.fast]
rtt_ms = 20
"""
)
SWEEP = (
    BUILDING.format(phones=10)
    + """
[[links]]
from = "phone"
to = "server"
via = "box"
rtt_ms = 2
[replay]
photos = "museum"
visitors = 5
[sweep]
visitors = [1, 5, 10]
sections = [1, 3]
classes = [200]
[networks.slow]
rtt_ms = 40
"""
)


def read(tmp_path: Path, text: str) -> Inventory:
    (tmp_path / "museum.db").touch()
    path = tmp_path / "lab.toml"
    path.write_text(text)
    return read_inventory(path)


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    return read(tmp_path, CELLS)


def nested(settings: dict[str, Value]) -> dict[str, object]:
    """Dotted names as tables."""
    found: dict[str, object] = {}
    for name, value in settings.items():
        *tables, last = name.split(".")
        place = found
        for table in tables:
            place = place.setdefault(table, {})  # type: ignore[assignment]
        place[last] = value
    return found


@pytest.mark.parametrize("name", BUILT_IN)
def test_each_built_in_configuration_equals_that_of_the_twin(name: str) -> None:
    spec, twin = BUILT_IN[name], CONFIGURATIONS[name]
    device = nested(dict(spec.device))["recognizer"]
    assert isinstance(device, dict)
    number = device["prefetch"].pop("features", 0)
    assert (number,) == (twin.features or (0,))
    assert spec.edges == (twin.edge is not None)
    if twin.edge is not None:
        assert EdgeSettings.model_validate(nested(dict(spec.edge))) == twin.edge
    assert RecognizerSettings.model_validate(device).prefetch == twin.device.prefetch


def test_without_named_configurations_all_possible_ones_run(tmp_path: Path) -> None:
    assert list(compared_configurations(read(tmp_path, MINIMAL))) == list(BUILT_IN)
    assert list(
        compared_configurations(read(tmp_path, MINIMAL.replace('[edges.main]\nnode = "here"', "")))
    ) == ["only-cloud"]


def test_own_and_built_in_configurations_can_be_named_together(tmp_path: Path) -> None:
    own = '[configurations.mine]\nedge = { "cache.policy" = "lru" }\n'
    assert list(compared_configurations(read(tmp_path, MINIMAL + own))) == ["mine"]
    named = MINIMAL + 'configurations = ["prefetching", "mine"]\n' + own
    assert list(compared_configurations(read(tmp_path, named))) == ["prefetching", "mine"]
    with pytest.raises(ConfigurationError, match=r"there is no 'prefetch'; choose from only-cloud, "):
        compared_configurations(read(tmp_path, MINIMAL + 'configurations = ["prefetch"]'))


def test_points_vary_one_variable_and_the_baseline_is_measured_once(tmp_path: Path) -> None:
    assert [point.name for point in points(read(tmp_path, SWEEP))] == [
        "visitors-1",
        "baseline",
        "visitors-10",
        "sections-1",
        "classes-200",
        "network-slow",
    ]


def test_without_a_sweep_only_the_baseline_is_measured(tmp_path: Path) -> None:
    text = SWEEP.partition("[sweep]")[0]
    assert points(read(tmp_path, text)) == (Point(),)


def test_the_value_of_a_point_changes_the_replay(tmp_path: Path) -> None:
    changed = at_point(read(tmp_path, SWEEP), Point("sections", "1")).replay
    assert changed is not None
    assert (changed.sections, changed.visitors) == (1, 5)


def test_the_network_of_a_point_changes_the_uplink_and_not_the_hop_to_the_building(tmp_path: Path) -> None:
    changed = at_point(read(tmp_path, SWEEP), Point("network", "slow"))
    uplink, hop = changed.link("box", "server"), changed.link("phone", "server")
    assert uplink is not None
    assert hop is not None
    assert (uplink.rtt_ms, hop.rtt_ms) == (40, 2)


@pytest.mark.parametrize(
    ("good", "bad", "complaint"),
    [
        ("[1, 5, 10]", "[1, 11]", "11 visitors need as many devices, but there are 10"),
        ("[1, 5, 10]", "[0]", r"sweep\.visitors\.0: Input should be greater than or equal to 1"),
        ("visitors = 5\n", 'visitors = 5\ntrace = "v.csv"\n', r"sweep\.sections: only generated visits"),
        ('files = { database = "museum.db" }', "", "the cloud's database must be a file"),
        ('via = "box"', 'via = "bux"', "there is no node 'bux'"),
        ('via = "box"', 'via = "phone"', "there is no link from 'phone' to 'server'"),
    ],
)
def test_an_impossible_sweep_is_refused(tmp_path: Path, good: str, bad: str, complaint: str) -> None:
    assert good in SWEEP
    with pytest.raises(ConfigurationError, match=complaint):
        read(tmp_path, SWEEP.replace(good, bad, 1))


def test_there_is_a_cell_for_each_configuration_network_and_run(inventory: Inventory) -> None:
    names = [cell.name for cell in cells(inventory)]
    assert len(names) == len(set(names)) == 8
    assert names[:2] == ["only-cloud/network-slow/run-1", "bounded/network-slow/run-1"]


def test_only_cloud_has_neither_edges_nor_links_to_them(inventory: Inventory) -> None:
    changed = inventory_of(inventory, Cell("only-cloud", SLOW, 1))
    assert not changed.edges
    assert [(link.source, link.target) for link in changed.links] == [("phone", "server")]
    assert visitors_of(changed, 1, "abcd")[0].edge == ""


def test_the_network_of_a_point_is_the_shape_of_all_links_to_the_cloud(inventory: Inventory) -> None:
    changed = inventory_of(inventory, Cell("bounded", SLOW, 1))
    to_cloud, to_edge = changed.link("box", "server"), changed.link("phone", "box")
    assert to_cloud is not None
    assert (to_cloud.rtt_ms, to_cloud.up_mbps) == (40, 2)
    assert changed.link("phone", "server") == to_cloud.model_copy(update={"source": "phone"})
    assert to_edge is not None
    assert to_edge.rtt_ms == 3


def test_settings_of_a_configuration_are_added_to_those_of_the_inventory(inventory: Inventory) -> None:
    changed = inventory_of(inventory, Cell("bounded", SLOW, 1))
    assert changed.edges["main"].settings == {"cache.policy": "adaptive", "multi_user": "bounded"}
    assert changed.devices["visitors"].settings == {"recognizer.prefetch.enabled": True}


def test_runs_have_different_visitors_that_start_at_different_times(inventory: Inventory) -> None:
    first, second = visitors_of(inventory, 1, "abcd"), visitors_of(inventory, 2, "abcd")
    assert [visitor.name for visitor in (*first, *second)] == list("abcd")
    assert [visitor.phase_s for visitor in first] == [0.0, 0.5]
    assert [visitor.host.name for visitor in first] == ["phone-1", "phone-2"]
    with pytest.raises(
        ConfigurationError, match="2 runs need 4 visitors, but without those of the warm-up there are 3"
    ):
        visitors_of(inventory, 2, "abc")


def test_the_fingerprint_changes_with_settings_and_files_but_not_with_the_number_of_runs(
    inventory: Inventory,
) -> None:
    cell = Cell("bounded", SLOW, 1)
    assert inventory.replay is not None
    more = inventory.model_copy(update={"replay": inventory.replay.model_copy(update={"runs": 4})})
    other = inventory.model_copy(update={"replay": inventory.replay.model_copy(update={"seconds": 9.0})})
    assert fingerprint(more, cell, "files") == fingerprint(inventory, cell, "files")
    assert fingerprint(other, cell, "files") != fingerprint(inventory, cell, "files")
    assert fingerprint(inventory, cell, "other files") != fingerprint(inventory, cell, "files")


def test_a_part_of_the_devices_is_taken_from_all_edges(tmp_path: Path) -> None:
    text = (
        CELLS.replace("runs = 2", "runs = 2\nvisitors = 2")
        + """
[nodes.wing]
kind = "process"
[nodes.tablet]
kind = "process"
count = 2
[edges.west]
node = "wing"
[devices.others]
node = "tablet"
edge = "west"
"""
    )
    first, second = (visitors_of(read(tmp_path, text), run, "abcdefgh") for run in (1, 2))
    assert [(one.host.name, one.edge, one.name) for one in first] == [
        ("phone-1", "main", "a"),
        ("tablet-1", "west", "b"),
    ]
    assert [one.name for one in second] == ["e", "f"], "the same at every point of a run"
