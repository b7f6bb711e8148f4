"""What clairvoyant policies know: the requests to come. For experiments only."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Sequence


class Future:
    """The place of each model's next request.

    Parameters
    ----------
    requests : sequence of str
        Models in the order in which they will be requested.
    """

    def __init__(self, requests: Sequence[str]) -> None:
        self._places: defaultdict[str, deque[int]] = defaultdict(deque)
        for place, model in enumerate(requests):
            self._places[model].append(place)
        self._place = -1

    def requested(self, model: str) -> None:
        """The next request has come."""
        self._place += 1
        places = self._places[model]
        while places and places[0] <= self._place:
            places.popleft()

    def requests_until(self, model: str) -> float:
        """B of CremeBrulee: requests until the next one for this model; ``inf`` if there is none."""
        places = self._places.get(model)
        return places[0] - self._place if places else math.inf
