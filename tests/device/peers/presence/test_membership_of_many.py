"""Groups of simulated devices: times of joins and departures, also with lost beacons."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.presence.peer import Change
from nearsight.device.peers.settings import PeerSettings
from support.driven_membership import SETTINGS
from support.presence import SimulatedNetwork


def test_twenty_devices_discover_each_other_within_two_periods() -> None:
    network = SimulatedNetwork(SETTINGS)
    starts = random.Random(3)
    for _ in range(20):
        network.at(starts.uniform(0, 5), network.add)
    network.run(5.0)
    network.run(2 * SETTINGS.period_s)
    everybody = {device.node_id for device in network.devices}
    assert all(device.sees() == everybody - {device.node_id} for device in network.devices)


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_device_is_dropped_by_all_within_two_seconds_of_the_departure_time(seed: int) -> None:
    network = SimulatedNetwork(SETTINGS, loss=0.3, seed=seed)
    for _ in range(20):
        network.add()
    network.run(23.0 + seed)
    victim = network.devices[7]
    victim.running = False
    network.run(SETTINGS.departure_s + 2.0)
    assert all(victim.node_id not in device.sees() for device in network.alive())


def test_no_peer_is_dropped_if_a_third_of_the_beacons_is_lost_and_their_traffic_is_as_stated() -> None:
    network = SimulatedNetwork(PeerSettings(), loss=0.3)
    for _ in range(20):
        network.add()
    network.run(600.0)
    dropped = [entry for device in network.devices for entry in device.log if entry[1].change is Change.GONE]
    assert not dropped
    assert all(len(device.sees()) == 19 for device in network.devices)
    assert network.beacons * (13 + 28) / 600.0 < 255


def test_two_halves_of_a_split_drop_and_rediscover_each_other() -> None:
    network = SimulatedNetwork(SETTINGS)
    for _ in range(8):
        network.add()
    network.run(10.0)
    halves = [{NodeId(1), NodeId(2), NodeId(3), NodeId(4)}, {NodeId(5), NodeId(6), NodeId(7), NodeId(8)}]
    network.groups = halves
    network.run(17.0)
    for device in network.devices:
        assert device.sees() | {device.node_id} in halves
    network.groups = []
    network.run(10.0)
    assert all(len(device.sees()) == 7 for device in network.devices)


def test_after_a_suspension_a_device_finds_the_remaining_members() -> None:
    network = SimulatedNetwork(SETTINGS)
    for _ in range(5):
        network.add()
    network.run(10.0)
    sleeper, *others = network.devices
    sleeper.running = False
    network.run(60.0)
    assert all(sleeper.node_id not in device.sees() for device in others)
    assert len(sleeper.sees()) == 4
    others[0].running = False
    network.run(60.0)
    network.wake(sleeper)
    network.run(2 * SETTINGS.ping_timeout_s + 0.1)
    assert sleeper.sees() == {device.node_id for device in others[1:]}
    assert all(sleeper.node_id in device.sees() for device in others[1:])


def test_a_device_that_never_answers_pings_does_not_join() -> None:
    network = SimulatedNetwork(SETTINGS)
    mute = network.add()
    mute.answers = False
    for _ in range(3):
        network.add()
    network.run(120.0)
    assert all(mute.node_id not in device.sees() for device in network.devices[1:])
    assert all(len(device.sees()) == 2 for device in network.devices[1:])


EVENTS = st.lists(
    st.tuples(st.sampled_from(["kill", "start", "sleep", "wake"]), st.integers(0, 7), st.floats(0.1, 25.0)),
    max_size=12,
)


@settings(max_examples=80, deadline=None)
@given(EVENTS, st.integers(0, 10_000), st.sampled_from([0.0, 0.3]))
def test_all_running_devices_agree_in_the_end(
    events: list[tuple[str, int, float]], seed: int, loss: float
) -> None:
    network = SimulatedNetwork(SETTINGS, loss=loss, seed=seed)
    for _ in range(4):
        network.add()
    for kind, index, wait_s in events:
        network.run(wait_s)
        device = network.devices[index % len(network.devices)]
        if kind == "start":
            network.add()
        elif kind in {"kill", "sleep"}:
            device.running = False
        elif not device.running:
            network.wake(device)
    network.loss = 0.0
    network.run(SETTINGS.departure_s + 2.0 + 6 * SETTINGS.period_s)
    running = {device.node_id for device in network.alive()}
    assert all(device.sees() == running - {device.node_id} for device in network.alive())
