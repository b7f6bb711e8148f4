"""Adaptation on a device: learns views, accepts shared ones, and uses both for a second look.

Two threads use this module. Requests call `second_look` if the vouched models do not recognise a photo; it
uses the current snapshot. The background thread does the rest: it learns, and builds the next snapshot::

    request:     miss ──> second_look ──> found, or a tier is asked
    background:  recognised ──> on_recognized ──> bytes to share in a list of the object
                 items of that list ──> offer
                 models that answer now ──> serve
                 after any of these ──> refresh: the next second look is built, if anything changed
"""

from __future__ import annotations

import random
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from nearsight.common.recognition.models import Features, ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.device.adaptation.adapted_view import AdaptationRules, AdaptedView, view_to_bytes
from nearsight.device.adaptation.evidence import evidence_for
from nearsight.device.adaptation.learning import AdaptedViews, learn

_DEFAULT_RULES = AdaptationRules()


Views = Mapping[str, Sequence[AdaptedView]]
"""By object id."""


class SecondLook:
    """An immutable snapshot of adapted views that recognises photos. Thread-safe.

    Used for photos that the vouched models do not recognise. A result of a view is accepted only if the
    vouched model confirms it. This costs recall: without it, views of own photos give two to three times as
    many additional answers. But a peer cannot cause an answer that the vouched model does not support. The
    check also applies to own views: verified like vouched ones, they gave one wrong answer to 19,320 photos,
    and the vouched models gave none.

    Own views are used first, separately from shared ones, so that shared views cannot hide what was learned
    here.

    Parameters
    ----------
    models : sequence of ObjectModel
        Vouched models; those without adapted views are ignored.
    own, shared : mapping of str to sequence of AdaptedView
        Views learned here, and by others. All of them must have been checked (`is_plausible`).
    settings : RecognitionSettings
        The same as for the first lookup.
    rules : AdaptationRules
        Limits of the confirmation by the vouched model.
    """

    def __init__(
        self,
        models: Sequence[ObjectModel],
        own: Views,
        shared: Views,
        settings: RecognitionSettings,
        rules: AdaptationRules,
    ) -> None:
        self._rules = rules
        self._vouched = {model.object_id: model for model in models}
        few = min(settings.candidates, rules.candidates)
        cheaper = settings.model_copy(update={"candidates": few})
        self._own = ObjectRecognizer.build(_adapted(models, own), cheaper)
        self._shared = ObjectRecognizer.build(_adapted(models, shared), cheaper)

    def __len__(self) -> int:
        """Number of objects with adapted views."""
        return len(self._own.object_ids | self._shared.object_ids)

    @property
    def views(self) -> int:
        """Number of adapted views in this snapshot."""
        looked_at = (self._own, self._shared)
        return sum(len(model.views) for one in looked_at for model in one.models.values())

    def recognize(self, photo: Features) -> RecognizedObject | None:
        """An object that an adapted view finds and the vouched model confirms, or None."""
        for views in (self._own, self._shared):
            found = views.recognize(photo).found
            if found is not None:
                evidence = evidence_for(photo, self._vouched[found.object_id], found, self._rules)
                if evidence.log10_false_alarms <= self._rules.max_log10_false_alarms:
                    return found
        return None


def _adapted(models: Iterable[ObjectModel], views: Views) -> Iterable[ObjectModel]:
    """The models with their adapted views only."""
    for model in models:
        if mine := views.get(model.object_id):
            yield replace(model, views=tuple(view.features(model) for view in mine))


@dataclass(frozen=True, slots=True)
class AdaptationCounts:
    """State and counters of adaptation, for metrics."""

    views: int
    size_bytes: int
    """Number of views kept now, and their total size."""
    objects: int
    """Objects in the current second look."""
    learned: int
    """Views learned from own photos and kept."""
    refused: int
    """Own and shared views that were refused."""
    looks: int
    found: int
    """Second looks, and how many of them gave an answer."""


class Adapter:
    """Adapted views of one catalogue. `second_look` and `counts` may be called from any thread.

    Parameters
    ----------
    recognition : RecognitionSettings
        Recognition settings of the device.
    rng : Random
        Draws from shared views if there are too many.
    rules : AdaptationRules
        Limits for learning, keeping and accepting views.
    """

    def __init__(
        self,
        recognition: RecognitionSettings,
        rng: random.Random,
        rules: AdaptationRules = _DEFAULT_RULES,
    ) -> None:
        self.rules = rules
        self._recognition = recognition
        self._lock = threading.Lock()
        self._views = AdaptedViews(rules, rng)
        self._models: tuple[ObjectModel, ...] = ()
        self._look = SecondLook((), {}, {}, recognition, rules)
        self._stale = False
        self._learned = 0
        self._looks = 0
        self._found = 0

    @property
    def counts(self) -> AdaptationCounts:
        """The current counts, for metrics."""
        with self._lock:
            return AdaptationCounts(
                len(self._views),
                self._views.size_bytes,
                len(self._look),
                self._learned,
                self._views.refused,
                self._looks,
                self._found,
            )

    def second_look(self, answering: Set[tuple[str, int]], photo: Features) -> RecognizedObject | None:
        """Look up a photo that the vouched models do not recognise; at most two more lookups.

        Parameters
        ----------
        answering : set of (str, int)
            Objects and versions with which the device answers now (`LocalSnapshot.contents`). An object that
            was removed meanwhile is not returned.
        photo : Features
            The features of the first lookup.
        """
        look = self._look
        if not len(look):
            return None
        found = look.recognize(photo)
        if found is not None and (found.object_id, found.version) not in answering:
            found = None
        with self._lock:
            self._looks += 1
            self._found += found is not None
        return found

    def on_recognized(self, photo: Features, found: RecognizedObject, model: ObjectModel) -> bytes | None:
        """Learn from a photo that the device or a tier recognised; returns the item to share, if any.

        Parameters
        ----------
        photo : Features
            The features of the photo.
        found : RecognizedObject
            The answer.
        model : ObjectModel
            The vouched model of the object.
        """
        view = learn(photo, found, model, self.rules)
        if view is None:
            return None
        with self._lock:
            if not self._views.add_own(view, model):
                return None
            self._learned += 1
            self._stale = True
        return view_to_bytes(view)

    def offer(self, model: ObjectModel, items: Sequence[bytes]) -> bool:
        """Accept shared views of an object from all items of its list. True if that changed something."""
        with self._lock:
            changed = self._views.take_shared(items, model)
            self._stale |= changed
        return changed

    def serve(self, models: Sequence[ObjectModel]) -> None:
        """Use these vouched models from now on; a second look finds only them."""
        with self._lock:
            before = {(model.object_id, model.version) for model in self._models}
            now = {(model.object_id, model.version) for model in models}
            self._models = tuple(models)
            self._stale |= before != now

    def forget(self, object_ids: Collection[str]) -> None:
        """Drop the views of these objects."""
        with self._lock:
            self._views.forget(object_ids)
            self._stale = True

    def refresh(self) -> None:
        """Build the second look from the current views; takes a few ms if anything changed, else no time."""
        with self._lock:
            if not self._stale:
                return
            self._stale = False
            models = self._models
            own = {model.object_id: self._views.own(model) for model in models}
            shared = {model.object_id: self._views.shared(model) for model in models}
        self._look = SecondLook(models, own, shared, self._recognition, self.rules)
