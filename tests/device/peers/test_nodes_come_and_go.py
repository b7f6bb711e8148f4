"""Nodes join, leave, die, split and sleep while others read and write."""

from __future__ import annotations

import select
import threading
import time

import pytest

from nearsight.common.clock import ManualClock, SystemClock
from nearsight.common.errors import AddressInUse, NearsightError, Unavailable
from nearsight.device.peers import node as node_module
from nearsight.device.peers.node import PeerNode
from nearsight.device.peers.presence.addresses import own_endpoint
from nearsight.device.peers.store import shared_store
from nearsight.device.peers.store.replica_calls import AdaptiveTimeout
from support.peer_nodes import Group, Wire, drop, fast_settings, group, split, wait_synchronised
from support.waiting import LONG_S, wait_until
from support.zmtp import raw_peers


def fill(nodes: Group, count: int = 100) -> dict[str, bytes]:
    """Put values through all nodes; returns them."""
    values = {f"value {number}": b"%d" % number for number in range(count)}
    puts = [
        nodes.nodes[number % len(nodes.nodes)].store.put(key, value)
        for number, (key, value) in enumerate(values.items())
    ]
    for put in puts:
        put.result(LONG_S)
    return values


def assert_readable(nodes: Group, values: dict[str, bytes]) -> None:
    for node in nodes.nodes:
        lost = [key for key, value in values.items() if node.store.get_blocking(key) != value]
        assert not lost, f"{node.device_id} cannot read {lost[:5]}"


def test_a_node_that_joins_gets_its_entries_and_others_drop_theirs() -> None:
    with group(2) as nodes:
        values = fill(nodes)
        joining = nodes.add()
        wait_until(lambda: len(joining.route.cluster.view.nodes) == 3)
        # All values are readable already before the hand-over has finished.
        assert_readable(nodes, values)
        nodes.wait_synchronised()
        assert_readable(nodes, values)
        for key in values:
            assert all(key in node.held_keys() for node in nodes.replicas(key))
        for node in nodes.nodes:
            for _ in range(4):
                node._handover._sweep()
        for key in values:
            assert sum(key in node.held_keys() for node in nodes.nodes) == 2


@pytest.mark.parametrize("replicas", [1, 2])
def test_nothing_is_lost_when_a_node_leaves_cleanly(replicas: int) -> None:
    with group(4, replicas=replicas) as nodes:
        values = fill(nodes)
        nodes.nodes[0].store.merge("counts", {"x": 7}).result(LONG_S)
        for _ in range(3):
            nodes.leave(nodes.nodes[-1])
            nodes.wait_synchronised()
            assert_readable(nodes, values)
            assert nodes.nodes[0].store.counts("counts").result(LONG_S) == {"x": 7}


def test_a_write_to_a_node_that_is_leaving_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    with group(2, replicas=1) as nodes:
        leaver, stays = nodes.nodes
        key = nodes.key_of(leaver)
        announce = leaver._announce_departure

        def written_to_before(timeout_s: float) -> None:
            stays.store.put(key, b"v").result(LONG_S)
            announce(timeout_s)

        monkeypatch.setattr(leaver, "_announce_departure", written_to_before)
        nodes.leave(leaver)
        assert stays.store.get_blocking(key) == b"v"


def test_after_a_suspension_entries_are_exchanged_in_both_directions() -> None:
    with group(2) as nodes:
        slept, other = nodes.nodes
        for key, lacking in (("given", other), ("received", slept)):
            slept.store.put(key, b"v").result(LONG_S)
            lacking._shared.drop(lacking._shared.digests([key]))
        slept._slept()
        for node in nodes.nodes:
            wait_until(lambda node=node: set(node.held_keys()) == {"given", "received"}, what="both entries")
        nodes.wait_synchronised()


def test_after_a_suspension_a_node_is_not_synchronised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with group(2) as nodes:
        slept = nodes.nodes[0]
        monkeypatch.setattr(slept._handover, "resynchronise", lambda: None)
        assert slept.synchronised()
        slept._slept()
        assert not slept.synchronised()


def test_a_node_whose_address_is_taken_leaves_nothing_open() -> None:
    with group(1) as nodes:
        before = set(threading.enumerate())
        second = PeerNode(fast_settings(listen=nodes.nodes[0].endpoint), device_id="second")
        with pytest.raises(AddressInUse):
            second.start()
        assert set(threading.enumerate()) == before


