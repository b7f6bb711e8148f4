"""Measures adaptation in one light: views are learned from some photos and tested on the others.

A device holds the models of one third of the museum; each third is used in turn. First, half of the photos of
each held object are taken in the light of the cell. Those that the vouched models recognise are used for
learning. Then all other photos are recognised: the remaining photos of the held objects, photos of exhibits
that are not held, and photos of exhibits that are in no catalogue.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from nearsight.common.recognition.extraction import extract_query
from nearsight.common.recognition.models import ObjectModel
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
from nearsight.experiments.profiling.measuring import PreparedQuery
from nearsight.experiments.studies.adaptation.forger import forged_view

VOUCHED, OWN, SHARED, BOTH = "vouched models only", "own photos", "shared by others", "own and shared"
WAYS = (VOUCHED, OWN, SHARED, BOTH)
FORGED, TRUSTED = "forged views", "forged views without confirmation"
COUNTS = ("views", "relevant", "right", "confused", "noise", "noise_answered")
PARTS = 3
"""Number of parts of the museum; one of them is held at a time."""


_RULES = AdaptationRules()


@dataclass(frozen=True, slots=True, eq=False)
class Photos:
    """The photos of a museum in one light."""

    models: Mapping[str, ObjectModel]
    """Vouched models by object id."""
    training: tuple[PreparedQuery, ...]
    test: tuple[PreparedQuery, ...]
    """Photos for learning, and photos for testing."""


def photographed(
    dataset: Dataset, light: Light, settings: RecognitionSettings, options: RunOptions
) -> Photos:
    """Train the museum's objects, and take its photos in this light.

    The first half of the photos of each object is for learning. Photos of unknown exhibits are only for
    testing.
    """
    models = {one.object_id: one for one in train_all(dataset.references, settings)}
    training: list[PreparedQuery] = []
    test: list[PreparedQuery] = []
    counts: Counter[str] = Counter()
    of_object = {name: sum(query.object_id == name for query in dataset.queries) for name in models}
    for query in sorted(dataset.queries, key=lambda one: one.path.name):
        jpeg = relit(query.path.read_bytes(), light, options.rng("sensor", query.path.name))
        features = extract_query(jpeg, settings)
        name = query.object_id or ""
        counts[name] += 1
        teaches = bool(name) and counts[name] <= of_object[name] // 2
        (training if teaches else test).append(PreparedQuery(features, query.object_id))
    return Photos(models, tuple(training), tuple(test))


def rows_of(
    photos: Photos, settings: RecognitionSettings, options: RunOptions, *, forged: bool
) -> Iterable[Row]:
    """One row per third of the museum and way to adapt; ``forged`` adds the forged views."""
    for part in range(PARTS):
        held = [model for index, model in enumerate(photos.models.values()) if index % PARTS == part]
        vouched = ObjectRecognizer.build(held, settings)
        looks = _looks(photos, held, vouched, settings, options)
        if forged:
            looks |= _forged_looks(photos, held, settings, options)
        for way, row in _tested(photos.test, vouched, looks).items():
            yield {"part": part, "held": len(held), "way": way, **row}


def _looks(
    photos: Photos,
    held: Sequence[ObjectModel],
    vouched: ObjectRecognizer,
    settings: RecognitionSettings,
    options: RunOptions,
) -> dict[str, SecondLook]:
    """Build the second look of devices that learned from the training photos, by origin of the views."""
    models = {model.object_id: model for model in held}
    taught: dict[str, list[AdaptedView]] = {name: [] for name in models}
    for photo in photos.training:
        found = vouched.recognize(photo.features).found if photo.object_id in models else None
        if found is not None:
            view = learn(photo.features, found, models[found.object_id], _RULES)
            if view is not None:
                taught[found.object_id].append(view)
    looks = {}
    for way, mine in ((OWN, slice(None)), (SHARED, slice(0)), (BOTH, slice(1))):
        kept = AdaptedViews(_RULES, random.Random(options.seed))
        for name, views in taught.items():
            own, others = views[mine], views[len(views[mine]) :]
            for view in own:
                kept.add_own(view, models[name])
            kept.take_shared([view_to_bytes(view) for view in others], models[name])
        looks[way] = _look(held, kept, settings)
    return looks


def _forged_looks(
    photos: Photos, held: Sequence[ObjectModel], settings: RecognitionSettings, options: RunOptions
) -> dict[str, SecondLook]:
    """Second looks in which every held object has a shared view that was forged to match another object.

    The other object is one that the device does not hold.
    """
    rng = options.rng("forger", held[0].object_id)
    names = {model.object_id for model in held}
    others = [model for model in photos.models.values() if model.object_id not in names]
    kept = AdaptedViews(_RULES, random.Random(options.seed))
    for model in held:
        victim = others[int(rng.integers(len(others)))]
        kept.take_shared([view_to_bytes(forged_view(model, victim, _RULES, rng))], model)
    blind = replace(_RULES, max_log10_false_alarms=float("inf"))
    return {FORGED: _look(held, kept, settings), TRUSTED: _look(held, kept, settings, blind)}


def _look(
    held: Sequence[ObjectModel],
    kept: AdaptedViews,
    settings: RecognitionSettings,
    rules: AdaptationRules = _RULES,
) -> SecondLook:
    own = {model.object_id: kept.own(model) for model in held}
    shared = {model.object_id: kept.shared(model) for model in held}
    return SecondLook(held, own, shared, settings, rules)


def _tested(
    photos: Iterable[PreparedQuery], vouched: ObjectRecognizer, looks: Mapping[str, SecondLook]
) -> dict[str, Row]:
    """Recognise every photo once in each way; an answer of the vouched models is the same in all."""
    tallies: dict[str, Counter[str]] = {way: Counter() for way in (VOUCHED, *looks)}
    times_ms: dict[tuple[str, bool], float] = defaultdict(float)
    for photo in photos:
        held = photo.object_id in vouched.object_ids
        first, first_ms = _timed(lambda: vouched.recognize(photo.features).found)  # noqa: B023  called at once
        for way, tally in tallies.items():
            found, spent_ms = first, 0.0
            if first is None and way != VOUCHED:
                found, spent_ms = _timed(lambda: looks[way].recognize(photo.features))  # noqa: B023
            right = found is not None and found.object_id == photo.object_id
            tally["relevant" if held else "noise"] += 1
            tally["right"] += held and right
            tally["confused"] += held and found is not None and not right
            tally["noise_answered"] += not held and found is not None
            times_ms[way, held] += first_ms + spent_ms
    return {
        way: {
            "views": looks[way].views if way in looks else 0,
            **{name: tally[name] for name in COUNTS[1:]},
            # Photos of held objects and other photos have half of the weight each.
            "lookup_ms": round(
                (times_ms[way, True] / tally["relevant"] + times_ms[way, False] / tally["noise"]) / 2, 4
            ),
        }
        for way, tally in tallies.items()
    }


def _timed(ask: Callable[[], RecognizedObject | None]) -> tuple[RecognizedObject | None, float]:
    started_s = time.thread_time()
    found = ask()
    return found, (time.thread_time() - started_s) * 1e3
