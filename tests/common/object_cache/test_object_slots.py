"""Slots are stable while an object is in the catalogue, and used again afterwards."""

from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.object_cache.object_slots import ObjectSlots

CATALOGUES = st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True), max_size=8)


@given(catalogues=CATALOGUES)
def test_every_object_has_a_slot_of_its_own_that_does_not_change(catalogues: list[list[str]]) -> None:
    objects = ObjectSlots()
    for catalogue in catalogues:
        before = dict(objects.by_id)
        objects.remove([name for name in before if name not in catalogue])
        objects.add([name for name in catalogue if name not in before])
        assert set(objects.by_id) == set(catalogue)
        assert len(set(objects.by_id.values())) == len(objects) == len(catalogue)
        assert all(objects.by_id[name] == before[name] for name in catalogue if name in before)
        assert objects.names(objects.by_id.values()) == tuple(objects.by_id)
        assert int(objects.present.sum()) == len(catalogue)
    assert len(objects.present) <= 8


def test_one_unknown_object_makes_a_list_unknown() -> None:
    objects = ObjectSlots()
    objects.add(["a", "b"])
    assert objects.of("ba") == (1, 0)
    assert objects.of("bc") is None
