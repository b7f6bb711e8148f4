"""A cache of results of objects, which are found by any view of the object.

Visitors move in front of an exhibit and photograph it in a series of views. If each view had its own result,
each would be verified from the start. So all views of an object share one result and one schedule of
verifications. The result of the classifier determines which object a view joins. The shared result is served
as long as the classifier found no other object for the client in the meantime. After a return to the object,
it is verified once.

A view that was assigned to one object and turns out to show another gets its own result. Two exhibits may
share a view; such a view must be verified separately.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

from nearsight.common.result_cache.image_keys import Alternatives
from nearsight.common.result_cache.result_cache import Entry, Refresh, ResultCache

Y = TypeVar("Y")

_KEYS = 32
"""Maximum number of stored keys per result, on average: those of four views of an object."""


class ObjectKey(NamedTuple):
    """The key of a result that all views of an object share."""

    client: str
    """Client that sent the photos; results are not shared between clients."""
    object_id: str


class ViewCache(Generic[Y]):
    """A result cache of photos, each with several keys. Not thread-safe.

    Parameters
    ----------
    refresh : Refresh
        Schedule of verifications.
    size : int
        Maximum number of results.
    ttl_s : float
        Time after which a result that was not confirmed is deleted [s].

    Attributes
    ----------
    results : ResultCache
        Results by object (`ObjectKey`), or by key for a view with its own result.
    """

    def __init__(self, refresh: Refresh, size: int, *, ttl_s: float = math.inf) -> None:
        self.results: ResultCache[Hashable, Y] = ResultCache(refresh, size, ttl_s=ttl_s)
        self._size = _KEYS * size
        self._views = Alternatives(self._size)
        self._before: OrderedDict[str, ObjectKey] = OrderedDict()
        """Last object that the classifier found for each client."""

    def find(self, keys: Sequence[Hashable], now_s: float) -> tuple[Hashable, Entry[Y] | None]:
        """The key under which a photo is looked up (None without keys), and the entry that is served."""
        key = self._views.resolve(keys)
        if key is None:
            return None, None
        if isinstance(key, ObjectKey) and key in self.results and self._before.get(key.client) != key:
            # The client returned to the object, or two objects share the view.
            self.results.counts.verifying += 1
            return key, None
        return key, self.results.find(key, now_s)

    def learn(
        self, keys: Sequence[Hashable], looked_up: Hashable, shown: ObjectKey | None, value: Y, now_s: float
    ) -> None:
        """Store the classifier's result for a photo.

        Parameters
        ----------
        keys : sequence of hashable
            Keys of the photo; at least one.
        looked_up : hashable
            The key that `find` returned.
        shown : ObjectKey, optional
            The object and the client. None if the keys distinguish too little; each view then has its own
            result.
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
                self._views.separate(keys)
                key = shown
            elif isinstance(looked_up, ObjectKey) and looked_up != shown:
                self.results.contradict(looked_up)
                self._views.separate(keys)
                key = keys[0]
        self._views.join(keys, key)
        self.results.learn(key, value, now_s)

    def forget(self) -> None:
        """Delete all results and views."""
        self.results.invalidate()
        self._views = Alternatives(self._size)
