"""Interfaces of a request flow: queries and stages, and the effects that drivers carry out.

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
    """Effect: extract this number of features from the image; the next event is `RequestFlow.made`."""

    features: int


@dataclass(frozen=True, slots=True)
class Encode:
    """Effect: encode the image as a file for sending; the next event is `RequestFlow.made`."""


Work = Extract | Encode


class Query(Protocol):
    """A photo during its request. Its driver converts it to the forms that the flow needs."""

    @property
    def has_image(self) -> bool:
        """Whether an image is available, not only features that were extracted elsewhere."""

    @property
    def asked_again(self) -> bool:
        """Whether this tier and those behind it recently answered that its features are unknown."""

    @property
    def one_look(self) -> bool:
        """Whether further photos of the same scene follow, so that an unknown photo needs no second look."""

    def payloads(self, features_bytes: int) -> Sequence[Payload]:
        """The possible forms of the photo; features not yet extracted have the size ``features_bytes``."""

    def missing(self, form: str) -> Work | None:
        """Work needed before the photo can be sent in this form; None if it is ready."""

    def missing_features(self, count: int) -> Work | None:
        """Work needed before a stage can look at ``count`` features; None if they are ready."""


Q = TypeVar("Q", bound=Query)
Q_contra = TypeVar("Q_contra", bound=Query, contravariant=True)


class Stage(Protocol[Q_contra]):
    """A part of a tier that may answer a query, such as its object cache."""

    grain: str
    """The grain of its answers."""

    def features_wanted(self, query: Q_contra) -> int | None:
        """Number of features needed for a look, 0 if none; None if the stage must skip this query."""

    def look(self, query: Q_contra) -> RecognizedObject | None:
        """Recognise the object in the photo and record an own hit; None if unknown. May take long."""

    def learn(self, query: Q_contra, answer: Answer, lesson: Lesson | None) -> None:
        """Learn from an answer of the next tier or, without a lesson, of another stage."""


class Standby(Stage[Q_contra], Protocol[Q_contra]):
    """A stage that looks only if no tier answers."""

    @property
    def complete(self) -> bool:
        """Whether it holds everything that the tiers have, so that its "unknown" is final."""


@dataclass(frozen=True, slots=True)
class Look(Generic[Q]):
    """Effect: let this stage look at the query; the next event is `RequestFlow.looked`."""

    stage: Stage[Q]


@dataclass(frozen=True, slots=True)
class Ask:
    """Effect: send the query to this tier; its answer or failure must be reported with ``attempt``."""

    tier: str
    form: str
    """Name of the tier, and form in which to send the query."""
    timeout_s: float
    """Timeout [s]."""
    attempt: int
    """Number of the attempt, from 0."""
    again: bool = False
    """Whether this tier just answered that the features are unknown."""


@dataclass(frozen=True, slots=True)
class Finish(Generic[Q]):
    """Effect: the only outcome of the request."""

    outcome: Answer | NearsightError
    lesson: Lesson | None = None
    """The lesson, if another tier answered."""
    learners: tuple[Stage[Q], ...] = ()
    """Stages that should learn the answer: all stages of the tier except the one that found it."""


Effect = Extract | Encode | Look[Q] | Ask | Finish[Q]
