"""A network as a stage of the request flow: classifies the photo."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nearsight.common.inference.classification import classify
from nearsight.common.inference.leases import Lease
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.request.answer import NETWORK, Answer, Lesson
from nearsight.edge.query import EdgeQuery
from nearsight.edge.services import EdgeServices


@dataclass(eq=False)
class NetworkStage:
    """The leased network of one request.

    If it finds nothing, the result "unknown" is final, since the cloud has the same network.
    """

    grain = NETWORK

    lease: Lease
    """Released by the caller."""
    deadline_s: float
    """Deadline of the request, on the clock."""
    services: EdgeServices
    """Provide the clock, and the load control, which gets the time of each execution."""

    def features_wanted(self, query: EdgeQuery) -> int | None:
        """No features (0) if the query has an image, which this stage needs; else None."""
        return 0 if query.has_image else None

    def look(self, query: EdgeQuery) -> RecognizedObject | None:
        """The label of the photo; None if the confidence is too low."""
        if query.image is None:
            return None
        began_s = self.services.clock.monotonic()
        within_s = max(0.0, self.deadline_s - began_s)
        found = classify(self.lease, query.image, query.recognition.limits, within_s)
        self.services.load.computed((self.services.clock.monotonic() - began_s) * 1e3)
        if found is not None and self.lease.stands_in:
            return replace(found, metadata={"network": self.lease.manifest.name})
        return found

    def learn(self, query: EdgeQuery, answer: Answer, lesson: Lesson | None) -> None:
        """No effect: networks are trained elsewhere."""
