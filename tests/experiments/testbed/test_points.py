"""The points of a sweep: one variable at a time, the baseline once."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearsight.common.errors import ConfigurationError
from nearsight.experiments.testbed.inventory import Inventory
from nearsight.experiments.testbed.inventory_file import read_inventory
from nearsight.experiments.testbed.points import Point, at, points

SWEEP = """
[nodes.server]
kind = "process"
[nodes.box]
kind = "process"
[nodes.phone]
kind = "process"
count = 10
[cloud]
node = "server"
files = { database = "museum.db" }
[edges.main]
node = "box"
[devices.visitors]
node = "phone"
[[links]]
from = "box"
to = "server"
rtt_ms = 30
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


def read(tmp_path: Path, text: str) -> Inventory:
    (tmp_path / "museum.db").touch()
    path = tmp_path / "lab.toml"
    path.write_text(text)
    return read_inventory(path)


def points_of(inventory: Inventory) -> tuple[Point, ...]:
    assert inventory.replay is not None
    return points(inventory, inventory.replay)


def test_one_variable_is_varied_at_a_time_and_the_baseline_is_measured_once(tmp_path: Path) -> None:
    assert [point.name for point in points_of(read(tmp_path, SWEEP))] == [
        "visitors-1",
        "baseline",
        "visitors-10",
        "sections-1",
        "classes-200",
        "network-slow",
    ]


def test_without_a_sweep_there_is_the_baseline_alone(tmp_path: Path) -> None:
    text = SWEEP.partition("[sweep]")[0]
    assert points_of(read(tmp_path, text)) == (Point(),)


def test_a_value_becomes_part_of_the_replay(tmp_path: Path) -> None:
    changed = at(read(tmp_path, SWEEP), Point("sections", "1")).replay
    assert changed is not None
    assert (changed.sections, changed.visitors) == (1, 5)


def test_a_network_is_the_building_s_and_leaves_the_hop_to_it_alone(tmp_path: Path) -> None:
    changed = at(read(tmp_path, SWEEP), Point("network", "slow"))
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
def test_what_cannot_be_is_one_line(tmp_path: Path, good: str, bad: str, complaint: str) -> None:
    assert good in SWEEP
    with pytest.raises(ConfigurationError, match=complaint):
        read(tmp_path, SWEEP.replace(good, bad, 1))
