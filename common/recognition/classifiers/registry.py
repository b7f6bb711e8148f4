"""The classifier backends by name, and the automatic choice by size.

``auto`` is based on measured costs (500 query features, 1000 features per object, one thread of an EPYC with
AVX-512). Exact search took 0.4 ms per object; `multihash` took 1.1 ms up to 16 objects and 4 ms at 500. So
the costs are equal between 2 and 4 objects. `hnsw` answers as fast as `multihash`, but building it takes ten
times as long, too long for a cache that is rebuilt often. It is available by name.
"""

from __future__ import annotations

from collections.abc import Sequence

from nearsight.common.errors import ConfigurationError
from nearsight.common.recognition.classifiers.baseline_backends import (
    BruteForceClassifier,
    FalconnClassifier,
    FlannLshClassifier,
)
from nearsight.common.recognition.classifiers.classifier import TABLE_BYTES, Classifier
from nearsight.common.recognition.classifiers.faiss_backends import (
    ExactClassifier,
    HnswClassifier,
    MultiHashClassifier,
    SmallHashClassifier,
)
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.settings import RecognitionSettings

AUTO = "auto"

EXACT_UP_TO_DESCRIPTORS = 2500
"""Up to this size, comparing with every descriptor takes less time than a lookup in hash tables."""

_BACKENDS: tuple[type[Classifier], ...] = (
    MultiHashClassifier,
    SmallHashClassifier,
    ExactClassifier,
    HnswClassifier,
    FalconnClassifier,
    FlannLshClassifier,
    BruteForceClassifier,
)
_BY_NAME = {backend.name: backend for backend in _BACKENDS}


def backend_names() -> tuple[str, ...]:
    """Names accepted by `build_classifier`, ``auto`` first."""
    return (AUTO, *_BY_NAME)


def build_classifier(
    name: str, models: Sequence[ObjectModel], settings: RecognitionSettings | None = None
) -> Classifier:
    """Build the index of a backend over the models.

    Raises
    ------
    ConfigurationError
        If there is no backend of that name.
    MissingDependency
        If the backend's library is not installed.
    """
    chosen = name
    if name == AUTO:
        descriptors = sum(len(view) for model in models for view in model.views)
        few = descriptors <= EXACT_UP_TO_DESCRIPTORS
        chosen = ExactClassifier.name if few else MultiHashClassifier.name
    if chosen not in _BY_NAME:
        raise ConfigurationError(
            f"there is no classifier backend {name!r}", advice=f"choose one of {', '.join(backend_names())}"
        )
    return _BY_NAME[chosen](models, settings or RecognitionSettings())


def bytes_per_descriptor(name: str) -> int:
    """Memory of an index per descriptor, with many objects [bytes]; calibrated, see decision 050."""
    return TABLE_BYTES + _BY_NAME[MultiHashClassifier.name if name == AUTO else name].search_bytes
