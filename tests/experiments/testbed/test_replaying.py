"""Settings of the devices of a replay; complete replays are in `test_running`."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearsight.experiments.testbed.campaign import Cell, Point, Visitor
from nearsight.experiments.testbed.nodes import Nodes
from nearsight.experiments.testbed.reading import read_inventory
from nearsight.experiments.testbed.replaying import Part, Replay
from nearsight.experiments.testbed.state import Daemon, TestbedState
from support.testbeds import CROWD, write_inventory

SHARING = """
[devices.visitors.settings]
"recognizer.peers.enabled" = true
[replay]
photos = "museum"
"""


def beacon_ports(state: TestbedState, folder: Path) -> list[object]:
    """Of all devices of a replay."""
    visitors = tuple(
        Visitor(host, "main", f"visitor {host.name}", 0.0) for host in state.inventory.hosts_of("phone")
    )
    with Nodes(state, folder) as nodes:
        part = Part(state.inventory, visitors, ())
        replay = Replay(Cell("cooperative", Point(), 1), part, folder, lambda _stage: None)
        replay.state, replay.nodes = state, nodes
        return [replay._settings(visitor).get("recognizer.peers.beacon_port") for visitor in visitors]


@pytest.fixture
def state(tmp_path: Path) -> TestbedState:
    (tmp_path / "museum").mkdir()
    inventory = read_inventory(write_inventory(tmp_path, CROWD.format(kind="process") + SHARING))
    daemons = [
        Daemon("server", "cloud", "tcp://127.0.0.1:1"),
        Daemon("box", "edge-main", "tcp://127.0.0.1:2"),
    ]
    return TestbedState(inventory, daemons=daemons)


def test_devices_without_keys_use_a_beacon_port_of_their_replay(state: TestbedState, tmp_path: Path) -> None:
    first, second = (beacon_ports(state, tmp_path / name) for name in ("one", "two"))
    assert len(first) == 2
    assert len(set(first)) == len(set(second)) == 1
    assert first[0] != second[0]
    assert None not in {first[0], second[0]}


def test_devices_with_keys_use_the_default_beacon_port(state: TestbedState, tmp_path: Path) -> None:
    state.keys = dict.fromkeys(("cloud", "edge-main"), "a public key")
    assert beacon_ports(state, tmp_path) == [None, None]
