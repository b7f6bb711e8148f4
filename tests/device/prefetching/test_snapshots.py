"""Snapshots that answer on the device: built in the background, swapped, and the last few kept."""

from dataclasses import replace

from nearsight.common.clock import ManualClock
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.device.prefetching.snapshots import LocalCache, LocalSnapshot, Snapshots
from support.gallery import SETTINGS, exhibit_model, photo_features


class SlowClock(ManualClock):
    """A clock that advances by a second per reading."""

    def monotonic(self) -> float:
        self.advance(1.0)
        return super().monotonic()


def empty_cache() -> LocalCache:
    return LocalCache(LocalSnapshot(ObjectRecognizer.build((), SETTINGS), 800))


def test_lookups_in_a_snapshot_recognise_and_are_counted() -> None:
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
    snapshots.reuse("exhibit-0")
    assert cache.snapshot is first
    snapshots.reuse("never seen")
    assert cache.snapshot is first
    snapshots.serve("exhibit-0", [exhibit_model(0)], 400)
    assert cache.snapshot is first
    snapshots.serve("exhibit-0", [exhibit_model(0)], 200)
    assert cache.snapshot is not first


def test_the_least_recently_used_snapshot_is_dropped() -> None:
    cache = empty_cache()
    snapshots = Snapshots(cache, 2, SETTINGS, ManualClock())
    served = []
    for seed in (0, 1, 0, 2):
        snapshots.reuse(f"exhibit-{seed}")
        snapshots.serve(f"exhibit-{seed}", [exhibit_model(seed)], 400)
        served.append(cache.snapshot)
    assert served[2] is served[0]
    for seed, kept in ((0, served[0]), (1, served[0]), (2, served[3])):
        snapshots.reuse(f"exhibit-{seed}")
        assert cache.snapshot is kept


def test_builds_are_limited_in_rate_but_emptying_is_not() -> None:
    cache = empty_cache()
    snapshots = Snapshots(cache, 4, SETTINGS, SlowClock())
    assert snapshots.serve("exhibit-0", [exhibit_model(0)], 400) == 0
    assert snapshots.serve("exhibit-0", [exhibit_model(1)], 400) > 0
    assert cache.snapshot.recognizer.object_ids == {"exhibit-0"}
    assert snapshots.serve("exhibit-0", [], 400) == 0
    assert not cache.snapshot


def test_removed_objects_answer_neither_now_nor_from_a_kept_snapshot() -> None:
    cache = empty_cache()
    snapshots = Snapshots(cache, 4, SETTINGS, ManualClock())
    both = [exhibit_model(0), exhibit_model(1)]
    snapshots.serve("exhibit-0", both, 400)
    snapshots.serve("exhibit-1", both, 200)
    snapshots.remove({"exhibit-1", "never there"})
    assert cache.snapshot.recognizer.object_ids == {"exhibit-0"}
    assert cache.snapshot.query_features == 200
    before = cache.snapshot
    snapshots.reuse("exhibit-0")
    assert cache.snapshot is before


def test_another_version_is_another_content() -> None:
    cache = empty_cache()
    snapshots = Snapshots(cache, 4, SETTINGS, ManualClock())
    snapshots.serve("exhibit-0", [exhibit_model(0)], 400)
    snapshots.serve("exhibit-0", [replace(exhibit_model(0), version=2)], 400)
    assert cache.snapshot.contents == {("exhibit-0", 2)}
