"""What the application gets: the recognition, who answered it, and where the time went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from nearsight.common.errors import StatusCode
from nearsight.common.recognition.results import Corners, RecognizedObject
from nearsight.common.rpc.client import Hop


@dataclass(frozen=True, slots=True)
class Attempt:
    """One tier that was asked for one request.

    Attributes
    ----------
    tier : str
        Name of the tier: "edge" or "cloud".
    outcome : StatusCode
        OK, or what went wrong there.
    elapsed_ms : float
        From the question to the answer or failure.
    """

    tier: str
    outcome: StatusCode
    elapsed_ms: float


@dataclass(frozen=True, slots=True)
class TierAnswer:
    """What one tier, or the cache of the device itself, answered; corners are in the application's image."""

    found: RecognizedObject | None
    answered_by: str
    hops: tuple[Hop, ...] = ()
    sent_bytes: int = 0
    received_bytes: int = 0

    def after(self, first: TierAnswer) -> TierAnswer:
        """The answer to a second message, with the bytes of both."""
        return replace(
            self,
            sent_bytes=first.sent_bytes + self.sent_bytes,
            received_bytes=first.received_bytes + self.received_bytes,
        )


@dataclass(frozen=True, slots=True)
class Recognition:
    """The answer to one request.

    Attributes
    ----------
    object : RecognizedObject or None
        None means unknown: every tier that could know was asked and none found a verified object.
    answered_by : str
        The tier whose recognition this is: "device", "edge" or "cloud".
    latency_ms : float
        From the call of ``recognize`` to the outcome, preparation of the image included.
    hops : tuple of Hop
        What each tier spent, the answering tier first, the device itself last.
    attempts : tuple of Attempt
        The tiers that this device asked, in order; all but the last failed. None if it knew the answer.
    trace_id : str
        Finds this request in the logs of all tiers.
    sent_bytes, received_bytes : int
        On the network between this device and the tier that answered; 0 if the device itself did.
    """

    object: RecognizedObject | None
    answered_by: str
    latency_ms: float
    hops: tuple[Hop, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    trace_id: str = ""
    sent_bytes: int = 0
    received_bytes: int = 0

    @property
    def known(self) -> bool:
        """Whether an object was found."""
        return self.object is not None

    @property
    def object_id(self) -> str | None:
        """Identity of the object in the catalogue; None if unknown."""
        return self.object.object_id if self.object else None

    @property
    def label(self) -> str:
        """Name of the object for people; empty if unknown."""
        return self.object.label if self.object else ""

    @property
    def confidence(self) -> float:
        """In (0, 1]; 0 if unknown."""
        return self.object.confidence if self.object else 0.0

    @property
    def corners(self) -> Corners | None:
        """Where the object is, in pixels of the image that the application gave; None if unknown."""
        return self.object.corners if self.object else None

    @property
    def metadata(self) -> Mapping[str, str]:
        """What the catalogue says about the object; empty if unknown."""
        return self.object.metadata if self.object else {}
