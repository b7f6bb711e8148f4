"""What a request flow gets and orders: queries and stages; effects, which drivers carry out.

The flow itself is in `flow`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from nearsight.common.errors import NearsightError
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.request.answer import Answer, Lesson
from nearsight.common.request.forms import Payload


@dataclass(frozen=True, slots=True)
class Extract:
    """Effect: extract so many features from the image; the event is `RequestFlow.made`."""

    features: int


@dataclass(frozen=True, slots=True)
class Encode:
    """Effect: make an image file that can be sent; the event is `RequestFlow.made`."""


Work = Extract | Encode


class Query(Protocol):
    """A photo on its way through one tier. Its driver brings it into the forms that the flow asks for."""

    @property
    def has_image(self) -> bool:
        """Whether there is an image, not only features that somebody else extracted."""

    @property
    def asked_again(self) -> bool:
        """Whether its features were unknown to this tier and those behind it a moment ago."""

    @property
    def one_look(self) -> bool:
        """Whether more photos of the same follow: no tier need look again at what is unknown at first."""

    def payloads(self, features_bytes: int) -> Sequence[Payload]:
        """The forms in which it could be sent; features that are not there yet have the given size."""

    def missing(self, form: str) -> Work | None:
        """What must be done before it can be sent in this form; None if nothing."""

    def missing_features(self, count: int) -> Work | None:
        """What must be done before a stage can look at so many features; None if nothing."""


Q = TypeVar("Q", bound=Query)
Q_contra = TypeVar("Q_contra", bound=Query, contravariant=True)


class Stage(Protocol[Q_contra]):
    """Something in a tier that may answer a query, such as its object cache."""

    grain: str
    """What it caches."""

    def features_wanted(self, query: Q_contra) -> int | None:
        """Features that a look needs, 0 if none; None if it must not look at this query now."""

    def look(self, query: Q_contra) -> RecognizedObject | None:
        """What the photo shows; notes its own hit. May take long: drivers call it where that is allowed."""

    def learn(self, query: Q_contra, answer: Answer, lesson: Lesson | None) -> None:
        """An answer came from elsewhere: from the next tier, or (no lesson) from a stage behind this one."""


class Standby(Stage[Q_contra], Protocol[Q_contra]):
    """A stage that looks only while no tier answers."""

    @property
    def complete(self) -> bool:
        """Whether it has all that the tiers have: then its unknown is an answer."""


@dataclass(frozen=True, slots=True)
class Look(Generic[Q]):
    """Effect: let this stage look at the query; the event is `RequestFlow.looked`."""

    stage: Stage[Q]


@dataclass(frozen=True, slots=True)
class Ask:
    """Effect: put the question to this tier; ``attempt`` comes back with its answer or failure."""

    tier: str
    form: str
    """Whom, and in which form."""
    timeout_s: float
    """The longest to wait."""
    attempt: int
    """Number of the question, from 0."""
    again: bool = False
    """The tier has just said that the features are unknown."""


@dataclass(frozen=True, slots=True)
class Finish(Generic[Q]):
    """Effect: this is the outcome, the only one."""

    outcome: Answer | NearsightError
    lesson: Lesson | None = None
    """Of an answer of another tier."""
    learners: tuple[Stage[Q], ...] = ()
    """Those that should learn it: all stages of the tier that did not find the answer themselves."""


Effect = Extract | Encode | Look[Q] | Ask | Finish[Q]
