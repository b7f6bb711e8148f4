"""What the device answers from: built aside, swapped whole, the last few kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nearsight.common.clock import ManualClock
from nearsight.common.errors import InvalidArgument
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.device.prefetching.snapshots import LocalCache, LocalSnapshot, SnapshotLru, Snapshots
from support.gallery import SETTINGS, exhibit_model, photo_features


class SlowClock(ManualClock):
    """A second passes whenever somebody looks."""

    def monotonic(self) -> float:
        self.advance(1.0)
        return super().monotonic()


def empty_cache() -> LocalCache:
    return LocalCache(LocalSnapshot(ObjectRecognizer.build((), SETTINGS), 800))


def test_what_is_served_is_recognised_and_counted() -> None:
    cache = empty_cache()
    snapshots = Snapshots(cache, 4, SETTINGS, ManualClock())
    assert snapshots.serve("exhibit-0", [exhibit_model(0), exhibit_model(1)], 400) == 0
    assert (len(cache.snapshot), cache.snapshot.query_features) == (2, 400)
    found = cache.lookup(cache.snapshot, photo_features(1))
    assert found is not None
    assert found.object_id == "exhibit-1"
    assert cache.lookup(cache.snapshot, photo_features(7)) is None
    assert cache.counts == (2, 1)


def test_a_request_keeps_the_snapshot_that_it_took() -> None:
    cache = empty_cache()
    snapshots = Snapshots(cache, 4, SETTINGS, ManualClock())
    snapshots.serve("exhibit-0", [exhibit_model(0)], 400)
    taken = cache.snapshot
    snapshots.serve("exhibit-1", [exhibit_model(1)], 200)
    assert cache.lookup(taken, photo_features(0)) is not None
    assert taken.query_features == 400


def test_going_back_to_an_object_needs_no_new_building() -> None:
    cache = empty_cache()
    snapshots = Snapshots(cache, 2, SETTINGS, ManualClock())
    snapshots.serve("exhibit-0", [exhibit_model(0)], 400)
    first = cache.snapshot
    snapshots.serve("exhibit-1", [exhibit_model(1)], 400)
    snapshots.take_up("exhibit-0")
    assert cache.snapshot is first
    snapshots.take_up("never seen")
    assert cache.snapshot is first
    snapshots.serve("exhibit-0", [exhibit_model(0)], 400)
    assert cache.snapshot is first
    snapshots.serve("exhibit-0", [exhibit_model(0)], 200)
    assert cache.snapshot is not first


def test_builds_leave_time_for_the_rest_but_emptying_never_waits() -> None:
    cache = empty_cache()
    snapshots = Snapshots(cache, 4, SETTINGS, SlowClock())
    assert snapshots.serve("exhibit-0", [exhibit_model(0)], 400) == 0
    assert snapshots.serve("exhibit-0", [exhibit_model(1)], 400) > 0
    assert cache.snapshot.recognizer.object_ids == {"exhibit-0"}
    assert snapshots.serve("exhibit-0", [], 400) == 0
    assert not cache.snapshot


def test_banished_objects_answer_neither_now_nor_from_a_kept_snapshot() -> None:
    cache = empty_cache()
    snapshots = Snapshots(cache, 4, SETTINGS, ManualClock())
    both = [exhibit_model(0), exhibit_model(1)]
    snapshots.serve("exhibit-0", both, 400)
    snapshots.serve("exhibit-1", both, 200)
    snapshots.banish({"exhibit-1", "never there"})
    assert cache.snapshot.recognizer.object_ids == {"exhibit-0"}
    assert cache.snapshot.query_features == 200
    before = cache.snapshot
    snapshots.take_up("exhibit-0")
    assert cache.snapshot is before


def test_another_version_is_another_content() -> None:
    cache = empty_cache()
    snapshots = Snapshots(cache, 4, SETTINGS, ManualClock())
    snapshots.serve("exhibit-0", [exhibit_model(0)], 400)
    snapshots.serve("exhibit-0", [replace(exhibit_model(0), version=2)], 400)
    assert cache.snapshot.contents == {("exhibit-0", 2)}


def filled(names: str) -> SnapshotLru[str]:
    snapshots: SnapshotLru[str] = SnapshotLru()
    for name in names:
        snapshots.put(name, name.upper())
    return snapshots


def test_four_snapshots_are_kept_and_the_one_unused_for_longest_goes() -> None:
    snapshots = filled("abcd")
    assert snapshots.get("a") == "A"
    snapshots.put("e", "E")
    assert snapshots.get("b") is None
    assert [name for name in "abcde" if name in snapshots] == ["a", "c", "d", "e"]
    assert len(snapshots) == 4


def test_going_back_and_forth_between_two_objects_needs_no_new_snapshot() -> None:
    snapshots = filled("ab")
    assert [snapshots.get(name) for name in "abab"] == ["A", "B", "A", "B"]


def test_a_new_snapshot_of_the_same_object_replaces_the_old_one() -> None:
    snapshots = filled("a")
    snapshots.put("a", "newer")
    assert (snapshots.get("a"), len(snapshots)) == ("newer", 1)


def test_snapshots_with_outdated_content_are_dropped() -> None:
    snapshots = filled("abc")
    assert snapshots.drop(lambda snapshot: snapshot in "AC") == 2
    assert [name for name in "abc" if name in snapshots] == ["b"]


def test_no_room_at_all_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        SnapshotLru(0)
