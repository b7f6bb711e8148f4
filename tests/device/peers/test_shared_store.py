"""The part of the store that one device holds, when room is short."""

from __future__ import annotations

from nearsight.common.clock import ManualClock
from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.settings import PeerSettings
from nearsight.device.peers.store.local_store import Place, Refusal
from nearsight.device.peers.store.shared_store import SharedStore
from nearsight.device.peers.store.stamps import Stamp
from nearsight.device.peers.store.values import Entry, ItemList, ListItem, Register

PLACES = {"first": Place.FIRST, "copy": Place.REPLICA}


def make() -> SharedStore:
    shared = SharedStore(PeerSettings(memory_bytes=10_000), 7, ManualClock())
    shared.place_by(lambda key: PLACES[key.split()[0]])
    return shared


def entry(shared: SharedStore, key: str, size: int) -> Entry:
    return Entry(key, value=Register(bytes(size), shared.stamp()))


def test_a_copy_that_cannot_be_renewed_is_not_kept_outdated() -> None:
    shared = make()
    assert shared.write(entry(shared, "copy a", 100))[1] is None
    shared.write(entry(shared, "first a", 9000))
    assert not shared.lossy
    assert shared.write(entry(shared, "copy a", 3000))[1] is Refusal.FULL
    assert shared.read("copy a") is None and shared.lossy
    assert shared.read("first a") is not None


def test_what_is_kept_alike_displaces_nothing_but_renews_what_is_there() -> None:
    shared = make()
    shared.write(entry(shared, "first a", 4000))
    shared.write(entry(shared, "first b", 4000))
    assert shared.write(entry(shared, "first c", 4000), displace=False)[1] is Refusal.FULL
    assert shared.write(entry(shared, "first b", 5000), displace=False)[1] is None
    assert shared.write(entry(shared, "first b", 7000), displace=False)[1] is None
    assert shared.read("first a") is None
    assert shared.write(entry(shared, "first c", 4000))[1] is None


def test_what_changed_since_it_was_handed_over_is_not_dropped() -> None:
    shared = make()
    for key in ("first a", "first b"):
        shared.write(entry(shared, key, 10))
    handed_over = shared.digests(shared.keys())
    shared.write(entry(shared, "first b", 20))
    assert shared.drop(handed_over) == 1
    assert shared.keys() == ("first b",)


def test_who_takes_its_item_out_of_a_list_delivers_nothing() -> None:
    shared = make()
    assert shared.claim("first a", NodeId(1)) == 0
    removed = ListItem(b"item", shared.stamp(), removed=True)
    shared.write(Entry("first a", value=ItemList((removed,))))
    assert shared.claim("first a", NodeId(2)) > 0


def test_nobody_waits_for_who_delivered_even_if_it_is_gone_again() -> None:
    shared = make()
    first, second = NodeId(1), NodeId(2)
    assert shared.claim("first a", first) == 0
    assert shared.claim("first a", second) > 0
    shared.write(entry(shared, "first a", 10))
    shared.drop(shared.digests(["first a"]))
    assert shared.claim("first a", second) == 0


def test_wanted_is_what_is_missing_or_differs() -> None:
    shared, other = make(), make()
    for store, keys in ((shared, ("first a", "first b")), (other, ("first a", "first b", "first c"))):
        for key in keys:
            store.write(Entry(key, value=Register(b"v", Stamp(1, 1))))
    other.write(Entry("first b", value=Register(b"new", Stamp(2, 1))))
    assert set(shared.wanted(other.digests(other.keys()))) == {"first b", "first c"}
    assert other.wanted(other.digests(other.keys())) == []
