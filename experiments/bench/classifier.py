"""`nearsight bench classifier`: every classifier backend on the same catalogue and the same photos.

A measurement is one complete lookup: match and verification. Our backends run as in a daemon, with the early
stop of the vote. Those of OpenCV and FALCONN run in their usual configuration, and look up every descriptor.
For each photo, all backends are measured in turn, in a rotating order, so that slow periods of the machine
affect all of them equally. The ratio to FLANN-LSH is computed per photo: its matching only, divided by our
matching *and* verification. Recall and precision are those after the same verification.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import faiss
import numpy as np

from nearsight.common.errors import InvalidArgument, MissingDependency
from nearsight.common.recognition.classifiers.registry import AUTO, backend_names
from nearsight.common.recognition.extraction import extract_query
from nearsight.common.recognition.models import Features, ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer, pin_threads
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.experiments.bench.benchmark import Benchmark, ReportStep
from nearsight.experiments.datasets.loading import load_dataset
from nearsight.experiments.datasets.training import train_all
from nearsight.experiments.museum.generation import generate_museum
from nearsight.experiments.museum.settings import MuseumSettings

PEERS = ("flann-lsh", "brute-force", "falconn")
"""Backends in their usual configuration: without the early stop of our vote."""

QUICK: Mapping[str, Any] = {"objects": (50,), "photos": 10, "unknown_photos": 4}
_REFERENCE_PEER = "flann-lsh"
_SEED = 1
"""Seed of the generated museum and of the selection of photos."""
_Photo = tuple[str | None, Features]
"""Object id, None if the object is not in the catalogue; and the features of the photo."""


@dataclass(slots=True)
class _Series:
    """Measurements of one backend with one number of objects."""

    name: str
    build_ms: float
    recognizer: ObjectRecognizer
    match_ms: list[float] = field(default_factory=list)
    total_ms: list[float] = field(default_factory=list)
    answers: list[tuple[str | None, str | None]] = field(default_factory=list)

    def ask(self, expected: str | None, features: Features) -> None:
        """Recognise one photo."""
        result = self.recognizer.recognize(features)
        self.match_ms.append(result.match_ms)
        self.total_ms.append(result.match_ms + result.verify_ms)
        self.answers.append((expected, result.found.object_id if result.found else None))

    def row(self) -> dict[str, Any]:
        """The result; ``match_ms`` is the median of complete lookups, match and verification."""
        right = sum(expected == answer for expected, answer in self.answers if answer is not None)
        answered = sum(answer is not None for _, answer in self.answers)
        relevant = sum(expected is not None for expected, _ in self.answers)
        return {
            "backend": self.name,
            "objects": len(self.recognizer),
            "photos": relevant,
            "unknown_photos": len(self.answers) - relevant,
            "build_ms": round(self.build_ms, 3),
            "match_ms": round(statistics.median(self.total_ms), 4),
            "recall": round(right / relevant, 4) if relevant else 0.0,
            "precision": round(right / answered, 4) if answered else 1.0,
        }


def run(
    report_step: ReportStep,
    *,
    objects: Sequence[int] = (50, 200, 500),
    backends: Sequence[str] = (),
    photos: int = 40,
    unknown_photos: int = 15,
    query_features: int = 500,
    folder: Path | None = None,
) -> Benchmark:
    """Measure the backends; backends that are not installed are skipped and listed in the environment.

    Parameters
    ----------
    objects : sequence of int
        Numbers of objects in the catalogue, with a series of rows for each.
    backends : sequence of str
        Names of backends; empty for all.
    photos, unknown_photos : int
        Photos of objects in the catalogue, and of others; fewer if the data set has fewer.
    query_features : int
        Features per photo.
    folder : Path, optional
        A data set that replaces the generated museum.

    Raises
    ------
    InvalidArgument
        If there is no such backend, a number is not positive, or the data set has fewer objects than the
        largest requested catalogue.
    MissingDependency
        If none of the backends is installed.
    """
    if unknown := sorted(set(backends) - set(backend_names())):
        raise InvalidArgument(
            f"there is no classifier backend {unknown[0]!r}",
            advice=f"choose among {', '.join(backend_names())}",
        )
    if not objects or min(objects) < 1 or photos < 1 or unknown_photos < 0:
        raise InvalidArgument("numbers of objects and photos must be positive")
    pin_threads()
    installed, missing = _installed(backends or tuple(name for name in backend_names() if name != AUTO))
    largest = max(objects)
    settings = RecognitionSettings().model_copy(update={"query_features": query_features})
    with TemporaryDirectory(prefix="nearsight-bench-") as scratch:
        read_from = folder or _painted_museum(Path(scratch) / "museum", largest, unknown_photos, report_step)
        models, every_photo = _read(read_from, largest, settings, report_step)
    rows: list[dict[str, Any]] = []
    ratios: list[dict[str, object]] = []
    for count in sorted(set(objects)):
        held = models[:count]
        series = _build(held, installed, report_step)
        chosen = _chosen(every_photo, {model.object_id for model in held}, photos, unknown_photos)
        _measure(series, chosen, report_step)
        rows += [one.row() for one in series]
        ratios += _ratios(series)
        del series
    columns = {
        "objects": "{objects}",
        "backend": "{backend}",
        "build ms": "{build_ms:,.0f}",
        "lookup ms": "{match_ms:.2f}",
        "recall": "{recall:.3f}",
        "precision": "{precision:.3f}",
    }
    environment = {
        "faiss_options": faiss.get_compile_options().strip(),
        "threads": 1,
        "query_features": query_features,
        "training_features": settings.training_features,
        "data": str(folder) if folder else f"generated museum, seed {_SEED}",
        "match_ms": "match and verification",
        "without_early_stop": list(PEERS),
        "faster_than_flann_lsh_matching": ratios,
        "not_installed": missing,
    }
    title = f"One lookup (match and verification), {query_features} query features, one thread"
    return Benchmark("classifier", title, columns, rows, {"rows": rows, "environment": environment})


def _installed(backends: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The backends that are installed, and why the others are not.

    Raises
    ------
    MissingDependency
        That of the first backend, if none of them is installed.
    """
    errors = {}
    for name in backends:
        try:
            ObjectRecognizer.build((), RecognitionSettings(backend=name))
        except MissingDependency as error:
            errors[name] = error
    if len(errors) == len(backends):
        raise errors[backends[0]]
    return [name for name in backends if name not in errors], {name: str(e) for name, e in errors.items()}


