"""Unique keys, and list items of untrusted peers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.catalogue.training import MAX_OBJECT_ID_CHARACTERS
from nearsight.device.cooperation.protocol import (
    adapt_key,
    holder_item,
    holder_of,
    model_in,
    model_item,
    model_key,
    next_key,
    popularity_key,
)
from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.store.values import check_key

NAMES = st.text(alphabet="ab/% ", min_size=1, max_size=4)


@given(first=st.tuples(NAMES, NAMES, st.integers(1, 12)), second=st.tuples(NAMES, NAMES, st.integers(1, 12)))
def test_different_things_have_different_keys(
    first: tuple[str, str, int], second: tuple[str, str, int]
) -> None:
    for make in (model_key, adapt_key):
        assert (make(*first) == make(*second)) == (first == second)
    assert (next_key(*first[:2]) == next_key(*second[:2])) == (first[:2] == second[:2])
    kinds = {model_key(*first), adapt_key(*first), next_key(*first[:2]), popularity_key(first[0])}
    assert len(kinds) == 4


@pytest.mark.parametrize("character", "a/%é蒙")
def test_the_longest_names_have_valid_and_different_keys(character: str) -> None:
    catalogue, names = "c" * 64, [character * (MAX_OBJECT_ID_CHARACTERS - 1) + last for last in "12"]
    keys = {model_key(catalogue, name, 2**64) for name in names}
    keys |= {f"{next_key(catalogue, name)}/1000000" for name in names}
    assert len(keys) == 4
    for key in keys:
        check_key(key)


@given(st.integers(1, 2**64 - 1))
def test_a_holder_item_is_unchanged_by_a_round_trip(number: int) -> None:
    item = holder_item(NodeId(number))
    assert holder_of(item) == number
    assert model_in(item) is None


@given(st.binary(max_size=20))
def test_invalid_bytes_are_no_holders(item: bytes) -> None:
    node = holder_of(item)
    assert node is None or holder_item(node) == item
    data = model_in(item)
    assert data is None or model_item(data) == item
