import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearsight.device.peers.membership import Membership
from nearsight.device.peers.node_id import NodeId
from nearsight.device.peers.peer import PeerState, PingReply
from nearsight.device.peers.peer_settings import PeerSettings
from nearsight.device.peers.ping_ration import ADDRESSES_AT_A_TIME
from nearsight.device.peers.presence_actions import (
    Action,
    Announce,
    Conflict,
    Gone,
    Joined,
    Moved,
    Ping,
    Readdressed,
    Slept,
)
from support.presence import SimulatedNetwork

OWN, OTHER, THIRD = NodeId(1), NodeId(2), NodeId(3)
HERE, THERE, ELSEWHERE = "tcp://10.0.0.1:7000", "tcp://10.0.0.2:7000", "tcp://10.0.0.3:7000"
SETTINGS = PeerSettings(period_s=5, departure_s=15, ping_timeout_s=1)
FIRST, SECOND = PingReply(OTHER, 20), PingReply(OTHER, 21)


class Driven:
    """One membership at a time of the test's choice, with what it asked for so far."""

    def __init__(
        self, settings: PeerSettings = SETTINGS, static: tuple[tuple[NodeId | None, str], ...] = ()
    ) -> None:
        self.membership = Membership(OWN, 10, settings, endpoint=HERE, static=static, rng=random.Random(1))
        self.now_s = 100.0
        self.first = self.membership.tick(self.now_s)

    def after(self, seconds: float) -> tuple[Action, ...]:
        self.now_s += seconds
        return self.membership.tick(self.now_s)

    def beacon(self, node_id: NodeId = OTHER, endpoint: str = THERE) -> tuple[Action, ...]:
        return self.membership.beacon(node_id, endpoint, self.now_s)

    def beacon_ping(self, node_id: NodeId = OTHER, endpoint: str = THERE) -> Ping:
        return only_ping(self.beacon(node_id, endpoint))

    def answer(self, ping: Ping, reply: PingReply = FIRST) -> tuple[Action, ...]:
        return self.membership.ping_answered(ping, reply, 0.01, self.now_s)

    def fail(self, ping: Ping) -> tuple[Action, ...]:
        return self.membership.ping_failed(ping, self.now_s)

    def state(self, node_id: NodeId = OTHER) -> PeerState | None:
        return next((peer.state for peer in self.membership.known() if peer.node_id == node_id), None)

    def sees(self) -> set[NodeId]:
        return {peer.node_id for peer in self.membership.live()}


def only_ping(actions: tuple[Action, ...]) -> Ping:
    pings = [action for action in actions if isinstance(action, Ping)]
    assert len(pings) == 1, actions
    return pings[0]


@pytest.fixture
def alone() -> Driven:
    return Driven()


@pytest.fixture
def joined(alone: Driven) -> Driven:
    alone.answer(alone.beacon_ping())
    return alone


def test_a_node_joins_when_it_answers_and_not_before(alone: Driven) -> None:
    ping = alone.beacon_ping()
    assert (ping.node_id, ping.endpoint) == (OTHER, THERE)
    assert alone.state() is PeerState.JOINING
    assert not alone.sees()
    (action,) = alone.answer(ping)
    assert isinstance(action, Joined)
    assert action.peer.endpoint == THERE
    assert action.peer.incarnation == 20
    assert alone.sees() == {OTHER}


def test_a_node_that_does_not_answer_never_joins(alone: Driven) -> None:
    assert alone.fail(alone.beacon_ping()) == ()
    assert alone.state() is None


def test_a_node_that_fails_is_asked_less_and_less_often(alone: Driven) -> None:
    asked = 0
    for _ in range(100):
        alone.after(1.0)
        for ping in alone.beacon():
            asked += 1
            alone.fail(ping)
    assert asked <= 8
    assert alone.membership.counts.pings_failed == asked


def test_an_introduction_is_answered_by_a_ping_at_once(alone: Driven) -> None:
    alone.fail(alone.beacon_ping())
    alone.fail(alone.beacon_ping())
    assert alone.beacon() == ()
    ping = only_ping(alone.membership.introduced(OTHER, THERE, 20, alone.now_s))
    alone.answer(ping)
    assert alone.sees() == {OTHER}


def test_an_impostor_does_not_join(alone: Driven) -> None:
    assert alone.answer(alone.beacon_ping(), PingReply(THIRD, 30)) == ()
    assert not alone.sees()
    assert alone.membership.counts.impostors == 1


