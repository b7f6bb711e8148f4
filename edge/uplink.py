"""What the cloud gets on a miss: the features or the image, whichever is expected to be answered sooner."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from nearsight.common.caching.link_estimate import LinkEstimate
from nearsight.common.caching.offload_choice import FEATURES, IMAGE, OffloadChoice, Payload
from nearsight.common.rpc.envelope import Hop
from nearsight.edge.settings import Forward

_FIRST_GUESS_MS = ((FEATURES, 20.0), (IMAGE, 40.0))
_BYTES_PER_FEATURE = 38
_NEWEST_WEIGHT = 0.1


@dataclass(frozen=True, slots=True)
class Surplus:
    """How much longer a photo takes whose features are not here.

    Attributes
    ----------
    first_ms : float
        Until the cloud's first answer.
    last_ms : float
        Until the last one, averaged over photos that are known at once and photos that are not.
    """

    first_ms: float = 0.0
    last_ms: float = 0.0


class Uplink:
    """Chooses what to send, and learns from the answers; for all threads.

    Parameters
    ----------
    forward : {"auto", "features", "image"}
        ``auto`` decides by measured bandwidth, sizes and computing times.
    query_features : int
        Features of a query, for the size that is assumed at first.
    """

    def __init__(self, forward: Forward, query_features: int) -> None:
        self._forward = forward
        self._choice = OffloadChoice(LinkEstimate(), dict(_FIRST_GUESS_MS))
        self._features_bytes = float(query_features * _BYTES_PER_FEATURE)
        self._lock = threading.Lock()
        self._why = "nothing sent yet"

    def sends_features(
        self, image_bytes: int | None, features_bytes: int | None, extraction_ms: float | None
    ) -> bool:
        """Whether features should be sent, else the image.

        Parameters
        ----------
        image_bytes, features_bytes : int, optional
            What is there; at least one of them.
        extraction_ms : float, optional
            What features would cost that are not there; None if they must not be made.
        """
        if image_bytes is None:
            return True
        if features_bytes is None and extraction_ms is None:
            return False
        if self._forward != "auto":
            return self._forward == FEATURES
        with self._lock:
            if features_bytes is None:
                features = Payload(FEATURES, round(self._features_bytes), extraction_ms or 0.0)
            else:
                features = Payload(FEATURES, features_bytes)
            decision = self._choice.choose([features, Payload(IMAGE, image_bytes)])
            self._why = decision.why
        return decision.form == FEATURES

    def surplus(self, image_bytes: int, extraction_ms: float | None) -> Surplus:
        """What it costs more to pass on a photo whose features are not here.

        An edge that looks into its cache has the features when it misses; an empty one sends the photo, or
        makes the features first. The difference belongs to f(0), not to the miss latency: else it would be
        counted against every cache size, and an edge once empty would find all others too slow.

        Parameters
        ----------
        image_bytes : int
            Of the photo.
        extraction_ms : float, optional
            What its features would cost; None if they must not be made.
        """
        if self._forward != "auto":
            spent_ms = extraction_ms or 0.0 if self._forward == FEATURES else 0.0
            return Surplus(spent_ms, spent_ms)
        with self._lock:
            image, size_bytes = Payload(IMAGE, image_bytes), round(self._features_bytes)
            forms = [] if extraction_ms is None else [Payload(FEATURES, size_bytes, extraction_ms)]
            ready = self._choice.expected_ms([Payload(FEATURES, size_bytes), image])
            empty = self._choice.expected_ms([*forms, image])
        return Surplus(max(0.0, empty.first_ms - ready.first_ms), max(0.0, empty.last_ms - ready.last_ms))

    def observe(self, form: str, size_bytes: int, round_trip_ms: float, hops: Sequence[Hop]) -> None:
        """The cloud answered."""
        if not hops:
            return
        cloud = hops[-1]
        transfer_ms = round_trip_ms - cloud.queue_ms - cloud.compute_ms - cloud.next_tier_ms
        with self._lock:
            self._choice.observe(form, size_bytes, transfer_ms, cloud.compute_ms)
            if form == FEATURES:
                self._features_bytes += _NEWEST_WEIGHT * (size_bytes - self._features_bytes)

    def observe_outcome(self, *, unknown: bool) -> None:
        """What became of a photo that there was a choice for: see `OffloadChoice.observe_outcome`."""
        with self._lock:
            self._choice.observe_outcome(unknown=unknown)

    def why(self) -> str:
        """The last choice in one line, for a person."""
        with self._lock:
            return self._why if self._forward == "auto" else f"always {self._forward}"
