"""A sparse row holds what a dictionary would."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.object_cache.transition_row import TransitionRow

ADDED = st.lists(st.tuples(st.integers(0, 30), st.floats(0.01, 100)), max_size=80)


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
def test_only_what_is_wanted_stays_and_more_can_follow(added: list[tuple[int, float]]) -> None:
    row = TransitionRow()
    for slot, weight in added:
        row.add(slot, weight)
    odd = {slot for slot, _ in added if slot % 2}
    gone = row.keep(np.asarray(row.slots % 2 == 1))
    assert set(gone.tolist()) == {slot for slot, _ in added} - odd
    assert set(row.slots.tolist()) == odd
    row.add(100, 1.0)
    assert len(row) == len(odd) + 1
