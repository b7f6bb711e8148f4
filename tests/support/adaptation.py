"""Photos of the gallery's pictures, and the views that a device learns from them."""

from dataclasses import replace

import numpy as np

from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.results import RecognizedObject
from nearsight.device.adaptation.adapted_view import AdaptationRules, AdaptedView
from nearsight.device.adaptation.learning import learn
from support.gallery import SETTINGS, exhibit_model, photo_features

RULES = AdaptationRules()
EAGER = replace(RULES, min_new=0.0)
"""Also keeps views without new descriptors."""


def recognized(seed: int) -> RecognizedObject:
    """The answer to the photo of the picture of ``seed``."""
    found = ObjectRecognizer.build([exhibit_model(seed)], SETTINGS).recognize(photo_features(seed)).found
    assert found is not None
    return found


def learned(seed: int) -> AdaptedView:
    """The view that is learnt from the photo of the picture of ``seed``."""
    view = learn(photo_features(seed), recognized(seed), exhibit_model(seed), RULES)
    assert view is not None
    return view


def noisy(view: AdaptedView, bits: int, seed: int = 0) -> AdaptedView:
    """The view with ``bits`` inverted bits in each descriptor."""
    rng = np.random.default_rng(seed)
    turned = np.zeros((len(view), 256), np.uint8)
    for row in turned:
        row[rng.choice(256, bits, replace=False)] = 1
    return replace(view, descriptors=view.descriptors ^ np.packbits(turned, axis=1))


def plain(seed: int, count: int = 100) -> AdaptedView:
    """A view that repeats descriptors of the model."""
    model = exhibit_model(seed)
    base = model.views[0].descriptors
    return AdaptedView(
        model.object_id, model.version, 0, np.arange(count, dtype=np.int32), base[:count].copy()
    )
