"""A photo's time on the way follows that of small messages; what its bytes add is remembered."""

import math

import pytest

from nearsight.common.caching.photo_transfer import PhotoTransfer


def after(photos_ms: list[float], small_ms: list[float]) -> PhotoTransfer:
    transfer = PhotoTransfer()
    for photo in photos_ms:
        transfer.observe_photo(photo)
    for small in small_ms:
        transfer.observe_small(small)
    return transfer


@pytest.mark.parametrize(("photos_ms", "small_ms"), [([], []), ([30.0], []), ([], [10.0])])
def test_nothing_is_known_before_a_photo_and_a_small_message(
    photos_ms: list[float], small_ms: list[float]
) -> None:
    assert after(photos_ms, small_ms).expected_ms is None


def test_where_nothing_changes_it_is_what_photos_took() -> None:
    assert after([30.0, 34.0, 32.0], [10.0, 10.0]).expected_ms == 32.0


def test_a_way_that_becomes_longer_makes_photos_longer_by_as_much() -> None:
    assert after([30.0], [10.0, 25.0, 25.0]).expected_ms == 45.0


def test_one_small_message_that_was_late_changes_nothing() -> None:
    assert after([30.0], [10.0, 10.0, 900.0]).expected_ms == 30.0


def test_a_photo_is_never_quicker_than_a_small_message() -> None:
    assert after([5.0], [10.0]).expected_ms == 10.0


def test_the_last_photos_say_what_bytes_add() -> None:
    transfer = after([30.0], [10.0])
    for _ in range(5):
        transfer.observe_photo(15.0)
    transfer.observe_small(10.0)
    assert transfer.expected_ms == 15.0


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0])
def test_times_that_cannot_be_are_ignored(wrong: float) -> None:
    transfer = after([30.0, wrong], [wrong, 10.0, wrong])
    assert transfer.expected_ms == 30.0
