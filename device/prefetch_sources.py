"""Whom the prefetcher asks and tells: tiers alone, or tiers and the devices nearby."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from nearsight.common.catalogue.answers import Listing
from nearsight.common.catalogue.model_fetcher import ModelSource, ReadModelSource
from nearsight.common.recognition.models import Features, ObjectModel
from nearsight.common.recognition.results import RecognizedObject
from nearsight.device.catalogue_sync import ObjectLister
from nearsight.device.predictions import PredictionSource


class Neighbourhood(Protocol):
    """What devices nearby learn of this one; called in the prefetcher's thread, must not wait."""

    def followed(self, previous: str, found: RecognizedObject, features: Features | None) -> None:
        """An object was recognised, after another one ("": none); ``features``: of the photo, if known."""

    def listed(self, listing: Listing) -> None:
        """The catalogue is this."""

    def serving(self, models: Sequence[ObjectModel]) -> None:
        """The device answers with these models."""


@dataclass(frozen=True, slots=True)
class PrefetchSources:
    """Who has what the prefetcher needs.

    Attributes
    ----------
    models : ModelSource or ReadModelSource
        Who has models.
    lister : ObjectLister
        Who knows the catalogue.
    edge : PredictionSource or None
        The edge, which predicts; None without an edge.
    neighbours : PredictionSource, optional
        The devices nearby, which predict where no edge does.
    neighbourhood : Neighbourhood, optional
        What devices nearby learn.
    """

    models: ModelSource | ReadModelSource
    lister: ObjectLister
    edge: PredictionSource | None
    neighbours: PredictionSource | None = None
    neighbourhood: Neighbourhood | None = None
