"""With keys, ids are authenticated, and devices without an allowed key cannot join."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearsight.common.errors import ConfigurationError, Unauthenticated
from nearsight.common.rpc.allow_list import allow_client
from nearsight.common.rpc.client import Channel, Stub
from nearsight.common.rpc.security import ClientSecurity, generate_keys
from nearsight.device.peers.node import PeerNode
from nearsight.device.peers.presence.identity import node_id_of_key, shown
from nearsight.device.peers.settings import PeerSettings
from nearsight.device.peers.store.values import Register
from nearsight.protos import peers_pb2
from nearsight.protos.peers_pb2 import OfferRequest, PingRequest
from support.peer_nodes import fast_settings, wait_synchronised
from support.waiting import LONG_S, wait_until

STORE = peers_pb2.DESCRIPTOR.services_by_name["Store"]


@pytest.fixture
def identities(tmp_path: Path) -> Path:
    for name in ("a", "b", "stranger"):
        generate_keys(tmp_path, name)
    for name in ("a", "b"):
        allow_client(tmp_path / f"{name}.key", tmp_path / "allowed")
    return tmp_path


def with_keys(folder: Path, name: str, static: tuple[str, ...] = ()) -> PeerSettings:
    return fast_settings(
        secret_key_file=folder / f"{name}.key_secret", allowed=folder / "allowed", static=static
    )


def test_ids_follow_from_keys_and_nodes_without_an_allowed_key_cannot_join(identities: Path) -> None:
    a = PeerNode(with_keys(identities, "a"), device_id="a")
    a.start()
    b = PeerNode(with_keys(identities, "b", (f"a@{a.endpoint}",)), device_id="b")
    b.start()
    stranger = PeerNode(with_keys(identities, "stranger", (f"a@{a.endpoint}",)), device_id="s")
    stranger.start()
    try:
        wait_synchronised((a, b))
        a.store.put("k", b"v").result(LONG_S)
        assert b.store.get_blocking("k") == b"v"
        assert [peer.node_id for peer in a.peers()] == [b.node_id]
        assert stranger.store.get_blocking("k") is None
        assert not stranger.peers()
    finally:
        for node in (a, b, stranger):
            node.stop(0)


def test_a_device_that_restarts_with_the_same_id_gets_its_entries_again(identities: Path) -> None:
    a = PeerNode(with_keys(identities, "a"), device_id="a")
    a.start()
    static = (f"a@{a.endpoint}",)
    b = PeerNode(with_keys(identities, "b", static), device_id="b")
    b.start()
    try:
        wait_synchronised((a, b))
        for number in range(50):
            b.store.put(f"k {number}", b"v").result(LONG_S)
        b.store.merge("c", {"x": 5}).result(LONG_S)
        endpoint, node_id, incarnation = b.endpoint, b.node_id, b.identity.incarnation
        b.stop(0)
        again = with_keys(identities, "b", static).model_copy(update={"listen": endpoint})
        b = PeerNode(again, device_id="b")
        b.start()
        assert b.node_id == node_id and b.identity.incarnation != incarnation
        wait_until(lambda: len(b.held_keys()) == 51 and b.synchronised() and a.synchronised())
        b.store.merge("c", {"x": 1}).result(LONG_S)
        a.store.put("k 0", b"later").result(LONG_S)
        assert a.store.counts("c").result(LONG_S) == b.store.counts("c").result(LONG_S) == {"x": 6}
        assert b.store.get_blocking("k 0") == b"later"
    finally:
        a.stop(0)
        b.stop(0)


def test_a_peer_cannot_use_the_id_of_another(identities: Path) -> None:
    a = PeerNode(with_keys(identities, "a"), device_id="a")
    a.start()
    security = ClientSecurity(identities / "b.key_secret", identities / "a.key")
    try:
        with Channel(a.endpoint, client_id="impostor", security=security) as channel:
            peers = Stub(channel, peers_pb2.DESCRIPTOR.services_by_name["Peers"])
            with pytest.raises(Unauthenticated, match=shown(123)):
                peers.ping(PingRequest(node_id=123, endpoint="tcp://127.0.0.1:1"), timeout_s=LONG_S)
            with pytest.raises(Unauthenticated):
                peers.leave(peers_pb2.LeaveRequest(node_id=int(a.node_id)), timeout_s=LONG_S)
            with pytest.raises(Unauthenticated):
                Stub(channel, STORE).offer(OfferRequest(node_id=123, complete=True), timeout_s=LONG_S)
            own = node_id_of_key((identities / "b.key").read_text().split('"')[1])
            assert peers.ping(PingRequest(node_id=int(own)), timeout_s=LONG_S).message.node_id == a.node_id
    finally:
        a.stop(0)


def test_a_device_whose_key_is_forbidden_is_no_peer_any_more_although_it_answers(identities: Path) -> None:
    for name in ("a", "b"):
        allow_client(identities / f"{name}.key", identities / "allowed by a")
    settings = with_keys(identities, "a").model_copy(update={"allowed": identities / "allowed by a"})
    a = PeerNode(settings, device_id="a")
    a.start()
    b = PeerNode(with_keys(identities, "b", (f"a@{a.endpoint}",)), device_id="b")
    b.start()
    try:
        wait_synchronised((a, b))
        (identities / "allowed by a" / "b.key").unlink()

        def alone() -> bool:
            a.store.put("k", b"v").result(LONG_S)
            return a.route.cluster.view.nodes == {a.node_id}

        wait_until(alone, what="the forbidden device is dropped")
        a.store.put("k", b"later").result(LONG_S)
        entry = b._shared.read("k")
        assert entry is not None and isinstance(entry.value, Register) and entry.value.value == b"v"
    finally:
        a.stop(0)
        b.stop(0)


def test_a_folder_of_allowed_keys_without_an_own_key_is_refused(identities: Path) -> None:
    settings = fast_settings().model_copy(update={"allowed": identities / "allowed"})
    with pytest.raises(ConfigurationError, match="no key of its own"):
        PeerNode(settings, device_id="x")


def test_listening_beyond_loopback_needs_keys() -> None:
    with pytest.raises(ConfigurationError, match="needs keys"):
        PeerNode(fast_settings(listen="tcp://0.0.0.0:0"), device_id="x")
