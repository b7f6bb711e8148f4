"""Building what the device answers from: off the request path, the last few kept (section 4.7).

Everything here runs in the background thread; only the swap reaches requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

from nearsight.common.clock import Clock
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.device.local_cache import LocalCache, LocalSnapshot
from nearsight.device.snapshot_lru import SnapshotLru

Build = Callable[[Sequence[ObjectModel], RecognitionSettings], ObjectRecognizer]
"""Indexes models."""

_BUILD_SHARE = 0.25
"""Of the background thread's time, at most."""


class Snapshots:
    """Swaps snapshots into a `LocalCache`.

    Parameters
    ----------
    cache : LocalCache
        What requests are answered from.
    capacity : int
        Snapshots kept by current object.
    recognition : RecognitionSettings
        The pipeline.
    clock : Clock
        Measures builds.
    build : callable
        Makes a recognizer; the simulation brings its own.
    """

    def __init__(
        self,
        cache: LocalCache,
        capacity: int,
        recognition: RecognitionSettings,
        clock: Clock,
        build: Build = ObjectRecognizer.build,
    ) -> None:
        self._cache = cache
        self._recognition = recognition
        self._clock = clock
        self._build = build
        self._kept: SnapshotLru[LocalSnapshot] = SnapshotLru(capacity)
        self._next_build_s = clock.monotonic()

    def take_up(self, current: str) -> None:
        """Use the snapshot of an object that the device goes back to; it needs no new building."""
        kept = self._kept.get(current)
        if kept is not None:
            self._cache.swap(kept)

    def serve(self, current: str, models: Sequence[ObjectModel], query_features: int) -> float:
        """Answer with these models from now on.

        Returns
        -------
        float
            0, or after how many seconds to try again: builds must leave time for the rest.
        """
        wanted = frozenset((model.object_id, model.version) for model in models)
        for known in (self._cache.snapshot, self._kept.get(current)):
            if known is not None and known.contents == wanted and known.query_features == query_features:
                self._cache.swap(known)
                return 0.0
        started_s = self._clock.monotonic()
        if models and started_s < self._next_build_s:
            return self._next_build_s - started_s
        snapshot = LocalSnapshot(self._build(models, self._recognition), query_features)
        finished_s = self._clock.monotonic()
        self._next_build_s = finished_s + (finished_s - started_s) * (1 / _BUILD_SHARE - 1)
        if models:
            self._kept.put(current, snapshot)
        self._cache.swap(snapshot)
        return 0.0

    def forget(self, object_ids: Set[str]) -> None:
        """Drop kept snapshots with these objects; the one that answers stays."""
        self._kept.drop(lambda snapshot: not snapshot.recognizer.object_ids.isdisjoint(object_ids))

    def banish(self, object_ids: Set[str]) -> None:
        """Nothing answers with these objects any more."""
        self.forget(object_ids)
        answering = self._cache.snapshot
        if answering.recognizer.object_ids.isdisjoint(object_ids):
            return
        left = [model for name, model in answering.recognizer.models.items() if name not in object_ids]
        self._cache.swap(LocalSnapshot(self._build(left, self._recognition), answering.query_features))
