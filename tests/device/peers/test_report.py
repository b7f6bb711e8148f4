"""Reports of a device about its peers."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from google.protobuf.descriptor import MethodDescriptor

from nearsight.common.errors import InvalidMessage
from nearsight.common.rpc.client import Reply
from nearsight.device.peers.node import PING
from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.report import PeersReport, PeerStatus, report_from_proto, report_to_proto
from nearsight.protos import peers_pb2
from support.peer_nodes import group
from support.waiting import LONG_S, wait_until


def test_a_report_survives_the_wire() -> None:
    peer = PeerStatus(NodeId(9), "b", "tcp://127.0.0.1:2", "live", 0.5, 9.0, 3, 400, 2, 1000, 2000, 1.5)
    report = PeersReport(NodeId(8), "a", "tcp://127.0.0.1:1", (peer,), (("reads", "5"), ("writes", "6")))
    assert report_from_proto(report_to_proto(report)) == report


def test_a_report_without_node_ids_is_refused() -> None:
    with pytest.raises(InvalidMessage):
        report_from_proto(peers_pb2.PeersReport())
    with pytest.raises(InvalidMessage):
        report_from_proto(peers_pb2.PeersReport(node_id=1, peers=[peers_pb2.PeerMessage()]))


def test_a_report_contains_the_last_answer_of_a_silent_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    with group(2) as nodes:
        a, _ = nodes.nodes
        call = a._links.call

        def without_pongs(
            node: NodeId, method: MethodDescriptor, *args: Any, **options: Any
        ) -> Future[Reply]:
            return Future() if method is PING else call(node, method, *args, **options)

        with monkeypatch.context() as silent:
            silent.setattr(a._links, "call", without_pongs)
            assert a.report().peers[0].keys == 0
        a.store.put("k", b"v").result(LONG_S)
        wait_until(lambda: a.report().peers[0].keys == 1, what="another query of the peer")
        monkeypatch.setattr(a._links, "call", without_pongs)
        monkeypatch.setattr(a, "_queried_s", float("-inf"))
        assert a.report().peers[0].keys == 1


def test_a_report_contains_the_entries_and_traffic_of_each_peer() -> None:
    with group(2) as nodes:
        a, b = nodes.nodes
        for number in range(10):
            a.store.put(f"k {number}", bytes(100)).result(LONG_S)

        report = a.report()  # queries the peers first
        assert report.peers[0].keys == 10
        (peer,) = report.peers
        assert (peer.node_id, peer.device_id, peer.endpoint, peer.state) == (
            b.node_id,
            "d1",
            b.endpoint,
            "live",
        )
        assert peer.sent_bytes > 10 * 100 and peer.received_bytes > 0 and peer.store_bytes > 10 * 100
        assert peer.round_trip_ms > 0 and peer.present_s >= 0
        facts = dict(report.facts)
        assert facts["writes"] == "10, 0 copies refused by devices" and facts["holds"].startswith("10 keys")
