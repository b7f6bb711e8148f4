"""The key-value store over real connections, without faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from nearsight.common.errors import Cancelled, InvalidArgument, Unavailable
from nearsight.device.peers import node as node_module
from nearsight.device.peers.node import PeerNode
from nearsight.device.peers.store import shared_store
from nearsight.device.peers.store.kvstore import ItemsRead, KVStore
from nearsight.device.peers.store.replica_calls import AdaptiveTimeout
from nearsight.device.peers.store.values import Entry, Register
from support.peer_nodes import Group, group, split
from support.waiting import LONG_S, wait_until


@pytest.fixture(scope="module")
def three() -> Iterator[Group]:
    """Three nodes whose claims outlast every test, and which take no busy node for a slow one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_store, "CLAIM_LEASE_S", 600.0)
        patch.setattr(AdaptiveTimeout, "LEAST_S", LONG_S)
        with group(3) as nodes:
            yield nodes


def test_a_value_is_read_by_all_devices(three: Group) -> None:
    a, b, c = three.nodes
    a.store.put("put", b"one").result(LONG_S)
    b.store.put("put", b"two").result(LONG_S)
    assert [node.store.get_blocking("put") for node in (a, b, c)] == [b"two"] * 3
    assert c.store.get("put").result(LONG_S) == b"two"


def test_a_missing_key_reads_as_empty(three: Group) -> None:
    for node in three.nodes:
        assert node.store.get_blocking("nothing") is None
        assert node.store.items("nothing").result(LONG_S).items == ()
        assert node.store.counts("nothing").result(LONG_S) == {}


def test_a_list_holds_each_item_of_all_devices_once(three: Group) -> None:
    for node in three.nodes:
        node.store.append("list", b"same").result(LONG_S)
        node.store.append("list", node.device_id.encode()).result(LONG_S)
    assert set(three.nodes[0].store.items("list").result(LONG_S).items) == {b"same", b"d0", b"d1", b"d2"}
    three.nodes[1].store.remove("list", b"d0").result(LONG_S)
    assert set(three.nodes[2].store.items("list").result(LONG_S).items) == {b"same", b"d1", b"d2"}
    three.nodes[0].store.append("list", b"d0").result(LONG_S)
    assert b"d0" in three.nodes[1].store.items("list").result(LONG_S).items


def test_counters_add_up_over_devices(three: Group) -> None:
    merges = [node.store.merge("counts", {"x": 1, "y": 2}) for node in three.nodes for _ in range(10)]
    for merge in merges:
        merge.result(LONG_S)
    assert three.nodes[0].store.counts("counts").result(LONG_S) == {"x": 30, "y": 60}
    assert three.nodes[2].store.counts("counts").result(LONG_S) == {"x": 30, "y": 60}


@pytest.mark.parametrize("count", [1.5, "1"])
def test_a_count_that_is_no_integer_is_refused_and_has_no_effect(three: Group, count: object) -> None:
    store, key = three.nodes[0].store, f"whole {count}"
    with pytest.raises(TypeError, match="integer"):
        store.merge(key, {"x": count})  # type: ignore[dict-item]
    store.merge(key, {"x": True, "y": np.int64(2)}).result(LONG_S)
    assert three.nodes[1].store.counts(key).result(LONG_S) == {"x": 1, "y": 2}


def test_counts_above_the_limits_are_refused_and_have_no_effect(three: Group) -> None:
    store = three.nodes[0].store
    too_many = {f"a name as long as this one {number}": 1 for number in range(20_000)}
    for counts in (too_many, {"x": 2**48 + 1}):
        with pytest.raises(InvalidArgument, match=r"exceed the .*limits? of the devices"):
            store.merge("many", counts).result(LONG_S)
    store.merge("many", {"x": 1}).result(LONG_S)
    assert three.nodes[1].store.counts("many").result(LONG_S) == {"x": 1}


def test_a_device_with_room_for_no_key_can_merge_counts() -> None:
    with group(2) as nodes:
        empty = nodes.add(max_keys=0)
        nodes.wait_synchronised()
        empty.store.merge("c", {"x": 1}).result(LONG_S)
        assert nodes.nodes[0].store.counts("c").result(LONG_S) == {"x": 1}


def test_a_deleted_key_can_be_written_again(three: Group) -> None:
    a, b, c = three.nodes
    a.store.merge("gone", {"x": 5}).result(LONG_S)
    b.store.merge("gone", {"x": 5}).result(LONG_S)
    c.store.delete("gone").result(LONG_S)
    assert a.store.counts("gone").result(LONG_S) == {}
    a.store.merge("gone", {"x": 1}).result(LONG_S)
    assert b.store.counts("gone").result(LONG_S) == {"x": 1}
    b.store.put("value", b"v").result(LONG_S)
    a.store.delete("value").result(LONG_S)
    assert c.store.get_blocking("value") is None


