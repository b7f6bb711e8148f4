"""The part of the store on one device: little memory, claims, stamps above the limits."""

from __future__ import annotations

import pytest

from nearsight.common.clock import ManualClock
from nearsight.common.errors import InvalidMessage
from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.settings import PeerSettings
from nearsight.device.peers.store import shared_store
from nearsight.device.peers.store.local_store import Place, Refusal
from nearsight.device.peers.store.shared_store import (
    CLAIM_LEASE_S,
    LARGEST_COUNT,
    LEAST_LIMIT,
    Claims,
    SharedStore,
    check_stamps,
    largest_counter,
)
from nearsight.device.peers.store.stamps import EPOCH_S, Stamp, date_counter
from nearsight.device.peers.store.values import (
    MAX_KEY_BYTES,
    MAX_PARTS,
    MAX_PARTS_BYTES,
    Contribution,
    Counters,
    Entry,
    ItemList,
    ListItem,
    Register,
    canonical,
)

PLACES = {"first": Place.FIRST, "copy": Place.REPLICA}


def make() -> SharedStore:
    shared = SharedStore(PeerSettings(memory_bytes=10_000), 7, ManualClock())
    shared.place_by(lambda key: PLACES[key.split()[0]])
    return shared


def entry(shared: SharedStore, key: str, size: int) -> Entry:
    return Entry(key, value=Register(bytes(size), shared.stamp()))


def test_an_entry_that_cannot_be_updated_is_dropped() -> None:
    shared = make()
    assert shared.write(entry(shared, "copy a", 100))[1] is None
    shared.write(entry(shared, "first a", 9000))
    assert not shared.lossy
    assert shared.write(entry(shared, "copy a", 3000))[1] is Refusal.FULL
    assert shared.read("copy a") is None and shared.lossy
    assert shared.read("first a") is not None


def test_synchronisation_evicts_nothing_but_updates_held_entries() -> None:
    shared = make()
    shared.write(entry(shared, "first a", 4000))
    shared.write(entry(shared, "first b", 4000))
    assert shared.write(entry(shared, "first c", 4000), displace=False)[1] is Refusal.FULL
    assert shared.write(entry(shared, "first b", 5000), displace=False)[1] is None
    assert shared.write(entry(shared, "first b", 7000), displace=False)[1] is None
    assert shared.read("first a") is None
    assert shared.write(entry(shared, "first c", 4000))[1] is None


def test_the_largest_list_is_accepted_whatever_the_limit_of_a_value_is() -> None:
    shared = SharedStore(PeerSettings(value_limit_bytes=1), 7, ManualClock())
    size = MAX_PARTS_BYTES // MAX_PARTS
    items = tuple(ListItem(number.to_bytes(size), shared.stamp()) for number in range(MAX_PARTS))
    full = Entry("k" * MAX_KEY_BYTES, value=ItemList(items))
    assert shared.write(full) == (None, None)
    assert shared.read(full.key) == canonical(full)


def test_an_entry_that_changed_since_the_hand_over_is_not_dropped() -> None:
    shared = make()
    for key in ("first a", "first b"):
        shared.write(entry(shared, key, 10))
    handed_over = shared.digests(shared.keys())
    shared.write(entry(shared, "first b", 20))
    assert shared.drop(handed_over) == 1
    assert shared.keys() == ("first b",)


def test_removing_an_item_does_not_end_a_claim() -> None:
    shared = make()
    assert shared.claim("first a", NodeId(1)) == 0
    removed = ListItem(b"item", shared.stamp(), removed=True)
    shared.write(Entry("first a", value=ItemList((removed,))))
    assert shared.claim("first a", NodeId(2)) > 0


def test_a_delivery_ends_the_claim_even_if_the_entry_is_dropped_later() -> None:
    shared = make()
    first, second = NodeId(1), NodeId(2)
    assert shared.claim("first a", first) == 0
    assert shared.claim("first a", second) > 0
    shared.write(entry(shared, "first a", 10))
    shared.drop(shared.digests(["first a"]))
    assert shared.claim("first a", second) == 0


