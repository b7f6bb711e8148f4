"""The recognizer: an immutable snapshot of some object models that answers what a query shows.

Every tier has one; they differ only in which objects it holds. A new one is built beside the old and swapped.
`recognize_image` goes the whole way from an image to the answer.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import NamedTuple

import cv2
import faiss
import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument
from nearsight.common.recognition.classifiers.classifier import Candidate, Classifier, VotingRule
from nearsight.common.recognition.classifiers.registry import build_classifier
from nearsight.common.recognition.extraction import FeatureExtractor
from nearsight.common.recognition.images import GrayImage, ImageSource, load_image
from nearsight.common.recognition.models import TWIN, Features, ObjectModel
from nearsight.common.recognition.results import RecognitionResult, RecognizedObject
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.common.recognition.verification import (
    CLEAR_INLIERS,
    Verifier,
    agreeing_places,
    agreeing_share,
    confidence,
)

_DEFAULT_SETTINGS = RecognitionSettings()
_HOPELESS = 4
"""A candidate with so many times fewer votes than the winner has inliers is not going to overtake it."""

_FAR_FEATURES = 400
"""Of a photo from farther away that are looked up."""
_MOST_ALIKE, _LEAST_AGREEING, _MOST_VERIFIED = 16, 4, 5
"""Views with most near descriptors, places of these that must agree for a view to be verified, and views that
are. Of 726 pictures, rivals were among the first three."""
_CLEARLY_AGREEING = 5
"""So many agree that all photos of the view are verified, whatever the first looks say."""
_LENIENT = {"min_inliers": 8, "min_inlier_share": 0.0, "max_log10_false_alarms": 0.0}
"""What is less than this in the picture is not in photos of it: of 726, those of rivals had 8 and more."""
_NO_VOTES = np.empty(0, np.int32)

_CLIP_LIMIT = 2.0
_TILES = (8, 8)
_SECOND_SIDE_PX, _SECOND_FEATURES = 960, 2000
"""Of the second look, unless the first has more."""


class Resemblance(NamedTuple):
    """How much two pictures have in common: inliers, and their share (`agreeing_share`)."""

    inliers: int
    share: float


class Photographed(NamedTuple):
    """A view of an object as photos would show it: look-alikes that it hides itself come out.

    ``view_from_far``, (2, 3), maps points of the photo from farther away to the view. ``others`` extracts
    further photos: only a view that resembles another one needs them.
    """

    far: Features
    view_from_far: NDArray[np.float64]
    others: Callable[[], tuple[Features, ...]]


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
        self._lenient = Verifier(settings.model_copy(update=_LENIENT))
        self._doubtful_below = {name: self._inliers_to_be_sure(model) for name, model in self.models.items()}

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
            ((twice, _),) = Counter(model.object_id for model in listed).most_common(1)
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
        """What the query shows, or unknown.

        Unknown, too, if it could be a rival that is not here: another tier has both.
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
                if found.inliers < self._doubtful_below[found.object_id]:
                    break  # more votes would give more inliers to whatever it is
                return RecognitionResult(found, match_ms, verify_ms)
        match_ms += (time.perf_counter() - started) * 1e3
        return RecognitionResult(None, match_ms, verify_ms)

    def resembling(self, model: ObjectModel, photos: Sequence[Photographed] = ()) -> dict[str, Resemblance]:
        """Objects that could be mistaken for another one, or it for them.

        Views are verified as photos are, each as the photo of the other: now and then only one shows it.
        ``photos`` are of the first views. They do not show the whole picture: they give no share.
        """
        found: dict[str, Resemblance] = {}
        for number, (view, shown) in enumerate(zip_longest(model.views, photos)):
            query = view.strongest(self.settings.query_features)
            for agreeing, name, other_number in self._hints(query, shown, model.object_id):
                other = self.models[name]
                other_query = other.views[other_number].strongest(self.settings.query_features)
                looks = [(query, other, other_number), (other_query, model, number)]
                if shown:
                    looks.append((shown.far, other, other_number))
                if agreeing < _CLEARLY_AGREEING and not any(
                    _verified(self._lenient, *look) for look in looks
                ):
                    continue
                if shown:
                    looks += [(photo, other, other_number) for photo in shown.others()]
                for index, (photo, seen, there) in enumerate(looks):
                    verified = _verified(self._verifier, photo, seen, there)
                    if verified is not None:
                        share = agreeing_share(verified, photo, seen.views[there]) if index < 2 else 0.0
                        one = found.get(name, Resemblance(0, 0.0))
                        found[name] = Resemblance(max(one.inliers, verified.inliers), max(one.share, share))
        return found

    def _hints(self, view: Features, shown: Photographed | None, beside: str) -> list[tuple[int, str, int]]:
        """Views (agreeing places, object id, index) of others that may resemble one, the likeliest first."""
        keypoints, descriptors = view.keypoints, view.descriptors
        if shown:
            far = shown.far.strongest(_FAR_FEATURES)
            back = np.insert(far.keypoints, 2, 1.0, axis=1) @ shown.view_from_far.T
            keypoints = np.concatenate([keypoints, back])
            descriptors = np.concatenate([descriptors, far.descriptors])
        hints = []
        for one in self._classifier.most_alike(descriptors, _MOST_ALIKE, beside):
            there = self.models[one.object_id].views[one.view].keypoints[one.view_indices]
            hints.append((agreeing_places(keypoints[one.query_indices], there), one.object_id, one.view))
        hints.sort(key=itemgetter(0), reverse=True)
        return [hint for hint in hints[:_MOST_VERIFIED] if hint[0] >= _LEAST_AGREEING]

    def _inliers_to_be_sure(self, model: ObjectModel) -> float:
        """With fewer inliers the photo may show a rival of the object that is not here to be compared.

        Never less than what is clear: pictures that shared 10 inliers were mistaken on photos with up to 21.
        """
        absent = [inliers for rival, inliers in model.rivals.items() if rival not in self.models]
        most = max(absent, default=TWIN)
        if most == TWIN or not self.settings.rival_margin:
            return 0.0
        return max(CLEAR_INLIERS, self.settings.rival_margin * most)

    def _verified(
        self, features: Features, candidates: Sequence[Candidate], rejected: set[tuple[str, int]]
    ) -> RecognizedObject | None:
        """The verified candidate with the most inliers; less confident the closer another object comes.

        Views that fail are added to ``rejected`` and not tried again in a later round: the second look does
        not depend on the votes.
        """
        found: list[RecognizedObject] = []
        most_inliers = 0
        for candidate in candidates:
            key = (candidate.object_id, candidate.view)
            if key in rejected:
                continue
            if candidate.votes * _HOPELESS < most_inliers:
                break
            verified = self._verifier.verify(features, self.models[candidate.object_id], candidate)
            if verified is None:
                rejected.add(key)
            else:
                found.append(verified)
                most_inliers = max(most_inliers, verified.inliers)
        if not found:
            return None
        best, *others = sorted(found, key=attrgetter("inliers"), reverse=True)
        rivals, runner_up = {best.object_id: TWIN, **self.models[best.object_id].rivals}, 0
        for other in others:
            if rivals.get(other.object_id) != TWIN:
                runner_up = other.inliers
                break
        return replace(best, confidence=confidence(best.inliers, runner_up))


