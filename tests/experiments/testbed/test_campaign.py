"""What is replayed: the cells of an inventory, the testbed of each, and who carries which device."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearsight.common.errors import ConfigurationError
from nearsight.experiments.testbed.campaign import Cell, cells, fingerprint, inventory_of, visitors_of
from nearsight.experiments.testbed.inventory import Inventory
from nearsight.experiments.testbed.inventory_file import read_inventory
from nearsight.experiments.testbed.points import Point

SLOW = Point("network", "slow")

SWEEP = """
[nodes.server]
kind = "process"
[nodes.box]
kind = "process"
[nodes.phone]
kind = "process"
count = 2
[cloud]
node = "server"
[edges.main]
node = "box"
settings = { "cache.policy" = "adaptive" }
[devices.visitors]
node = "phone"
edge = "main"
[[links]]
from = "box"
to = "server"
rtt_ms = 30
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


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    path = tmp_path / "sweep.toml"
    path.write_text(SWEEP)
    return read_inventory(path)


def test_every_configuration_meets_every_network_in_every_run(inventory: Inventory) -> None:
    names = [cell.name for cell in cells(inventory)]
    assert len(names) == len(set(names)) == 8
    assert names[:2] == ["only-cloud/network-slow/run-1", "bounded/network-slow/run-1"]


def test_only_cloud_has_neither_edges_nor_links_to_them(inventory: Inventory) -> None:
    changed = inventory_of(inventory, Cell("only-cloud", SLOW, 1))
    assert not changed.edges
    assert [(link.source, link.target) for link in changed.links] == [("phone", "server")]
    assert visitors_of(changed, 1, "abcd")[0].edge == ""


def test_a_network_is_what_all_links_to_the_cloud_are_like(inventory: Inventory) -> None:
    changed = inventory_of(inventory, Cell("bounded", SLOW, 1))
    to_cloud, to_edge = changed.link("box", "server"), changed.link("phone", "box")
    assert to_cloud is not None
    assert (to_cloud.rtt_ms, to_cloud.up_mbps) == (40, 2)
    assert changed.link("phone", "server") == to_cloud.model_copy(update={"source": "phone"})
    assert to_edge is not None
    assert to_edge.rtt_ms == 3


def test_settings_of_a_configuration_come_on_top(inventory: Inventory) -> None:
    changed = inventory_of(inventory, Cell("bounded", SLOW, 1))
    assert changed.edges["main"].settings == {"cache.policy": "adaptive", "multi_user": "bounded"}
    assert changed.devices["visitors"].settings == {"recognizer.prefetch.enabled": True}


def test_no_visitor_comes_twice_and_each_starts_at_its_own_moment(inventory: Inventory) -> None:
    first, second = visitors_of(inventory, 1, "abcd"), visitors_of(inventory, 2, "abcd")
    assert [visitor.name for visitor in (*first, *second)] == list("abcd")
    assert [visitor.phase_s for visitor in first] == [0.0, 0.5]
    assert [visitor.host.name for visitor in first] == ["phone-1", "phone-2"]
    with pytest.raises(
        ConfigurationError, match="2 runs need 4 visitors, but without those of the warm-up there are 3"
    ):
        visitors_of(inventory, 2, "abc")


def test_more_runs_leave_what_was_measured_valid_other_settings_do_not(inventory: Inventory) -> None:
    cell = Cell("bounded", SLOW, 1)
    assert inventory.replay is not None
    more = inventory.model_copy(update={"replay": inventory.replay.model_copy(update={"runs": 4})})
    other = inventory.model_copy(update={"replay": inventory.replay.model_copy(update={"seconds": 9.0})})
    assert fingerprint(more, cell, "files") == fingerprint(inventory, cell, "files")
    assert fingerprint(other, cell, "files") != fingerprint(inventory, cell, "files")
    assert fingerprint(inventory, cell, "other files") != fingerprint(inventory, cell, "files")


def test_where_some_take_part_all_edges_get_their_share(tmp_path: Path) -> None:
    text = (
        SWEEP.replace("runs = 2", "runs = 2\nvisitors = 2")
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
    path = tmp_path / "sweep.toml"
    path.write_text(text)
    first, second = (visitors_of(read_inventory(path), run, "abcdefgh") for run in (1, 2))
    assert [(one.host.name, one.edge, one.name) for one in first] == [
        ("phone-1", "main", "a"),
        ("tablet-1", "west", "b"),
    ]
    assert [one.name for one in second] == ["e", "f"], "the same at every point of a run"
