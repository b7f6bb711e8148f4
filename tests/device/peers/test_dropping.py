"""A device that is no replica of a key lets its copy go only once the replicas are sure to have it."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from nearsight.common.rpc.client import Reply
from nearsight.device.peers.node import PeerNode
from nearsight.device.peers.routing.cluster_view import View
from nearsight.device.peers.store.handover import SWEEP_TURNS
from nearsight.device.peers.store.values import Entry, Register
from support.peer_nodes import group


def give_a_copy(node: PeerNode, key: str) -> None:
    shared = node._shared
    assert shared.write(Entry(key, value=Register(b"v", shared.stamp())))[1] is None


def compare_all(node: PeerNode) -> None:
    for _ in range(SWEEP_TURNS):
        node._handover._sweep()


def test_a_copy_is_dropped_once_all_replicas_have_it() -> None:
    with group(3) as nodes:
        a, b, c = nodes.nodes
        key = nodes.key_of(a, b)
        give_a_copy(c, key)
        compare_all(c)
        assert [key in node.held_keys() for node in (a, b, c)] == [True, True, False]


def test_a_copy_that_one_replica_refused_is_kept() -> None:
    with group(3) as nodes:
        a, b, c = nodes.nodes
        key = nodes.key_of(a, b)
        store = b._shared.entries
        store._limits = replace(store._limits, max_keys=0)
        give_a_copy(c, key)
        compare_all(c)
        assert [key in node.held_keys() for node in (a, b, c)] == [True, False, True]


def test_a_copy_is_kept_if_its_replica_went_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    with group(2, replicas=1) as nodes:
        goes, stays = nodes.nodes
        key = nodes.key_of(goes)
        give_a_copy(stays, key)
        call = stays._links.call

        def call_and_lose(*args: Any, **kwargs: Any) -> Future[Reply]:
            answer = call(*args, **kwargs)
            stays._cluster.update(View.of(stays.node_id, stays.identity.incarnation, ()))
            return answer

        monkeypatch.setattr(stays._links, "call", call_and_lose)
        compare_all(stays)
        assert key in stays.held_keys()
