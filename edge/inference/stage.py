"""A network as a stage of the request flow: classifies the photo."""

from __future__ import annotations

from dataclasses import replace

from nearsight.common.clock import Clock
from nearsight.common.inference.classification import classify
from nearsight.common.inference.leases import Lease
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.recognition.settings import ImageLimits
from nearsight.common.request.answer import NETWORK, Answer, Lesson
from nearsight.edge.load import LoadControl
from nearsight.edge.query import EdgeQuery


class NetworkStage:
    """The leased network of one request.

    If it finds nothing, the result "unknown" is final, since the cloud has the same network.

    Parameters
    ----------
    lease : Lease
        Released by the caller.
    limits : ImageLimits
        Limits of photos.
    load : LoadControl
        Receives the time of each execution.
    deadline_s : float
        Deadline of the request, on the clock.
    clock : Clock
        Measures executions.
    """

    grain = NETWORK

    def __init__(
        self, lease: Lease, limits: ImageLimits, load: LoadControl, deadline_s: float, clock: Clock
    ) -> None:
        self._lease = lease
        self._limits = limits
        self._load = load
        self._deadline_s = deadline_s
        self._clock = clock

    def features_wanted(self, query: EdgeQuery) -> int | None:
        """No features (0) if the query has an image, which this stage needs; else None."""
        return 0 if query.has_image else None

    def look(self, query: EdgeQuery) -> RecognizedObject | None:
        """The label of the photo; None if the confidence is too low."""
        if query.image is None:
            return None
        began_s = self._clock.monotonic()
        within_s = max(0.0, self._deadline_s - began_s)
        found = classify(self._lease, query.image, self._limits, within_s)
        self._load.computed((self._clock.monotonic() - began_s) * 1e3)
        if found is not None and self._lease.stands_in:
            return replace(found, metadata={"network": self._lease.manifest.name})
        return found

    def learn(self, query: EdgeQuery, answer: Answer, lesson: Lesson | None) -> None:
        """No effect: networks are trained elsewhere."""
