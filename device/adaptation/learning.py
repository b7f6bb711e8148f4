"""Making an adapted view from a photo, and checking one that somebody made."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from nearsight.common.recognition.models import Features, ObjectModel
from nearsight.common.recognition.results import RecognizedObject
from nearsight.device.adaptation.adapted_view import AdaptedView, hamming
from nearsight.device.adaptation.evidence import evidence_for
from nearsight.device.adaptation.rules import AdaptationRules


class Refusal(StrEnum):
    """Why a view is not kept."""

    MALFORMED = "malformed"
    """Its bytes are no view."""
    OTHER_OBJECT = "other object"
    OUTDATED = "outdated"
    """Of another version of the model than the one that is held."""
    NO_SUCH_FEATURE = "no such feature"
    """Names a view or features that the vouched model does not have."""
    WRONG_SIZE = "wrong size"
    """Too few features to be of use, or more than anybody needs."""
    NOT_SIMILAR = "not similar"
    """A descriptor is too far from the vouched one: no honest device makes that."""
    NOTHING_NEW = "nothing new"


def learn(
    photo: Features, found: RecognizedObject, model: ObjectModel, rules: AdaptationRules
) -> AdaptedView | None:
    """How the features of the vouched model look in a recognised photo; None if it teaches nothing.

    The photo teaches only features of the model that it shows at their place and that it shows similarly;
    that so many agree must not be luck. So a wrong answer, or corners of something else, teach nothing.
    """
    if (found.object_id, found.version) != (model.object_id, model.version):
        return None
    if found.confidence < rules.min_confidence:
        return None
    seen = evidence_for(photo, model, found, rules)
    near = seen.bits <= rules.max_bits
    if seen.log10_false_alarms > rules.max_log10_false_alarms or near.sum() < rules.min_features:
        return None
    mine, theirs = seen.query_indices[near], seen.view_indices[near]
    strongest = np.argsort(mine, kind="stable")[: rules.max_features]  # features come strongest first
    rising = strongest[np.argsort(theirs[strongest])]
    descriptors = np.ascontiguousarray(photo.descriptors[mine[rising]])
    return AdaptedView(model.object_id, model.version, seen.view, theirs[rising], descriptors)


def refusal(view: AdaptedView, model: ObjectModel, rules: AdaptationRules) -> Refusal | None:
    """Why a view must not be believed to be of this vouched model; None if every feature of it may be."""
    if view.object_id != model.object_id:
        return Refusal.OTHER_OBJECT
    if view.version != model.version:
        return Refusal.OUTDATED
    if not rules.min_features <= len(view) <= rules.max_features:
        return Refusal.WRONG_SIZE
    if view.view >= len(model.views) or view.indices[-1] >= len(model.views[view.view]):
        return Refusal.NO_SUCH_FEATURE
    vouched = model.views[view.view].descriptors[view.indices]
    if (hamming(view.descriptors, vouched) > rules.max_bits).any():
        return Refusal.NOT_SIMILAR
    return None


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
    """Bits to the other view's descriptor of the same feature; 256 where it has none."""
    bits = np.full(len(view), 256, np.int64)
    _, mine, theirs = np.intersect1d(view.indices, other.indices, assume_unique=True, return_indices=True)
    bits[mine] = hamming(view.descriptors[mine], other.descriptors[theirs])
    return bits