def test_the_claim_of_a_node_ends_when_it_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_store, "CLAIM_LEASE_S", 600.0)
    with group(3) as nodes:
        answers, fetches, asks = nodes.nodes
        key = nodes.key_of(answers)
        assert fetches.store.items(key, claim=True).result(LONG_S).wait_ms == 0
        assert asks.store.items(key, claim=True).result(LONG_S).wait_ms > 0
        nodes.leave(fetches)
        wait_until(lambda: asks.store.items(key, claim=True).result(LONG_S).wait_ms == 0, what="a claim")


@pytest.mark.system
def test_nothing_is_lost_when_nodes_die_one_after_another() -> None:
    with group(6) as nodes:
        values = fill(nodes, 300)
        for node in nodes.nodes:
            for number in range(10):
                node.store.merge(f"counts {number}", {"x": 1, "y": number}).result(LONG_S)
                node.store.append(f"list {number}", node.device_id.encode()).result(LONG_S)
        for _ in range(4):
            nodes.kill(nodes.nodes[0])
            assert_readable(nodes, values)  # before the hand-over
            nodes.wait_synchronised()
        assert_readable(nodes, values)
        for number in range(10):
            for node in nodes.nodes:
                assert node.store.counts(f"counts {number}").result(LONG_S) == {
                    name: count for name, count in (("x", 6), ("y", 6 * number)) if count
                }
                assert len(node.store.items(f"list {number}").result(LONG_S).items) == 6


def test_writes_succeed_while_a_node_dies() -> None:
    with group(4) as nodes:
        dying, *others = nodes.nodes
        puts = {f"before {n}": others[n % 3].store.put(f"before {n}", b"v") for n in range(100)}
        nodes.kill(dying)
        puts |= {f"after {n}": others[n % 3].store.put(f"after {n}", b"v") for n in range(100)}
        merges = [node.store.merge("counts", {"x": 1}) for node in others for _ in range(20)]
        for put in [*puts.values(), *merges]:
            put.result(LONG_S)
        nodes.wait_synchronised()
        assert_readable(nodes, dict.fromkeys(puts, b"v"))
        assert others[0].store.counts("counts").result(LONG_S) == {"x": 60}


def test_two_halves_of_a_split_merge() -> None:
    with group(4) as nodes:
        values = fill(nodes, 50)
        left, right = nodes.nodes[:2], nodes.nodes[2:]
        left[0].store.merge("counts", {"x": 1}).result(LONG_S)
        left[0].store.append("list", b"before").result(LONG_S)
        wires = split(left, right)
        drop(left, right)
        drop(right, left)
        wait_synchronised(left)
        wait_synchronised(right)
        for half, name in ((left, b"left"), (right, b"right")):
            for node in half:
                node.store.merge("counts", {"x": 1}).result(LONG_S)
                node.store.append("list", name).result(LONG_S)
            half[0].store.put("register", name).result(LONG_S)
        right[0].store.put("register", b"right, later").result(LONG_S)
        right[0].store.put("value 0", b"changed").result(LONG_S)
        left[0].store.delete("value 1").result(LONG_S)
        assert right[0].store.counts("counts").result(LONG_S).get("x", 0) <= 3
        for wire in wires:
            wire.mend()
        nodes.wait_synchronised()
        values["value 0"] = b"changed"
        del values["value 1"]
        assert_readable(nodes, values)
        for node in nodes.nodes:
            assert node.store.counts("counts").result(LONG_S) == {"x": 5}
            assert set(node.store.items("list").result(LONG_S).items) == {b"before", b"left", b"right"}
            assert node.store.get_blocking("register") == b"right, later"
            assert node.store.get_blocking("value 1") is None


def test_after_a_split_the_latest_write_wins_however_often_the_other_half_wrote() -> None:
    with group(4) as nodes:
        left, right = nodes.nodes[:2], nodes.nodes[2:]
        wires = split(left, right)
        drop(left, right)
        drop(right, left)
        wait_synchronised(left)
        wait_synchronised(right)
        for number in range(100):
            left[0].store.put("register", b"%d" % number).result(LONG_S)
        right[0].store.put("register", b"later").result(LONG_S)
        for wire in wires:
            wire.mend()
        nodes.wait_synchronised()
        assert {node.store.get_blocking("register") for node in nodes.nodes} == {b"later"}


