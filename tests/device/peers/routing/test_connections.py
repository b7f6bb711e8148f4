"""Connections to peers: which of them calls take."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from nearsight.device.peers.presence.identity import NodeId
from support.peer_nodes import group

S = 30.0


def test_after_sleep_a_ping_brings_a_new_connection_and_else_keeps_the_one_that_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with group(2) as nodes:
        a, b = nodes.nodes
        link = a._links._links[b.node_id]
        first = link.channel
        a._ping(b.node_id, b.endpoint).result(S)
        assert link.channel is first
        # Its calls would show that the connection works.
        monkeypatch.setattr(a._handover, "resynchronise", lambda: None)
        a._slept()
        a._ping(b.node_id, b.endpoint).result(S)
        assert link.channel is not first
        a.store.put("k", b"v").result(S)
        assert b.store.get_blocking("k") == b"v"


def test_traffic_of_a_peer_that_came_back_goes_on_where_it_was() -> None:
    with group(2) as nodes:
        a, b = nodes.nodes
        before = a._traffic.of(b.node_id)
        endpoint = a._links._links[b.node_id].endpoint
        for channel in a._links.update([]):
            channel.close()
        assert a._traffic.of(b.node_id).sent_bytes >= before.sent_bytes > 0
        a._links.update([(b.node_id, endpoint)])
        a._ping(b.node_id, b.endpoint).result(S)
        assert a._traffic.of(b.node_id).sent_bytes > before.sent_bytes


def test_that_a_slow_peer_answered_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[NodeId] = []
    with group(2) as nodes:
        a, b = nodes.nodes
        monkeypatch.setattr(a._links, "_discovery", SimpleNamespace(heard=heard.append, call_failed=id))
        a.store.put("k", b"v").result(S)
        before = len(heard)
        a._links.mark_slow(b.node_id)
        a.store.put("k", b"w").result(S)
    assert heard[before:] == [b.node_id]
