"""The recognizer: an immutable snapshot of some object models that answers what a query shows.

Every tier has one; they differ only in which objects it holds. A new one is built beside the old and swapped.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from nearsight.common.errors import InvalidArgument
from nearsight.common.recognition.classifiers.base import Candidate, Classifier, VotingRule
from nearsight.common.recognition.classifiers.registry import build_classifier
from nearsight.common.recognition.features import Features
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.results import RecognitionResult, RecognizedObject
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.common.recognition.verification import Verifier, confidence

_DEFAULT_SETTINGS = RecognitionSettings()
_HOPELESS = 4
"""A candidate with so many times fewer votes than the winner has inliers is not going to overtake it."""


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
            counts = Counter(model.object_id for model in listed)
            twice = next(object_id for object_id, count in counts.items() if count > 1)
            raise InvalidArgument(f"more than one model has the object id {twice!r}")
        rule = VotingRule(
            ratio=settings.ratio,
            voting_features=settings.voting_features,
            early_stop=settings.early_stop,
            candidates=settings.candidates,
        )
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
        match_ms = verify_ms = 0.0
        rejected: set[tuple[str, int]] = set()
        started = time.perf_counter()
        for candidates in self._classifier.rounds(features):
            matched = time.perf_counter()
            match_ms += (matched - started) * 1e3
            found = self._verified(features, candidates, rejected)
            started = time.perf_counter()
            verify_ms += (started - matched) * 1e3
            if found is not None:
                return RecognitionResult(found, match_ms, verify_ms)
        match_ms += (time.perf_counter() - started) * 1e3
        return RecognitionResult(None, match_ms, verify_ms)

    def _verified(
        self, features: Features, candidates: Sequence[Candidate], rejected: set[tuple[str, int]]
    ) -> RecognizedObject | None:
        """The verified candidate with the most inliers; less confident the closer another object comes.

        Views that fail are added to ``rejected`` and not tried again in a later round: the second look does
        not depend on the votes.
        """
        found: list[RecognizedObject] = []
        for candidate in candidates:
            key = (candidate.object_id, candidate.view)
            if key in rejected:
                continue
            if found and candidate.votes * _HOPELESS < max(other.inliers for other in found):
                break
            verified = self._verifier.verify(features, self.models[candidate.object_id], candidate)
            if verified is None:
                rejected.add(key)
            else:
                found.append(verified)
        if not found:
            return None
        best = max(found, key=lambda one: one.inliers)
        runner_up = max((one.inliers for one in found if one.object_id != best.object_id), default=0)
        return replace(best, confidence=confidence(best.inliers, runner_up))