def test_an_increment_that_is_sent_twice_counts_once() -> None:
    with group(3) as nodes:
        node = nodes.nodes[0]
        key = nodes.key_of(*nodes.nodes[1:])
        wire = Wire(node)
        lost = iter([True, True, False, True])
        wire.loses = lambda method: method.name == "Write" and next(lost, False)
        merges = [node.store.merge(key, {"x": 1}) for _ in range(5)]
        outcomes = [merge.exception(LONG_S) for merge in merges]
        assert all(error is None or isinstance(error, NearsightError) for error in outcomes)
        node.store.append(key + " list", b"item").result(LONG_S)
        nodes.wait_synchronised()
        wait_until(lambda: nodes.nodes[1].store.counts(key).result(LONG_S) == {"x": 5})
        wait_until(lambda: nodes.nodes[2].store.counts(key).result(LONG_S) == {"x": 5})
        assert nodes.nodes[2].store.items(key + " list").result(LONG_S).items == (b"item",)


def test_a_slow_name_lookup_delays_no_other_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up = threading.Event()

    def slow(listening: str, advertise: str, towards: str) -> str:
        if "museum.example" in towards:
            looked_up.wait(600)
            raise Unavailable("no such name")
        return own_endpoint(listening, advertise, towards)

    monkeypatch.setattr(node_module, "own_endpoint", slow)
    nodes = Group()
    try:
        nodes.add()
        nodes.add(static=["tcp://phone.museum.example:7300", nodes.nodes[0].endpoint])
        nodes.wait_synchronised()
        assert not looked_up.is_set()
    finally:
        looked_up.set()
        nodes.stop()


def test_a_write_that_reached_no_replica_is_repeated() -> None:
    with group(3) as nodes:
        writer, first, second = nodes.nodes
        key = nodes.key_of(first, second)
        wire = Wire(writer)
        wire.cut_off = {first.node_id, second.node_id}  # pings still arrive, so the nodes remain members
        put = writer.store.put(key, b"v")
        assert not put.done()
        wire.mend()
        put.result(LONG_S)
        assert first.store.get_blocking(key) == second.store.get_blocking(key) == b"v"


def test_a_replica_gets_the_writes_that_it_missed() -> None:
    with group(2) as nodes:
        writer, replica = nodes.nodes
        wire = Wire(writer)
        wire.cut_off = {replica.node_id}  # pings still arrive, so the node remains a member
        writer.store.put("k", b"v").result(LONG_S)
        assert replica.held_keys() == ()
        wire.mend()
        wait_until(lambda: replica.held_keys() == ("k",), what="the missed write")


def test_a_write_that_reaches_no_replica_fails() -> None:
    with group(3) as nodes:
        writer, first, second = nodes.nodes
        key = nodes.key_of(first, second)
        Wire(writer).cut_off = {first.node_id, second.node_id}
        assert isinstance(writer.store.put(key, b"v").exception(LONG_S), NearsightError)


def test_pending_reads_and_writes_end_when_the_node_stops() -> None:
    with group(3) as nodes:
        stopping, first, second = nodes.nodes
        key = nodes.key_of(first, second)
        Wire(stopping).cut_off = {first.node_id, second.node_id}
        futures = [stopping.store.put(key, b"v"), stopping.store.append("l" + key, b"v")]
        futures += [stopping.store.merge(f"{key} {number}", {"x": 1}) for number in range(20)]
        nodes.kill(stopping)
        for future in futures:
            future.exception(LONG_S)
        for future in (stopping.store.put(key, b"v"), stopping.store.get(key)):
            future.exception(LONG_S)


def test_increments_that_reached_no_replica_are_sent_with_the_next() -> None:
    with group(3, replicas=1) as nodes:
        node, holder, _ = nodes.nodes
        key = nodes.key_of(holder)
        wire = Wire(node)
        wire.loses = lambda method: method.name == "Write"
        node.store.merge(key, {"x": 1}).exception(LONG_S)
        wire.loses = lambda _: False
        node.store.merge(key, {"x": 1}).result(LONG_S)
        assert nodes.nodes[2].store.counts(key).result(LONG_S) == {"x": 2}