def test_missing_and_different_entries_are_wanted() -> None:
    shared, other = make(), make()
    for store, keys in ((shared, ("first a", "first b")), (other, ("first a", "first b", "first c"))):
        for key in keys:
            store.write(Entry(key, value=Register(b"v", Stamp(1, 1))))
    other.write(Entry("first b", value=Register(b"new", Stamp(2, 1))))
    assert set(shared.wanted(other.digests(other.keys()))) == {"first b", "first c"}
    assert other.wanted(other.digests(other.keys())) == []


A, B, C = map(NodeId, (1, 2, 3))


def test_the_first_claimant_has_the_claim_and_others_wait_for_the_rest_of_its_lease() -> None:
    claims = Claims()
    assert claims.claim("model", A, 0.0) == 0
    assert claims.claim("model", B, 0.5) == CLAIM_LEASE_S - 0.5
    assert claims.claim("other", B, 0.5) == 0


def test_repeating_a_claim_does_not_prolong_its_lease() -> None:
    claims = Claims()
    claims.claim("model", A, 0.0)
    assert claims.claim("model", A, 1.5) == 0
    assert claims.claim("model", B, 1.5) == CLAIM_LEASE_S - 1.5


def test_an_expired_lease_is_not_renewed_but_given_to_the_next_claimant() -> None:
    claims = Claims()
    claims.claim("model", A, 0.0)
    assert claims.claim("model", B, CLAIM_LEASE_S) == 0
    assert claims.claim("model", A, CLAIM_LEASE_S) == CLAIM_LEASE_S


def test_the_claims_of_a_node_end_when_it_leaves() -> None:
    claims = Claims()
    claims.claim("model", A, 0.0)
    claims.claim("other", B, 0.0)
    claims.remove_claimant(A)
    assert claims.claim("model", C, 1.0) == 0
    assert claims.claim("other", C, 1.0) == CLAIM_LEASE_S - 1.0


def test_claims_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_store, "MOST_CLAIMS", 3)
    claims = Claims()
    for number in range(10):
        claims.claim(f"model {number}", A, 0.0)
    waits_s = [claims.claim(f"model {number}", B, 0.0) for number in (7, 8, 9, 6)]
    assert waits_s == [CLAIM_LEASE_S, CLAIM_LEASE_S, CLAIM_LEASE_S, 0.0]


YEAR_S = 365 * 86_400.0


def register(counter: int) -> Entry:
    return Entry("k", value=Register(b"", Stamp(counter, 1)))


def test_the_largest_counter_depends_on_the_date_only() -> None:
    clock = ManualClock(EPOCH_S + 6 * YEAR_S)
    shared = SharedStore(PeerSettings(), 1, clock)
    limit = largest_counter(clock.wall())
    shared.admit(shared.encode(register(limit)))
    assert shared.stamps.counter == limit
    with pytest.raises(InvalidMessage):
        shared.admit(shared.encode(register(limit + 1)))
    with pytest.raises(InvalidMessage):
        shared.admit(shared.encode(Entry("k", cleared=Stamp(limit + 1, 1))))
    assert shared.stamps.counter == limit
    clock.advance(0.001)
    check_stamps(register(shared.stamp().counter), clock.wall())


def test_a_device_with_a_wrong_date_accepts_entries_of_others() -> None:
    check_stamps(register(LEAST_LIMIT), 0.0)
    for years in (6, 80, 7979):
        check_stamps(register(date_counter(EPOCH_S + years * YEAR_S)), 0.0)
    with pytest.raises(InvalidMessage):
        check_stamps(register(LEAST_LIMIT + 1), 0.0)


def test_counters_are_sufficient_for_a_thousand_years() -> None:
    assert largest_counter(EPOCH_S + 1000 * YEAR_S) < 2**62


def test_counts_are_bounded() -> None:
    absurd = Contribution(1, Stamp(5, 1), {"x": LARGEST_COUNT + 1})
    with pytest.raises(InvalidMessage):
        check_stamps(Entry("k", value=Counters((absurd,))), EPOCH_S)