def test_a_silent_peer_is_pinged_at_the_departure_time_and_stays_if_it_answers(joined: Driven) -> None:
    assert not any(isinstance(action, Ping) for action in joined.after(14.9))
    ping = only_ping(joined.after(0.2))
    assert joined.state() is PeerState.SUSPECT
    assert joined.sees() == {OTHER}
    assert joined.answer(ping) == ()
    assert joined.state() is PeerState.LIVE
    assert not any(isinstance(action, Ping) for action in joined.after(14.0))


def test_a_silent_peer_that_does_not_answer_is_gone(joined: Driven) -> None:
    joined.after(14.0)
    ping = only_ping(joined.after(1.0))
    (gone,) = joined.fail(ping)
    assert isinstance(gone, Gone)
    assert gone.why == "silent"
    assert not joined.sees()


def test_silence_counts_from_when_something_came_not_from_when_it_was_told(joined: Driven) -> None:
    joined.after(10.0)
    joined.membership.heard(OTHER, joined.now_s - 4.0, joined.now_s)
    assert not any(isinstance(action, Ping) for action in joined.after(10.5))
    only_ping(joined.after(0.5))


@pytest.mark.parametrize("sign", ["beacon", "data"])
def test_any_sign_of_life_keeps_a_peer_from_being_pinged(joined: Driven, sign: str) -> None:
    for _ in range(20):
        assert not any(isinstance(action, Ping) for action in joined.after(5.0))
        if sign == "beacon":
            joined.beacon()
        else:
            joined.membership.heard(OTHER, joined.now_s, joined.now_s)
    assert joined.state() is PeerState.LIVE


def test_a_peer_to_which_a_call_failed_is_pinged_at_once_and_gone_if_that_fails(joined: Driven) -> None:
    joined.after(2.0)
    ping = only_ping(joined.membership.call_failed(OTHER, joined.now_s))
    (gone,) = joined.fail(ping)
    assert isinstance(gone, Gone)
    assert gone.why == "unreachable"


def test_beacons_do_not_clear_a_peer_whose_calls_fail(joined: Driven) -> None:
    joined.after(2.0)
    ping = only_ping(joined.membership.call_failed(OTHER, joined.now_s))
    joined.beacon()
    assert joined.state() is PeerState.SUSPECT
    joined.fail(ping)
    assert not joined.sees()


def test_a_peer_that_sends_beacons_but_is_out_of_reach_is_dropped_after_a_second_ping(joined: Driven) -> None:
    joined.after(14.0)
    ping = only_ping(joined.after(1.0))
    joined.beacon()
    assert joined.state() is PeerState.LIVE
    again = only_ping(joined.fail(ping))
    (gone,) = joined.fail(again)
    assert isinstance(gone, Gone)


def test_failing_calls_to_a_peer_that_answers_pings_do_not_flood_it_with_pings(joined: Driven) -> None:
    pings = 0
    for _ in range(500):
        for action in (*joined.after(0.01), *joined.membership.call_failed(OTHER, joined.now_s)):
            if isinstance(action, Ping):
                pings += 1
                joined.answer(action)
    assert pings <= 11
    assert joined.sees() == {OTHER}


def test_a_peer_that_leaves_is_gone_at_once_and_late_beacons_do_not_bring_it_back(joined: Driven) -> None:
    (gone,) = joined.membership.left(OTHER, 20, joined.now_s)
    assert isinstance(gone, Gone)
    assert gone.why == "left"
    assert joined.answer(joined.beacon_ping()) == ()
    assert joined.state() is None


def test_a_node_that_left_comes_back_with_its_next_start(joined: Driven) -> None:
    joined.membership.left(OTHER, 20, joined.now_s)
    joined.answer(joined.beacon_ping(), SECOND)
    assert joined.sees() == {OTHER}


def test_leaving_of_an_earlier_start_is_ignored(joined: Driven) -> None:
    assert joined.membership.left(OTHER, 19, joined.now_s) == ()
    assert joined.sees() == {OTHER}


def test_a_beacon_that_says_goodbye_only_causes_a_ping(joined: Driven) -> None:
    joined.after(2.0)
    ping = only_ping(joined.membership.leaving(OTHER, joined.now_s))
    assert joined.sees() == {OTHER}
    joined.answer(ping)
    assert joined.state() is PeerState.LIVE


