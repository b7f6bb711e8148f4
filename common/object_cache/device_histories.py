"""What each device saw last: one history per device, and never more devices than there is room for.

The Markov counts are shared by all devices, the histories are not: with a single history the exhibits of
different visitors would seem to follow each other.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable

from nearsight.common.errors import InvalidArgument


class DeviceHistories:
    """The last few different objects of the devices that were heard of last.

    Parameters
    ----------
    length : int
        Objects per history.
    devices_max : int
        Devices that are remembered; the one silent for longest makes room.
    pause_s : float
        After a silence of this length a device begins anew: nobody walked straight from what it saw
        yesterday to what it sees today.

    Raises
    ------
    InvalidArgument
        If a parameter is not positive.
    """

    def __init__(self, length: int, devices_max: int, pause_s: float = math.inf) -> None:
        if length < 1 or devices_max < 1 or not pause_s > 0:
            raise InvalidArgument(
                f"length, devices and pause must be above 0, got {length}, {devices_max} and {pause_s} s"
            )
        self._length = length
        self._devices_max = devices_max
        self._pause_s = pause_s
        self._last: OrderedDict[str, tuple[tuple[int, ...], float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._last)

    def of(self, device_id: str, now_s: float) -> tuple[int, ...]:
        """The device's last objects, the latest last; empty for a device that is not known (any more)."""
        history, heard_s = self._last.get(device_id, ((), now_s))
        return history if now_s - heard_s < self._pause_s else ()

    def saw(self, device_id: str, slot: int, now_s: float) -> tuple[int, ...]:
        """Append an object, unless the device saw that last as well; returns the history from before."""
        before = self.of(device_id, now_s)
        after = before if before[-1:] == (slot,) else (*before, slot)[-self._length :]
        self._last[device_id] = (after, now_s)
        self._last.move_to_end(device_id)
        if len(self._last) > self._devices_max:
            self._last.popitem(last=False)
        return before

    def remove(self, slots: Iterable[int]) -> None:
        """Objects left the catalogue: histories begin anew after them."""
        gone = frozenset(slots)
        for device_id, (history, heard_s) in self._last.items():
            last_gone = max((at for at, slot in enumerate(history) if slot in gone), default=-1)
            if last_gone >= 0:
                self._last[device_id] = (history[last_gone + 1 :], heard_s)
