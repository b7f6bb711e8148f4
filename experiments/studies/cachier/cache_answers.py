"""Answers of a small cache that the whole catalogue would not give (beyond the dissertation's 3.3.1).

A catalogue is trained as in the cloud, so similar objects are recorded as rivals of each other. It is then
divided at random into caches of one size. Each photo is looked up in a cache that has its object, for recall,
and in a cache that lacks it, where every answer is wrong. Photos of objects with rivals are also looked up in
caches that hold only these rivals, which is the worst case. Every lookup is made twice, with rivals ignored
and respected (`RecognitionSettings.rival_margin`). The answer of the whole catalogue, with the cloud's second
look, is the reference for both.

Without ``--data`` the photos are those of a generated museum. With ``--data``, real references and photos are
added to the same catalogue, with ``real/`` before their ids. Times are CPU times of one thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, TypeVar

import numpy as np

from nearsight.common.catalogue.database_catalogue import DatabaseCatalogue
from nearsight.common.catalogue.ingestion import BATCH_OBJECTS
from nearsight.common.catalogue.reference_folder import Reference
from nearsight.common.catalogue.store import CatalogueStore
from nearsight.common.catalogue.training import NewObject, train_objects
from nearsight.common.recognition.extraction import extract_query
from nearsight.common.recognition.images import read_image_file
from nearsight.common.recognition.models import Features, ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer, pin_threads, recognize_image
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.experiments.datasets.dataset import Dataset, merge_datasets
from nearsight.experiments.datasets.loading import load_datasets
from nearsight.experiments.framework import drawing, numbers
from nearsight.experiments.framework.experiment import Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.studies.museums import OnDataSet, dataset_of, museum_of

T = TypeVar("T")

SIZES, _SMOKE_SIZES = (1, 5, 20, 60), (1, 5)
_DRAWS = 3
"""Number of random divisions of the catalogue into caches of a size."""
WITH, WITHOUT, RIVALS, CATALOGUE, TEACHING = "with", "without", "rivals", "catalogue", "teaching"
"""Kinds of rows: the cache has the photo's object; lacks it; holds only its rivals; is the whole catalogue;
training of one object."""
_GENERATED, _REAL = "generated", "real"
_MOST_WRONG = 1 / 20_000
_MOST_RECALL_LOST = 0.005
_CONFIDENCES = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.01)
_LOOKS = {"ignored": "#c2571a", "respected": "#1f6f8b"}
_COLUMNS: Row = {
    "kind": "",
    "size": 0,
    "photo": "",
    "origin": "",
    "expected": "",
    "ignored": "",
    "respected": "",
    "inliers": 0,
    "confidence": 0.0,
    "rivals": 0,
    "ms": 0.0,
    "compare_ms": 0.0,
}


@dataclass(frozen=True, slots=True, eq=False)
class _Photo:
    path: Path
    origin: str
    expected: str
    features: Features


class _Cache:
    """Some objects of the catalogue, with lookups that ignore and that respect rivals."""

    def __init__(self, models: Sequence[ObjectModel], settings: RecognitionSettings) -> None:
        self.names = frozenset(model.object_id for model in models)
        self._careful = ObjectRecognizer.build(models, settings)
        # If no object has a rival outside the cache, both lookups are the same.
        alike = all(self.names.issuperset(model.rivals) for model in models)
        trusting = settings.model_copy(update={"rival_margin": 0.0})
        self._trusting = self._careful if alike else ObjectRecognizer.build(models, trusting)

    def row(self, kind: str, size: int, photo: _Photo) -> Row:
        began_s = time.thread_time()
        careful = self._careful.recognize(photo.features).found
        spent_ms = (time.thread_time() - began_s) * 1e3
        trusting = careful
        if self._trusting is not self._careful:
            trusting = self._trusting.recognize(photo.features).found
        return _photo_row(kind, size, photo, trusting, careful, spent_ms)


class Figure(OnDataSet):
    """Answers that caches give and the whole catalogue would not, with rivals ignored and respected."""

    name: ClassVar[str] = "cache-answers"
    source: ClassVar[str] = "beyond the Cachier dissertation's 3.3.1"

    def __init__(self) -> None:
        self._settings = RecognitionSettings()
        self._models: list[ObjectModel] = []
        self._photos: list[_Photo] = []
        self._teaching: list[Row] = []

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """The whole catalogue (size 0), then each division into caches."""
        sizes, draws = (_SMOKE_SIZES, 1) if options.smoke else (SIZES, _DRAWS)
        divisions = [{"size": size, "draw": draw} for size in sizes for draw in range(draws)]
        return [{"size": 0, "draw": 0}, *divisions]

    def run(self, options: RunOptions, size: int, draw: int) -> Iterator[Row]:
        """One row per photo and cache; for the whole catalogue, also one per trained object."""
        if not self._models:
            self._prepare(options)
        if not size:
            yield from (*self._teaching, *self._asked_in_all(), *self._asked_in_rivals())
            return
        rng = options.rng("cache answers", size, draw)
        order = [self._models[index] for index in rng.permutation(len(self._models))]
        caches = [_Cache(models, self._settings) for models in _parts(order, size)]
        of = {name: number for number, cache in enumerate(caches) for name in cache.names}
        for photo in self._photos:
            own = of.get(photo.expected)
            if own is not None:
                yield caches[own].row(WITH, size, photo)
            others = [number for number in range(len(caches)) if number != own]
            yield caches[int(rng.choice(others))].row(WITHOUT, size, photo)

    def _prepare(self, options: RunOptions) -> None:
        pin_threads()
        museum = dataset_of(replace(options, data=None), museum_of(options))
        real = [] if options.data is None else [one.with_prefix(_REAL) for one in load_datasets(options.data)]
        dataset = merge_datasets([museum, *real], "all")
        self._models, self._teaching = _taught(dataset.references, self._settings)
        for origin, part in ((_GENERATED, museum), *((_REAL, one) for one in real)):
            self._photos += _photos(part, origin, self._settings)

    def _asked_in_all(self) -> Iterator[Row]:
        whole = ObjectRecognizer.build(self._models, self._settings)
        for photo in self._photos:
            began_s = time.thread_time()
            found = whole.recognize(photo.features).found
            spent_ms = (time.thread_time() - began_s) * 1e3
            if found is None:
                found = recognize_image(photo.path, whole).found
            yield _photo_row(CATALOGUE, len(self._models), photo, found, found, spent_ms)

    def _asked_in_rivals(self) -> Iterator[Row]:
        models = {model.object_id: model for model in self._models}
        for photo in self._photos:
            rivals = models[photo.expected].rivals if photo.expected else {}
            if rivals:
                yield _Cache([models[name] for name in rivals], self._settings).row(
                    RIVALS, len(rivals), photo
                )

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """Wrong answers and recall by size; confidence by origin; costs of training."""
        kinds = numbers.grouped(rows, "kind")
        whole = {row["photo"]: row["respected"] for row in kinds[CATALOGUE]}
        pairs = [row for row in rows if row["kind"] in {WITH, WITHOUT}]
        sizes = numbers.grouped(pairs, "size")
        return {
            "objects": len(kinds[TEACHING]),
            "photos": len(whole),
            "wrong_of_catalogue": sum(
                row["respected"] not in {"", row["expected"]} for row in kinds[CATALOGUE]
            ),
            "all": _numbers(pairs, whole),
            "sizes": {size: _numbers(sizes[size], whole) for size in sorted(sizes, key=int)},
            "rivals": _numbers(kinds.get(RIVALS, ()), whole),
            "confidence": {
                origin: _confidence(asked) for origin, asked in numbers.grouped(pairs, "origin").items()
            },
            "teaching": {
                "objects_with_rivals": sum(row["rivals"] != "0" for row in kinds[TEACHING]),
                "train_ms": float(np.median(numbers.values(kinds[TEACHING], "ms"))),
                "compare_ms": float(np.median(numbers.values(kinds[TEACHING], "compare_ms"))),
            },
            "lookup_in_catalogue_ms": float(np.median(numbers.values(kinds[CATALOGUE], "ms"))),
        }

    def targets(self, summary: Mapping[str, Any]) -> Iterator[Target]:
        """Limits of wrong answers, and of the recall that is lost for them."""
        found, worst = summary["all"], summary["rivals"]
        share = found["wrong_respected"] / max(1, found["pairs"])
        text = "answers of caches that the whole catalogue would not give, per photo and cache"
        yield Target.at_most(f"{text}, at most 1 in 20,000", share, _MOST_WRONG, _counts(found))
        lost = found["recall_ignored"] - found["recall_respected"]
        text = "recall of caches with rivals ignored minus that with rivals respected, at most 0.005"
        yield Target.at_most(text, lost, _MOST_RECALL_LOST)
        text = "such answers of caches that hold only rivals of the photo's object, at most 0"
        yield Target.at_most(text, worst["wrong_respected"], 0, _counts(worst))

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per size of caches, and one for caches of rivals only."""
        parts = {**summary["sizes"], "all": summary["all"], "rivals alone": summary["rivals"]}
        for name, found in parts.items():
            yield {
                "objects": name,
                "photos x caches": found["pairs"],
                "wrong, rivals ignored": found["wrong_ignored"],
                "wrong, respected": found["wrong_respected"],
                **{f"recall, {look}": _recall_in_words(found[f"recall_{look}"]) for look in _LOOKS},
                "passed on": found["passed_on"],
                "lookup [ms]": f"{found['lookup_ms']:.2f}",
            }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw wrong answers and recall over the size of caches."""
        found = results.metrics
        picture = drawing.new_picture(9.0, 3.8)
        wrong, recall = picture.subplots(1, 2)
        parts = {**found["sizes"], "rivals\nalone": found["rivals"]}
        for place, (name, colour) in enumerate(_LOOKS.items()):
            at = np.arange(len(parts)) + (place - 0.5) * 0.36
            values = [one[f"wrong_{name}"] for one in parts.values()]
            bars = wrong.bar(at, values, 0.34, color=colour, label=f"rivals {name}")
            wrong.bar_label(bars, fontsize=8)
            sizes = np.arange(len(found["sizes"])) + (place - 0.5) * 0.36
            shares = [one[f"recall_{name}"] for one in found["sizes"].values()]
            bars = recall.bar(sizes, shares, 0.34, color=colour)
            recall.bar_label(bars, fmt="%.3f", fontsize=8)
        wrong.set(title="Answers that the catalogue would not give", xlabel="objects in the cache")
        wrong.set_xticks(range(len(parts)), [*parts])
        wrong.set_ylim(0, max(1.0, 1.1 * wrong.get_ylim()[1]))
        recall.set(title="Recall", xlabel="objects in the cache", ylim=(0, 1.08))
        recall.set_xticks(range(len(found["sizes"])), [*found["sizes"]])
        drawing.whole_numbers(wrong.yaxis)
        drawing.caption(
            picture,
            f"{found['all']['pairs']} photos x caches; {found['objects']} objects divided at random into "
            f"caches, {found['teaching']['objects_with_rivals']} have rivals; rightmost: caches of rivals",
        )
        drawing.legend_below(picture, wrong)
        return picture


def _counts(found: Mapping[str, Any]) -> str:
    wrong, ignored = found["wrong_respected"], found["wrong_ignored"]
    return f"{wrong} of {found['pairs']}; with rivals ignored {ignored}"


def _recall_in_words(recall: float | None) -> str:
    return "" if recall is None else f"{recall:.4f}"


def _parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _taught(
    references: Sequence[Reference], settings: RecognitionSettings
) -> tuple[list[ObjectModel], list[Row]]:
    """Train the catalogue as a cloud does; return its models, and a row of training times per object.

    Training is timed once more on its own. The rest of an ingestion's time is comparison and storage.
    """
    spent: dict[str, tuple[float, float]] = {}
    with (
        TemporaryDirectory() as folder,
        CatalogueStore(Path(folder) / "cloud.db") as store,
        closing(DatabaseCatalogue(store, "all", settings)) as catalogue,
    ):
        for batch in _parts(references, BATCH_OBJECTS):
            objects = [
                NewObject(one.object_id, one.label, tuple(read_image_file(path) for path in one.paths))
                for one in batch
            ]
            began_s = time.thread_time()
            train_objects(objects, settings)
            trained_s = time.thread_time()
            catalogue.put(objects, allow_similar=True)
            train_s = trained_s - began_s
            compare_s = time.thread_time() - trained_s - train_s
            each = (train_s * 1e3 / len(objects), compare_s * 1e3 / len(objects))
            spent |= dict.fromkeys((one.object_id for one in objects), each)
        written = store.changes_since("all", 0).written
    models = sorted(written, key=lambda model: model.object_id)
    rows: list[Row] = [
        {
            **_COLUMNS,
            "kind": TEACHING,
            "expected": model.object_id,
            "rivals": len(model.rivals),
            "ms": round(spent[model.object_id][0], 3),
            "compare_ms": round(spent[model.object_id][1], 3),
        }
        for model in models
    ]
    return models, rows


def _photos(dataset: Dataset, origin: str, settings: RecognitionSettings) -> Iterator[_Photo]:
    for query in dataset.queries:
        yield _Photo(query.path, origin, query.object_id or "", extract_query(query.path, settings))


def _photo_row(
    kind: str,
    size: int,
    photo: _Photo,
    trusting: RecognizedObject | None,
    careful: RecognizedObject | None,
    spent_ms: float,
) -> Row:
    found = trusting or careful
    return {
        **_COLUMNS,
        "kind": kind,
        "size": size,
        "photo": "/".join(photo.path.parts[-3:]),
        "origin": photo.origin,
        "expected": photo.expected,
        "ignored": trusting.object_id if trusting else "",
        "respected": careful.object_id if careful else "",
        "inliers": found.inliers if found else 0,
        "confidence": round(found.confidence, 4) if found else 0.0,
        "ms": round(spent_ms, 3),
    }


def _numbers(rows: Sequence[StoredRow], whole: Mapping[str, str]) -> dict[str, Any]:
    """Recall, and wrong answers that the whole catalogue would not give, with both kinds of lookups.

    The recall of caches without any photo's object is None.
    """
    relevant = [row for row in rows if row["kind"] == WITH]
    found: dict[str, Any] = {"pairs": len(rows)}
    for name in ("ignored", "respected"):
        found[f"wrong_{name}"] = sum(
            row[name] not in {"", row["expected"], whole[row["photo"]]} for row in rows
        )
        right = sum(row[name] == row["expected"] for row in relevant)
        found[f"recall_{name}"] = right / len(relevant) if relevant else None
    found["passed_on"] = sum(row["ignored"] != "" and row["respected"] == "" for row in rows)
    found["lookup_ms"] = float(np.median(numbers.values(rows, "ms"))) if rows else 0.0
    return found


def _confidence(rows: Sequence[StoredRow]) -> dict[str, dict[str, int]]:
    """Number of answers and of right answers, by confidence."""
    answered = [row for row in rows if row["respected"]]
    found: dict[str, dict[str, int]] = {}
    for least, below in pairwise(_CONFIDENCES):
        there = [row for row in answered if least <= float(row["confidence"]) < below]
        right = sum(row["respected"] == row["expected"] for row in there)
        found[f"{least:.1f}"] = {"answers": len(there), "right": right}
    return found