def _verified(
    verifier: Verifier, query: Features, shown: ObjectModel, number: int
) -> RecognizedObject | None:
    return verifier.verify(query, shown, Candidate(shown.object_id, number, 0, _NO_VOTES, _NO_VOTES))


def recognize_image(
    source: ImageSource,
    recognizer: ObjectRecognizer,
    extractor: FeatureExtractor,
    *,
    go_on: Callable[[], bool] = lambda: True,
) -> RecognitionResult:
    """What an image shows, at first or at second look; times are sums over both.

    The first look is cheap. The second sees the photo larger, with more features and its local contrast
    evened out: that finds dark, small and cluttered objects. It is verified by the same rules, so it adds
    answers and never changes one, and a photo that is recognised at first look pays nothing for it. It is for
    whoever answers last and has the image (the cloud, an evaluation): a cache that looked again would pay at
    every miss.

    Parameters
    ----------
    source : bytes, path or ndarray
        As for `load_image`.
    recognizer : ObjectRecognizer
        Its settings say whether to look again.
    extractor : FeatureExtractor
    go_on : callable
        Asked before the second look; False: there is no time left.

    Raises
    ------
    InvalidImage, ImageTooLarge, NotFound
        As `load_image`.
    """
    settings = recognizer.settings

    def look(side_px: int, features: int, prepare: Callable[[GrayImage], GrayImage]) -> RecognitionResult:
        image = load_image(source, replace(settings.limits, longest_side=side_px))
        started = time.perf_counter()
        extracted = extractor.extract(prepare(image), features)
        extract_ms = (time.perf_counter() - started) * 1e3
        return replace(recognizer.recognize(extracted), extract_ms=extract_ms)

    first = look(settings.limits.longest_side, settings.query_features, lambda image: image)
    if first.found is not None or not (settings.look_again and len(recognizer) and go_on()):
        return first
    side_px = max(settings.limits.longest_side, _SECOND_SIDE_PX)
    second = look(side_px, max(settings.query_features, _SECOND_FEATURES), even_contrast)
    return RecognitionResult(
        second.found,
        first.match_ms + second.match_ms,
        first.verify_ms + second.verify_ms,
        first.extract_ms + second.extract_ms,
    )


def even_contrast(image: GrayImage) -> GrayImage:
    """The image with its contrast equalised in each of 8 x 8 tiles, noise held down by the clip limit.

    CLAHE (Zuiderveld, Graphics Gems IV, 1994).
    """
    equalizer = cv2.createCLAHE(_CLIP_LIMIT, _TILES)
    return replace(image, pixels=np.asarray(equalizer.apply(image.pixels), np.uint8))


def pin_threads() -> None:
    """Keep OpenCV (whole process) and FAISS (calling thread) to one thread each, as f(k) is measured.

    OpenMP keeps its number of threads per calling thread, so the FAISS backends repeat this for the thread
    that searches; a daemon calls it once at start-up.
    """
    cv2.setNumThreads(1)
    faiss.omp_set_num_threads(1)
