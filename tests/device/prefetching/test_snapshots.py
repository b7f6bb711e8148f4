"""Snapshots that answer on the device: built in the background, swapped, and the last few kept."""

from dataclasses import replace

from nearsight.common.clock import Clock, ManualClock
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.device.prefetching.snapshots import LocalSnapshot, Snapshots
from support.gallery import SETTINGS, exhibit_model, photo_features


class SlowClock(ManualClock):
    """A clock that advances by a second per reading."""

    def monotonic(self) -> float:
        self.advance(1.0)
        return super().monotonic()


def snapshots_of(capacity: int = 4, clock: Clock | None = None) -> Snapshots:
    empty = LocalSnapshot(ObjectRecognizer.build((), SETTINGS), 800)
    return Snapshots(empty, capacity, SETTINGS, clock or ManualClock())


def test_the_models_that_are_served_answer() -> None:
    snapshots = snapshots_of()
    assert snapshots.serve("exhibit-0", [exhibit_model(0), exhibit_model(1)], 400) == 0
    assert (len(snapshots.current), snapshots.current.query_features) == (2, 400)
    found = snapshots.current.recognizer.recognize(photo_features(1)).found
    assert found is not None
    assert found.object_id == "exhibit-1"
    assert snapshots.current.recognizer.recognize(photo_features(7)).found is None


def test_a_request_keeps_the_snapshot_that_it_took() -> None:
    snapshots = snapshots_of()
    snapshots.serve("exhibit-0", [exhibit_model(0)], 400)
    taken = snapshots.current
    snapshots.serve("exhibit-1", [exhibit_model(1)], 200)
    assert taken.recognizer.recognize(photo_features(0)).found is not None
    assert taken.query_features == 400


def test_going_back_to_an_object_needs_no_new_building() -> None:
    snapshots = snapshots_of(2)
    snapshots.serve("exhibit-0", [exhibit_model(0)], 400)
    first = snapshots.current
    snapshots.serve("exhibit-1", [exhibit_model(1)], 400)
    snapshots.reuse("exhibit-0")
    assert snapshots.current is first
    snapshots.reuse("never seen")
    assert snapshots.current is first
    snapshots.serve("exhibit-0", [exhibit_model(0)], 400)
    assert snapshots.current is first
    snapshots.serve("exhibit-0", [exhibit_model(0)], 200)
    assert snapshots.current is not first


def test_the_least_recently_used_snapshot_is_dropped() -> None:
    snapshots = snapshots_of(2)
    served = []
    for seed in (0, 1, 0, 2):
        snapshots.reuse(f"exhibit-{seed}")
        snapshots.serve(f"exhibit-{seed}", [exhibit_model(seed)], 400)
        served.append(snapshots.current)
    assert served[2] is served[0]
    for seed, kept in ((0, served[0]), (1, served[0]), (2, served[3])):
        snapshots.reuse(f"exhibit-{seed}")
        assert snapshots.current is kept


def test_builds_are_limited_in_rate_but_emptying_is_not() -> None:
    snapshots = snapshots_of(clock=SlowClock())
    assert snapshots.serve("exhibit-0", [exhibit_model(0)], 400) == 0
    assert snapshots.serve("exhibit-0", [exhibit_model(1)], 400) > 0
    assert snapshots.current.recognizer.object_ids == {"exhibit-0"}
    assert snapshots.serve("exhibit-0", [], 400) == 0
    assert not snapshots.current


def test_removed_objects_answer_neither_now_nor_from_a_kept_snapshot() -> None:
    snapshots = snapshots_of()
    both = [exhibit_model(0), exhibit_model(1)]
    snapshots.serve("exhibit-0", both, 400)
    snapshots.serve("exhibit-1", both, 200)
    snapshots.remove({"exhibit-1", "never there"})
    assert snapshots.current.recognizer.object_ids == {"exhibit-0"}
    assert snapshots.current.query_features == 200
    before = snapshots.current
    snapshots.reuse("exhibit-0")
    assert snapshots.current is before


def test_another_version_is_another_content() -> None:
    snapshots = snapshots_of()
    snapshots.serve("exhibit-0", [exhibit_model(0)], 400)
    snapshots.serve("exhibit-0", [replace(exhibit_model(0), version=2)], 400)
    assert snapshots.current.contents == {("exhibit-0", 2)}
