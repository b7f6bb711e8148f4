"""Learns adapted views from photos, checks them, and keeps a bounded number of own and shared ones."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidMessage
from nearsight.common.recognition.models import Features, ObjectModel
from nearsight.common.recognition.results import RecognizedObject
from nearsight.device.adaptation.adapted_view import (
    AdaptationRules,
    AdaptedView,
    hamming,
    view_from_bytes,
    view_to_bytes,
)
from nearsight.device.adaptation.evidence import evidence_for


def learn(
    photo: Features, found: RecognizedObject, model: ObjectModel, rules: AdaptationRules
) -> AdaptedView | None:
    """The appearance of the vouched model's features in a recognised photo; None if nothing can be learned.

    Only features are learned that are at their position in the photo and similar. The number of agreeing
    features must not be explicable by chance. Therefore nothing is learned from a wrong answer, or from
    corners of another object.
    """
    if (found.object_id, found.version) != (model.object_id, model.version):
        return None
    if found.confidence < rules.min_confidence:
        return None
    seen = evidence_for(photo, model, found, rules)
    agreement = seen.agreement
    near = agreement.bits <= rules.max_bits
    if seen.log10_false_alarms > rules.max_log10_false_alarms or near.sum() < rules.min_features:
        return None
    mine, theirs = agreement.query[near], agreement.view[near]
    strongest = np.argsort(mine, kind="stable")[: rules.max_features]  # the strongest features come first
    rising = strongest[np.argsort(theirs[strongest])]
    descriptors = np.ascontiguousarray(photo.descriptors[mine[rising]])
    return AdaptedView(model.object_id, model.version, seen.view, theirs[rising], descriptors)


def is_plausible(view: AdaptedView, model: ObjectModel, rules: AdaptationRules) -> bool:
    """Whether a view belongs to this vouched model, and each descriptor is close to the vouched one.

    No honest device creates other views.
    """
    if (view.object_id, view.version) != (model.object_id, model.version):
        return False
    if not rules.min_features <= len(view) <= rules.max_features:
        return False
    if view.view >= len(model.views) or view.indices[-1] >= len(model.views[view.view]):
        return False
    vouched = model.views[view.view].descriptors[view.indices]
    return bool((hamming(view.descriptors, vouched) <= rules.max_bits).all())


def adds_something(
    view: AdaptedView, model: ObjectModel, others: Iterable[AdaptedView], rules: AdaptationRules
) -> bool:
    """Whether enough of its descriptors differ from the vouched ones and from those of the other views."""
    base = model.views[view.view].descriptors
    nearest = hamming(view.descriptors, base[view.indices])
    for other in others:
        if other.view == view.view:
            nearest = np.minimum(nearest, _bits_to(view, other))
    return bool((nearest >= rules.new_bits).sum() >= rules.min_new * len(view))


def _bits_to(view: AdaptedView, other: AdaptedView) -> NDArray[np.int64]:
    """Distance to the other view's descriptor of the same feature in bits; 256 if it has none."""
    bits = np.full(len(view), 256, np.int64)
    _, mine, theirs = np.intersect1d(view.indices, other.indices, assume_unique=True, return_indices=True)
    bits[mine] = hamming(view.descriptors[mine], other.descriptors[theirs])
    return bits


@dataclass(slots=True)
class _ObjectViews:
    """Views of one version of an object; shared ones by their bytes as received."""

    version: int
    own: list[AdaptedView] = field(default_factory=list)
    shared: dict[bytes, AdaptedView] = field(default_factory=dict)

    def all(self) -> list[AdaptedView]:
        return [*self.own, *self.shared.values()]


class AdaptedViews:
    """Keeps adapted views. Not thread-safe.

    Parameters
    ----------
    rules : AdaptationRules
        Limits.
    rng : Random
        Draws from shared views if there are too many, so that early items do not exclude others.
    """

    def __init__(self, rules: AdaptationRules, rng: random.Random) -> None:
        self._rules = rules
        self._rng = rng
        self._objects: OrderedDict[str, _ObjectViews] = OrderedDict()
        self.refused = 0
        """Number of views that were refused: malformed, implausible, or without anything new."""

    def __len__(self) -> int:
        """Number of views of all objects."""
        return sum(len(one.all()) for one in self._objects.values())

    @property
    def size_bytes(self) -> int:
        """Total size of all views."""
        return sum(view.size_bytes for one in self._objects.values() for view in one.all())

    def own(self, model: ObjectModel) -> tuple[AdaptedView, ...]:
        """Views learned here for exactly this version of the model."""
        one = self._objects.get(model.object_id)
        return tuple(one.own) if one is not None and one.version == model.version else ()

    def shared(self, model: ObjectModel) -> tuple[AdaptedView, ...]:
        """Views from other devices for exactly this version of the model."""
        one = self._objects.get(model.object_id)
        return tuple(one.shared.values()) if one is not None and one.version == model.version else ()

    def add_own(self, view: AdaptedView, model: ObjectModel) -> bool:
        """Keep a view that was learned here, instead of the oldest own one; True if it adds something."""
        one = self._views_for(model)
        if not self._passes(view, model, one.all()):
            return False
        one.own.append(view)
        del one.own[: -self._rules.own_views]
        return True

    def take_shared(self, items: Sequence[bytes], model: ObjectModel) -> bool:
        """Update the shared views of an object from its current list; True if that changed something.

        Kept views stay as long as they are in the list. Free places are filled with views drawn at random.
        """
        one = self._views_for(model)
        listed = set(items)
        gone = [item for item in one.shared if item not in listed]
        for item in gone:
            del one.shared[item]
        known = {view_to_bytes(view) for view in one.own} | one.shared.keys()
        fresh = sorted(item for item in listed if item not in known)
        changed = bool(gone)
        for item in self._rng.sample(fresh, min(len(fresh), self._rules.max_items)):
            if len(one.shared) >= self._rules.shared_views:
                break
            try:
                view = view_from_bytes(item, self._rules.max_item_bytes)
            except InvalidMessage:
                self.refused += 1
                continue
            if self._passes(view, model, one.all()):
                one.shared[item] = view
                changed = True
        return changed

    def forget(self, object_ids: Collection[str]) -> None:
        """Drop the views of these objects."""
        for object_id in object_ids:
            self._objects.pop(object_id, None)

    def _views_for(self, model: ObjectModel) -> _ObjectViews:
        """The views of this version of the object.

        Drops those of other versions, and those of the least recently used objects above the limit.
        """
        one = self._objects.get(model.object_id)
        if one is None or one.version != model.version:
            one = self._objects[model.object_id] = _ObjectViews(model.version)
        self._objects.move_to_end(model.object_id)
        while len(self._objects) > self._rules.objects:
            self._objects.popitem(last=False)
        return one

    def _passes(self, view: AdaptedView, model: ObjectModel, others: Sequence[AdaptedView]) -> bool:
        passes = is_plausible(view, model, self._rules) and adds_something(view, model, others, self._rules)
        self.refused += not passes
        return passes