def test_the_same_process_at_a_new_address_has_moved_if_the_old_one_is_dead(joined: Driven) -> None:
    old = only_ping(joined.answer(joined.beacon_ping(endpoint=ELSEWHERE)))
    assert old.endpoint == THERE
    (moved,) = joined.fail(old)
    assert isinstance(moved, Moved)
    assert (moved.before, moved.peer.endpoint) == (THERE, ELSEWHERE)
    assert moved.peer.state is PeerState.LIVE
    assert joined.membership.counts.conflicts == 0


@pytest.fixture
def on_two_networks(joined: Driven) -> Driven:
    joined.answer(only_ping(joined.answer(joined.beacon_ping(endpoint=ELSEWHERE))))
    return joined


def test_a_peer_on_two_networks_does_not_move_to_and_fro(on_two_networks: Driven) -> None:
    for _ in range(20):
        assert not any(isinstance(action, Ping) for action in on_two_networks.after(5.0))
        assert on_two_networks.beacon(endpoint=ELSEWHERE) == ()
        assert on_two_networks.beacon(endpoint=THERE) == ()
    assert on_two_networks.membership.counts.moved == 0
    assert on_two_networks.membership.counts.conflicts == 0


@pytest.mark.parametrize("first", [THERE, ELSEWHERE])
def test_a_peer_on_two_networks_moves_when_one_of_them_fails(on_two_networks: Driven, first: str) -> None:
    on_two_networks.after(2.0)
    actions = on_two_networks.membership.call_failed(OTHER, on_two_networks.now_s)
    pings = {action.endpoint: action for action in actions if isinstance(action, Ping)}
    assert pings.keys() == {THERE, ELSEWHERE}
    if first == THERE:
        assert on_two_networks.fail(pings[THERE]) == ()
        (moved,) = on_two_networks.answer(pings[ELSEWHERE])
    else:
        assert on_two_networks.answer(pings[ELSEWHERE]) == ()
        (moved,) = on_two_networks.fail(pings[THERE])
    assert isinstance(moved, Moved)
    assert moved.peer.endpoint == ELSEWHERE
    assert on_two_networks.state() is PeerState.LIVE


def test_a_peer_on_two_networks_is_gone_when_both_fail(on_two_networks: Driven) -> None:
    on_two_networks.after(2.0)
    actions = on_two_networks.membership.call_failed(OTHER, on_two_networks.now_s)
    first, second = (action for action in actions if isinstance(action, Ping))
    assert on_two_networks.fail(first) == ()
    (gone,) = on_two_networks.fail(second)
    assert isinstance(gone, Gone)


def test_one_network_that_fails_for_a_moment_changes_nothing(on_two_networks: Driven) -> None:
    on_two_networks.after(2.0)
    actions = on_two_networks.membership.call_failed(OTHER, on_two_networks.now_s)
    first, second = (action for action in actions if isinstance(action, Ping))
    assert on_two_networks.answer(first) == ()
    assert on_two_networks.fail(second) == ()
    (peer,) = on_two_networks.membership.live()
    assert (peer.endpoint, peer.state) == (THERE, PeerState.LIVE)


def test_a_forged_beacon_does_not_move_a_peer(joined: Driven) -> None:
    assert joined.fail(joined.beacon_ping(endpoint=ELSEWHERE)) == ()
    assert joined.answer(only_ping(joined.beacon(endpoint=ELSEWHERE)), PingReply(THIRD, 9)) == ()
    (peer,) = joined.membership.live()
    assert (peer.endpoint, peer.state) == (THERE, PeerState.LIVE)


def test_forged_beacons_from_many_addresses_cause_few_pings(joined: Driven) -> None:
    pings = [
        action for index in range(200) for action in joined.beacon(endpoint=f"tcp://10.9.9.{index}:7000")
    ]
    assert len(pings) <= ADDRESSES_AT_A_TIME


def test_two_devices_with_one_id_leave_the_first_in_place_and_are_reported(joined: Driven) -> None:
    second = joined.beacon_ping(endpoint=ELSEWHERE)
    first = only_ping(joined.answer(second, SECOND))
    assert first.endpoint == THERE
    (conflict,) = joined.answer(first, FIRST)
    assert conflict == Conflict(OTHER, ELSEWHERE)
    (peer,) = joined.membership.live()
    assert (peer.endpoint, peer.incarnation) == (THERE, 20)


