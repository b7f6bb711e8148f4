"""Membership: peers with several addresses, restarts, two devices with one id, and forged beacons."""

from __future__ import annotations

import pytest

from nearsight.device.peers.presence.identity import NodeId, shown
from nearsight.device.peers.presence.peer import Change, Event, PeerState, PingReply
from nearsight.device.peers.presence.pings import ADDRESSES_AT_A_TIME, Ping
from support.driven_membership import (
    ELSEWHERE,
    FIRST,
    HERE,
    OTHER,
    OWN,
    SECOND,
    THERE,
    THIRD,
    Driven,
    only_ping,
)


def test_the_same_process_at_a_new_address_has_moved_if_the_old_one_is_dead(joined: Driven) -> None:
    old = only_ping(joined.answer(joined.beacon_ping(endpoint=ELSEWHERE)))
    assert old.endpoint == THERE
    (moved,) = joined.fail(old)
    assert isinstance(moved, Event) and moved.change is Change.MOVED
    assert (moved.details["before"], moved.peer.endpoint) == (THERE, ELSEWHERE)
    assert moved.peer.state is PeerState.LIVE
    assert joined.membership.counts.conflicts == 0


def conflict_of(node_id: NodeId, endpoint: str) -> Event:
    return Event(Change.CONFLICT, details={"node": shown(node_id), "second": endpoint})


@pytest.fixture
def on_two_networks(joined: Driven) -> Driven:
    joined.answer(only_ping(joined.answer(joined.beacon_ping(endpoint=ELSEWHERE))))
    return joined


def test_a_peer_on_two_networks_keeps_its_address(on_two_networks: Driven) -> None:
    for _ in range(20):
        assert not any(isinstance(action, Ping) for action in on_two_networks.after(5.0))
        assert on_two_networks.beacon(endpoint=ELSEWHERE) == ()
        assert on_two_networks.beacon(endpoint=THERE) == ()
    assert on_two_networks.membership.counts.moved == 0
    assert on_two_networks.membership.counts.conflicts == 0


@pytest.mark.parametrize("first", [THERE, ELSEWHERE])
def test_a_peer_on_two_networks_moves_when_one_fails(on_two_networks: Driven, first: str) -> None:
    pings = {ping.endpoint: ping for ping in on_two_networks.pings_after_a_failed_call()}
    assert pings.keys() == {THERE, ELSEWHERE}
    if first == THERE:
        assert on_two_networks.fail(pings[THERE]) == ()
        (moved,) = on_two_networks.answer(pings[ELSEWHERE])
    else:
        assert on_two_networks.answer(pings[ELSEWHERE]) == ()
        (moved,) = on_two_networks.fail(pings[THERE])
    assert isinstance(moved, Event) and moved.change is Change.MOVED
    assert moved.peer.endpoint == ELSEWHERE
    assert on_two_networks.state() is PeerState.LIVE


def test_a_peer_on_two_networks_is_gone_when_both_fail(on_two_networks: Driven) -> None:
    first, second = on_two_networks.pings_after_a_failed_call()
    assert on_two_networks.fail(first) == ()
    (gone,) = on_two_networks.fail_twice(second)
    assert isinstance(gone, Event) and gone.change is Change.GONE


def test_a_short_failure_of_one_network_changes_nothing(on_two_networks: Driven) -> None:
    first, second = on_two_networks.pings_after_a_failed_call()
    assert on_two_networks.answer(first) == ()
    assert on_two_networks.fail(second) == ()
    assert on_two_networks.endpoints() == {THERE: PeerState.LIVE}


def test_a_forged_beacon_does_not_move_a_peer(joined: Driven) -> None:
    assert joined.fail(joined.beacon_ping(endpoint=ELSEWHERE)) == ()
    assert joined.answer(only_ping(joined.beacon(endpoint=ELSEWHERE)), PingReply(THIRD, 9)) == ()
    assert joined.membership.counts.impostors == 1
    assert joined.endpoints() == {THERE: PeerState.LIVE}


def test_forged_beacons_from_many_addresses_cause_few_pings(joined: Driven) -> None:
    pings = [
        action for index in range(200) for action in joined.beacon(endpoint=f"tcp://10.9.9.{index}:7000")
    ]
    assert len(pings) <= ADDRESSES_AT_A_TIME


