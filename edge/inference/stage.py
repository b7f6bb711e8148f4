"""A network as a stage of the request flow: it names the class that a photo shows."""

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
    """The network of one request, which is in memory as long as the lease holds.

    Its unknown is final: the cloud has the same network.

    Parameters
    ----------
    lease : Lease
        Released by whoever made the stage.
    limits : ImageLimits
        Of photos.
    load : LoadControl
        Told how long it computed.
    deadline_s : float
        When nobody waits any more, on the clock.
    clock : Clock
        Measures looks.
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
        """It needs the photo, and no features."""
        return 0 if query.has_image else None

    def look(self, query: EdgeQuery) -> RecognizedObject | None:
        """The label of the photo; None if the network is not confident."""
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
        """Nothing: a network is trained elsewhere."""
