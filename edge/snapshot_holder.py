"""The snapshot that answers (the Recognizer of figure 3.5): immutable, and replaced as a whole.

`SnapshotHolder` has it; `SnapshotBuilder` builds the next one, and tells metrics and log.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from nearsight.common.clock import Clock
from nearsight.common.logging import get_logger
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.edge.metrics import EdgeMetrics


class SnapshotHolder:
    """Holds the snapshot that answers now.

    A request takes `snapshot` once and uses that one to its end: it always sees a complete model, whether a
    new one is swapped in meanwhile or not.

    Parameters
    ----------
    settings : RecognitionSettings
        The recognition pipeline.

    Raises
    ------
    ConfigurationError, MissingDependency
        If the backend does not exist or its library is missing.
    """

    def __init__(self, settings: RecognitionSettings) -> None:
        self._settings = settings
        self.snapshot = self.build(())
        """What answers now. Binding it is atomic: no lock stands between a request and its snapshot."""

    def build(self, models: Iterable[ObjectModel]) -> ObjectRecognizer:
        """Index these models, beside the snapshot that answers."""
        return ObjectRecognizer.build(models, self._settings)

    def swap(self, snapshot: ObjectRecognizer) -> None:
        """Answer from this snapshot from now on."""
        self.snapshot = snapshot


class SnapshotBuilder:
    """Builds the snapshots of one catalogue, one at a time; a share of the time at most goes into that.

    Parameters
    ----------
    holder : SnapshotHolder
        Builds them, and holds the one that answers.
    build_share : float
        Most of the time that may pass in builds, above 0 and at most 1.
    clock : Clock
        The time.
    metrics : EdgeMetrics
        Told of each build.
    catalogue : str
        Whose.
    """

    def __init__(
        self,
        holder: SnapshotHolder,
        build_share: float,
        clock: Clock,
        metrics: EdgeMetrics,
        catalogue: str,
    ) -> None:
        self._holder = holder
        self._build_share = build_share
        self._clock = clock
        self._metrics = metrics
        self._catalogue = catalogue
        self._log = get_logger("cache").bind(catalogue=catalogue)
        self._next_s = -math.inf

    def pause_s(self) -> float:
        """How long to wait for the next build; 0 if it may be now."""
        return max(0.0, self._next_s - self._clock.monotonic())

    def end_pause(self) -> None:
        """The next build may be now: what is outdated goes at once."""
        self._next_s = -math.inf

    def build(self, models: Iterable[ObjectModel], why: str) -> ObjectRecognizer:
        """Build a snapshot of these models, and swap it in."""
        started_s = self._clock.monotonic()
        snapshot = self._holder.build(models)
        self._holder.swap(snapshot)
        finished_s = self._clock.monotonic()
        build_s = finished_s - started_s
        self._next_s = finished_s + build_s * (1 / self._build_share - 1)
        metrics = self._metrics
        metrics.builds.labels(self._catalogue).inc()
        metrics.build_seconds.labels(self._catalogue).inc(build_s)
        metrics.cached_objects.labels(self._catalogue).set(len(snapshot))
        self._log.info(
            "snapshot",
            objects=len(snapshot),
            backend=snapshot.backend,
            build_ms=round(build_s * 1e3),
            why=why,
        )
        return snapshot
