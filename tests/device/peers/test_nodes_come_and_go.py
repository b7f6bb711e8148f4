"""Nodes join, leave, die, split and sleep, while others read and write."""

from __future__ import annotations

import select
import threading
import time

import pytest

from nearsight.common.clock import ManualClock, SystemClock
from nearsight.common.errors import NearsightError, Unavailable
from nearsight.device.peers import node as node_module
from nearsight.device.peers.presence.addresses import own_endpoint
from nearsight.device.peers.store import shared_store
from support.peer_nodes import Group, Wire, group, split, wait_synchronised
from support.waiting import wait_until
from support.zmtp import raw_peers

S = 5.0


def fill(nodes: Group, count: int = 100) -> dict[str, bytes]:
    """Put values through all nodes; returns them."""
    values = {f"value {number}": b"%d" % number for number in range(count)}
    puts = [
        nodes.nodes[number % len(nodes.nodes)].store.put(key, value)
        for number, (key, value) in enumerate(values.items())
    ]
    for put in puts:
        put.result(S)
    return values


def assert_readable(nodes: Group, values: dict[str, bytes]) -> None:
    for node in nodes.nodes:
        lost = [key for key, value in values.items() if node.store.get_blocking(key) != value]
        assert not lost, f"{node.device_id} cannot read {lost[:5]}"


def test_a_device_that_joins_gets_its_keys_and_others_drop_theirs() -> None:
    with group(2) as nodes:
        values = fill(nodes)
        joining = nodes.add()
        wait_until(lambda: len(joining.route.cluster.view.nodes) == 3)
        # Before everything is handed over, too, nothing is missing.
        assert_readable(nodes, values)
        nodes.wait_synchronised()
        assert_readable(nodes, values)
        for key in values:
            assert all(key in node.held_keys() for node in nodes.replicas(key))
        for node in nodes.nodes:
            node._handover._sweep()
            for _ in range(3):
                node._handover._sweep()
        for key in values:
            assert sum(key in node.held_keys() for node in nodes.nodes) == 2


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_device_that_leaves_cleanly_takes_nothing_with_it(replicas: int) -> None:
    with group(4, replicas=replicas) as nodes:
        values = fill(nodes)
        nodes.nodes[0].store.merge("counts", {"x": 7}).result(S)
        for _ in range(3):
            nodes.leave(nodes.nodes[-1])
            nodes.wait_synchronised()
            assert_readable(nodes, values)
            assert nodes.nodes[0].store.counts("counts").result(S) == {"x": 7}


def test_what_is_written_to_a_device_while_it_leaves_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    with group(2, replicas=1) as nodes:
        leaver, stays = nodes.nodes
        key = nodes.key_of(leaver)
        announce = leaver._announce_departure

        def written_to_before(timeout_s: float) -> None:
            stays.store.put(key, b"v").result(S)
            announce(timeout_s)

        monkeypatch.setattr(leaver, "_announce_departure", written_to_before)
        nodes.leave(leaver)
        assert stays.store.get_blocking(key) == b"v"


def test_a_device_that_slept_gives_and_is_given_everything_again() -> None:
    with group(2) as nodes:
        slept, other = nodes.nodes
        for key, forgetful in (("given", other), ("received", slept)):
            slept.store.put(key, b"v").result(S)
            forgetful._shared.drop(forgetful._shared.digests([key]))
        slept._slept()
        for node in nodes.nodes:
            wait_until(lambda node=node: set(node.held_keys()) == {"given", "received"}, what="all is there")
        nodes.wait_synchronised()


def test_after_sleep_nothing_is_believed_missing_before_others_have_said_what_they_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with group(2) as nodes:
        slept = nodes.nodes[0]
        monkeypatch.setattr(slept._handover, "resynchronise", lambda: None)
        assert slept.synchronised()
        slept._slept()
        assert not slept.synchronised()


def test_nobody_waits_for_a_device_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_store, "CLAIM_LEASE_S", 600.0)
    with group(3) as nodes:
        answers, fetches, asks = nodes.nodes
        key = nodes.key_of(answers)
        assert fetches.store.items(key, claim=True).result(S).wait_ms == 0
        assert asks.store.items(key, claim=True).result(S).wait_ms > 0
        nodes.leave(fetches)
        wait_until(lambda: asks.store.items(key, claim=True).result(S).wait_ms == 0, what="a claim")


@pytest.mark.system
def test_nothing_is_lost_when_devices_die_one_after_another() -> None:
    with group(6) as nodes:
        values = fill(nodes, 300)
        for node in nodes.nodes:
            for number in range(10):
                node.store.merge(f"counts {number}", {"x": 1, "y": number}).result(S)
                node.store.append(f"list {number}", node.device_id.encode()).result(S)
        for _ in range(4):
            nodes.kill(nodes.nodes[0])
            assert_readable(nodes, values)  # at once, before anything is handed over
            nodes.wait_synchronised()
        assert_readable(nodes, values)
        for number in range(10):
            for node in nodes.nodes:
                assert node.store.counts(f"counts {number}").result(S) == {
                    name: count for name, count in (("x", 6), ("y", 6 * number)) if count
                }
                assert len(node.store.items(f"list {number}").result(S).items) == 6


