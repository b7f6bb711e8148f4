"""Evaluates recognition on data sets: trains the references, recognises the queries, counts the answers.

Several data sets share one catalogue, as the objects of an application do, and each has its own report. An
answer that names an object of another data set counts as wrong. Only the pipeline is measured, without
network or cache.

    recall     = right answers / photos of objects in the catalogue
    precision  = right answers / answers
    wrong      = answers that name an object that the photo does not show
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nearsight.common.errors import InvalidArgument
from nearsight.common.recognition.object_recognizer import ObjectRecognizer, pin_threads, recognize_image
from nearsight.common.recognition.results import RecognitionResult
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.experiments.datasets.dataset import Dataset, Query
from nearsight.experiments.datasets.loading import load_datasets
from nearsight.experiments.datasets.training import train_references

Progress = Callable[[int], None]
"""Called with the number of references or queries processed since the last call."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to one photo."""

    path: Path
    expected: str | None
    answered: str | None
    """Object ids; None: not in the catalogue, or answered as unknown."""
    extract_ms: float
    match_ms: float
    verify_ms: float
    """Times of feature extraction (without decoding), classifier and verification; sums over all attempts."""


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """The answers to one data set's queries."""

    dataset: str
    objects: int
    """Objects in the catalogue, of all data sets."""
    outcomes: tuple[Outcome, ...]
    unreadable: tuple[str, ...] = ()
    """Images that could not be used, with reasons. Queries for a missing reference count as missed."""

    @property
    def right(self) -> int:
        """Number of answers that name the object in the photo."""
        return sum(one.answered is not None and one.answered == one.expected for one in self.outcomes)

    @property
    def wrong(self) -> int:
        """Number of answers that name another object than the one in the photo."""
        return sum(one.answered is not None and one.answered != one.expected for one in self.outcomes)

    @property
    def recall(self) -> float | None:
        """Right answers divided by photos of objects in the catalogue; None if there are no such photos."""
        relevant = sum(one.expected is not None for one in self.outcomes)
        return self.right / relevant if relevant else None

    @property
    def precision(self) -> float | None:
        """Right answers divided by answers; None if every answer was unknown."""
        answered = self.right + self.wrong
        return self.right / answered if answered else None

    def to_json(self) -> dict[str, float | int | None]:
        """The figures; times are medians in milliseconds."""
        return {
            "recall": self.recall,
            "precision": self.precision,
            "wrong": self.wrong,
            "queries": len(self.outcomes),
            "extract_ms": _median([one.extract_ms for one in self.outcomes]),
            "match_ms": _median([one.match_ms for one in self.outcomes]),
            "verify_ms": _median([one.verify_ms for one in self.outcomes]),
        }


def evaluate_together(
    datasets: Sequence[Dataset],
    settings: RecognitionSettings,
    progress: Progress = lambda _done: None,
) -> tuple[EvaluationReport, ...]:
    """Evaluate data sets with all their references in one catalogue; one report each, in the same order.

    Raises
    ------
    InvalidArgument
        If two references have the same id.
    """
    pin_threads()
    references = [reference for dataset in datasets for reference in dataset.references]
    models, failures = train_references(references, settings, progress)
    catalogue = ObjectRecognizer.build(models, settings)
    reports = []
    for dataset in datasets:
        outcomes: list[Outcome] = []
        unreadable = [f"reference {object_id}: {error}" for object_id, error in failures.items()]
        for query in dataset.queries:
            try:
                outcomes.append(_recognised(query, recognize_image(query.path, catalogue)))
            except InvalidArgument as error:
                unreadable.append(f"query {query.path}: {error}")
            progress(1)
        reports.append(EvaluationReport(dataset.name, len(catalogue), tuple(outcomes), tuple(unreadable)))
    return tuple(reports)


def _recognised(query: Query, result: RecognitionResult) -> Outcome:
    return Outcome(
        path=query.path,
        expected=query.object_id,
        answered=result.found.object_id if result.found else None,
        extract_ms=result.extract_ms,
        match_ms=result.match_ms,
        verify_ms=result.verify_ms,
    )


def datasets_in(folders: Sequence[Path]) -> tuple[Dataset, ...]:
    """Load the data sets in these folders, with names and object ids that are unique across all of them.

    A folder may hold several data sets (``smvs/``); the result contains each of them.

    Raises
    ------
    NotFound, InvalidArgument
        As `load_datasets`, or if no folder is given.
    """
    if not folders:
        raise InvalidArgument("no folder to evaluate", advice="name a folder with references and queries")
    groups = [load_datasets(folder) for folder in folders]
    if len(groups) == 1:
        return groups[0]
    names = [folder.resolve().name for folder in folders]
    prefixes = [f"{name}-{n}" if names.count(name) > 1 else name for n, name in enumerate(names, 1)]
    return tuple(
        replace(dataset.with_prefix(prefix), name=prefix if len(group) == 1 else f"{prefix}/{dataset.name}")
        for prefix, group in zip(prefixes, groups, strict=True)
        for dataset in group
    )


def steps(datasets: Sequence[Dataset]) -> int:
    """Number of references and queries: the steps of `evaluate_together`."""
    return sum(len(dataset.references) + len(dataset.queries) for dataset in datasets)


def total(reports: Sequence[EvaluationReport]) -> EvaluationReport:
    """Merge all reports into one."""
    return EvaluationReport(
        "total",
        max((report.objects for report in reports), default=0),
        tuple(one for report in reports for one in report.outcomes),
        tuple(dict.fromkeys(line for report in reports for line in report.unreadable)),
    )


def reports_to_json(reports: Sequence[EvaluationReport]) -> dict[str, object]:
    """The figures of one data set; of several, the total's figures and each data set's in ``datasets``."""
    if len(reports) == 1:
        return dict(reports[0].to_json())
    return {**total(reports).to_json(), "datasets": {report.dataset: report.to_json() for report in reports}}


def table_of(reports: Sequence[EvaluationReport]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Columns and rows of a table: one row per data set, and the total."""
    times = ("extract_ms", "match_ms", "verify_ms")
    columns = ("data set", "objects", "photos", "recall", "precision", "wrong", "extract + match + verify ms")
    rows = []
    for report in [*reports, total(reports)] if len(reports) > 1 else reports:
        figures = report.to_json()
        ratios = ("-" if one is None else f"{one:.3f}" for one in (report.recall, report.precision))
        rows.append(
            (
                report.dataset,
                str(report.objects),
                str(len(report.outcomes)),
                *ratios,
                str(report.wrong),
                " + ".join(f"{figures[name] or 0:.1f}" for name in times),
            )
        )
    return columns, rows


def _median(values: Sequence[float]) -> float:
    return round(statistics.median(values), 3) if values else 0.0
