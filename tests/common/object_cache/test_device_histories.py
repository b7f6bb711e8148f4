"""Each device has its own history; the device silent for longest makes room."""

import pytest

from nearsight.common.errors import InvalidArgument
from nearsight.common.object_cache.device_histories import DeviceHistories


def test_a_history_holds_the_last_different_objects() -> None:
    histories = DeviceHistories(length=2, devices_max=10)
    before = [histories.saw("device", slot, 0.0) for slot in (1, 1, 2, 3, 3, 1)]
    assert before == [(), (1,), (1,), (1, 2), (2, 3), (2, 3)]
    assert histories.of("device", 0.0) == (3, 1)


def test_after_a_removed_object_a_history_begins_anew() -> None:
    histories = DeviceHistories(length=3, devices_max=10)
    for slot in (1, 2, 3):
        histories.saw("device", slot, 0.0)
    histories.remove([2])
    assert histories.of("device", 0.0) == (3,)


@pytest.mark.parametrize("wrong", [(0, 1, 1.0), (1, 0, 1.0), (1, 1, 0.0)])
def test_room_for_nothing_is_refused(wrong: tuple[int, int, float]) -> None:
    with pytest.raises(InvalidArgument):
        DeviceHistories(*wrong)
