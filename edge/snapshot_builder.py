"""Building the snapshot that answers: models in, a new recognizer swapped in, and what follows from that."""

from __future__ import annotations

import math
from collections.abc import Collection

from nearsight.common.logging import get_logger
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.edge.idle_prefetch import IdlePrefetch
from nearsight.edge.model_supply import ModelSupply
from nearsight.edge.recognizer import Recognizer
from nearsight.edge.request_distribution import DistributionEstimator
from nearsight.edge.services import EdgeServices


class SnapshotBuilder:
    """Builds snapshots beside the one that answers, in the background thread.

    Parameters
    ----------
    name : str
        Of the catalogue.
    recognizer : Recognizer
        Gets the snapshots.
    supply : ModelSupply
        Has the models; told what was built.
    estimator : DistributionEstimator
        Told what entered the cache.
    prefetch : IdlePrefetch
        Told which guests came and went.
    services : EdgeServices
        Clock and metrics.
    share : float
        Most of one core's time that goes into building: after each build there is a pause.
    """

    def __init__(
        self,
        name: str,
        recognizer: Recognizer,
        supply: ModelSupply,
        estimator: DistributionEstimator,
        prefetch: IdlePrefetch,
        services: EdgeServices,
        share: float,
    ) -> None:
        self._name = name
        self._recognizer = recognizer
        self._supply = supply
        self._estimator = estimator
        self._prefetch = prefetch
        self._clock = services.clock
        self._metrics = services.metrics
        self._share = share
        self._next_build_s = -math.inf
        self._log = get_logger("cache").bind(catalogue=name)

    def pause_s(self) -> float:
        """How long to wait for the next build; 0 if it may be now."""
        return max(0.0, self._next_build_s - self._clock.monotonic())

    def hurry(self) -> None:
        """The next build need not wait."""
        self._next_build_s = -math.inf

    def build(self, residents: frozenset[str], guests: Collection[str], why: str) -> None:
        """Build a snapshot of these objects, those whose models are here, and swap it in."""
        started_s = self._clock.monotonic()
        names = sorted(residents.union(guests))
        models = [model for name in names if (model := self._supply.held(name)) is not None]
        former = self._recognizer.snapshot
        snapshot = self._recognizer.build(models)
        self._recognizer.swap(snapshot)
        finished_s = self._clock.monotonic()
        build_s = finished_s - started_s
        self._next_build_s = finished_s + build_s * (1 / self._share - 1)
        self._estimator.entered(snapshot.object_ids)
        self._count_guests(snapshot.object_ids & frozenset(guests), residents)
        self._supply.built(former, snapshot)
        self._show(snapshot, build_s, why)

    def _count_guests(self, guests: Collection[str], residents: Collection[str]) -> None:
        before = self._prefetch.count
        self._prefetch.built(guests, residents)
        after = self._prefetch.count
        self._metrics.prefetched.labels(self._name).inc(after.entered - before.entered)
        self._metrics.prefetch_wasted.labels(self._name).inc(after.wasted - before.wasted)

    def _show(self, snapshot: ObjectRecognizer, build_s: float, why: str) -> None:
        self._metrics.builds.labels(self._name).inc()
        self._metrics.build_seconds.labels(self._name).inc(build_s)
        self._metrics.cached_objects.labels(self._name).set(len(snapshot))
        self._log.info(
            "snapshot",
            objects=len(snapshot),
            backend=snapshot.backend,
            build_ms=round(build_s * 1e3),
            why=why,
        )
