"""The last four snapshots are kept, by the object that was looked at."""

import pytest

from nearsight.common.errors import InvalidArgument
from nearsight.device.snapshot_lru import SnapshotLru


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
