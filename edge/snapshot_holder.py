"""The active snapshot (the Recognizer of figure 3.5): immutable, and replaced as a whole.

`SnapshotHolder` holds it. `SnapshotBuilder` builds the next one, and updates metrics and log.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from nearsight.common.clock import Clock
from nearsight.common.logging import get_logger
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.edge.metrics import EdgeMetrics


class SnapshotHolder:
    """Holds the active snapshot.

    A request reads `snapshot` once and uses that object to its end. Thus it always sees a complete index,
    even if a new snapshot is swapped in meanwhile.

    Parameters
    ----------
    settings : RecognitionSettings
        Recognition settings.

    Raises
    ------
    ConfigurationError, MissingDependency
        If the backend does not exist, or its library is missing.
    """

    def __init__(self, settings: RecognitionSettings) -> None:
        self._settings = settings
        self.snapshot = self.build(())
        """The active snapshot. Assignment is atomic, so that requests need no lock."""

    def build(self, models: Iterable[ObjectModel]) -> ObjectRecognizer:
        """Build an index of these models, beside the active snapshot."""
        return ObjectRecognizer.build(models, self._settings)

    def swap(self, snapshot: ObjectRecognizer) -> None:
        """Make this snapshot the active one."""
        self.snapshot = snapshot


@dataclass(eq=False)
class SnapshotBuilder:
    """Builds the snapshots of one catalogue, one at a time, within a limited share of time."""

    holder: SnapshotHolder
    """Builds snapshots, and holds the active one."""
    build_share: float
    """Maximum share of time for builds, above 0 and at most 1."""
    clock: Clock
    """Source of time."""
    metrics: EdgeMetrics
    """Receives the duration of each build."""
    catalogue: str
    """Name of the catalogue."""
    _next_s: float = field(default=-math.inf, init=False)

    def pause_s(self) -> float:
        """Remaining pause before the next build [s]; 0 if it may start now."""
        return max(0.0, self._next_s - self.clock.monotonic())

    def end_pause(self) -> None:
        """Permit the next build now, because outdated objects must be removed at once."""
        self._next_s = -math.inf

    def build(self, models: Iterable[ObjectModel], why: str) -> ObjectRecognizer:
        """Build a snapshot of these models, and swap it in."""
        started_s = self.clock.monotonic()
        snapshot = self.holder.build(models)
        self.holder.swap(snapshot)
        finished_s = self.clock.monotonic()
        build_s = finished_s - started_s
        self._next_s = finished_s + build_s * (1 / self.build_share - 1)
        metrics = self.metrics
        metrics.builds.labels(self.catalogue).inc()
        metrics.build_seconds.labels(self.catalogue).inc(build_s)
        metrics.cached_objects.labels(self.catalogue).set(len(snapshot))
        get_logger("cache").info(
            "snapshot",
            catalogue=self.catalogue,
            objects=len(snapshot),
            backend=snapshot.backend,
            build_ms=round(build_s * 1e3),
            why=why,
        )
        return snapshot
