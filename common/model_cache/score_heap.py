"""Scores of resident models with the lowest first: a heap that corrects an entry when it comes to the top.

LFU and GDSF raise the score of a model with every request. Such a request costs an assignment, and only an
eviction touches the heap. The importance queue of mCache removes and inserts models, but raises none.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush

from nearsight.common.model_cache.policy import ModelCosts, Victim

_Entry = tuple[float, float, str]
"""Score, tie, model."""


class ScoreHeap:
    """Scores of models. Of equal scores the lower ``tie`` goes first, by default the one set first."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._heap: list[_Entry] = []
        """For each model its entry, or an earlier and lower one; besides, entries that nothing needs."""
        self._settings = 0

    def __contains__(self, model: str) -> bool:
        return model in self._entries

    def __getitem__(self, model: str) -> float:
        return self._entries[model][0]

    def add(self, model: str, score: float, tie: float | None = None) -> None:
        """A model comes."""
        self._settings += 1
        entry = self._entries[model] = (score, self._settings if tie is None else tie, model)
        heappush(self._heap, entry)

    def grow(self, model: str, score: float) -> None:
        """Replace a score by one that is not lower."""
        self._settings += 1
        self._entries[model] = (score, self._settings, model)

    def remove(self, model: str) -> None:
        """A model goes."""
        del self._entries[model]

    def lowest(self, evictable: Mapping[str, ModelCosts], needed_bytes: int) -> list[Victim]:
        """Evictable models from the lowest score on, until their bytes suffice."""
        chosen: list[Victim] = []
        seen: dict[str, _Entry] = {}
        while needed_bytes > 0 and self._heap:
            entry = heappop(self._heap)
            model = entry[2]
            now = self._entries.get(model)
            if now is None or model in seen:
                continue  # of a model that has gone, or from before it went and came again
            if entry != now:
                heappush(self._heap, now)
                continue
            seen[model] = entry
            if model in evictable:
                chosen.append(Victim(model, entry[0]))
                needed_bytes -= evictable[model].size_bytes
        for entry in seen.values():  # they are still resident
            heappush(self._heap, entry)
        return chosen
