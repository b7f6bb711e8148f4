"""Membership: silence, departures, suspensions, static peers, and limits."""

from __future__ import annotations

import itertools

import pytest

from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.presence.peer import (
    Announce,
    Change,
    Event,
    PeerState,
    PingReply,
)
from nearsight.device.peers.presence.pings import Ping
from nearsight.device.peers.settings import PeerSettings
from support.driven_membership import ELSEWHERE, HERE, OTHER, OWN, SECOND, THERE, THIRD, Driven, only_ping


def test_a_node_joins_when_it_answers_a_ping(alone: Driven) -> None:
    ping = alone.beacon_ping()
    assert (ping.node_id, ping.endpoint) == (OTHER, THERE)
    assert alone.state() is PeerState.JOINING
    assert not alone.sees()
    (action,) = alone.answer(ping)
    assert isinstance(action, Event) and action.change is Change.JOINED
    assert action.peer.endpoint == THERE
    assert action.peer.incarnation == 20
    assert alone.sees() == {OTHER}


def test_a_node_that_fails_is_pinged_at_growing_intervals(alone: Driven) -> None:
    asked = 0
    for _ in range(100):
        alone.after(1.0)
        for ping in alone.beacon():
            asked += 1
            alone.fail(ping)
    assert asked <= 8
    assert alone.membership.counts.pings_failed == asked


def test_a_static_peer_that_is_away_for_hours_is_still_pinged() -> None:
    driven = Driven(static=((None, THERE),))
    ping = only_ping(driven.first)
    for _ in range(2000):
        driven.fail(ping)
        ping = only_ping(driven.after(5.0))
    driven.answer(ping)
    assert driven.sees() == {OTHER}


def test_an_introduction_is_followed_by_a_ping_at_once(alone: Driven) -> None:
    alone.fail(alone.beacon_ping())
    alone.fail(alone.beacon_ping())
    assert alone.beacon() == ()
    ping = only_ping(alone.told(alone.membership.introduced, OTHER, THERE, 20))
    alone.answer(ping)
    assert alone.sees() == {OTHER}


def test_a_silent_peer_is_pinged_at_the_departure_time_and_remains_if_it_answers(joined: Driven) -> None:
    assert not any(isinstance(action, Ping) for action in joined.after(14.9))
    ping = only_ping(joined.after(0.2))
    assert joined.state() is PeerState.SUSPECT
    assert joined.sees() == {OTHER}
    assert joined.answer(ping) == ()
    assert joined.state() is PeerState.LIVE
    assert not any(isinstance(action, Ping) for action in joined.after(14.0))


def test_a_suspect_that_answers_a_later_call_is_live_again(joined: Driven) -> None:
    (ping,) = joined.pings_after_a_failed_call()
    joined.told(joined.membership.heard, OTHER, joined.now_s - 0.1)
    assert joined.state() is PeerState.SUSPECT, "the answer is older than the failure"
    joined.after(0.3)
    joined.told(joined.membership.heard, OTHER, joined.now_s)
    assert joined.state() is PeerState.LIVE
    again = only_ping(joined.fail(ping))
    joined.now_s += 0.1
    joined.told(joined.membership.heard, OTHER, joined.now_s)
    joined.fail(again)
    assert joined.sees() == {OTHER}, "it answered between two failed pings"


def test_one_lost_ping_drops_no_peer(joined: Driven) -> None:
    for _ in range(3):
        joined.after(14.0)
        again = only_ping(joined.fail(only_ping(joined.after(1.0))))
        assert joined.sees() == {OTHER}
        assert joined.answer(again) == ()
        assert joined.state() is PeerState.LIVE


def test_silence_starts_at_the_arrival_of_a_message(joined: Driven) -> None:
    joined.after(10.0)
    joined.told(joined.membership.heard, OTHER, joined.now_s - 4.0)
    assert not any(isinstance(action, Ping) for action in joined.after(10.5))
    only_ping(joined.after(0.5))


