"""Connections to peers: renewal, traffic counters and slow peers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from nearsight.device.peers.presence.identity import NodeId
from support.peer_nodes import group
from support.waiting import LONG_S


def test_a_ping_renews_the_connection_only_after_a_suspension(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with group(2) as nodes:
        a, b = nodes.nodes
        # Calls of the hand-over would confirm the connection.
        a._handover.stop()
        monkeypatch.setattr(a._handover, "resynchronise", lambda: None)
        link = a._links._links[b.node_id]
        first = link.channel
        a._ping(b.node_id, b.endpoint).result(LONG_S)
        assert link.channel is first
        a._slept()
        a._ping(b.node_id, b.endpoint).result(LONG_S)
        assert link.channel is not first
        a.store.put("k", b"v").result(LONG_S)
        assert b.store.get_blocking("k") == b"v"


def test_traffic_counters_continue_when_a_peer_returns() -> None:
    with group(2) as nodes:
        a, b = nodes.nodes
        a._ping(b.node_id, b.endpoint).result(LONG_S)
        before = a._traffic.of(b.node_id)
        endpoint = a._links._links[b.node_id].endpoint
        for channel in a._links.update([]):
            channel.close()
        assert a._traffic.of(b.node_id).sent_bytes >= before.sent_bytes > 0
        a._links.update([(b.node_id, endpoint)])
        a._ping(b.node_id, b.endpoint).result(LONG_S)
        assert a._traffic.of(b.node_id).sent_bytes > before.sent_bytes


def test_the_answer_of_a_slow_peer_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[NodeId] = []
    with group(2) as nodes:
        a, b = nodes.nodes
        a._handover.stop()  # it makes calls as well
        monkeypatch.setattr(a._links, "_discovery", SimpleNamespace(heard=heard.append, call_failed=id))
        a.store.put("k", b"v").result(LONG_S)
        before = len(heard)
        a._links.mark_slow(b.node_id)
        a.store.put("k", b"w").result(LONG_S)
    assert heard[before:] == [b.node_id]