def test_values_expire(three: Group) -> None:
    three.nodes[0].store.put("short", b"v", ttl_s=0.1).result(LONG_S)
    three.nodes[0].store.append("short list", b"v", ttl_s=0.1).result(LONG_S)
    three.nodes[0].store.merge("short counts", {"x": 1}, ttl_s=0.1).result(LONG_S)
    for node in three.nodes:
        wait_until(lambda node=node: node.store.get_blocking("short") is None)  # type: ignore[misc]
        wait_until(lambda node=node: not node.store.items("short list").result(LONG_S).items)  # type: ignore[misc]
        wait_until(lambda node=node: not node.store.counts("short counts").result(LONG_S))  # type: ignore[misc]
    three.nodes[0].store.merge("short counts", {"x": 1}, ttl_s=60).result(LONG_S)
    assert three.nodes[1].store.counts("short counts").result(LONG_S) == {"x": 1}


def test_removing_items_does_not_prolong_a_list(three: Group) -> None:
    a, b, c = three.nodes
    for item in (b"x", b"y"):
        a.store.append("here", item, ttl_s=0.5).result(LONG_S)
    b.store.remove("here", b"x").result(LONG_S)
    wait_until(lambda: c.store.items("here").result(LONG_S).items == ())
    b.store.remove("here", b"y").result(LONG_S)
    assert c.store.items("here").result(LONG_S).items == ()


def test_a_put_after_an_expiry_wins_although_its_counter_is_lower(three: Group) -> None:
    a, b, c = three.nodes
    for number in range(30):
        a.store.put("ends", b"%d" % number, ttl_s=0.05).result(LONG_S)
    wait_until(lambda: all(node.store.get_blocking("ends") is None for node in three.nodes))
    with b._shared.lock:
        b._shared.stamps.counter = 1
    b.store.put("ends", b"again").result(LONG_S)
    assert {node.store.get_blocking("ends") for node in (a, b, c)} == {b"again"}


def test_reading_a_key_as_another_kind_is_refused(three: Group) -> None:
    three.nodes[0].store.put("kind", b"v").result(LONG_S)
    with pytest.raises(InvalidArgument, match="holds no list"):
        three.nodes[1].store.items("kind").result(LONG_S)
    with pytest.raises(InvalidArgument, match="holds no counters"):
        three.nodes[1].store.counts("kind").result(LONG_S)


@pytest.mark.parametrize("key", ["", "x" * 1000, "\ud800"])
def test_an_invalid_key_is_refused(three: Group, key: str) -> None:
    store = three.nodes[0].store
    for future in (store.put(key, b""), store.get(key), store.append(key, b""), store.merge(key, {})):
        with pytest.raises(InvalidArgument):
            future.result(LONG_S)


def test_values_over_the_limit_are_refused_with_advice(three: Group) -> None:
    node = three.nodes[0]
    too_large = bytes(node.settings.value_limit_bytes + 1)
    for future in (node.store.put("large", too_large), node.store.append("large", too_large)):
        with pytest.raises(InvalidArgument, match=r"limit is 1048576.*value_limit_bytes"):
            future.result(LONG_S)
    node.store.put("large", too_large[:-1]).result(LONG_S)
    assert len(three.nodes[1].store.get_blocking("large") or b"") == node.settings.value_limit_bytes


def test_lists_and_counters_may_be_larger_than_the_limit_of_a_value() -> None:
    with group(2, value_limit_bytes=1000) as nodes:
        a, b = nodes.nodes
        for number in range(10):
            a.store.append("list", bytes([number]) * 1000).result(LONG_S)
        assert len(b.store.items("list").result(LONG_S).items) == 10
        for node in (a, b):
            node.store.merge("counts", {f"{node.device_id} {number}": 1 for number in range(200)}).result(
                LONG_S
            )
        assert len(a.store.counts("counts").result(LONG_S)) == 400


@pytest.mark.parametrize("emptied", [False, True])
def test_the_first_claimant_of_a_missing_or_emptied_list_has_the_claim(three: Group, emptied: bool) -> None:
    a, b, c = three.nodes
    key = f"claimed {emptied}"
    if emptied:
        a.store.append(key, b"a").result(LONG_S)
        a.store.remove(key, b"a").result(LONG_S)
    for node, waits in ((a, False), (b, True), (c, True), (b, True), (a, False)):
        assert (node.store.items(key, claim=True).result(LONG_S).wait_ms > 0) == waits
    a.store.append(key, b"here").result(LONG_S)
    assert b.store.items(key, claim=True).result(LONG_S) == ItemsRead((b"here",), 0)