def test_writes_go_on_while_a_device_dies() -> None:
    with group(4) as nodes:
        dying, *others = nodes.nodes
        puts = {f"before {n}": others[n % 3].store.put(f"before {n}", b"v") for n in range(100)}
        nodes.kill(dying)
        puts |= {f"after {n}": others[n % 3].store.put(f"after {n}", b"v") for n in range(100)}
        merges = [node.store.merge("counts", {"x": 1}) for node in others for _ in range(20)]
        for put in [*puts.values(), *merges]:
            put.result(S)
        nodes.wait_synchronised()
        assert_readable(nodes, dict.fromkeys(puts, b"v"))
        assert others[0].store.counts("counts").result(S) == {"x": 60}


def test_two_halves_that_meet_again_merge() -> None:
    with group(4) as nodes:
        values = fill(nodes, 50)
        left, right = nodes.nodes[:2], nodes.nodes[2:]
        left[0].store.merge("counts", {"x": 1}).result(S)
        left[0].store.append("list", b"before").result(S)
        wires = split(left, right)
        wait_synchronised(left)
        wait_synchronised(right)
        for half, name in ((left, b"left"), (right, b"right")):
            for node in half:
                node.store.merge("counts", {"x": 1}).result(S)
                node.store.append("list", name).result(S)
            half[0].store.put("register", name).result(S)
        right[0].store.put("register", b"right, later").result(S)
        right[0].store.put("value 0", b"changed").result(S)
        left[0].store.delete("value 1").result(S)
        assert right[0].store.counts("counts").result(S).get("x", 0) <= 3
        for wire in wires:
            wire.mend()
        nodes.wait_synchronised()
        values["value 0"] = b"changed"
        del values["value 1"]
        assert_readable(nodes, values)
        for node in nodes.nodes:
            assert node.store.counts("counts").result(S) == {"x": 5}
            assert set(node.store.items("list").result(S).items) == {b"before", b"left", b"right"}
            assert node.store.get_blocking("register") == b"right, later"
            assert node.store.get_blocking("value 1") is None


def test_of_two_halves_that_wrote_the_same_key_the_later_one_wins_however_much_the_other_wrote() -> None:
    with group(4) as nodes:
        left, right = nodes.nodes[:2], nodes.nodes[2:]
        wires = split(left, right)
        wait_synchronised(left)
        wait_synchronised(right)
        for number in range(100):
            left[0].store.put("register", b"%d" % number).result(S)
        right[0].store.put("register", b"later").result(S)
        for wire in wires:
            wire.mend()
        nodes.wait_synchronised()
        assert {node.store.get_blocking("register") for node in nodes.nodes} == {b"later"}


def test_what_is_sent_twice_as_answers_get_lost_counts_once() -> None:
    with group(3) as nodes:
        node = nodes.nodes[0]
        key = nodes.key_of(*nodes.nodes[1:])
        wire = Wire(node)
        lost = iter([True, True, False, True])
        wire.loses = lambda method: method.name == "Write" and next(lost, False)
        merges = [node.store.merge(key, {"x": 1}) for _ in range(5)]
        outcomes = [merge.exception(S) for merge in merges]
        assert all(error is None or isinstance(error, NearsightError) for error in outcomes)
        node.store.append(key + " list", b"item").result(S)
        nodes.wait_synchronised()
        wait_until(lambda: nodes.nodes[1].store.counts(key).result(S) == {"x": 5})
        wait_until(lambda: nodes.nodes[2].store.counts(key).result(S) == {"x": 5})
        assert nodes.nodes[2].store.items(key + " list").result(S).items == (b"item",)


def test_a_name_that_takes_long_to_look_up_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_write_that_could_not_reach_its_nodes_is_repeated_once_they_can_be_reached() -> None:
    with group(3) as nodes:
        writer, first, second = nodes.nodes
        key = nodes.key_of(first, second)
        wire = Wire(writer)
        wire.cut_off = {first.node_id, second.node_id}  # but for pings, so that nobody is dropped
        put = writer.store.put(key, b"v")
        assert not put.done()
        wire.mend()
        put.result(S)
        assert first.store.get_blocking(key) == second.store.get_blocking(key) == b"v"


def test_a_replica_that_took_no_writes_for_a_while_is_given_them_then() -> None:
    with group(2) as nodes:
        writer, deaf = nodes.nodes
        wire = Wire(writer)
        wire.cut_off = {deaf.node_id}  # but for pings, so that it is not dropped
        writer.store.put("k", b"v").result(S)
        assert deaf.held_keys() == ()
        wire.mend()
        wait_until(lambda: deaf.held_keys() == ("k",), timeout_s=15)


