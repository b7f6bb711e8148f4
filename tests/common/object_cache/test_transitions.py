"""Slots are stable, each device has its own history, and a sparse row equals a dictionary."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import InvalidArgument
from nearsight.common.object_cache.transitions import DeviceHistories, ObjectSlots, TransitionRow

CATALOGUES = st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True), max_size=8)
ADDED = st.lists(st.tuples(st.integers(0, 30), st.floats(0.01, 100)), max_size=80)


@given(catalogues=CATALOGUES)
def test_every_object_has_its_own_constant_slot(catalogues: list[list[str]]) -> None:
    objects = ObjectSlots()
    for catalogue in catalogues:
        before = dict(objects.by_id)
        objects.remove([name for name in before if name not in catalogue])
        objects.add([name for name in catalogue if name not in before])
        assert set(objects.by_id) == set(catalogue)
        assert len(set(objects.by_id.values())) == len(catalogue)
        assert all(objects.by_id[name] == before[name] for name in catalogue if name in before)
        assert objects.names(objects.by_id.values()) == tuple(objects.by_id)
        assert int(objects.present.sum()) == len(catalogue)
    assert len(objects.present) <= 8


def test_a_list_with_an_unknown_object_has_no_slots() -> None:
    objects = ObjectSlots()
    objects.add(["a", "b"])
    assert objects.of("ba") == (1, 0)
    assert objects.of("bc") is None


def test_a_history_holds_the_last_different_objects() -> None:
    histories = DeviceHistories(length=2, devices_max=10)
    before = [histories.append("device", slot, 0.0) for slot in (1, 1, 2, 3, 3, 1)]
    assert [history for history, _ in before] == [(), (1,), (1,), (1, 2), (2, 3), (2, 3)]
    assert [last for _, last in before] == [None, 1, 1, 2, 3, 3]
    assert histories.of("device", 0.0) == (3, 1)


def test_a_removed_object_ends_the_history_before_it() -> None:
    histories = DeviceHistories(length=3, devices_max=10)
    for slot in (1, 2, 3):
        histories.append("device", slot, 0.0)
    histories.remove([2])
    assert histories.of("device", 0.0) == (3,)


@pytest.mark.parametrize("wrong", [(0, 1, 1.0), (1, 0, 1.0), (1, 1, 0.0)])
def test_invalid_sizes_are_refused(wrong: tuple[int, int, float]) -> None:
    with pytest.raises(InvalidArgument):
        DeviceHistories(*wrong)


@given(added=ADDED, factor=st.floats(0.001, 1))
def test_weights_add_up_per_slot(added: list[tuple[int, float]], factor: float) -> None:
    row, expected = TransitionRow(), dict[int, float]()
    for slot, weight in added:
        row.add(slot, weight)
        expected[slot] = expected.get(slot, 0.0) + weight
    assert dict(zip(row.slots.tolist(), row.weights.tolist(), strict=True)) == expected
    assert row.weight_of(31) == 0.0
    row.scale(factor)
    assert [row.weight_of(slot) for slot in expected] == [one * factor for one in expected.values()]


@given(added=ADDED)
def test_only_selected_slots_are_kept_and_more_can_be_added(added: list[tuple[int, float]]) -> None:
    row = TransitionRow()
    for slot, weight in added:
        row.add(slot, weight)
    odd = {slot for slot, _ in added if slot % 2}
    gone = row.keep(np.asarray(row.slots % 2 == 1))
    assert set(gone.tolist()) == {slot for slot, _ in added} - odd
    assert set(row.slots.tolist()) == odd
    row.add(100, 1.0)
    assert len(row) == len(odd) + 1
