"""Offline analysis (Cachier dissertation, section 3.3.1): f(k), recall(k) and precision(k) of a backend.

For each cache size, random subsets of the objects are cached. Queries are photos of cached objects (relevant)
and of other objects (noise). Polynomials are fitted to the measurements by regression; their degree is chosen
by cross-validation.

Recall = correct / relevant. Precision = correct / answered; an answer to a noise query is wrong. f(k) is the
mean time of match and verification. Relevant and noise queries have half of the weight each, because their
times differ and the dissertation does not define how it combined them. Where a data set has only one of the
two kinds for a subset, such as relevant photos for a cache of all objects, f(k) is unknown there.

Times are CPU times of the one thread that works: the time of a lookup on this machine without other load.
Load during the measurement must not have a permanent effect on the profile; `LookupCorrection` accounts for
load at run time.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from nearsight.common.errors import InvalidArgument
from nearsight.common.object_cache.profile import LARGEST_RECALL, CacheProfile, Measurement
from nearsight.common.recognition.extraction import extract_query
from nearsight.common.recognition.models import Features, ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.experiments.datasets.dataset import Dataset
from nearsight.experiments.datasets.training import train_references

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

Progress = Callable[[int], None]
"""Called with the number of steps processed since the last call."""

_DEGREES = (1, 2, 3)
_FOLDS = 8
_MIN_FOLDS = 3
"""Minimum of folds for cross-validation; with fewer, the lowest degree is used."""


@dataclass(frozen=True, slots=True)
class ProfilingPlan:
    """Amount of measurements."""

    sizes: tuple[int, ...]
    """Cache sizes k."""
    subsets: int = 8
    """Random subsets per size; 8 in the dissertation."""
    relevant: int = 20
    noise: int = 100
    """Queries per subset, of objects in the subset and of others; fewer if the data set has fewer photos."""
    seed: int = 1
    """Seed of the random choices."""

    @property
    def steps(self) -> int:
        """Number of subsets to measure."""
        return len(self.sizes) * self.subsets

    def shortened(self) -> ProfilingPlan:
        """A plan that takes seconds instead of minutes."""
        return replace(
            self,
            subsets=min(self.subsets, 2),
            relevant=min(self.relevant, 8),
            noise=min(self.noise, 12),
        )


@dataclass(frozen=True, slots=True, eq=False)
class PreparedQuery:
    """The features of a photo and the object in it; None if that is not in the data set."""

    features: Features
    object_id: str | None


@dataclass(frozen=True, slots=True, eq=False)
class PreparedData:
    """A data set after training and extraction."""

    name: str
    """Name of the data set."""
    models: tuple[ObjectModel, ...]
    """Models of the objects that could be trained."""
    queries: tuple[PreparedQuery, ...]
    """Photos."""
    extraction_ms: float
    """Mean time to decode one photo and extract its features."""
    skipped: tuple[str, ...] = ()
    """Images that could not be used, and why."""


@dataclass(frozen=True, slots=True)
class SubsetRow:
    """Result of one random subset of one size; a value is NaN if there was no photo to measure it."""

    k: int
    subset: int
    backend: str
    relevant: int
    noise: int
    lookup_ms: float
    recall: float
    precision: float


def no_progress(_steps: int) -> None:
    """Ignore progress."""


def prepare(
    dataset: Dataset,
    settings: RecognitionSettings,
    progress: Progress,
    models: tuple[ObjectModel, ...] | None = None,
) -> PreparedData:
    """Train all objects and extract the features of all photos; unusable images are skipped and listed.

    If ``models`` are given, only photos are read, with another number of features (dissertation, 4.5.2).

    Raises
    ------
    InvalidArgument
        If no object or no photo is usable.
    """
    problems: list[str] = []
    if models is None:
        models, failures = train_references(dataset.references, settings, progress)
        problems += [f"{object_id}: {error.message}" for object_id, error in failures.items()]
    trained = {model.object_id for model in models}
    queries, times_s = [], []
    for query in dataset.queries:
        started_s = time.thread_time()
        try:
            features = extract_query(query.path, settings)
        except InvalidArgument as error:
            problems.append(f"{query.path.name}: {error.message}")
        else:
            times_s.append(time.thread_time() - started_s)
            queries.append(PreparedQuery(features, query.object_id if query.object_id in trained else None))
        progress(1)
    if not models or not any(query.object_id for query in queries):
        raise InvalidArgument(
            f"data set {dataset.name!r} has no photo of an object that could be trained",
            advice="a profile needs references and photos of them",
        )
    return PreparedData(dataset.name, models, tuple(queries), float(np.mean(times_s)) * 1e3, tuple(problems))


def extraction_time(paths: Sequence[Path], settings: RecognitionSettings) -> float:
    """Mean CPU time in ms to decode a photo and extract its features; unusable photos are skipped.

    `PreparedData` has this time for all photos. This function measures a part of them again. To compare
    settings, measure all of them at the same time, because the speed of a machine changes with its load.
    """
    times_s = []
    for path in paths:
        started_s = time.thread_time()
        try:
            extract_query(path, settings)
        except InvalidArgument:
            continue
        times_s.append(time.thread_time() - started_s)
    return float(np.mean(times_s)) * 1e3 if times_s else 0.0


def measure(
    data: PreparedData, plan: ProfilingPlan, settings: RecognitionSettings, progress: Progress
) -> tuple[SubsetRow, ...]:
    """Measure every subset of the plan.

    Raises
    ------
    InvalidArgument
        If a size is not within 1 and the number of objects.
    """
    wrong = [size for size in plan.sizes if not 1 <= size <= len(data.models)]
    if wrong or not plan.sizes:
        raise InvalidArgument(
            f"cache sizes must be between 1 and {len(data.models)} objects, got {list(wrong)}",
            advice="give other --sizes",
        )
    rng = np.random.default_rng(plan.seed)
    rows = []
    # Every round contains all sizes, so that temporary load on the machine affects all of them equally.
    for subset in range(plan.subsets):
        for k in plan.sizes:
            chosen = rng.choice(len(data.models), size=k, replace=False)
            rows.append(_measure_subset(data, chosen, subset, plan, settings, rng))
            progress(1)
    return _comparable(rows)


def _comparable(rows: Sequence[SubsetRow]) -> tuple[SubsetRow, ...]:
    """Leave out the times of subsets with one kind of photos, unless no subset has both kinds."""
    both = [row.relevant > 0 and row.noise > 0 for row in rows]
    if not any(both):
        return tuple(rows)
    unknown = float("nan")
    return tuple(
        row if has_both else replace(row, lookup_ms=unknown) for row, has_both in zip(rows, both, strict=True)
    )


def _measure_subset(
    data: PreparedData,
    chosen: NDArray[np.int64],
    subset: int,
    plan: ProfilingPlan,
    settings: RecognitionSettings,
    rng: np.random.Generator,
) -> SubsetRow:
    models = [data.models[index] for index in chosen]
    recognizer = ObjectRecognizer.build(models, settings)
    held = recognizer.object_ids
    relevant = [query for query in data.queries if query.object_id in held]
    noise = [query for query in data.queries if query.object_id not in held]
    recognizer.recognize(data.queries[0].features)  # the first call includes lazy initialisation
    relevant_ms, answered, correct = _ask(recognizer, _draw(relevant, plan.relevant, rng))
    noise_ms, answered_noise, _ = _ask(recognizer, _draw(noise, plan.noise, rng))
    answered += answered_noise
    means = [float(np.mean(times_ms)) for times_ms in (relevant_ms, noise_ms) if times_ms]
    return SubsetRow(
        k=len(models),
        subset=subset,
        backend=recognizer.backend,
        relevant=len(relevant_ms),
        noise=len(noise_ms),
        lookup_ms=float(np.mean(means)) if means else float("nan"),
        recall=correct / len(relevant_ms) if relevant_ms else float("nan"),
        precision=correct / answered if answered else float("nan"),
    )


def _draw(queries: Sequence[PreparedQuery], count: int, rng: np.random.Generator) -> list[PreparedQuery]:
    if len(queries) <= count:
        return list(queries)
    return [queries[index] for index in rng.choice(len(queries), size=count, replace=False)]


def _ask(recognizer: ObjectRecognizer, queries: Sequence[PreparedQuery]) -> tuple[list[float], int, int]:
    """Times of the queries [ms], number of answers, and number of correct answers."""
    times_ms, answered, correct = [], 0, 0
    for query in queries:
        started_s = time.thread_time()
        result = recognizer.recognize(query.features)
        times_ms.append((time.thread_time() - started_s) * 1e3)
        if result.found is not None:
            answered += 1
            correct += result.found.object_id == query.object_id
    return times_ms, answered, correct


def summarize(rows: Sequence[SubsetRow]) -> tuple[Measurement, ...]:
    """Mean and standard deviation over the subsets of each size; sizes without a time are left out.

    The standard deviation is that of a sample; 0 for a single subset.
    """
    points = []
    for k in sorted({row.k for row in rows if not np.isnan(row.lookup_ms)}):
        at_k = [row for row in rows if row.k == k]
        values: dict[str, Any] = {}
        for name in ("lookup_ms", "recall", "precision"):
            values[name], values[f"{name}_std"] = _mean_and_std([getattr(row, name) for row in at_k])
        points.append(Measurement(k=k, **values))
    return tuple(points)


def _mean_and_std(values: Sequence[float]) -> tuple[float | None, float | None]:
    known = [value for value in values if not np.isnan(value)]
    if not known:
        return None, None
    return float(np.mean(known)), float(np.std(known, ddof=1)) if len(known) > 1 else 0.0


def fit_profile(
    rows: Sequence[SubsetRow], data: PreparedData, settings: RecognitionSettings, wall_s: float
) -> CacheProfile:
    """Fit the polynomials of a profile.

    f and recall have the highest valid degree that is not above the degree of the cross-validation. Errors of
    f are relative to the time: large caches have long times with a large spread, but the optimizer of a slow
    classifier chooses among small caches.

    Raises
    ------
    InvalidArgument
        If no valid profile can be fitted, for example if the recall is 0 or unknown.
    """
    if all(np.isnan(row.recall) for row in rows):
        raise InvalidArgument(
            "the recall is unknown: no subset had a photo of its objects",
            advice="measure larger --sizes or more --subsets, or add photos",
        )
    recall = _fit_recall(rows)
    precision = fit_polynomial(rows, "precision")
    best = len(fit_polynomial(rows, "lookup_ms", relative=True)) - 1
    problem = ""
    for degree in range(best, -1, -1):
        try:
            return CacheProfile(
                backend=settings.backend,
                query_features=settings.query_features,
                largest_k=max(row.k for row in rows),
                lookup_ms=fit_polynomial(rows, "lookup_ms", (degree,), relative=True),
                recall=recall,
                precision=precision,
                extraction_ms=data.extraction_ms,
                created=datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="seconds"),
                machine=f"{platform.platform()}, {os.cpu_count()} cores",
                dataset=f"{data.name}: {len(data.models)} objects, {len(data.queries)} photos",
                measurements=summarize(rows),
            )
        except ValidationError as error:
            problem = str(error.errors(include_url=False)[0]["msg"])
    raise InvalidArgument(
        f"no valid profile fits the measurements: {problem}",
        advice="measure on photos that can be recognised",
    )


def _fit_recall(rows: Sequence[SubsetRow]) -> tuple[float, ...]:
    """Fit recall(k) with the highest degree whose value at k = 1 is a probability.

    With few sizes, the slope of a line is not reliable.
    """
    best = len(fit_polynomial(rows, "recall")) - 1
    for degree in range(best, 0, -1):
        coefficients = fit_polynomial(rows, "recall", (degree,))
        if 0 < sum(coefficients) <= LARGEST_RECALL:
            return coefficients
    return fit_polynomial(rows, "recall", (0,))


def fit_polynomial(
    rows: Sequence[SubsetRow], name: str, degrees: Sequence[int] = _DEGREES, *, relative: bool = False
) -> tuple[float, ...]:
    """Fit a polynomial in k of the degree that cross-validation selects.

    Rows without the value are ignored. Folds leave out whole subsets. Of all degrees whose error is within
    one standard error of the best, the lowest is used, because a higher degree would fit the noise. Recall
    and precision are weighted by the number of relevant photos. With ``relative``, errors are relative to the
    values.

    Returns
    -------
    tuple of float
        Coefficients, constant term first; 1 if no row has the value.
    """
    known = [row for row in rows if not np.isnan(getattr(row, name))]
    if not known:
        return (1.0,)
    values = np.array([getattr(row, name) for row in known], dtype=float)
    weights = np.array([1.0 if name == "lookup_ms" else max(1, row.relevant) for row in known])
    if relative:
        weights /= np.maximum(np.abs(values), np.finfo(float).tiny) ** 2
    k = np.array([row.k for row in known], dtype=float)
    x = k / k.max()
    usable = [degree for degree in degrees if degree < len(np.unique(k))] or [0]
    groups = np.array([row.subset for row in known])
    degree = _choose_degree(usable, x, values, weights, groups)
    if degree == 0:
        return (float(np.average(values, weights=weights)),)
    regression = _regression(degree, x, values, weights)
    coefficients = [float(c) / k.max() ** power for power, c in enumerate(regression[-1].coef_)]
    return (coefficients[0] + float(regression[-1].intercept_), *coefficients[1:])


def _regression(
    degree: int, x: NDArray[np.float64], values: NDArray[np.float64], weights: NDArray[np.float64]
) -> Pipeline:
    # scikit-learn takes long to import, and few commands that use this module need it.
    from sklearn.linear_model import LinearRegression  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    from sklearn.preprocessing import PolynomialFeatures  # noqa: PLC0415

    model = make_pipeline(PolynomialFeatures(degree), LinearRegression())
    return model.fit(x[:, None], values, linearregression__sample_weight=weights)


def _choose_degree(
    degrees: Sequence[int],
    x: NDArray[np.float64],
    values: NDArray[np.float64],
    weights: NDArray[np.float64],
    groups: NDArray[np.int64],
) -> int:
    from sklearn.model_selection import GroupKFold  # noqa: PLC0415  takes long to import

    folds = min(_FOLDS, len(np.unique(groups)))
    if len(degrees) == 1 or folds < _MIN_FOLDS:
        return min(degrees)
    errors: dict[int, list[float]] = {degree: [] for degree in degrees}
    for train, test in GroupKFold(folds).split(x, groups=groups):
        for degree in degrees:
            predicted = _regression(degree, x[train], values[train], weights[train]).predict(x[test, None])
            errors[degree].append(float(np.average((predicted - values[test]) ** 2, weights=weights[test])))
    best = min(degrees, key=lambda degree: float(np.mean(errors[degree])))
    limit = np.mean(errors[best]) + np.std(errors[best], ddof=1) / np.sqrt(folds)
    return next(degree for degree in sorted(degrees) if np.mean(errors[degree]) <= limit)
