"""What a photo takes to compute at this edge at present, for devices that have sent none for a while.

While photos come, it is what the last ones took. Once nobody has asked for a while, those times may be of a
crowd that is gone: many lookups at a time share the cores, and each takes as many times longer. So each is
then divided by how many there were per core, which is told from when they began and ended.
"""

from __future__ import annotations

import statistics
from collections import deque

from nearsight.common.errors import InvalidArgument

PRESENT_S = 5.0
"""Photos of the last seconds tell of the present as they are."""
_WINDOW = 20


class RecentWork:
    """Computing times of the last photos, and what they say of one that would come now.

    Parameters
    ----------
    servers : int
        Photos that are computed at the same time without making each other slower.

    Raises
    ------
    InvalidArgument
        If there is no server.
    """

    def __init__(self, servers: int) -> None:
        if servers < 1:
            raise InvalidArgument(f"an edge has at least one server, got {servers}")
        self._servers = servers
        self._work: deque[tuple[float, float]] = deque(maxlen=_WINDOW)  # begin and end, in the order of ends

    def observe(self, ended_s: float, compute_ms: float) -> None:
        """A photo was computed for so long, until now."""
        self._work.append((ended_s - compute_ms / 1e3, ended_s))

    def expected_ms(self, now_s: float) -> float | None:
        """Median of what a photo takes now; None if there was none yet."""
        if not self._work:
            return None
        present = [end - begin for begin, end in self._work if now_s - end <= PRESENT_S]
        times_s = present or [(end - begin) / self._crowd(begin, end) for begin, end in self._work]
        return statistics.median(times_s) * 1e3

    def _crowd(self, begin_s: float, end_s: float) -> float:
        """How many photos were computed at the same time per server, in the mean; at least 1."""
        length_s = end_s - begin_s
        if length_s <= 0:
            return 1.0
        shared_s = sum(max(0.0, min(end, end_s) - max(begin, begin_s)) for begin, end in self._work)
        return max(1.0, shared_s / length_s / self._servers)