def test_beacons_forged_with_the_id_of_a_newcomer_do_not_keep_its_own_address_out(alone: Driven) -> None:
    for index in range(200):
        alone.beacon(endpoint=f"tcp://10.9.9.{index}:7000")
    ping = alone.beacon_ping(endpoint=THERE)
    alone.answer(ping)
    assert alone.endpoints() == {THERE: PeerState.LIVE}


def test_beacons_forged_with_one_id_on_one_host_cause_few_pings(alone: Driven) -> None:
    pings = [
        action for port in range(200) for action in alone.beacon(endpoint=f"tcp://10.9.9.9:{7000 + port}")
    ]
    assert len(pings) == ADDRESSES_AT_A_TIME


def test_with_two_devices_of_one_id_the_first_stays_and_the_conflict_is_reported(joined: Driven) -> None:
    second = joined.beacon_ping(endpoint=ELSEWHERE)
    first = only_ping(joined.answer(second, SECOND))
    assert first.endpoint == THERE
    (conflict,) = joined.answer(first, FIRST)
    assert conflict == conflict_of(OTHER, ELSEWHERE)
    (peer,) = joined.membership.live()
    assert (peer.endpoint, peer.incarnation) == (THERE, 20)


def test_a_lasting_conflict_is_not_checked_at_every_beacon(joined: Driven) -> None:
    for _ in range(60):
        joined.after(1.0)
        joined.beacon()
        for action in joined.beacon(endpoint=ELSEWHERE):
            assert isinstance(action, Ping)
            for check in joined.answer(action, SECOND):
                assert isinstance(check, Ping)
                joined.answer(check, FIRST)
    assert 2 <= joined.membership.counts.conflicts <= 8
    assert joined.sees() == {OTHER}


def test_the_second_of_two_devices_with_one_id_joins_when_the_first_leaves(joined: Driven) -> None:
    for _ in range(6):
        joined.after(5.0)
        joined.beacon()
        for action in joined.beacon(endpoint=ELSEWHERE):
            assert isinstance(action, Ping)
            joined.answer(only_ping(joined.answer(action, SECOND)), FIRST)
    joined.told(joined.membership.left, OTHER, 20)
    joined.answer(joined.beacon_ping(endpoint=ELSEWHERE), SECOND)
    assert joined.endpoints() == {ELSEWHERE: PeerState.LIVE}


def test_a_restart_at_a_new_address_replaces_the_former_process(joined: Driven) -> None:
    old = only_ping(joined.answer(joined.beacon_ping(endpoint=ELSEWHERE), SECOND))
    gone, again = joined.fail(old)
    assert isinstance(gone, Event) and gone.change is Change.GONE
    assert (gone.details["why"], gone.peer.incarnation) == ("replaced", 20)
    assert isinstance(again, Event) and again.change is Change.JOINED
    assert (again.peer.endpoint, again.peer.incarnation) == (ELSEWHERE, 21)


def test_a_restart_at_the_same_address_is_noticed_by_the_introduction(joined: Driven) -> None:
    ping = only_ping(joined.told(joined.membership.introduced, OTHER, THERE, 21))
    gone, again = joined.answer(ping, SECOND)
    assert isinstance(gone, Event) and gone.change is Change.GONE
    assert gone.details["why"] == "restarted"
    assert isinstance(again, Event) and again.change is Change.JOINED
    assert again.peer.incarnation == 21


def test_a_peer_that_introduces_itself_with_another_address_has_an_alias(joined: Driven) -> None:
    new = only_ping(joined.told(joined.membership.introduced, OTHER, ELSEWHERE, 20))
    assert joined.answer(only_ping(joined.answer(new))) == ()
    assert joined.told(joined.membership.introduced, OTHER, ELSEWHERE, 20) == ()
    assert joined.endpoints() == {THERE: PeerState.LIVE}


def test_own_beacons_are_ignored_and_checked_once_if_they_have_another_address(alone: Driven) -> None:
    assert alone.beacon(OWN, HERE) == ()
    assert alone.answer(alone.beacon_ping(OWN, ELSEWHERE), PingReply(OWN, 10)) == ()
    assert alone.beacon(OWN, ELSEWHERE) == ()
    assert alone.membership.counts.conflicts == 0


def test_another_device_with_the_own_id_is_a_conflict(alone: Driven) -> None:
    assert alone.answer(alone.beacon_ping(OWN, ELSEWHERE), PingReply(OWN, 99)) == (
        conflict_of(OWN, ELSEWHERE),
    )
    assert not alone.sees()