def test_every_key_is_held_by_its_replicas_only(three: Group) -> None:
    for number in range(30):
        three.nodes[0].store.put(f"spread {number}", b"v").result(LONG_S)
    for number in range(30):
        key = f"spread {number}"
        holders = [node for node in three.nodes if key in node.held_keys()]
        assert {node.node_id for node in holders} == {node.node_id for node in three.replicas(key)}


def test_a_single_device_stores_all_values_itself() -> None:
    with group(1) as nodes:
        store = nodes.nodes[0].store
        store.put("k", b"v").result(LONG_S)
        store.append("l", b"v").result(LONG_S)
        store.merge("c", {"x": 1}).result(LONG_S)
        assert store.get_blocking("k") == b"v"
        assert store.items("l").result(LONG_S).items == (b"v",)
        assert store.counts("c").result(LONG_S) == {"x": 1}


def test_concurrent_writes_of_one_key_all_end_and_one_wins(three: Group) -> None:
    puts = [node.store.put("race", node.device_id.encode()) for node in three.nodes for _ in range(20)]
    for put in puts:
        put.result(LONG_S)
    values = {node.store.get_blocking("race") for node in three.nodes}
    assert len(values) == 1 and values < {b"d0", b"d1", b"d2"}


class Held:
    """Holds back the calls of a node to its peers, as a device that is too busy does."""

    def __init__(self, node: PeerNode, patch: pytest.MonkeyPatch) -> None:
        self._call = node._links.call
        self._calls: list[tuple[Future[Any], Callable[[], Future[Any]]]] = []
        patch.setattr(node._links, "call", self._hold)

    def _hold(self, *call: Any, **rest: Any) -> Future[Any]:
        self._calls.append((Future(), lambda: self._call(*call, **rest)))
        return self._calls[-1][0]

    def send(self) -> None:
        """Send the held calls now."""
        for future, call in self._calls:
            future.set_result(call().result(LONG_S))


@pytest.mark.parametrize(
    ("first", "second", "left"),
    [
        (lambda store, key: store.put(key, b"one"), lambda store, key: store.put(key, b"two"), b"two"),
        (lambda store, key: store.put(key, b"one"), lambda store, key: store.delete(key), None),
        (lambda store, key: store.delete(key), lambda store, key: store.put(key, b"two"), b"two"),
        (lambda store, key: store.merge(key, {"x": 1}), lambda store, key: store.put(key, b"two"), b"two"),
    ],
    ids=["put, put", "put, delete", "delete, put", "merge, put"],
)
def test_the_last_write_of_a_device_wins_although_its_calls_arrive_in_another_order(
    three: Group,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    first: Callable[[KVStore, str], Future[None]],
    second: Callable[[KVStore, str], Future[None]],
    left: bytes | None,
) -> None:
    key = f"order {request.node.name}"
    writer = three.outsider(key)
    with monkeypatch.context() as patch:
        held = Held(writer, patch)
        earlier = first(writer.store, key)
    second(writer.store, key).result(LONG_S)
    held.send()
    earlier.result(LONG_S)
    assert writer.store.get_blocking(key) == left
    wait_until(lambda: not writer.store._unfinished)


@pytest.mark.parametrize("added", [False, True])
def test_of_an_addition_and_a_removal_of_an_item_the_last_call_wins(
    three: Group, monkeypatch: pytest.MonkeyPatch, added: bool
) -> None:
    key = f"order of an item {added}"
    store = three.outsider(key).store
    store.append(key, b"item").result(LONG_S)
    first, second = (store.remove, store.append) if added else (store.append, store.remove)
    with monkeypatch.context() as patch:
        held = Held(three.outsider(key), patch)
        earlier = first(key, b"item")
    store.append(key, b"another").result(LONG_S)
    second(key, b"item").result(LONG_S)
    held.send()
    earlier.result(LONG_S)
    assert (b"item" in store.items(key).result(LONG_S).items) == added


