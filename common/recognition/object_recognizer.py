"""The recognizer: an immutable snapshot of some object models that answers what a query shows.

Every tier has one; they differ only in which objects it holds. A new one is built beside the old and swapped.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from nearsight.common.errors import InvalidArgument
from nearsight.common.recognition.classifiers.base import Classifier, VotingRule
from nearsight.common.recognition.classifiers.registry import build_classifier
from nearsight.common.recognition.features import Features
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.results import RecognitionResult, RecognizedObject
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.common.recognition.verification import Verifier

_DEFAULT_SETTINGS = RecognitionSettings()


class ObjectRecognizer:
    """Recognises k objects. Immutable; `recognize` may be called from several threads at once.

    Attributes
    ----------
    models : mapping of str to ObjectModel
    settings : RecognitionSettings
    backend : str
        Name of the classifier that was built (what ``auto`` picked).
    """

    def __init__(
        self, models: Mapping[str, ObjectModel], classifier: Classifier, settings: RecognitionSettings
    ) -> None:
        self.models: Mapping[str, ObjectModel] = MappingProxyType(dict(models))
        self.settings = settings
        self.backend = classifier.name
        self._classifier = classifier
        self._verifier = Verifier(settings)

    @classmethod
    def build(
        cls, models: Iterable[ObjectModel], settings: RecognitionSettings = _DEFAULT_SETTINGS
    ) -> ObjectRecognizer:
        """Index the models; none is legal, then everything is unknown.

        Raises
        ------
        InvalidArgument
            If two models have the same id.
        ConfigurationError, MissingDependency
            As `build_classifier`.
        """
        listed = tuple(models)
        by_id = {model.object_id: model for model in listed}
        if len(by_id) != len(listed):
            raise InvalidArgument("two models have the same object id")
        rule = VotingRule(ratio=settings.ratio, candidates=settings.candidates)
        return cls(by_id, build_classifier(settings.backend, listed, rule), settings)

    def __len__(self) -> int:
        return len(self.models)

    @property
    def object_ids(self) -> frozenset[str]:
        """Ids of the objects that can be recognised."""
        return frozenset(self.models)

    @property
    def size_bytes(self) -> int:
        """Bytes of all object models, without the index."""
        return sum(model.size_bytes for model in self.models.values())

    def recognize(self, features: Features) -> RecognitionResult:
        """What the query shows, or unknown."""
        started = time.perf_counter()
        candidates = self._classifier.match(features)
        matched = time.perf_counter()
        found: RecognizedObject | None = None
        for candidate in candidates:
            verified = self._verifier.verify(features, self.models[candidate.object_id], candidate)
            if verified is not None and (found is None or verified.inliers > found.inliers):
                found = verified
        finished = time.perf_counter()
        return RecognitionResult(found, (matched - started) * 1e3, (finished - matched) * 1e3)
