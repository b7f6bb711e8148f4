"""Peers that do not answer, send wrong data, send too much, or use the id of another node."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import ClassVar, TypeVar

import pytest
from google.protobuf.descriptor import ServiceDescriptor

from nearsight.common.clock import SYSTEM_CLOCK, SystemClock
from nearsight.common.errors import DeadlineExceeded, InvalidArgument, Unavailable
from nearsight.common.rpc.client import Channel, Stub
from nearsight.common.rpc.server import RpcServer, ServerSettings
from nearsight.common.rpc.service import CallContext, Service
from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.store import handover
from nearsight.device.peers.store.replica_calls import AdaptiveTimeout
from nearsight.device.peers.store.shared_store import largest_counter
from nearsight.device.peers.store.values import Entry, Register
from nearsight.protos import peers_pb2
from nearsight.protos.peers_pb2 import (
    ClaimMessage,
    EntryMessage,
    OfferRequest,
    OfferResponse,
    PingRequest,
    PingResponse,
    ReadRequest,
    ReadResponse,
    RegisterMessage,
    StampMessage,
    WriteRequest,
    WriteResponse,
)
from support.peer_nodes import Group, group
from support.waiting import LONG_S, wait_until

T = TypeVar("T")

FOR_EVER_S = 600.0
"""A wait longer than the timeout of a test: a test that ends did not wait for it."""
STORE = peers_pb2.DESCRIPTOR.services_by_name["Store"]


class _Presence(Service):
    descriptor: ClassVar[ServiceDescriptor] = peers_pb2.DESCRIPTOR.services_by_name["Peers"]
    own_worker: ClassVar[bool] = True

    def __init__(self, node_id: NodeId) -> None:
        self.node_id = node_id
        self.device_id = "bad"
        self.silent = threading.Event()

    def ping(self, request: PingRequest, context: CallContext) -> PingResponse | Future[PingResponse]:
        if self.silent.is_set():
            return Future()
        return PingResponse(node_id=self.node_id, incarnation=77, device_id=self.device_id)

    def leave(self, request: object, context: CallContext) -> peers_pb2.LeaveResponse:
        return peers_pb2.LeaveResponse()


class _SilentStore(Service):
    """Accepts all calls and never answers."""

    descriptor: ClassVar[ServiceDescriptor] = STORE

    def read(self, request: ReadRequest, context: CallContext) -> Future[ReadResponse]:
        return Future()

    def write(self, request: WriteRequest, context: CallContext) -> Future[WriteResponse]:
        return Future()

    def offer(self, request: OfferRequest, context: CallContext) -> Future[OfferResponse]:
        return Future()


class _LyingStore(Service):
    """Stores nothing; its answers are set by the test."""

    descriptor: ClassVar[ServiceDescriptor] = STORE

    def __init__(self) -> None:
        self.lie: ReadResponse | None = None
        self.refuses = self.deletes = False

    def read(self, request: ReadRequest, context: CallContext) -> ReadResponse:
        return self.lie or ReadResponse(synchronised=True)

    def write(self, request: WriteRequest, context: CallContext) -> WriteResponse:
        refused = [peers_pb2.RefusalMessage(key=entry.key, reason="too large") for entry in request.entries]
        later = StampMessage(counter=largest_counter(time.time()), writer=3)
        newer = [EntryMessage(key=entry.key, cleared=later) for entry in request.entries]
        return WriteResponse(refused=refused if self.refuses else (), newer=newer if self.deletes else ())

    def offer(self, request: OfferRequest, context: CallContext) -> OfferResponse:
        return OfferResponse()


class _BadPeer:
    def __init__(self, node_id: int, store: Service) -> None:
        self.presence = _Presence(NodeId(node_id))
        self.server = RpcServer(
            [self.presence, store], tier="bad", settings=ServerSettings(listen="tcp://127.0.0.1:0")
        )
        self.server.start()

    @property
    def node_id(self) -> NodeId:
        return self.presence.node_id


@contextmanager
def group_with(bad: _BadPeer, count: int = 3, **changes: object) -> Iterator[Group]:
    nodes = Group(**changes)
    try:
        for _ in range(count):
            nodes.add(static=(*(node.endpoint for node in nodes.nodes), bad.server.endpoint))
        everybody = {node.node_id for node in nodes.nodes} | {bad.node_id}

        def complete() -> bool:
            return all(node.route.cluster.view.nodes == everybody for node in nodes.nodes)

        wait_until(complete, what="the nodes and the bad peer as members")
        yield nodes
    finally:
        nodes.stop()
        bad.server.stop(0)


def key_with_first(nodes: Group, first: NodeId) -> Iterator[str]:
    """Keys whose first replica is this node; the first honest node is no replica of them."""
    route = nodes.nodes[0].route
    for number in range(100_000):
        key = f"key {number}"
        replicas = route.nodes_for(key, 2)
        if replicas[0] == first and nodes.nodes[0].node_id not in replicas:
            yield key


def test_a_peer_that_stops_answering_delays_one_read_and_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handover, "QUERY_AFTER_S", 0.1)  # the peer never completes its hand-over
    bad = _BadPeer(5, _SilentStore())
    with group_with(bad, read_timeout_s=FOR_EVER_S, hedge_s=0.1, ping_timeout_s=0.3) as nodes:
        node = nodes.nodes[0]
        found = key_with_first(nodes, bad.node_id)
        missing, key = next(found), next(found)
        bad.presence.silent.set()
        assert node.store.get_blocking(missing) is None
        node.store.put(key, b"v").result(LONG_S)
        wait_until(lambda: bad.node_id not in node.route.cluster.view.nodes, what="the departure of the peer")
        node.store.put(key, b"later").result(LONG_S)
        assert nodes.nodes[1].store.get_blocking(key) == b"later"


def repeated(call: Callable[[], T]) -> T:
    """Repeat a read or write that timed out, as on a machine that stood still."""
    results: list[T] = []

    def succeeds() -> bool:
        with suppress(DeadlineExceeded, Unavailable):
            results.append(call())
        return bool(results)

    wait_until(succeeds, what="a result")
    return results[0]


def test_a_peer_that_only_answers_pings_delays_reads_and_loses_nothing() -> None:
    bad = _BadPeer(5, _SilentStore())
    with group_with(bad, read_timeout_s=1.5, hedge_s=0.1) as nodes:
        node, other = nodes.nodes[:2]
        key = next(key_with_first(nodes, bad.node_id))
        repeated(lambda: node.store.put(key, b"v").result(LONG_S))
        assert repeated(lambda: node.store.get_blocking(key)) == b"v"
        assert repeated(lambda: node.store.get(key).result(LONG_S)) == b"v"
        assert node._calls.links.is_slow(bad.node_id)
        repeated(lambda: node.store.put(key, b"later").result(LONG_S))
        for reader in (node, other):
            assert repeated(lambda reader=reader: reader.store.get_blocking(key)) == b"later"


@pytest.mark.parametrize("waits", [True, False])
def test_after_a_lost_frame_the_next_replica_is_asked_and_no_peer_is_suspected(waits: bool) -> None:
    bad = _BadPeer(5, _SilentStore())
    with group_with(bad, hedge_s=FOR_EVER_S, read_timeout_s=FOR_EVER_S) as nodes:
        node = nodes.nodes[0]
        for _ in range(20):
            node.store._calls.first_timeout.answered(0.001)
        key = next(key_with_first(nodes, bad.node_id))
        other = nodes.by_id(node.route.nodes_for(key, 2)[1])._shared
        other.write(Entry(key, value=Register(b"v", other.stamp())))
        assert (node.store.get_blocking(key) if waits else node.store.get(key).result(LONG_S)) == b"v"
        assert bad.node_id in node.route.cluster.view.nodes


STAMP = StampMessage(counter=1, writer=9)
ABSURD = StampMessage(counter=2**62 - 1, writer=2**64 - 1)
OVER = StampMessage(counter=2**64 - 1, writer=2**64 - 1)


def _register(key: str, stamp: StampMessage) -> EntryMessage:
    return EntryMessage(key=key, register=RegisterMessage(value=b"lie", stamp=stamp))


LIES: dict[str, Callable[[str], ReadResponse]] = {
    "another key": lambda _: ReadResponse(entries=[_register("another", STAMP)], synchronised=True),
    "two keys": lambda key: ReadResponse(
        entries=[_register(key, STAMP), _register(key, STAMP)], synchronised=True
    ),
    "a claim on another key": lambda _: ReadResponse(
        claims=[ClaimMessage(key="another", wait_ms=10**6)], synchronised=True
    ),
    "a stamp far ahead": lambda key: ReadResponse(entries=[_register(key, ABSURD)], synchronised=True),
    "an empty entry": lambda _: ReadResponse(entries=[EntryMessage()], synchronised=True),
}


def test_false_answers_of_a_peer_are_rejected_and_leave_no_trace() -> None:
    store = _LyingStore()
    bad = _BadPeer(5, store)
    with group_with(bad) as nodes:
        node = nodes.nodes[0]
        keys = key_with_first(nodes, bad.node_id)
        for name, lie in LIES.items():
            key = next(keys)
            node.store.put(key, b"true").result(LONG_S)
            store.lie = lie(key)
            assert node.store.get_blocking(key) == b"true", name
            assert node.store.get(key).result(LONG_S) == b"true", name
        assert node._calls.counts.invalid == 2 * len(LIES)
        bad.presence.silent.set()
        bad.server.stop(0)
        wait_until(
            lambda: all(bad.node_id not in each.route.cluster.view.nodes for each in nodes.nodes),
            what="the departure of the bad peer",
        )
        node.store.put(key, b"later").result(LONG_S)
        assert all(each.store.get_blocking(key) == b"later" for each in nodes.nodes)


def test_a_replica_that_denies_its_entries_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AdaptiveTimeout, "LEAST_S", LONG_S)  # a late replica would not be waited for
    bad = _BadPeer(5, _LyingStore())
    with group_with(bad) as nodes:
        node = nodes.nodes[0]
        keys = key_with_first(nodes, bad.node_id)
        value, items, counts = next(keys), next(keys), next(keys)
        node.store.put(value, b"v").result(LONG_S)
        node.store.append(items, b"item").result(LONG_S)
        node.store.merge(counts, {"x": 2}).result(LONG_S)
        assert node.store.get_blocking(value) == node.store.get(value).result(LONG_S) == b"v"
        assert node.store.items(items, claim=True).result(LONG_S).items == (b"item",)
        assert node.store.counts(counts).result(LONG_S) == {"x": 2}
        assert node.store.get_blocking(next(keys)) is None


def test_a_plausible_forged_value_is_replaced_by_the_next_write() -> None:
    store = _LyingStore()
    bad = _BadPeer(5, store)
    with group_with(bad) as nodes:
        node = nodes.nodes[0]
        key = next(key_with_first(nodes, bad.node_id))
        other = next(
            each
            for each in (f"other {number}" for number in range(1000))
            if bad.node_id not in node.route.nodes_for(each, 2)
        )
        stamp = StampMessage(counter=2**31, writer=2**64 - 1)
        with Channel(node.endpoint, client_id="0000000000000005") as channel:
            request = WriteRequest(entries=[_register(other, stamp)], view=1)
            assert not Stub(channel, STORE).write(request, timeout_s=LONG_S).message.refused
        store.lie = ReadResponse(entries=[_register(key, stamp)], synchronised=True)
        assert node.store.get_blocking(key) == b"lie"
        store.lie = None
        wait_until(
            lambda: nodes.nodes[1].store.get_blocking(other) == b"lie",
            what="the forged value on another replica",
        )
        nodes.nodes[1].store.put(other, b"true").result(LONG_S)
        assert node.store.get_blocking(other) == b"true"


def test_the_wait_for_a_claim_is_bounded() -> None:
    store = _LyingStore()
    bad = _BadPeer(5, store)
    with group_with(bad) as nodes:
        node = nodes.nodes[0]
        key = next(key_with_first(nodes, bad.node_id))
        store.lie = ReadResponse(claims=[ClaimMessage(key=key, wait_ms=2**32 - 1)], synchronised=True)
        assert node.store.items(key, claim=True).result(LONG_S).wait_ms <= 2000


def test_a_replica_that_refuses_all_writes_costs_one_copy() -> None:
    store = _LyingStore()
    store.refuses = True
    bad = _BadPeer(5, store)
    with group_with(bad) as nodes:
        node = nodes.nodes[0]
        key = next(key_with_first(nodes, bad.node_id))
        node.store.put(key, b"v").result(LONG_S)
        assert sum(key in each.held_keys() for each in nodes.nodes) == 1


def test_a_merge_ends_although_a_replica_deletes_the_counts_each_time() -> None:
    store = _LyingStore()
    store.deletes = True
    bad = _BadPeer(5, store)
    with group_with(bad) as nodes:
        node = nodes.nodes[0]
        key = next(key_with_first(nodes, bad.node_id))
        with pytest.raises(Unavailable, match="delete"):
            node.store.merge(key, {"x": 1}).result(LONG_S)
        store.deletes = False
        node.store.merge(key, {"y": 1}).result(LONG_S)
        assert node.store.counts(key).result(LONG_S)["y"] == 1


def test_a_long_name_of_a_peer_is_shortened() -> None:
    bad = _BadPeer(5, _SilentStore())
    bad.presence.device_id = "x" * 10**6
    with group_with(bad, count=1) as nodes:
        assert [peer.device_id for peer in nodes.nodes[0].peers()] == ["x" * 200]


def test_invalid_entries_of_a_write_are_refused_and_the_others_stored() -> None:
    with group(2) as nodes, Channel(nodes.nodes[0].endpoint, client_id="stranger") as channel:
        stub = Stub(channel, STORE)
        entries = [
            _register("ahead", ABSURD),
            _register("over", OVER),
            _register("fine", STAMP),
            EntryMessage(key=""),
            EntryMessage(key="no stamp", register=RegisterMessage(value=b"x")),
        ]
        response = stub.write(WriteRequest(entries=entries), timeout_s=LONG_S).message
        assert {refusal.key for refusal in response.refused} == {"ahead", "over", "", "no stamp"}
        for node in nodes.nodes:
            for key in ("ahead", "over", "fine"):
                node.store.put(key, b"mine").result(LONG_S)
                assert node.store.get_blocking(key) == b"mine"
        many = [EntryMessage(key=str(number)) for number in range(2000)]
        with pytest.raises(InvalidArgument):
            stub.write(WriteRequest(entries=many), timeout_s=LONG_S)
        with pytest.raises(InvalidArgument):
            stub.read(ReadRequest(keys=[str(number) for number in range(2000)]), timeout_s=LONG_S)
        with pytest.raises(InvalidArgument):
            stub.read(ReadRequest(keys=[""]), timeout_s=LONG_S)
        with pytest.raises(InvalidArgument):
            stub.offer(OfferRequest(), timeout_s=LONG_S)


def test_a_write_wins_although_the_counter_of_its_device_is_far_behind() -> None:
    with group(2) as nodes:
        ahead, behind = nodes.nodes
        with ahead._shared.lock:
            ahead._shared.stamps.counter = 2**40
        ahead.store.put("k", b"v").result(LONG_S)
        behind.store.put("k", b"later").result(LONG_S)
        assert ahead.store.get_blocking("k") == b"later"


def test_an_entry_with_the_largest_stamp_is_replaced_by_the_next_write() -> None:
    with group(3) as nodes, Channel(nodes.nodes[0].endpoint, client_id="stranger") as channel:
        for number in range(20):
            limit = largest_counter(SYSTEM_CLOCK.wall())
            lie = _register("k", StampMessage(counter=limit, writer=2**64 - 1))
            Stub(channel, STORE).write(WriteRequest(entries=[lie]), timeout_s=LONG_S)
            for node in nodes.nodes:
                node.store.put("k", b"%d" % number).result(LONG_S)
                assert {each.store.get_blocking("k") for each in nodes.nodes} == {b"%d" % number}


class _WrongDate(SystemClock):
    def __init__(self, wall_s: float) -> None:
        self._wall_s = wall_s

    def wall(self) -> float:
        return self._wall_s


def test_devices_with_wrong_dates_share_values() -> None:
    nodes = Group()
    try:
        for wall_s in (0.0, 4_102_444_800.0, time.time()):  # 1970, 2100
            nodes.add(clock=_WrongDate(wall_s))
        nodes.wait_synchronised()
        for number in range(30):
            for node in nodes.nodes:
                value = f"{number} {node.device_id}".encode()
                node.store.put(f"k {number}", value).result(LONG_S)
                node.store.merge(f"c {number}", {"x": 1}).result(LONG_S)
                assert {each.store.get_blocking(f"k {number}") for each in nodes.nodes} == {value}
            assert {each.store.counts(f"c {number}").result(LONG_S)["x"] for each in nodes.nodes} == {3}
    finally:
        nodes.stop()


def test_a_ping_without_a_usable_tcp_address_is_refused() -> None:
    with group(1) as nodes, Channel(nodes.nodes[0].endpoint, client_id="x") as channel:
        peers = Stub(channel, peers_pb2.DESCRIPTOR.services_by_name["Peers"])
        local = ("tcp://127.0.0.1", "tcp://127.0.0.1:\u0668\u0660", "tcp://[::1%\u00e9]:80")
        for endpoint in ("ipc:///tmp/x", "inproc://x", "http://x", "tcp://10.0.0.9:7000", *local):
            with pytest.raises(InvalidArgument):
                peers.ping(PingRequest(node_id=9, endpoint=endpoint, incarnation=1), timeout_s=LONG_S)