@pytest.mark.parametrize("sign", ["beacon", "data"])
def test_any_sign_of_life_keeps_a_peer_from_being_pinged(joined: Driven, sign: str) -> None:
    for _ in range(20):
        assert not any(isinstance(action, Ping) for action in joined.after(5.0))
        if sign == "beacon":
            joined.beacon()
        else:
            joined.told(joined.membership.heard, OTHER, joined.now_s)
    assert joined.state() is PeerState.LIVE


@pytest.mark.parametrize("why", ["silent", "unreachable"])
def test_a_peer_that_is_silent_or_did_not_answer_a_call_is_pinged_and_gone_if_that_fails(
    joined: Driven, why: str
) -> None:
    joined.after(2.0)
    actions = joined.told(joined.membership.call_failed, OTHER) if why != "silent" else joined.after(13.0)
    (gone,) = joined.fail_twice(only_ping(actions))
    assert isinstance(gone, Event) and gone.change is Change.GONE
    assert gone.details["why"] == why
    assert not joined.sees()


def test_beacons_do_not_end_the_suspicion_of_a_peer_whose_calls_fail(joined: Driven) -> None:
    (ping,) = joined.pings_after_a_failed_call()
    joined.beacon()
    assert joined.state() is PeerState.SUSPECT
    joined.fail_twice(ping)
    assert not joined.sees()


def test_an_unreachable_peer_that_sends_beacons_is_dropped_after_two_pings(joined: Driven) -> None:
    joined.after(14.0)
    ping = only_ping(joined.after(1.0))
    joined.beacon()
    assert joined.state() is PeerState.LIVE
    again = only_ping(joined.fail(ping))
    (gone,) = joined.fail(again)
    assert isinstance(gone, Event) and gone.change is Change.GONE


def test_failing_calls_cause_few_pings(joined: Driven) -> None:
    pings = 0
    for _ in range(500):
        for action in (*joined.after(0.01), *joined.told(joined.membership.call_failed, OTHER)):
            if isinstance(action, Ping):
                pings += 1
                joined.answer(action)
    assert pings <= 11
    assert joined.sees() == {OTHER}


def test_a_peer_that_leaves_is_gone_at_once_despite_late_beacons(joined: Driven) -> None:
    (gone,) = joined.told(joined.membership.left, OTHER, 20)
    assert isinstance(gone, Event) and gone.change is Change.GONE
    assert gone.details["why"] == "left"
    assert joined.answer(joined.beacon_ping()) == ()
    assert joined.state() is None


def test_a_node_that_left_rejoins_after_a_restart(joined: Driven) -> None:
    assert joined.told(joined.membership.left, OTHER, 19) == (), "an earlier start"
    joined.told(joined.membership.left, OTHER, 20)
    joined.answer(joined.beacon_ping(), SECOND)
    assert joined.sees() == {OTHER}


def test_a_departure_beacon_only_causes_a_ping(joined: Driven) -> None:
    joined.after(2.0)
    ping = only_ping(joined.told(joined.membership.leaving, OTHER))
    assert joined.sees() == {OTHER}
    joined.answer(ping)
    assert joined.state() is PeerState.LIVE


def test_after_a_suspension_every_peer_is_pinged(joined: Driven) -> None:
    joined.answer(joined.beacon_ping(THIRD, ELSEWHERE), PingReply(THIRD, 30))
    actions = joined.after(600.0)
    assert actions[0] == Event(Change.SLEPT, details={"seconds": 600.0})
    assert Announce() in actions
    pings = {action.node_id: action for action in actions if isinstance(action, Ping)}
    assert pings.keys() == {OTHER, THIRD}
    assert {joined.state(OTHER), joined.state(THIRD)} == {PeerState.SUSPECT}
    joined.answer(pings[OTHER])
    joined.fail_twice(pings[THIRD])
    assert joined.sees() == {OTHER}


def test_after_a_change_of_address_all_peers_are_pinged_and_a_beacon_is_sent(joined: Driven) -> None:
    joined.after(1.0)
    readdressed = joined.told(joined.membership.readdressed)
    assert Event(Change.READDRESSED) in readdressed
    joined.answer(only_ping(readdressed))
    assert joined.state() is PeerState.LIVE
    assert Announce() in joined.after(0.0)


