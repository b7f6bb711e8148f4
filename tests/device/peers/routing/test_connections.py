"""Connections to peers: which of them calls take."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from nearsight.device.peers.presence.identity import NodeId
from support.peer_nodes import group

S = 30.0
PATIENT = {"ping_timeout_s": S, "read_timeout_s": S, "departure_s": S}
"""However long this process stands still, no peer is taken for gone."""


def test_after_sleep_a_ping_brings_a_new_connection_and_else_keeps_the_one_that_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with group(2, **PATIENT) as nodes:
        a, b = nodes.nodes
        # Its calls would show that the connection works.
        a._handover.stop()
        monkeypatch.setattr(a._handover, "resynchronise", lambda: None)
        link = a._links._links[b.node_id]
        first = link.channel
        a._ping(b.node_id, b.endpoint).result(S)
        assert link.channel is first
        a._slept()
        a._ping(b.node_id, b.endpoint).result(S)
        assert link.channel is not first
        a.store.put("k", b"v").result(S)
        assert b.store.get_blocking("k") == b"v"


def test_traffic_of_a_peer_that_came_back_goes_on_where_it_was() -> None:
    with group(2, **PATIENT) as nodes:
        a, b = nodes.nodes
        a._ping(b.node_id, b.endpoint).result(S)
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
    with group(2, **PATIENT) as nodes:
        a, b = nodes.nodes
        a._handover.stop()  # it makes calls, too
        monkeypatch.setattr(a._links, "_discovery", SimpleNamespace(heard=heard.append, call_failed=id))
        a.store.put("k", b"v").result(S)
        before = len(heard)
        a._links.mark_slow(b.node_id)
        a.store.put("k", b"w").result(S)
    assert heard[before:] == [b.node_id]
