"""Settings of the devices of a replay; complete replays are in `test_running`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from nearsight.common.errors import Unavailable
from nearsight.experiments.testbed import replaying
from nearsight.experiments.testbed.building import Builder
from nearsight.experiments.testbed.campaign import Cell, Point, Visitor
from nearsight.experiments.testbed.nodes import Nodes
from nearsight.experiments.testbed.reading import read_inventory
from nearsight.experiments.testbed.replaying import Part, Replay
from nearsight.experiments.testbed.shells import Shell
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


def test_links_of_one_shape_have_different_seeds_that_depend_on_the_inventorys(
    state: TestbedState, tmp_path: Path
) -> None:
    def seeds(seed: int) -> list[int]:
        state.inventory = state.inventory.model_copy(update={"seed": seed})
        with Nodes(state, tmp_path) as nodes:
            builder = Builder(state, tmp_path, nodes, lambda _stage: None)
            (link,) = state.inventory.links
            hosts = [nodes[name].host for name in ("phone-1", "phone-2", "box")]
            return [json.loads(builder._shaper(host, "cloud", link, {})[-1])["seed"] for host in hosts]

    first, second = seeds(1), seeds(2)
    assert len({*first, *second}) == 6
    assert first == seeds(1)


def test_a_node_that_is_unreachable_after_the_replay_costs_no_rows(
    state: TestbedState,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def unreachable(_folder: Path) -> None:
        raise Unavailable("lab cannot be reached", advice="run `nearsight testbed down` again")

    monkeypatch.setattr(replaying, "bring_up", lambda *_args, **_more: state)
    monkeypatch.setattr(replaying, "take_down", unreachable)
    replay = Replay(Cell("edges", Point(), 1), Part(state.inventory, (), ()), tmp_path, lambda _stage: None)
    with replay.up():
        pass
    assert "lab cannot be reached; run `nearsight testbed down` again" in "".join(capsys.readouterr())


def test_the_readiness_of_servers_does_not_depend_on_the_settings_of_the_nodes_user(
    state: TestbedState, tmp_path: Path
) -> None:
    commands = []

    class Records(Shell):
        def run(self, command: Sequence[str], *, given: bytes = b"", timeout_s: float = 0.0) -> bytes:
            commands.append(command)
            return b""

    replay = Replay(Cell("edges", Point(), 1), Part(state.inventory, (), ()), tmp_path, lambda _stage: None)
    with Nodes(state, tmp_path) as nodes:
        nodes.by_name = {
            name: dataclasses.replace(node, shell=Records()) for name, node in nodes.by_name.items()
        }
        replay.state, replay.nodes = state, nodes
        replay._wait_until_servers_are_ready()
    assert [command[-2:] for command in commands] == [["--config", "/dev/null"]] * 2
