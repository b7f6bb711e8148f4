"""What a node's answer says about a key, and answers that say something else."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from nearsight.common.clock import ManualClock
from nearsight.common.errors import InvalidMessage
from nearsight.common.rpc.client import Reply
from nearsight.device.peers.settings import PeerSettings
from nearsight.device.peers.store.replica_calls import ReplicaCalls
from nearsight.device.peers.store.shared_store import SharedStore
from nearsight.device.peers.store.stamps import Stamp
from nearsight.device.peers.store.values import Entry
from nearsight.protos.peers_pb2 import (
    ClaimMessage,
    EntryMessage,
    ReadResponse,
    RefusalMessage,
    StampMessage,
    WriteResponse,
)


def deleted(key: str) -> EntryMessage:
    return EntryMessage(key=key, cleared=StampMessage(counter=7, writer=1))


@pytest.fixture
def calls() -> ReplicaCalls:
    nobody: Any = SimpleNamespace(connections=None)
    clock, settings = ManualClock(), PeerSettings()
    service: Any = SimpleNamespace(shared=SharedStore(settings, 3, clock))
    return ReplicaCalls(nobody, service, settings, clock, nobody, random.Random(1))


def reply(message: ReadResponse | WriteResponse) -> Reply:
    return Reply(message, (), (), 0, 0)


@pytest.mark.parametrize(
    "answer",
    [
        WriteResponse(newer=[deleted("another")]),
        WriteResponse(newer=[deleted("k"), deleted("another")]),
        WriteResponse(refused=[RefusalMessage(key="another", reason="full")]),
    ],
    ids=["newer", "newer beside", "refused"],
)
def test_an_answer_to_a_write_about_another_key_is_a_lie(calls: ReplicaCalls, answer: WriteResponse) -> None:
    with pytest.raises(InvalidMessage):
        calls.newer_of("k", reply(answer))
    assert calls.counts.lies == 1


@pytest.mark.parametrize(
    "answer",
    [
        ReadResponse(entries=[deleted("another")]),
        ReadResponse(entries=[deleted("k"), deleted("k")]),
        ReadResponse(claims=[ClaimMessage(key="another", wait_ms=5)]),
    ],
    ids=["entry", "twice", "claim"],
)
def test_an_answer_to_a_read_about_another_key_is_a_lie(calls: ReplicaCalls, answer: ReadResponse) -> None:
    with pytest.raises(InvalidMessage):
        calls.answer_of("k", reply(answer))
    assert calls.counts.lies == 1


def test_what_a_node_knows_better_and_why_it_refused_are_told(calls: ReplicaCalls) -> None:
    newer, _ = calls.newer_of("k", reply(WriteResponse(newer=[deleted("k")])))
    assert newer == [Entry("k", cleared=Stamp(7, 1), renewed=Stamp(7, 1))]
    refused = WriteResponse(refused=[RefusalMessage(key="k", reason="full")])
    assert calls.newer_of("k", reply(refused)) == ([], "full")