def _painted_museum(folder: Path, objects: int, unknown_photos: int, report_step: ReportStep) -> Path:
    settings = MuseumSettings(objects, _SEED, photos_per_object=1, unknown_photos=unknown_photos)
    # A second process for a few exhibits would take longer to start than to paint them.
    workers = min(os.cpu_count() or 1, 1 + objects // 32)
    generate_museum(
        folder,
        settings,
        workers=workers,
        progress=lambda done, of: report_step(f"painting exhibit {done} of {of}"),
    )
    return folder


def _read(
    folder: Path, objects: int, settings: RecognitionSettings, report_step: ReportStep
) -> tuple[tuple[ObjectModel, ...], list[_Photo]]:
    """Models of the first ``objects`` objects of a data set, and its photos."""
    dataset = load_dataset(folder)
    if len(dataset.references) < objects:
        raise InvalidArgument(
            f"{folder} has {len(dataset.references)} objects, but {objects} are needed",
            advice="ask for fewer objects or use a larger data set",
        )
    report_step(f"training {objects} objects of {folder}")
    models = train_all(dataset.references[:objects], settings)
    report_step(f"reading {len(dataset.queries)} photos of {folder}")
    return models, [(one.object_id, extract_query(one.path, settings)) for one in dataset.queries]


def _chosen(photos: Sequence[_Photo], held: set[str], known: int, unknown: int) -> list[_Photo]:
    """Select photos of objects in the catalogue and of others, in random order."""
    rng = np.random.default_rng(_SEED)
    groups = (
        ([photo for photo in photos if photo[0] in held], known),
        ([(None, features) for shown, features in photos if shown not in held], unknown),
    )
    chosen = [group[index] for group, count in groups for index in rng.permutation(len(group))[:count]]
    return [chosen[index] for index in rng.permutation(len(chosen))]


def _build(models: Sequence[ObjectModel], names: Iterable[str], report_step: ReportStep) -> list[_Series]:
    series: list[_Series] = []
    for name in names:
        report_step(f"building {name} with {len(models)} objects")
        settings = RecognitionSettings(backend=name, early_stop=name not in PEERS)
        start_s = time.perf_counter()
        recognizer = ObjectRecognizer.build(models, settings)
        series.append(_Series(name, (time.perf_counter() - start_s) * 1e3, recognizer))
    return series


def _measure(series: Sequence[_Series], photos: Sequence[_Photo], report_step: ReportStep) -> None:
    for one in series:  # the first lookup runs FLANN's lazy initialisation and warms the caches
        one.recognizer.recognize(photos[0][1])
    for number, (expected, features) in enumerate(photos):
        if number % 5 == 0:
            report_step(f"{len(series[0].recognizer)} objects: photo {number} of {len(photos)}")
        shift = number % len(series)
        for one in (*series[shift:], *series[:shift]):
            one.ask(expected, features)


def _ratios(series: Sequence[_Series]) -> list[dict[str, object]]:
    """FLANN-LSH's matching time divided by each backend's time of match and verification, per photo."""
    peer = next((one for one in series if one.name == _REFERENCE_PEER), None)
    if peer is None:
        return []
    found: list[dict[str, object]] = []
    for one in series:
        if one is not peer:
            ratios = np.array(peer.match_ms) / np.array(one.total_ms)
            low, middle, high = np.percentile(ratios, (25, 50, 75))
            found.append(
                {
                    "backend": one.name,
                    "objects": len(one.recognizer),
                    "times_faster": round(float(middle), 2),
                    "quartiles": [round(float(low), 2), round(float(high), 2)],
                }
            )
    return found
