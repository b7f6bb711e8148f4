"""The recognizer: an immutable snapshot of object models that recognises the object in a query.

Every tier has one; they differ only in their objects. To change the objects, a new recognizer is built in the
background and replaces the old one. `recognize_image` performs the whole pipeline, from an image to the
answer.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

import cv2
import faiss
import numpy as np

from nearsight.common.errors import InvalidArgument
from nearsight.common.recognition.classifiers.classifier import Candidate, Classifier
from nearsight.common.recognition.classifiers.registry import build_classifier
from nearsight.common.recognition.extraction import extract_features
from nearsight.common.recognition.images import GrayImage, ImageSource, load_image
from nearsight.common.recognition.models import TWIN, Features, ObjectModel
from nearsight.common.recognition.results import RecognitionResult, RecognizedObject
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.common.recognition.verification import CLEAR_INLIERS, agreeing_share, confidence, verify

_DEFAULT_SETTINGS = RecognitionSettings()
_MAX_INLIERS_PER_VOTE = 4
"""Verification stops at a candidate whose votes times this factor are fewer than the inliers of the best one,
because it would not overtake that."""

_MIN_ALIKE, _OBJECTS_PER_ALIKE, _MAX_ALIKE = 4, 40, 10
"""Number of similar views that are verified per view: minimum, objects of the index per additional view, and
maximum. Among 629 objects, all rivals were in the first 10."""
_PHOTO_FEATURES, _MAX_ALIKE_PHOTO = 400, 4
"""Features of a photo used to find similar views, and number of views verified. Rivals ranked first here."""
_NO_VOTES = np.empty(0, np.int32)

MAX_QUERY_FEATURES = 2_000
"""Maximum number of query features used; clients send any number. Weaker ones do not change the answer."""

_CLIP_LIMIT = 2.0
_TILES = (8, 8)
_SECOND_SIDE_PX, _SECOND_FEATURES = 960, 2000
"""Longest side [px] and number of features of the second look, unless the first look has more."""


class Resemblance(NamedTuple):
    """Similarity of two pictures: inliers, and their share of the common features (`agreeing_share`)."""

    inliers: int
    share: float


class ObjectRecognizer:
    """Recognises k objects. Immutable and thread-safe: threads may call `recognize` concurrently."""

    def __init__(
        self, models: Mapping[str, ObjectModel], classifier: Classifier, settings: RecognitionSettings
    ) -> None:
        self.models: Mapping[str, ObjectModel] = MappingProxyType(dict(models))
        self.settings = settings
        self.backend = classifier.name
        """Name of the classifier backend in use; with ``auto``, the one that was chosen."""
        self._classifier = classifier
        self._required = {name: self._required_inliers(model) for name, model in self.models.items()}

    @classmethod
    def build(
        cls, models: Iterable[ObjectModel], settings: RecognitionSettings = _DEFAULT_SETTINGS
    ) -> ObjectRecognizer:
        """Build the index of the models. Without models, every query is unknown.

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
            ((twice, _),) = Counter(model.object_id for model in listed).most_common(1)
            raise InvalidArgument(f"more than one model has the object id {twice!r}")
        return cls(by_id, build_classifier(settings.backend, listed, settings), settings)

    def __len__(self) -> int:
        return len(self.models)

    @property
    def object_ids(self) -> frozenset[str]:
        """Ids of the objects that can be recognised."""
        return frozenset(self.models)

    @cached_property
    def size_bytes(self) -> int:
        """Memory of all object models and of the index [bytes]; the index part is calibrated."""
        return sum(model.size_bytes for model in self.models.values()) + self._classifier.size_bytes

    def recognize(self, features: Features) -> RecognitionResult:
        """Recognise the object in a query; ``found`` is None if it is unknown.

        The answer is also unknown if the object could be a rival that this recognizer does not hold. Another
        tier holds both and can compare them.
        """
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
                if found.inliers < self._required[found.object_id]:
                    break  # doubtful: more votes would only add inliers, for this object and its rival alike
                return RecognitionResult(found, match_ms, verify_ms)
        match_ms += (time.perf_counter() - started) * 1e3
        return RecognitionResult(None, match_ms, verify_ms)

    def resembling(self, model: ObjectModel, photos: Iterable[Features] = ()) -> dict[str, Resemblance]:
        """Objects that could be mistaken for ``model``, or ``model`` for them, with their resemblance.

        Views are verified like photos, in both directions, because sometimes only one direction succeeds.
        ``photos`` show the object as a camera sees it, not the whole picture, so they give no share.
        """
        found: dict[str, Resemblance] = {}

        def include(other: str, query: Features, shown: ObjectModel, number: int, *, whole: bool) -> None:
            candidate = Candidate(shown.object_id, number, 0, _NO_VOTES, _NO_VOTES)
            verified = verify(query, shown, candidate, self.settings)
            if verified is not None:
                share = agreeing_share(verified, query, shown.views[number]) if whole else 0.0
                before = found.get(other, Resemblance(0, 0.0))
                found[other] = Resemblance(max(before.inliers, verified.inliers), max(before.share, share))

        most = min(_MAX_ALIKE, _MIN_ALIKE + len(self) // _OBJECTS_PER_ALIKE)
        for number, view in enumerate(model.views):
            photo = view.strongest(self.settings.query_features)
            for name, other_number in self._classifier.most_alike(photo, most, model.object_id):
                other = self.models[name]
                other_photo = other.views[other_number].strongest(self.settings.query_features)
                include(name, photo, other, other_number, whole=True)
                include(name, other_photo, model, number, whole=True)
        for photo in photos:
            shown = photo.strongest(_PHOTO_FEATURES)
            alike = self._classifier.most_alike(shown, _MAX_ALIKE_PHOTO, model.object_id)
            for name, other_number in alike:
                include(name, photo, self.models[name], other_number, whole=False)
        return found

    def _required_inliers(self, model: ObjectModel) -> float:
        """Inliers below which a photo may show a rival of the object that this recognizer does not hold.

        0 without such rivals; otherwise never below `CLEAR_INLIERS`: pictures that shared 10 inliers were
        mistaken for each other on photos with up to 21.
        """
        absent = [inliers for rival, inliers in model.rivals.items() if rival not in self.models]
        most = max(absent, default=TWIN)
        if most == TWIN or not self.settings.rival_margin:
            return 0.0
        return max(CLEAR_INLIERS, self.settings.rival_margin * most)

    def _verified(
        self, features: Features, candidates: Sequence[Candidate], rejected: set[tuple[str, int]]
    ) -> RecognizedObject | None:
        """The verified candidate with the most inliers, or None; less confident if another object is close.

        Views that fail are added to ``rejected`` and skipped in later rounds, because the second matching of
        the verification does not depend on the votes.
        """
        found: list[RecognizedObject] = []
        most_inliers = 0
        for candidate in candidates:
            key = (candidate.object_id, candidate.view)
            if key in rejected:
                continue
            if candidate.votes * _MAX_INLIERS_PER_VOTE < most_inliers:
                break
            verified = verify(features, self.models[candidate.object_id], candidate, self.settings)
            if verified is None:
                rejected.add(key)
            else:
                found.append(verified)
                most_inliers = max(most_inliers, verified.inliers)
        if not found:
            return None
        best, *others = sorted(found, key=attrgetter("inliers"), reverse=True)
        rivals = {best.object_id: TWIN, **self.models[best.object_id].rivals}
        runner_up = next((one.inliers for one in others if rivals.get(one.object_id) != TWIN), 0)
        return replace(best, confidence=confidence(best.inliers, runner_up))


def recognize_image(
    source: ImageSource, recognizer: ObjectRecognizer, *, go_on: Callable[[], bool] = lambda: True
) -> RecognitionResult:
    """Recognise the object in an image, with a second look if the first finds none; times are sums.

    The first look is cheap. The second uses a larger image, more features and equalised local contrast. It
    finds dark, small and cluttered objects. It is verified by the same rules, so it adds answers and never
    changes one. Photos that are recognised at the first look have no extra cost. Only the last tier that has
    the image should use it (the cloud, an evaluation): a cache would pay for it at every miss.

    Parameters
    ----------
    source : bytes, path or ndarray
        As for `load_image`.
    recognizer : ObjectRecognizer
        Its setting ``look_again`` enables the second look.
    go_on : callable
        Called before the second look; returns False if no time is left for it.

    Raises
    ------
    InvalidImage, ImageTooLarge, NotFound
        As `load_image`.
    """
    settings = recognizer.settings
    image = load_image(source, settings.limits)
    started = time.perf_counter()
    features = extract_features(image, settings.query_features, settings.fast_threshold)
    extract_ms = (time.perf_counter() - started) * 1e3
    first = replace(recognizer.recognize(features), extract_ms=extract_ms)
    if first.found is not None or not (settings.look_again and len(recognizer) and go_on()):
        return first
    second = look_again(source, recognizer)
    return RecognitionResult(
        second.found,
        first.match_ms + second.match_ms,
        first.verify_ms + second.verify_ms,
        first.extract_ms + second.extract_ms,
    )


def look_again(source: ImageSource, recognizer: ObjectRecognizer) -> RecognitionResult:
    """Recognise the object in an image with the second look of `recognize_image` only."""
    settings = recognizer.settings
    side_px = max(settings.limits.longest_side, _SECOND_SIDE_PX)
    image = load_image(source, replace(settings.limits, longest_side=side_px))
    started = time.perf_counter()
    count = max(settings.query_features, _SECOND_FEATURES)
    features = extract_features(even_contrast(image), count, settings.fast_threshold)
    extract_ms = (time.perf_counter() - started) * 1e3
    return replace(recognizer.recognize(features), extract_ms=extract_ms)


def even_contrast(image: GrayImage) -> GrayImage:
    """Equalise the contrast in each of 8 x 8 tiles; the clip limit bounds the amplification of noise.

    CLAHE (Zuiderveld, Graphics Gems IV, 1994).
    """
    equalizer = cv2.createCLAHE(_CLIP_LIMIT, _TILES)
    return replace(image, pixels=np.asarray(equalizer.apply(image.pixels), np.uint8))


def pin_threads() -> None:
    """Limit OpenCV (whole process) and FAISS (calling thread) to one thread each, as f(k) assumes.

    OpenMP stores the number of threads per calling thread. So the FAISS backends set it again in the thread
    that searches. A daemon calls this function once at start-up.
    """
    cv2.setNumThreads(1)
    faiss.omp_set_num_threads(1)
