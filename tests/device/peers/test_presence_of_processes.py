"""Presence of nodes as processes of their own: killed, and stopped for a while as by a closed lid."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nearsight.device.peers.settings import PeerSettings
from nearsight.experiments.rig.peer_group import GroupPlan, PeerGroup

PERIOD_S, DEPARTURE_S = 0.4, 1.2
WAIT_S = 20.0


@pytest.fixture
def group(tmp_path: Path) -> Iterator[PeerGroup]:
    settings = PeerSettings(period_s=PERIOD_S, departure_s=DEPARTURE_S, ping_timeout_s=0.5)
    with PeerGroup(tmp_path / "group", GroupPlan(3, settings)) as group:
        group.start()
        group.wait_all_see_all(group.nodes, WAIT_S)
        yield group


def test_a_killed_process_is_gone_after_the_departure_time(group: PeerGroup) -> None:
    victim = group.nodes[0]
    killed_s = group.kill(victim)
    assert min(group.wait_gone(victim.node_id, killed_s, WAIT_S)) > killed_s


def test_a_process_that_stood_still_finds_out_who_is_left_when_it_goes_on(group: PeerGroup) -> None:
    sleeper, second, third = group.nodes
    sleeper._process.send_signal(signal.SIGSTOP)
    group.nodes.remove(sleeper)
    stopped_s = time.monotonic()
    # It accepts connections, its kernel does, and never answers.
    group.wait_gone(sleeper.node_id, stopped_s, WAIT_S)
    killed_s = group.kill(third)
    second.wait_saw(lambda live: third.node_id not in live, time.monotonic() + WAIT_S, killed_s)
    sleeper._process.send_signal(signal.SIGCONT)
    woke_s = time.monotonic()
    deadline_s = woke_s + WAIT_S
    sleeper.wait_saw(lambda live: live == {second.node_id}, deadline_s, woke_s)
    second.wait_saw(lambda live: live == {sleeper.node_id}, deadline_s, woke_s)
