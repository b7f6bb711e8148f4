"""What the twin needs to know of each photo of a trace, measured with the real pipeline.

A photo is looked up among its own object and some others, with as many features as a device may extract, the
fewest first; and once as the cloud does it. Whether it is found hardly depends on how many others there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from nearsight.common.recognition.extraction import OrbExtractor
from nearsight.common.recognition.images import load_image
from nearsight.common.recognition.looks import quick_look, recognize_image
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.experiments.simulation.photos import NEVER, TwinPhoto


def measure_photos(
    photos: Mapping[Path, str],
    models: Iterable[ObjectModel],
    feature_counts: Sequence[int],
    settings: RecognitionSettings,
) -> dict[Path, TwinPhoto]:
    """Look at every photo.

    Parameters
    ----------
    photos : mapping of Path to str
        File → object that it shows; empty: none of the catalogue.
    models : iterable of ObjectModel
        The catalogue, or at least the objects on the photos.
    feature_counts : sequence of int
        Rising; the last is what edges extract.
    settings : RecognitionSettings
        The pipeline.
    """
    shown = frozenset(photos.values())
    recognizer = ObjectRecognizer.build([model for model in models if model.object_id in shown], settings)
    extractor = OrbExtractor(settings.fast_threshold)
    return {
        path: _measure(path, object_id, recognizer, extractor, feature_counts)
        for path, object_id in photos.items()
    }


def _measure(
    path: Path,
    object_id: str,
    recognizer: ObjectRecognizer,
    extractor: OrbExtractor,
    feature_counts: Sequence[int],
) -> TwinPhoto:
    content = path.read_bytes()
    if not object_id:
        return TwinPhoto("", len(content), NEVER, at_second_look=False)
    known_with = [
        count for count in feature_counts if _is_known(content, object_id, recognizer, extractor, count)
    ]
    least = known_with[0] if known_with else NEVER
    missed_with = frozenset(count for count in feature_counts if count > least) - frozenset(known_with)
    known = feature_counts[-1] in known_with
    if not known:
        again = recognize_image(content, recognizer, extractor).found
        known = again is not None and again.object_id == object_id
    return TwinPhoto(object_id, len(content), float(least), known, missed_with)


def _is_known(
    content: bytes, object_id: str, recognizer: ObjectRecognizer, extractor: OrbExtractor, count: int
) -> bool:
    settings = recognizer.settings
    limits = replace(settings.limits, longest_side=quick_look(settings, count).longest_side)
    found = recognizer.recognize(extractor.extract(load_image(content, limits), count)).found
    return found is not None and found.object_id == object_id