def test_a_lasting_conflict_is_not_checked_with_every_beacon(joined: Driven) -> None:
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


def test_the_second_of_two_devices_with_one_id_joins_when_the_first_goes(joined: Driven) -> None:
    for _ in range(6):
        joined.after(5.0)
        joined.beacon()
        for action in joined.beacon(endpoint=ELSEWHERE):
            assert isinstance(action, Ping)
            joined.answer(only_ping(joined.answer(action, SECOND)), FIRST)
    joined.membership.left(OTHER, 20, joined.now_s)
    joined.answer(joined.beacon_ping(endpoint=ELSEWHERE), SECOND)
    (peer,) = joined.membership.live()
    assert peer.endpoint == ELSEWHERE


def test_a_restart_at_a_new_address_replaces_the_old_start_that_no_longer_answers(joined: Driven) -> None:
    old = only_ping(joined.answer(joined.beacon_ping(endpoint=ELSEWHERE), SECOND))
    gone, again = joined.fail(old)
    assert isinstance(gone, Gone)
    assert (gone.why, gone.peer.incarnation) == ("replaced", 20)
    assert isinstance(again, Joined)
    assert (again.peer.endpoint, again.peer.incarnation) == (ELSEWHERE, 21)


def test_a_restart_at_the_same_address_is_noticed_by_its_introduction(joined: Driven) -> None:
    ping = only_ping(joined.membership.introduced(OTHER, THERE, 21, joined.now_s))
    gone, again = joined.answer(ping, SECOND)
    assert isinstance(gone, Gone)
    assert gone.why == "restarted"
    assert isinstance(again, Joined)
    assert again.peer.incarnation == 21


def test_a_peer_that_introduces_itself_with_another_address_has_an_alias(joined: Driven) -> None:
    new = only_ping(joined.membership.introduced(OTHER, ELSEWHERE, 20, joined.now_s))
    assert joined.answer(only_ping(joined.answer(new))) == ()
    assert joined.membership.introduced(OTHER, ELSEWHERE, 20, joined.now_s) == ()
    (peer,) = joined.membership.live()
    assert peer.endpoint == THERE


def test_own_beacons_are_ignored(alone: Driven) -> None:
    assert alone.beacon(OWN, HERE) == ()


def test_own_beacons_from_an_unexpected_address_are_asked_about_once(alone: Driven) -> None:
    assert alone.answer(alone.beacon_ping(OWN, ELSEWHERE), PingReply(OWN, 10)) == ()
    assert alone.beacon(OWN, ELSEWHERE) == ()
    assert alone.membership.counts.conflicts == 0


def test_another_device_with_the_own_id_is_a_conflict(alone: Driven) -> None:
    assert alone.answer(alone.beacon_ping(OWN, ELSEWHERE), PingReply(OWN, 99)) == (Conflict(OWN, ELSEWHERE),)
    assert not alone.sees()


def test_after_sleep_every_peer_is_asked_before_it_is_trusted_again(joined: Driven) -> None:
    joined.answer(joined.beacon_ping(THIRD, ELSEWHERE), PingReply(THIRD, 30))
    actions = joined.after(600.0)
    assert actions[0] == Slept(600.0)
    assert Announce() in actions
    pings = {action.node_id: action for action in actions if isinstance(action, Ping)}
    assert pings.keys() == {OTHER, THIRD}
    assert {joined.state(OTHER), joined.state(THIRD)} == {PeerState.SUSPECT}
    joined.answer(pings[OTHER])
    joined.fail(pings[THIRD])
    assert joined.sees() == {OTHER}


def test_with_another_address_all_peers_are_asked_and_a_beacon_is_sent(joined: Driven) -> None:
    joined.after(1.0)
    readdressed = joined.membership.readdressed(joined.now_s)
    assert Readdressed() in readdressed
    joined.answer(only_ping(readdressed))
    assert joined.state() is PeerState.LIVE
    assert Announce() in joined.after(0.0)


def test_a_ping_from_before_sleep_says_nothing_about_the_peer(joined: Driven) -> None:
    joined.after(14.0)
    before = only_ping(joined.after(1.0))
    after = only_ping(joined.after(600.0))
    assert joined.fail(before) == ()
    assert joined.sees() == {OTHER}
    joined.answer(after)
    assert joined.state() is PeerState.LIVE