@pytest.mark.parametrize("deleted", [False, True])
def test_additions_after_a_deletion_of_the_same_device_count_and_those_before_do_not(
    three: Group, monkeypatch: pytest.MonkeyPatch, deleted: bool
) -> None:
    key = f"order of counts {deleted}"
    store = three.outsider(key).store
    store.merge(key, {"x": 1}).result(LONG_S)
    with monkeypatch.context() as patch:
        held = Held(three.outsider(key), patch)
        earlier = store.merge(key, {"x": 2}) if deleted else store.delete(key)
    later = store.delete(key) if deleted else store.merge(key, {"x": 4})
    later.result(LONG_S)
    held.send()
    earlier.result(LONG_S)
    assert store.counts(key).result(LONG_S) == ({} if deleted else {"x": 4})


def test_a_later_removal_wins_although_its_counter_is_lower() -> None:
    with group(3) as nodes:
        a, b, outsider = nodes.nodes
        key = nodes.key_of(a, b)
        for _ in range(20):
            a.store.append(key, b"item").result(LONG_S)
        outsider.store.remove(key, b"item").result(LONG_S)
        assert a.store.items(key).result(LONG_S).items == b.store.items(key).result(LONG_S).items == ()


def test_counts_that_could_not_be_sent_are_sent_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "RESEND_EVERY_S", 0.05)
    with group(2) as nodes:
        counting, other = nodes.nodes
        unreachable: Future[object] = Future()
        unreachable.set_exception(Unavailable("nobody"))
        with monkeypatch.context() as away:
            away.setattr(counting.store, "_write_entry", lambda _: unreachable)
            with pytest.raises(Unavailable):
                counting.store.merge("c", {"x": 5}).result(LONG_S)
        wait_until(lambda: other.store.counts("c").result(LONG_S) == {"x": 5}, what="the counts")


def test_a_replica_answers_its_own_reads_with_the_current_value() -> None:
    with group(2, replicas=2) as nodes:
        a, b = nodes.nodes
        a.store.put("k", b"one").result(LONG_S)
        assert [a.store.get_blocking("k") for _ in range(3)] == [b"one"] * 3
        b.store.put("k", b"two").result(LONG_S)
        assert a.store.get_blocking("k") == b"two"
        b.store.delete("k").result(LONG_S)
        assert a.store.get_blocking("k") is None
        b.store.put("k", b"ends", ttl_s=0.05).result(LONG_S)
        assert a.store.get_blocking("k") in {b"ends", None}
        wait_until(lambda: a.store.get_blocking("k") is None)
        b.store.append("k", b"item").result(LONG_S)
        with pytest.raises(InvalidArgument, match="no single value"):
            a.store.get_blocking("k")


def test_calls_of_a_closed_store_are_cancelled() -> None:
    with group(2) as nodes:
        leaving, other = nodes.nodes
        key = nodes.key_of(leaving)
        leaving.store.put(key, b"before").result(LONG_S)
        assert leaving.store.get_blocking(key) == b"before"
        split([leaving], [other])
        under_way = leaving.store.put(key, b"after")
        leaving.stop(0)
        with pytest.raises(Cancelled):
            under_way.result(LONG_S)
        store = leaving.store
        for call in (store.get, store.items, store.counts, store.delete, store.get_blocking):
            with pytest.raises(Cancelled):
                call(key).result(LONG_S)  # type: ignore[operator]
        for write in (store.put(key, b""), store.append(key, b""), store.merge(key, {})):
            with pytest.raises(Cancelled):
                write.result(LONG_S)


def test_a_former_replica_does_not_answer_its_own_reads() -> None:
    with group(2, replicas=2) as nodes:
        a, b = nodes.nodes
        for number in range(20):
            a.store.put(f"k{number}", b"old").result(LONG_S)
            assert a.store.get_blocking(f"k{number}") == b"old"
        nodes.add()
        nodes.wait_synchronised()
        elsewhere = [key for key in map("k{}".format, range(20)) if a not in nodes.replicas(key)]
        assert elsewhere
        for key in elsewhere:
            b.store.put(key, b"new").result(LONG_S)
            assert a.store.get_blocking(key) == b"new"


def test_an_entry_that_was_read_before_the_last_hand_over_is_not_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with group(2, replicas=2) as nodes:
        a, b = nodes.nodes
        a.store.put("k", b"old").result(LONG_S)
        b._shared.write(Entry("k", value=Register(b"new", b._shared.stamp())))  # a has not received it yet
        a._cluster.discard_reports()
        read = a._shared.read

        def handed_over_after(key: str) -> Entry | None:
            entry = read(key)
            a._cluster.complete(b.node_id, a._cluster.view.digest)
            return entry

        monkeypatch.setattr(a._shared, "read", handed_over_after)
        assert a.store.get("k").result(LONG_S) == b"new"