def test_a_ping_from_before_a_suspension_is_ignored(joined: Driven) -> None:
    joined.after(14.0)
    before = only_ping(joined.after(1.0))
    after = only_ping(joined.after(600.0))
    assert joined.fail(before) == ()
    assert joined.sees() == {OTHER}
    joined.answer(after)
    assert joined.state() is PeerState.LIVE


def test_beacons_received_during_a_suspension_do_not_keep_a_dead_peer(joined: Driven) -> None:
    joined.now_s += 600.0
    ping = only_ping(joined.beacon())  # arrived long ago, read now
    again = only_ping(joined.fail(ping))
    joined.fail(again)
    assert not joined.sees()


def test_static_peers_are_pinged_every_period_until_they_join() -> None:
    driven = Driven(static=((None, THERE),))
    ping = only_ping(driven.first)
    for _ in range(10):
        driven.fail(ping)
        ping = only_ping(driven.after(5.0))
    assert ping.node_id is None
    driven.answer(ping)
    assert driven.sees() == {OTHER}
    assert not any(isinstance(action, Ping) for action in driven.after(5.0))


def test_a_static_peer_without_keys_joins_again_after_a_restart_under_another_id() -> None:
    driven = Driven(static=((None, THERE),))
    driven.answer(only_ping(driven.first))
    restarted = PingReply(THIRD, 30)
    again = only_ping(driven.answer(only_ping(driven.after(15.0)), restarted))
    driven.answer(again, restarted)
    assert not driven.sees()
    driven.answer(only_ping(driven.after(5.0)), restarted)
    assert driven.endpoints() == {THERE: PeerState.LIVE}
    assert driven.sees() == {THIRD}


def test_a_static_peer_known_under_another_address_is_not_moved() -> None:
    driven = Driven(static=((None, "tcp://two.local:7000"),))
    driven.answer(driven.beacon_ping())
    driven.answer(only_ping(driven.answer(only_ping(driven.first))))
    for _ in range(4):
        assert not any(isinstance(action, Ping) for action in driven.after(5.0))
        driven.beacon()
    assert driven.endpoints() == {THERE: PeerState.LIVE}
    assert driven.membership.counts.moved == 0


def test_the_own_device_among_the_static_peers_is_ignored() -> None:
    driven = Driven(static=((None, HERE), (OWN, THERE)))
    assert not any(isinstance(action, Ping) for action in driven.after(5.0))


def test_nodes_beyond_the_limit_are_ignored_and_counted() -> None:
    driven = Driven(PeerSettings(max_peers=2))
    for number in range(2, 7):
        for ping in driven.beacon(NodeId(number), f"tcp://10.0.0.{number}:7000"):
            assert isinstance(ping, Ping)
            driven.answer(ping, PingReply(NodeId(number), number))
    assert driven.sees() == {NodeId(2), NodeId(3)}
    assert driven.membership.counts.over_limit == 3


def test_forged_beacons_do_not_prevent_a_join() -> None:
    driven = Driven(PeerSettings(max_peers=2))
    made_up = [driven.beacon(NodeId(number), f"tcp://10.0.1.{number}:7000") for number in range(10, 30)]
    (ping,) = driven.beacon()
    assert isinstance(ping, Ping)
    driven.answer(ping)
    assert driven.sees() == {OTHER}
    (stranger,) = made_up[0]
    assert isinstance(stranger, Ping)
    driven.told(driven.membership.ping_dropped, stranger)
    assert stranger.node_id not in {peer.node_id for peer in driven.membership.known()}
    assert only_ping(driven.beacon(NodeId(10), "tcp://10.0.1.10:7000")).node_id == NodeId(10), (
        "it is pinged again"
    )


def test_beacon_intervals_vary_around_the_period() -> None:
    driven = Driven(PeerSettings(period_s=5, departure_s=15))
    times = [driven.now_s for _ in range(4000) if Announce() in driven.after(0.05)]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert 4.4 <= min(gaps) < 4.9
    assert 5.1 < max(gaps) <= 5.6
    assert 4.8 < sum(gaps) / len(gaps) < 5.2