def test_beacons_that_waited_through_sleep_do_not_keep_a_dead_peer(joined: Driven) -> None:
    joined.now_s += 600.0
    ping = only_ping(joined.beacon())  # arrived long ago, read now
    again = only_ping(joined.fail(ping))
    joined.fail(again)
    assert not joined.sees()


def test_static_peers_are_looked_for_every_period_until_they_are_there() -> None:
    driven = Driven(static=((None, THERE),))
    ping = only_ping(driven.first)
    for _ in range(10):
        driven.fail(ping)
        ping = only_ping(driven.after(5.0))
    assert ping.node_id is None
    driven.answer(ping)
    assert driven.sees() == {OTHER}
    assert not any(isinstance(action, Ping) for action in driven.after(5.0))


def test_a_static_peer_known_under_another_address_is_not_moved() -> None:
    driven = Driven(static=((None, "tcp://two.local:7000"),))
    driven.answer(driven.beacon_ping())
    driven.answer(only_ping(driven.answer(only_ping(driven.first))))
    for _ in range(4):
        assert not any(isinstance(action, Ping) for action in driven.after(5.0))
        driven.beacon()
    (peer,) = driven.membership.live()
    assert peer.endpoint == THERE
    assert driven.membership.counts.moved == 0


def test_this_device_among_the_static_peers_is_left_out() -> None:
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


def test_refreshing_asks_every_peer_what_it_holds(joined: Driven) -> None:
    ping = only_ping(joined.membership.refresh(joined.now_s))
    joined.answer(ping, PingReply(OTHER, 20, "phone", keys=7))
    (peer,) = joined.membership.live()
    assert peer.reply is not None
    assert (peer.device_id, peer.reply.keys) == ("phone", 7)


def test_beacons_spread_around_the_period() -> None:
    driven = Driven(PeerSettings(period_s=5, departure_s=15))
    times = [driven.now_s for _ in range(4000) if Announce() in driven.after(0.05)]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert 4.4 <= min(gaps) < 4.9
    assert 5.1 < max(gaps) <= 5.6
    assert 4.8 < sum(gaps) / len(gaps) < 5.2


# Many devices


def test_twenty_devices_see_each_other_within_two_periods_whenever_they_start() -> None:
    network = SimulatedNetwork(SETTINGS)
    starts = random.Random(3)
    for _ in range(20):
        network.at(starts.uniform(0, 5), network.add)
    network.run(5.0)
    network.run(2 * SETTINGS.period_s)
    everybody = {device.node_id for device in network.devices}
    assert all(device.sees() == everybody - {device.node_id} for device in network.devices)


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_device_is_gone_everywhere_within_two_seconds_of_the_departure_time(seed: int) -> None:
    network = SimulatedNetwork(SETTINGS, loss=0.3, seed=seed)
    for _ in range(20):
        network.add()
    network.run(23.0 + seed)
    victim = network.devices[7]
    victim.running = False
    network.run(SETTINGS.departure_s + 2.0)
    assert all(victim.node_id not in device.sees() for device in network.alive())


def test_nobody_is_dropped_although_a_third_of_all_beacons_is_lost() -> None:
    network = SimulatedNetwork(SETTINGS, loss=0.3)
    for _ in range(20):
        network.add()
    network.run(600.0)
    dropped = [entry for device in network.devices for entry in device.log if isinstance(entry[1], Gone)]
    assert not dropped
    assert all(len(device.sees()) == 19 for device in network.devices)


def test_beacons_of_twenty_devices_stay_within_the_stated_traffic() -> None:
    network = SimulatedNetwork(PeerSettings())
    for _ in range(20):
        network.add()
    network.run(600.0)
    assert network.beacons * (13 + 28) / 600.0 < 255


def test_two_halves_lose_and_find_each_other() -> None:
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


def test_a_device_that_slept_finds_out_who_is_left() -> None:
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
    network.run(SETTINGS.ping_timeout_s + 0.1)
    assert sleeper.sees() == {device.node_id for device in others[1:]}
    assert all(sleeper.node_id in device.sees() for device in others[1:])


def test_a_device_that_accepts_but_never_answers_is_no_peer() -> None:
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


@settings(max_examples=150, deadline=None)
@given(EVENTS, st.integers(0, 10_000), st.sampled_from([0.0, 0.3]))
def test_whatever_happened_all_that_run_agree_again_in_the_end(
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
