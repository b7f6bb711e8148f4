"""Results of objects, which are found by any view of them.

Who stands before an exhibit moves, and so sees one view of it after the other. If each view had a result of
its own, each would be verified from the beginning. So all views of an object share one result and its
schedule of verifications; what the classifier says of a photo tells which object its view joins. The shared
result serves while the classifier has seen nothing else of the client since: who comes back is verified once.

A view that was taken for one object and turns out to show another has a result of its own from then on: two
exhibits may share a view, and such a view is to be verified for itself.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

from nearsight.common.result_cache.image_keys import Alternatives
from nearsight.common.result_cache.result_cache import Entry, Refresh, ResultCache

Y = TypeVar("Y")


class Shown(NamedTuple):
    """The key of a result that all views of an object share."""

    client: str
    """Whose photos; clients do not share results."""
    object_id: str


class ViewCache(Generic[Y]):
    """A result cache of photos, each with several keys. Not thread-safe.

    Parameters
    ----------
    refresh : Refresh
        When results are verified.
    size : int
        Largest number of results.
    keys : int
        That are remembered for each result, on average; by default those of four views of an object.
    ttl_s : float
        A result that was not confirmed for so long is forgotten.

    Attributes
    ----------
    results : ResultCache
        Under what the objects are called, or under the key of a view that is apart from them.
    """

    def __init__(self, refresh: Refresh, size: int, *, keys: int = 32, ttl_s: float = math.inf) -> None:
        self.results: ResultCache[Hashable, Y] = ResultCache(refresh, size, ttl_s=ttl_s)
        self._size = keys * size
        self._views = Alternatives(self._size)
        self._before: OrderedDict[str, Shown] = OrderedDict()
        """What the classifier saw last of each client."""

    def find(self, keys: Sequence[Hashable], now_s: float) -> tuple[Hashable, Entry[Y] | None]:
        """Under what a photo with these keys is looked up, None without keys; and what is served, if any."""
        key = self._views.resolve(keys)
        if key is None:
            return None, None
        if isinstance(key, Shown) and key in self.results and self._before.get(key.client) != key:
            self.results.counts.verifying += 1  # the client came back, or the view is one of two objects
            return key, None
        return key, self.results.find(key, now_s)

    def learn(
        self, keys: Sequence[Hashable], looked_up: Hashable, shown: Shown | None, value: Y, now_s: float
    ) -> None:
        """The classifier saw a photo with these keys.

        Parameters
        ----------
        keys : sequence of hashable
            Of the photo; at least one.
        looked_up : hashable
            What `find` said.
        shown : Shown, optional
            The object, and who sees it. None: the keys tell too little apart, each view has its own result.
        value : Y
            The result.
        now_s : float
        """
        key: Hashable = looked_up
        if shown is not None:
            self._before[shown.client] = shown
            self._before.move_to_end(shown.client)
            if len(self._before) > self._size:
                self._before.popitem(last=False)
            if looked_up not in self.results:
                self._views.part(keys)
                key = shown
            elif isinstance(looked_up, Shown) and looked_up != shown:
                self.results.contradict(looked_up)
                self._views.part(keys)
                key = keys[0]
        self._views.join(keys, key)
        self.results.learn(key, value, now_s)

    def contradict(self, looked_up: Hashable) -> None:
        """The classifier does not know a photo: what was kept under this key was wrong, and goes."""
        self.results.contradict(looked_up)

    def forget(self) -> None:
        """Forget all results and views."""
        self.results.invalidate(lambda _key, _value: True)
        self._views = Alternatives(self._size)
