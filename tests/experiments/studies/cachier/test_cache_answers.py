"""Answers of caches that differ from those of the whole catalogue: metrics, and a smoke run."""

import json
from pathlib import Path

import pytest

from nearsight.experiments.framework.experiment import RunOptions, StoredRow
from nearsight.experiments.museum.settings import MuseumSettings
from nearsight.experiments.studies import museums
from nearsight.experiments.studies.cachier.cache_answers import (
    CATALOGUE,
    RIVALS,
    TEACHING,
    WITH,
    WITHOUT,
    Figure,
)
from nearsight.experiments.studies.museums import dataset_of
from support.gallery import write_data_set


def row(kind: str, photo: str = "", expected: str = "", ignored: str = "", respected: str = "") -> StoredRow:
    return {
        "kind": kind,
        "size": "5",
        "photo": photo,
        "origin": "generated",
        "expected": expected,
        "ignored": ignored,
        "respected": respected,
        "inliers": "20",
        "confidence": "0.63",
        "rivals": "0",
        "ms": "2.0",
        "compare_ms": "40.0",
    }


ROWS = [
    *(row(TEACHING, expected=name) for name in "abc"),
    row(CATALOGUE, "photo of a", "a", "a", "a"),
    row(CATALOGUE, "photo of b", "b", "", ""),
    row(CATALOGUE, "other photo", "", "c", "c"),
    row(WITH, "photo of a", "a", "a", "a"),
    row(WITH, "photo of b", "b", "b", ""),
    row(WITHOUT, "photo of a", "a", "c", ""),
    row(WITHOUT, "photo of b", "b", "c", "c"),
    row(WITHOUT, "other photo", "", "c", "c"),  # wrong, as the answer of the catalogue
    row(RIVALS, "photo of a", "a", "b", ""),
]


def test_answers_that_the_whole_catalogue_gives_as_well_are_not_wrong() -> None:
    found = Figure().metrics(ROWS)
    assert found["wrong_of_catalogue"] == 1
    alone = found["all"]
    assert (alone["pairs"], alone["wrong_ignored"], alone["wrong_respected"]) == (5, 2, 1)
    assert (alone["recall_ignored"], alone["recall_respected"], alone["passed_on"]) == (1.0, 0.5, 2)
    assert (found["rivals"]["wrong_ignored"], found["rivals"]["wrong_respected"]) == (1, 0)
    assert found["confidence"]["generated"]["0.6"] == {"answers": 3, "right": 1}
    assert {line["objects"]: line["recall, respected"] for line in Figure().table(found)} == {
        **{"5": "0.5000", "all": "0.5000"},
        "rivals alone": "",
    }
    law, price, worst = Figure().targets(found)
    assert (law.value, law.reached) == (pytest.approx(1 / 5), False)
    assert (price.value, price.reached) == (pytest.approx(0.5), False)
    assert (worst.value, worst.reached) == (0, True)


def test_a_given_data_set_may_have_the_ids_of_the_museum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    museum = MuseumSettings(objects=2, photos_per_object=1, unknown_photos=0)
    monkeypatch.setattr(museums, "SMOKE_MUSEUM", museum)
    ids = {one.object_id for one in dataset_of(RunOptions(museums=tmp_path), museum).references}
    data = write_data_set(tmp_path / "one", {name: seed for seed, name in enumerate(sorted(ids))})
    options = RunOptions(smoke=True, data=data, museums=tmp_path)
    whole, *_ = Figure().cells(options)
    rows = [*Figure().run(options, **whole)]
    assert {row["expected"] for row in rows} == ids | {f"real/{name}" for name in ids}


@pytest.mark.system
def test_a_smoke_run_measures_caches_of_all_sizes(smoke_runs) -> None:
    folder = smoke_runs.folder("cache-answers")
    found = json.loads((folder / "summary.json").read_text())["metrics"]
    assert set(found["sizes"]) == {"1", "5"}
    assert found["objects"] == 12
    assert found["all"]["pairs"] == 2 * (2 * 24 + 2)
    assert found["all"]["recall_respected"] > 0.8
    assert found["teaching"]["compare_ms"] > 0
