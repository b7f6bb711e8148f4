"""Peers that do not answer, lie, flood or claim to be somebody else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import ClassVar

import pytest
from google.protobuf.descriptor import ServiceDescriptor

from nearsight.common.clock import SYSTEM_CLOCK, SystemClock
from nearsight.common.errors import InvalidArgument
from nearsight.common.rpc.client import Channel, Stub
from nearsight.common.rpc.server import RpcServer, ServerSettings
from nearsight.common.rpc.service import CallContext, Service
from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.store.shared_store import largest_counter
from nearsight.device.peers.store.values import Entry, Register
from nearsight.protos import peers_pb2
from nearsight.protos.peers_pb2 import (
    ClaimMessage,
    ContributionMessage,
    CountersMessage,
    EntryMessage,
    ListItemMessage,
    ListMessage,
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
from support.waiting import wait_until

S = 30.0
FOR_EVER_S = 600.0
"""A wait that no test survives: who ends, did not wait for it."""
STORE = peers_pb2.DESCRIPTOR.services_by_name["Store"]


class _Presence(Service):
    descriptor: ClassVar[ServiceDescriptor] = peers_pb2.DESCRIPTOR.services_by_name["Peers"]
    own_worker: ClassVar[bool] = True

    def __init__(self, node_id: NodeId) -> None:
        self.node_id = node_id
        self.silent = threading.Event()

    def ping(self, request: PingRequest, context: CallContext) -> PingResponse | Future[PingResponse]:
        if self.silent.is_set():
            return Future()
        return PingResponse(node_id=self.node_id, incarnation=77, device_id="bad")

    def leave(self, request: object, context: CallContext) -> peers_pb2.LeaveResponse:
        return peers_pb2.LeaveResponse()


class _SilentStore(Service):
    """Accepts every call and never answers."""

    descriptor: ClassVar[ServiceDescriptor] = STORE

    def read(self, request: ReadRequest, context: CallContext) -> Future[ReadResponse]:
        return Future()

    def write(self, request: WriteRequest, context: CallContext) -> Future[WriteResponse]:
        return Future()

    def offer(self, request: OfferRequest, context: CallContext) -> Future[OfferResponse]:
        return Future()


class _LyingStore(Service):
    """Takes nothing and answers what it likes."""

    descriptor: ClassVar[ServiceDescriptor] = STORE

    def __init__(self) -> None:
        self.lie: ReadResponse | None = None
        self.refuses = False

    def read(self, request: ReadRequest, context: CallContext) -> ReadResponse:
        return self.lie or ReadResponse(synchronised=True)

    def write(self, request: WriteRequest, context: CallContext) -> WriteResponse:
        refused = [peers_pb2.RefusalMessage(key=entry.key, reason="too large") for entry in request.entries]
        return WriteResponse(refused=refused if self.refuses else ())

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

        wait_until(complete, what="all see each other and the bad peer")
        yield nodes
    finally:
        nodes.stop()
        bad.server.stop(0)


def key_with_first(nodes: Group, first: NodeId) -> Iterator[str]:
    """Keys that this node is responsible for first, and the first honest node is not at all."""
    route = nodes.nodes[0].route
    for number in range(100_000):
        key = f"key {number}"
        replicas = route.nodes_for(key, 2)
        if replicas[0] == first and nodes.nodes[0].node_id not in replicas:
            yield key


def test_a_peer_that_stops_answering_costs_one_short_wait_and_is_then_gone() -> None:
    bad = _BadPeer(5, _SilentStore())
    with group_with(bad, read_timeout_s=FOR_EVER_S) as nodes:
        node = nodes.nodes[0]
        found = key_with_first(nodes, bad.node_id)
        missing, key = next(found), next(found)
        bad.presence.silent.set()
        assert node.store.get_blocking(missing) is None
        node.store.put(key, b"v").result(S)
        wait_until(lambda: bad.node_id not in node.route.cluster.view.nodes, what="the peer is gone")
        node.store.put(key, b"later").result(S)
        assert nodes.nodes[1].store.get_blocking(key) == b"later"


def test_a_peer_that_answers_pings_alone_delays_reads_a_little_and_loses_nothing() -> None:
    bad = _BadPeer(5, _SilentStore())
    with group_with(bad, read_timeout_s=1.5) as nodes:
        node = nodes.nodes[0]
        key = next(key_with_first(nodes, bad.node_id))
        node.store.put(key, b"v").result(S)
        for read in (node.store.get_blocking, lambda key: node.store.get(key).result(S)):
            assert read(key) == b"v"
        assert node.store._calls.links.is_slow(bad.node_id)
        node.store.put(key, b"later").result(S)
        assert node.store.get_blocking(key) == nodes.nodes[1].store.get_blocking(key) == b"later"


@pytest.mark.parametrize("waits", [True, False])
def test_a_lost_frame_costs_as_long_as_answers_take_and_nobody_is_doubted(waits: bool) -> None:
    bad = _BadPeer(5, _SilentStore())
    with group_with(bad, hedge_s=FOR_EVER_S, read_timeout_s=FOR_EVER_S) as nodes:
        node = nodes.nodes[0]
        for _ in range(20):
            node.store._calls.first_timeout.answered(0.001)
        key = next(key_with_first(nodes, bad.node_id))
        other = nodes.by_id(node.route.nodes_for(key, 2)[1])._shared
        other.write(Entry(key, value=Register(b"v", other.stamp())))
        assert (node.store.get_blocking(key) if waits else node.store.get(key).result(S)) == b"v"
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
    "a stamp over the end": lambda key: ReadResponse(entries=[_register(key, OVER)], synchronised=True),
    "deleted for ever": lambda key: ReadResponse(
        entries=[EntryMessage(key=key, cleared=ABSURD)], synchronised=True
    ),
    "an absurd list": lambda key: ReadResponse(
        entries=[
            EntryMessage(key=key, list=ListMessage(items=[ListItemMessage(value=b"lie", stamp=ABSURD)]))
        ],
        synchronised=True,
    ),
    "an absurd count": lambda key: ReadResponse(
        entries=[
            EntryMessage(
                key=key,
                counters=CountersMessage(
                    contributions=[ContributionMessage(contributor=1, began=STAMP, counts={"x": 2**64 - 1})]
                ),
            )
        ],
        synchronised=True,
    ),
    "nothing at all": lambda _: ReadResponse(entries=[EntryMessage()], synchronised=True),
}


def test_a_peer_that_lies_about_keys_is_passed_over_and_nothing_of_it_stays() -> None:
    store = _LyingStore()
    bad = _BadPeer(5, store)
    with group_with(bad) as nodes:
        node = nodes.nodes[0]
        keys = key_with_first(nodes, bad.node_id)
        for name, lie in LIES.items():
            key = next(keys)
            node.store.put(key, b"true").result(S)
            store.lie = lie(key)
            assert node.store.get_blocking(key) == b"true", name
            assert node.store.get(key).result(S) == b"true", name
        assert node._calls.counts.invalid == 2 * len(LIES)
        bad.presence.silent.set()
        bad.server.stop(0)
        wait_until(
            lambda: all(bad.node_id not in each.route.cluster.view.nodes for each in nodes.nodes),
            what="the liar is gone",
        )
        node.store.put(key, b"later").result(S)
        assert all(each.store.get_blocking(key) == b"later" for each in nodes.nodes)


def test_a_peer_that_denies_what_it_should_hold_hides_nothing() -> None:
    bad = _BadPeer(5, _LyingStore())
    with group_with(bad) as nodes:
        node = nodes.nodes[0]
        keys = key_with_first(nodes, bad.node_id)
        value, items, counts = next(keys), next(keys), next(keys)
        node.store.put(value, b"v").result(S)
        node.store.append(items, b"item").result(S)
        node.store.merge(counts, {"x": 2}).result(S)
        assert node.store.get_blocking(value) == node.store.get(value).result(S) == b"v"
        assert node.store.items(items, claim=True).result(S).items == (b"item",)
        assert node.store.counts(counts).result(S) == {"x": 2}
        assert node.store.get_blocking(next(keys)) is None


def test_a_lie_that_could_be_true_wins_until_the_next_write_and_no_longer() -> None:
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
            assert not Stub(channel, STORE).write(request, timeout_s=S).message.refused
        store.lie = ReadResponse(entries=[_register(key, stamp)], synchronised=True)
        assert node.store.get_blocking(key) == b"lie"
        store.lie = None
        wait_until(lambda: nodes.nodes[1].store.get_blocking(other) == b"lie", what="the lie is handed on")
        nodes.nodes[1].store.put(other, b"true").result(S)
        assert node.store.get_blocking(other) == b"true"


def test_nobody_is_made_to_wait_for_long() -> None:
    store = _LyingStore()
    bad = _BadPeer(5, store)
    with group_with(bad) as nodes:
        node = nodes.nodes[0]
        key = next(key_with_first(nodes, bad.node_id))
        store.lie = ReadResponse(claims=[ClaimMessage(key=key, wait_ms=2**32 - 1)], synchronised=True)
        assert node.store.items(key, claim=True).result(S).wait_ms <= 2000


def test_a_peer_that_refuses_everything_costs_one_copy_and_no_more() -> None:
    store = _LyingStore()
    store.refuses = True
    bad = _BadPeer(5, store)
    with group_with(bad) as nodes:
        node = nodes.nodes[0]
        key = next(key_with_first(nodes, bad.node_id))
        node.store.put(key, b"v").result(S)
        assert sum(key in each.held_keys() for each in nodes.nodes) == 1


def test_absurd_writes_are_refused_one_by_one_and_do_no_harm() -> None:
    with group(2) as nodes, Channel(nodes.nodes[0].endpoint, client_id="stranger") as channel:
        stub = Stub(channel, STORE)
        entries = [
            _register("ahead", ABSURD),
            _register("over", OVER),
            _register("fine", STAMP),
            EntryMessage(key=""),
            EntryMessage(key="no stamp", register=RegisterMessage(value=b"x")),
        ]
        response = stub.write(WriteRequest(entries=entries), timeout_s=S).message
        assert {refusal.key for refusal in response.refused} == {"ahead", "over", "", "no stamp"}
        for node in nodes.nodes:
            for key in ("ahead", "over", "fine"):
                node.store.put(key, b"mine").result(S)
                assert node.store.get_blocking(key) == b"mine"
        many = [EntryMessage(key=str(number)) for number in range(2000)]
        with pytest.raises(InvalidArgument):
            stub.write(WriteRequest(entries=many), timeout_s=S)
        with pytest.raises(InvalidArgument):
            stub.read(ReadRequest(keys=[str(number) for number in range(2000)]), timeout_s=S)
        with pytest.raises(InvalidArgument):
            stub.read(ReadRequest(keys=[""]), timeout_s=S)
        with pytest.raises(InvalidArgument):
            stub.offer(OfferRequest(), timeout_s=S)


def test_a_device_whose_counter_is_far_behind_is_not_left_behind() -> None:
    with group(2) as nodes:
        ahead, behind = nodes.nodes
        with ahead._shared.lock:
            ahead._shared.stamps.counter = 2**40
        ahead.store.put("k", b"v").result(S)
        behind.store.put("k", b"later").result(S)
        assert ahead.store.get_blocking("k") == b"later"


def test_a_peer_that_goes_to_the_limit_of_stamps_wins_until_the_next_write() -> None:
    with group(3) as nodes, Channel(nodes.nodes[0].endpoint, client_id="stranger") as channel:
        for number in range(20):
            limit = largest_counter(SYSTEM_CLOCK.wall())
            lie = _register("k", StampMessage(counter=limit, writer=2**64 - 1))
            Stub(channel, STORE).write(WriteRequest(entries=[lie]), timeout_s=S)
            for node in nodes.nodes:
                node.store.put("k", b"%d" % number).result(S)
                assert {each.store.get_blocking("k") for each in nodes.nodes} == {b"%d" % number}


class _WrongDate(SystemClock):
    def __init__(self, wall_s: float) -> None:
        self._wall_s = wall_s

    def wall(self) -> float:
        return self._wall_s


def test_devices_with_wrong_dates_share_like_others() -> None:
    nodes = Group()
    try:
        for wall_s in (0.0, 4_102_444_800.0, time.time()):  # 1970, 2100
            nodes.add(clock=_WrongDate(wall_s))
        nodes.wait_synchronised()
        for number in range(30):
            for node in nodes.nodes:
                value = f"{number} {node.device_id}".encode()
                node.store.put(f"k {number}", value).result(S)
                node.store.merge(f"c {number}", {"x": 1}).result(S)
                assert {each.store.get_blocking(f"k {number}") for each in nodes.nodes} == {value}
            assert {each.store.counts(f"c {number}").result(S)["x"] for each in nodes.nodes} == {3}
    finally:
        nodes.stop()


def test_an_introduction_with_no_address_or_without_keys_of_another_machine_is_refused() -> None:
    with group(1) as nodes, Channel(nodes.nodes[0].endpoint, client_id="x") as channel:
        peers = Stub(channel, peers_pb2.DESCRIPTOR.services_by_name["Peers"])
        for endpoint in ("ipc:///tmp/x", "inproc://x", "tcp://127.0.0.1", "http://x", "tcp://10.0.0.9:7000"):
            with pytest.raises(InvalidArgument):
                peers.ping(PingRequest(node_id=9, endpoint=endpoint, incarnation=1), timeout_s=S)