@pytest.mark.system
def test_two_nodes_that_cannot_reach_each_other_share_through_others() -> None:
    with group(5) as nodes:
        a, b = nodes.nodes[:2]
        wires = split([a], [b])
        drop([a], [b])
        drop([b], [a])
        for attempt in range(2):
            values = {f"value {number}": b"%d %d" % (attempt, number) for number in range(100)}
            for number, (key, value) in enumerate(values.items()):
                nodes.nodes[number % 5].store.put(key, value).result(LONG_S)
            wait_until(
                lambda values=values: all(  # type: ignore[misc]
                    node.store.get_blocking(key) == value
                    for node in nodes.nodes
                    for key, value in values.items()
                )
            )
        for wire in wires:
            wire.mend()
        nodes.wait_synchronised()
        assert_readable(nodes, values)


class _SleepyClock(SystemClock):
    """A clock that a test can advance, as a suspension does."""

    slept_s = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.slept_s

    def wall(self) -> float:
        return time.time() + self.slept_s


def test_after_a_suspension_a_node_finds_the_members_and_missed_writes() -> None:
    with group(3) as nodes:
        clock = _SleepyClock()
        sleeper = nodes.add(clock=clock)
        nodes.wait_synchronised()
        values = fill(nodes, 60)
        awake = [node for node in nodes.nodes if node is not sleeper]
        wires = split([sleeper], awake)
        seen = {node.node_id for node in awake}
        # While the device sleeps, the others drop it and write, and one of them leaves.
        drop(awake, [sleeper])
        wait_synchronised(awake)
        for key in list(values)[:30]:
            values[key] = b"changed"
            awake[0].store.put(key, b"changed").result(LONG_S)
        awake[0].store.merge("counts", {"x": 3}).result(LONG_S)
        nodes.kill(awake[0])
        for wire in wires:
            wire.mend()
        clock.slept_s = 3600.0
        nodes.wait_synchronised()
        assert {peer.node_id for peer in sleeper.peers()} < seen
        assert_readable(nodes, values)
        assert sleeper.store.counts("counts").result(LONG_S) == {"x": 3}


def test_a_replica_that_is_not_synchronised_does_not_decide_that_an_entry_is_missing() -> None:
    with group(3) as nodes:
        a, b, _ = nodes.nodes
        key = nodes.key_of(b, a)
        a.store.put(key, b"v").result(LONG_S)
        b._shared.drop(b._shared.digests([key]))  # as before the hand-over
        assert b.store.get_blocking(key) is None  # the node counts as synchronised
        b._cluster.discard_reports()
        assert b.store.get_blocking(key) == b"v"
        assert b.store.get(key).result(LONG_S) == b"v"


def test_an_entry_that_the_first_replica_lost_is_read_from_the_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(AdaptiveTimeout, "LEAST_S", LONG_S)  # a late replica would not be waited for
    with group(3) as nodes:
        a, b, c = nodes.nodes
        key = nodes.key_of(b, a)
        c.store.append(key, b"v").result(LONG_S)
        b._shared.drop(b._shared.digests([key]))
        assert b.synchronised()
        assert c.store.items(key).result(LONG_S).items == (b"v",)
        assert c.store.items(key, claim=True).result(LONG_S).items == (b"v",)


def test_a_node_that_missed_completion_messages_asks_for_them() -> None:
    with group(3) as nodes:
        nodes.nodes[0]._cluster.discard_reports()
        assert not nodes.nodes[0].synchronised()
        nodes.nodes[0]._handover.resynchronise()
        nodes.wait_synchronised()


def test_different_replicas_are_synchronised() -> None:
    with group(3) as nodes:
        a, b, _ = nodes.nodes
        key = nodes.key_of(a, b)
        a.store.put(key, b"v").result(LONG_S)
        a._shared.drop(a._shared.digests([key]))
        for _ in range(4):
            b._handover._sweep()
        assert a.store.get_blocking(key) == b"v"


def test_an_idle_connection_carries_no_heartbeats() -> None:
    clock = ManualClock()
    with group(0) as nodes:
        node = nodes.add(clock=clock)
        listener = node._server._listener
        assert listener is not None
        with raw_peers(node.endpoint, 1) as (peer,):
            (connection,) = listener._connections.values()
            wait_until(lambda: connection.session.mechanism.done)
            for _ in range(10):
                clock.advance(node.settings.departure_s)
                listener.tick()
            assert not select.select([peer.socket], [], [], 0)[0]
            assert not peer.is_cut()
