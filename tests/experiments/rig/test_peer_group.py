"""Groups of peers as processes on loopback; the smoke runs of experiments test them in namespaces."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from nearsight.common.errors import Unavailable
from nearsight.device.peers.settings import PeerSettings
from nearsight.experiments.rig.peer_group import LOOPBACK, GroupPlan, PeerGroup, PeerHandle, ask_all
from nearsight.experiments.rig.peer_process import NEARSIGHT, OK
from nearsight.experiments.rig.processes import ProcessGroup
from support.waiting import wait_until

PEERS = PeerSettings(period_s=0.3, departure_s=0.6, ping_timeout_s=10.0, read_timeout_s=30.0, replicas=2)
SPAN = {"first": 0, "last": 20, "value_bytes": 50}


@contextmanager
def running(folder: Path, nodes: int) -> Iterator[PeerGroup]:
    before = set(psutil.Process().children(recursive=True))
    with PeerGroup(folder / "group", GroupPlan(nodes, PEERS)) as group:
        yield group
    assert set(psutil.Process().children(recursive=True)) <= before, "all processes have ended"


@pytest.fixture(autouse=True)
def _no_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearsight.experiments.rig.peer_group.unavailable_reason", lambda: "not here")


@pytest.fixture
def group(tmp_path: Path) -> Iterator[PeerGroup]:
    with running(tmp_path, 3) as group:
        yield group


@pytest.fixture
def node(tmp_path: Path) -> Iterator[PeerHandle]:
    with running(tmp_path, 1) as group:
        yield group.nodes[0]


def failed(group: PeerGroup, command: dict[str, object]) -> list[object]:
    """Keys for which a command failed at any node."""
    return [key for answer in ask_all(group.nodes, command) for key in answer["failed"]]


@pytest.mark.system
def test_nodes_on_loopback_share_values_and_counters_and_notice_the_death_of_a_node(group: PeerGroup) -> None:
    assert group.place == LOOPBACK
    group.start()
    group.wait_all_see_all(group.nodes, timeout_s=100.0)
    first, second, _ = group.nodes
    wait_until(lambda: first.ask({"do": "fill", **SPAN})["failed"] == [], what="the writes")
    wait_until(lambda: failed(group, {"do": "check", **SPAN}) == [], what="equal values at all nodes")
    assert second.ask({"do": "check", **SPAN, "keys": ["never put"]})["failed"] == [["never put", "missing"]]

    ask_all(group.nodes, {"do": "merge", "key": "counter", "counts": {"a": 2}, "times": 3})
    counts = {"do": "counts", "key": "counter"}
    wait_until(lambda: first.ask(counts)["counts"] == {"a": 18}, what="the sum of all increments")

    trace = {"store": NEARSIGHT, "kind": "get", "begin_s": 0.0, "value_bytes": 50}
    answer = first.ask({"do": "trace", **trace, "requests": [[0.0, "key/000003"], [0.01, "never put"]]})
    assert [row["outcome"] for row in answer["rows"]] == [OK, "missing"]

    def holders() -> int:
        return sum("counter" in answer["keys"] for answer in ask_all(group.nodes, {"do": "held"}))

    wait_until(lambda: holders() == PEERS.replicas, what="one copy on each replica")

    victim = group.nodes[2]
    at_s = group.kill(victim)
    assert all(gone_s >= at_s for gone_s in group.wait_gone(victim.node_id, at_s, timeout_s=100.0))
    with pytest.raises(Unavailable, match="has ended"):
        victim.ask({"do": "counters"})


def test_a_process_that_is_killed_while_it_answers_has_ended(tmp_path: Path) -> None:
    answers_half = 'import os; os.write(1, b\'{"did": "trace", "rows\'); os.kill(os.getpid(), 9)'
    with ProcessGroup(tmp_path) as group:
        node = PeerHandle(group.start("node", ["-c", answers_half], capture=True))
        with pytest.raises(Unavailable, match="node has ended"):
            node.answer()


def test_peers_of_a_process_that_has_ended_are_not_awaited(tmp_path: Path) -> None:
    with ProcessGroup(tmp_path) as group:
        node = PeerHandle(group.start("node", ["-c", "exit('no network')"], capture=True))
        with pytest.raises(Unavailable, match="node has ended: no network"):
            node.wait_peers(bool, time.monotonic() + 600)


def test_a_command_that_fails_is_an_error_and_does_not_end_the_process(node: PeerHandle) -> None:
    with pytest.raises(Unavailable, match="no command 'dance'"):
        node.ask({"do": "dance"})
    with pytest.raises(Unavailable, match="no Kademlia node"):
        node.ask({"do": "join"})
    assert node.ask({"do": "counters"})["beacons"]["sent"] == 0
