"""Measures adaptation in one light: who learns from which photos, what is asked, what comes of it.

A device holds the models of a third of the museum, in turn each third. Half of the photos of each held object
are taken first, in the light of the cell: what the vouched models recognise there may teach. Then everything
else is asked: the other photos of the held objects, photos of exhibits that are not held, and photos of
exhibits that are in no catalogue.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from nearsight.common.recognition.extraction import OrbExtractor
from nearsight.common.recognition.images import load_image
from nearsight.common.recognition.models import Features, ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.device.adaptation.adapted_view import AdaptationRules, AdaptedView, view_to_bytes
from nearsight.device.adaptation.adapter import SecondLook
from nearsight.device.adaptation.learning import AdaptedViews, learn
from nearsight.experiments.datasets.dataset import Dataset
from nearsight.experiments.datasets.training import train_all
from nearsight.experiments.framework.experiment import Row, RunOptions
from nearsight.experiments.museum.camera.lighting import Light, relit
from nearsight.experiments.studies.adaptation.forger import forged_view

VOUCHED, OWN, SHARED, BOTH = "vouched models only", "own photos", "shared by others", "own and shared"
WAYS = (VOUCHED, OWN, SHARED, BOTH)
FORGED, TRUSTED = "forged views", "forged views, believed blindly"
PARTS = 3
"""Into which the museum is divided; one of them is held at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class Photo:
    """Features of a photo, and what it shows; None: an exhibit that is in no catalogue."""

    features: Features
    object_id: str | None


@dataclass(frozen=True, slots=True, eq=False)
class Photos:
    """A museum, photographed in one light.

    Attributes
    ----------
    models : mapping of str to ObjectModel
        By object id.
    first, then : tuple of Photo
        Those that may teach, and those that are asked.
    """

    models: Mapping[str, ObjectModel]
    first: tuple[Photo, ...]
    then: tuple[Photo, ...]


def photographed(
    dataset: Dataset, light: Light, settings: RecognitionSettings, options: RunOptions
) -> Photos:
    """Train the museum's objects, and take its photos in this light.

    The first half of the photos of each object may teach; photos of unknown exhibits are only asked.
    """
    extractor = OrbExtractor(settings.fast_threshold)
    models = {one.object_id: one for one in train_all(dataset.references, settings)}
    first: list[Photo] = []
    then: list[Photo] = []
    counts: dict[str, int] = {}
    of_object = {name: sum(query.object_id == name for query in dataset.queries) for name in models}
    for query in sorted(dataset.queries, key=lambda one: one.path.name):
        jpeg = relit(query.path.read_bytes(), light, options.rng("sensor", query.path.name))
        features = extractor.extract(load_image(jpeg, settings.limits), settings.query_features)
        photo = Photo(features, query.object_id)
        name = query.object_id or ""
        counts[name] = counts.get(name, 0) + 1
        teaches = bool(name) and counts[name] <= of_object[name] // 2
        (first if teaches else then).append(photo)
    return Photos(models, tuple(first), tuple(then))


def rows_of(
    photos: Photos, settings: RecognitionSettings, options: RunOptions, *, forged: bool
) -> Iterable[Row]:
    """One row per third of the museum and way to adapt; with ``forged`` views as well if wanted."""
    for part in range(PARTS):
        held = [model for index, model in enumerate(photos.models.values()) if index % PARTS == part]
        vouched = ObjectRecognizer.build(held, settings)
        looks = _looks(photos, held, vouched, settings, options)
        if forged:
            looks |= _forged_looks(photos, held, settings, options)
        for way, row in _asked(photos.then, vouched, looks).items():
            yield {"part": part, "held": len(held), "way": way, **row}


