"""More entries and requests than a device can process: limits hold, and refusals are errors."""

from __future__ import annotations

import pytest

from nearsight.common.errors import NearsightError, Overloaded
from nearsight.common.rpc.client import Channel, Stub
from nearsight.protos import peers_pb2
from nearsight.protos.peers_pb2 import EntryMessage, PingRequest, RegisterMessage, StampMessage, WriteRequest
from support.peer_nodes import group
from support.waiting import LONG_S, wait_until

STORE = peers_pb2.DESCRIPTOR.services_by_name["Store"]
PEERS = peers_pb2.DESCRIPTOR.services_by_name["Peers"]


STAMP = StampMessage(counter=1, writer=9)


def test_a_flood_of_puts_is_bounded_and_ends_in_values_or_errors() -> None:
    with group(3, max_keys=200, memory_bytes=200_000) as nodes:
        node = nodes.nodes[0]
        puts = [node.store.put(f"flood {number}", bytes(500)) for number in range(1000)]
        outcomes = [put.exception(LONG_S) for put in puts]
        assert all(error is None or isinstance(error, NearsightError) for error in outcomes)
        assert any(error is None for error in outcomes)
        for each in nodes.nodes:
            assert len(each._shared.entries) <= 200
            assert each._shared.entries.size_bytes <= 200_000
        nodes.wait_synchronised()
        node.store.put("after", b"v").result(LONG_S)
        assert nodes.nodes[2].store.get_blocking("after") == b"v"


def test_synchronising_full_devices_evicts_nothing() -> None:
    with group(3, max_keys=100) as nodes:
        puts = [nodes.nodes[0].store.put(f"k {number}", bytes(50)) for number in range(400)]
        for put in puts:
            put.exception(LONG_S)
        before = [node._shared.entries.counts.evicted for node in nodes.nodes]
        for _ in range(4):
            for node in nodes.nodes:
                node._handover._sweep()
        assert [node._shared.entries.counts.evicted for node in nodes.nodes] == before


def test_an_entry_that_a_full_device_evicted_is_read_from_the_other_replica() -> None:
    with group(3, max_keys=200) as nodes:
        a, b, c = nodes.nodes
        key = nodes.key_of(a, b)
        c.store.put(key, b"v").result(LONG_S)
        a._shared.drop(a._shared.digests([key]))
        assert a.store.get_blocking(key) is None  # the node does not know that it lost entries
        a._shared.lossy = True
        assert a.store.get_blocking(key) == b"v"


def test_a_copy_that_a_full_device_refuses_is_counted_at_the_writer() -> None:
    with group(1) as nodes:
        writer, full = nodes.nodes[0], nodes.add(memory_bytes=0)
        nodes.wait_synchronised()
        writer.store.put("k", b"v").result(LONG_S)
        assert writer.held_keys() == ("k",) and full.held_keys() == ()
        assert dict(writer.report().facts)["writes"] == "1, 1 copies refused by devices"
        nodes.leave(writer)
        with pytest.raises(Overloaded):
            full.store.put("k", b"v").result(LONG_S)


def test_a_device_answers_pings_while_its_store_is_flooded() -> None:
    with group(1) as nodes, Channel(nodes.nodes[0].endpoint, client_id="flood") as channel:
        entry = EntryMessage(key="k", register=RegisterMessage(value=b"v", stamp=STAMP))
        write, ping = Stub(channel, STORE).write, Stub(channel, PEERS).ping
        with nodes.nodes[0]._shared.lock:  # writes block
            calls = [write.future(WriteRequest(entries=[entry]), timeout_s=LONG_S) for _ in range(20)]
            assert ping(PingRequest(), timeout_s=LONG_S).message.node_id == nodes.nodes[0].node_id
        for call in calls:
            call.result(LONG_S)


def test_calls_beyond_the_queue_limit_are_answered_overloaded() -> None:
    with group(1) as nodes, Channel(nodes.nodes[0].endpoint, client_id="flood") as channel:
        entry = EntryMessage(key="k", register=RegisterMessage(value=b"v", stamp=STAMP))
        write = Stub(channel, STORE).write
        with nodes.nodes[0]._shared.lock:  # writes block
            calls = [write.future(WriteRequest(entries=[entry]), timeout_s=LONG_S) for _ in range(1000)]
            wait_until(lambda: sum(call.done() for call in calls) > 700, what="refusals of most calls")
        errors = [call.exception(LONG_S) for call in calls]
        assert all(error is None or isinstance(error, Overloaded) for error in errors)
        assert any(error is None for error in errors)
        assert nodes.nodes[0].store.get_blocking("k") == b"v"