def test_a_write_that_reaches_none_of_its_nodes_fails() -> None:
    with group(3) as nodes:
        writer, first, second = nodes.nodes
        key = nodes.key_of(first, second)
        Wire(writer).cut_off = {first.node_id, second.node_id}
        assert isinstance(writer.store.put(key, b"v").exception(S), NearsightError)


def test_reads_and_writes_that_are_under_way_end_when_the_device_stops() -> None:
    with group(3) as nodes:
        stopping, first, second = nodes.nodes
        key = nodes.key_of(first, second)
        Wire(stopping).cut_off = {first.node_id, second.node_id}
        futures = [stopping.store.put(key, b"v"), stopping.store.append("l" + key, b"v")]
        futures += [stopping.store.merge(f"{key} {number}", {"x": 1}) for number in range(20)]
        nodes.kill(stopping)
        for future in futures:
            future.exception(S)
        for future in (stopping.store.put(key, b"v"), stopping.store.get(key)):
            future.exception(S)


def test_counts_that_reached_nobody_go_out_later() -> None:
    with group(3, replicas=1) as nodes:
        node, holder, _ = nodes.nodes
        key = nodes.key_of(holder)
        wire = Wire(node)
        wire.loses = lambda method: method.name == "Write"
        node.store.merge(key, {"x": 1}).exception(S)
        wire.loses = lambda _: False
        node.store.merge(key, {"x": 1}).result(S)
        assert nodes.nodes[2].store.counts(key).result(S) == {"x": 2}


@pytest.mark.system
def test_two_devices_that_cannot_reach_each_other_share_through_the_others() -> None:
    with group(5) as nodes:
        a, b = nodes.nodes[:2]
        wires = split([a], [b])
        wait_until(
            lambda: (
                b.node_id not in a.route.cluster.view.nodes and a.node_id not in b.route.cluster.view.nodes
            )
        )
        for attempt in range(2):
            values = {f"value {number}": b"%d %d" % (attempt, number) for number in range(100)}
            for number, (key, value) in enumerate(values.items()):
                nodes.nodes[number % 5].store.put(key, value).result(S)
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
    """Jumps ahead, as after a suspension."""

    slept_s = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.slept_s

    def wall(self) -> float:
        return time.time() + self.slept_s


def test_a_device_that_slept_finds_out_who_is_there_and_what_it_missed() -> None:
    with group(3) as nodes:
        clock = _SleepyClock()
        sleeper = nodes.add(clock=clock)
        nodes.wait_synchronised()
        values = fill(nodes, 60)
        awake = [node for node in nodes.nodes if node is not sleeper]
        wires = split([sleeper], awake)
        seen = {node.node_id for node in awake}
        # While it sleeps it notices nothing: the others drop it, write, and one of them goes away.
        wait_synchronised(awake)
        for key in list(values)[:30]:
            values[key] = b"changed"
            awake[0].store.put(key, b"changed").result(S)
        awake[0].store.merge("counts", {"x": 3}).result(S)
        nodes.kill(awake[0])
        for wire in wires:
            wire.mend()
        clock.slept_s = 3600.0
        nodes.wait_synchronised()
        assert {peer.node_id for peer in sleeper.peers()} < seen
        assert_readable(nodes, values)
        assert sleeper.store.counts("counts").result(S) == {"x": 3}


def test_a_device_with_another_view_does_not_believe_itself_about_what_is_missing() -> None:
    with group(3) as nodes:
        a, b, _ = nodes.nodes
        key = nodes.key_of(b, a)
        a.store.put(key, b"v").result(S)
        b._shared.drop(b._shared.digests([key]))  # as if it had not been handed over yet
        assert b.store.get_blocking(key) is None  # it is complete, by its own account
        b._cluster.discard_reports()
        assert b.store.get_blocking(key) == b"v"
        assert b.store.get(key).result(S) == b"v"


def test_what_the_first_replica_lost_is_read_from_the_second() -> None:
    with group(3) as nodes:
        a, b, c = nodes.nodes
        key = nodes.key_of(b, a)
        c.store.append(key, b"v").result(S)
        b._shared.drop(b._shared.digests([key]))
        assert b.synchronised()
        assert c.store.items(key).result(S).items == (b"v",)
        assert c.store.items(key, claim=True).result(S).items == (b"v",)


def test_a_device_that_lost_the_news_of_completion_asks_for_it() -> None:
    with group(3) as nodes:
        nodes.nodes[0]._cluster.discard_reports()
        assert not nodes.nodes[0].synchronised()
        nodes.nodes[0]._handover.resynchronise()
        nodes.wait_synchronised()


def test_replicas_that_differ_are_made_alike() -> None:
    with group(3) as nodes:
        a, b, _ = nodes.nodes
        key = nodes.key_of(a, b)
        a.store.put(key, b"v").result(S)
        a._shared.drop(a._shared.digests([key]))
        for _ in range(4):
            b._handover._sweep()
        assert a.store.get_blocking(key) == b"v"


def test_a_quiet_connection_carries_no_heartbeats_as_presence_says_who_is_there() -> None:
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
