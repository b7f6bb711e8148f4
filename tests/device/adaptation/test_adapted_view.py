"""Encoding of adapted views: round trips, and refusal of invalid bytes."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import InvalidArgument, InvalidMessage
from nearsight.device.adaptation.adapted_view import AdaptedView, view_from_bytes, view_to_bytes
from nearsight.protos.peers_pb2 import AdaptedViewMessage

LIMIT = 16 * 1024


def view(indices: list[int], object_id: str = "mona-lisa") -> AdaptedView:
    descriptors = np.random.default_rng(len(indices)).integers(0, 256, (len(indices), 32), np.uint8)
    return AdaptedView(object_id, 3, 1, np.array(indices, np.int32), descriptors)


@given(st.sets(st.integers(0, 2**16 - 1), max_size=300))
def test_a_view_is_unchanged_by_a_round_trip(indices: set[int]) -> None:
    before = view(sorted(indices))
    after = view_from_bytes(view_to_bytes(before), LIMIT)
    assert (after.object_id, after.version, after.view) == (before.object_id, before.version, before.view)
    assert np.array_equal(after.indices, before.indices)
    assert np.array_equal(after.descriptors, before.descriptors)
    assert view_to_bytes(after) == view_to_bytes(before)


def test_the_largest_view_that_is_learned_fits_into_an_item() -> None:
    assert len(view_to_bytes(view(list(range(300)), "x" * 1000))) <= LIMIT


@given(st.binary(max_size=400))
def test_any_bytes_are_a_view_or_an_invalid_message(data: bytes) -> None:
    with contextlib.suppress(InvalidMessage):
        view_from_bytes(data, LIMIT)


@given(st.integers(0, 7000), st.integers(0, 255))
def test_a_damaged_view_is_a_view_or_an_invalid_message(place: int, byte: int) -> None:
    data = bytearray(view_to_bytes(view(list(range(0, 400, 2)))))
    data[place % len(data)] = byte
    with contextlib.suppress(InvalidMessage):
        view_from_bytes(bytes(data), LIMIT)


@pytest.mark.parametrize(
    "message",
    [
        AdaptedViewMessage(features=b"\x01\x00", descriptors=bytes(31)),
        AdaptedViewMessage(features=b"\x01\x00\x02", descriptors=bytes(32)),
        AdaptedViewMessage(features=b"\x01\x00\x01\x00", descriptors=bytes(64)),
        AdaptedViewMessage(features=b"\x02\x00\x01\x00", descriptors=bytes(64)),
    ],
    ids=["short descriptor", "half an index", "one feature twice", "falling"],
)
def test_parts_that_do_not_fit_are_refused(message: AdaptedViewMessage) -> None:
    with pytest.raises(InvalidMessage):
        view_from_bytes(message.SerializeToString(), LIMIT)


def test_an_item_over_the_limit_is_not_even_parsed() -> None:
    with pytest.raises(InvalidMessage, match="limit"):
        view_from_bytes(bytes(LIMIT + 1), LIMIT)


def test_a_feature_beyond_the_wire_format_is_the_callers_mistake() -> None:
    with pytest.raises(InvalidArgument):
        view_to_bytes(view([2**16]))