def _looks(
    photos: Photos,
    held: Sequence[ObjectModel],
    vouched: ObjectRecognizer,
    settings: RecognitionSettings,
    options: RunOptions,
) -> dict[str, SecondLook]:
    """What devices look with that learned from the first photos, by who took them."""
    rules = AdaptationRules()
    models = {model.object_id: model for model in held}
    taught: dict[str, list[AdaptedView]] = {name: [] for name in models}
    for photo in photos.first:
        found = vouched.recognize(photo.features).found if photo.object_id in models else None
        if found is not None:
            view = learn(photo.features, found, models[found.object_id], rules)
            if view is not None:
                taught[found.object_id].append(view)
    looks = {}
    for way, mine in ((OWN, slice(None)), (SHARED, slice(0)), (BOTH, slice(1))):
        kept = AdaptedViews(rules, random.Random(options.seed))
        for name, views in taught.items():
            own, others = views[mine], views[len(views[mine]) :]
            for view in own:
                kept.add_own(view, models[name])
            kept.take_shared([view_to_bytes(view) for view in others], models[name])
        looks[way] = _look(held, kept, settings, rules)
    return looks


def _forged_looks(
    photos: Photos, held: Sequence[ObjectModel], settings: RecognitionSettings, options: RunOptions
) -> dict[str, SecondLook]:
    """Every held object has a shared view that was forged to answer photos of one that is not held."""
    rules = AdaptationRules()
    rng = options.rng("forger", held[0].object_id)
    names = {model.object_id for model in held}
    others = [model for model in photos.models.values() if model.object_id not in names]
    kept = AdaptedViews(rules, random.Random(options.seed))
    for model in held:
        victim = others[int(rng.integers(len(others)))]
        kept.take_shared([view_to_bytes(forged_view(model, victim, rules, rng))], model)
    blind = replace(rules, max_log10_false_alarms=float("inf"))
    return {FORGED: _look(held, kept, settings, rules), TRUSTED: _look(held, kept, settings, blind)}


def _look(
    held: Sequence[ObjectModel], kept: AdaptedViews, settings: RecognitionSettings, rules: AdaptationRules
) -> SecondLook:
    own = {model.object_id: kept.own(model) for model in held}
    shared = {model.object_id: kept.shared(model) for model in held}
    return SecondLook(held, own, shared, settings, rules)


@dataclass(slots=True)
class _Tally:
    """Answers of one way."""

    views: int = 0
    relevant: int = 0
    right: int = 0
    confused: int = 0
    noise: int = 0
    noise_answered: int = 0
    relevant_ms: float = 0.0
    noise_ms: float = 0.0

    def count(self, photo: Photo, held: bool, found: RecognizedObject | None, spent_ms: float) -> None:
        if held:
            self.relevant += 1
            self.relevant_ms += spent_ms
            self.right += found is not None and found.object_id == photo.object_id
            self.confused += found is not None and found.object_id != photo.object_id
        else:
            self.noise += 1
            self.noise_ms += spent_ms
            self.noise_answered += found is not None

    def row(self) -> Row:
        """Times are means, photos of held objects and others having half of the weight each."""
        lookup_ms = (self.relevant_ms / self.relevant + self.noise_ms / self.noise) / 2
        return {
            "views": self.views,
            "relevant": self.relevant,
            "right": self.right,
            "confused": self.confused,
            "noise": self.noise,
            "noise_answered": self.noise_answered,
            "lookup_ms": round(lookup_ms, 4),
        }


def _asked(
    photos: Iterable[Photo], vouched: ObjectRecognizer, looks: Mapping[str, SecondLook]
) -> dict[str, Row]:
    """Every photo is asked once in each way; what the vouched models answer is the same in all."""
    tallies = {VOUCHED: _Tally(), **{way: _Tally(views=look.views) for way, look in looks.items()}}
    for photo in photos:
        held = photo.object_id in vouched.object_ids
        first, first_ms = _timed(lambda: vouched.recognize(photo.features).found)  # noqa: B023  called at once
        tallies[VOUCHED].count(photo, held, first, first_ms)
        for way, look in looks.items():
            found, spent_ms = first, 0.0
            if first is None:
                found, spent_ms = _timed(lambda: look.recognize(photo.features))  # noqa: B023  called at once
            tallies[way].count(photo, held, found, first_ms + spent_ms)
    return {way: tally.row() for way, tally in tallies.items()}


def _timed(ask: Callable[[], RecognizedObject | None]) -> tuple[RecognizedObject | None, float]:
    started_s = time.thread_time()
    found = ask()
    return found, (time.thread_time() - started_s) * 1e3
