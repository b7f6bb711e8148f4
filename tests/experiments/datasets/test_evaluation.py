"""Evaluation of data sets: right, wrong and missed answers, and several sets in one catalogue."""

import os
from pathlib import Path

import pytest

from nearsight.common.errors import InvalidArgument, NotFound
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.experiments.datasets.evaluation import (
    EvaluationReport,
    Outcome,
    datasets_in,
    evaluate_together,
    reports_to_json,
    steps,
    total,
)
from support.gallery import SETTINGS, numbered, write_data_set
from support.pictures import picture_jpeg

FIGURES = {"recall", "precision", "wrong", "queries", "extract_ms", "match_ms", "verify_ms"}
STANFORD = Path(os.environ.get("NEARSIGHT_SMVS", "no such folder"))
"""Folder of Stanford Mobile Visual Search, if available; its licence does not allow distribution."""


def outcome(expected: str | None, answered: str | None) -> Outcome:
    return Outcome(Path("photo.jpg"), expected, answered, 1.0, 2.0, 3.0)


def test_recall_precision_and_wrong_answers_are_counted() -> None:
    outcomes = (
        outcome("a", "a"),
        outcome("a", "b"),
        outcome("b", None),
        outcome(None, None),
        outcome(None, "a"),
    )
    report = EvaluationReport("set", 2, outcomes)
    assert report.to_json() == {
        "recall": 1 / 3,
        "precision": 1 / 3,
        "wrong": 2,
        "queries": 5,
        "extract_ms": 1.0,
        "match_ms": 2.0,
        "verify_ms": 3.0,
    }


def test_recall_and_precision_are_none_without_photos_of_objects() -> None:
    report = EvaluationReport("landmarks", 5, (outcome(None, None),))
    assert (report.recall, report.precision, report.wrong) == (None, None, 0)
    assert EvaluationReport("empty", 0, ()).to_json()["queries"] == 0


def test_a_data_set_is_trained_and_evaluated(tmp_path: Path) -> None:
    (dataset,) = datasets_in([write_data_set(tmp_path / "small", numbered(range(4)), range(10, 12))])
    done: list[int] = []
    (report,) = evaluate_together([dataset], SETTINGS, progress=done.append)
    assert set(report.to_json()) == FIGURES
    assert (report.recall, report.precision, report.wrong) == (1.0, 1.0, 0)
    assert (report.objects, len(report.outcomes)) == (4, 6)
    assert sum(done) == steps([dataset]) == 10
    assert all(one.extract_ms > 0 and one.match_ms > 0 for one in report.outcomes)


def test_several_folders_share_one_catalogue_and_get_a_report_each(tmp_path: Path) -> None:
    first = write_data_set(tmp_path / "a" / "set", numbered(range(2)))
    second = write_data_set(tmp_path / "b" / "set", {"0": 20, "1": 21}, [3])
    reports = evaluate_together(datasets_in([first, second]), SETTINGS)
    assert [report.objects for report in reports] == [4, 4]
    assert [report.recall for report in reports] == [1.0, 1.0]
    assert total(reports).to_json()["queries"] == 5
    content = reports_to_json(reports)
    assert set(content) == {*FIGURES, "datasets"}
    assert {name: one["queries"] for name, one in content["datasets"].items()} == {"set-1": 2, "set-2": 3}


def test_data_sets_of_several_folders_are_named_after_their_folders(tmp_path: Path) -> None:
    write_data_set(tmp_path / "many" / "covers", numbered(range(1)))
    write_data_set(tmp_path / "many" / "prints", numbered(range(1)))
    write_data_set(tmp_path / "covers", numbered(range(1)))
    found = datasets_in([tmp_path / "many", tmp_path / "covers"])
    assert [one.name for one in found] == ["many/covers", "many/prints", "covers"]


def test_the_json_of_one_data_set_has_no_list_of_data_sets(tmp_path: Path) -> None:
    reports = evaluate_together(
        datasets_in([write_data_set(tmp_path / "small", numbered(range(2)))]), SETTINGS
    )
    assert set(reports_to_json(reports)) == FIGURES


def test_unreadable_images_are_named_and_skipped(tmp_path: Path) -> None:
    folder = write_data_set(tmp_path / "small", numbered(range(3)))
    (folder / "references" / "0.jpg").write_bytes(b"no image")
    (folder / "queries" / "photo1.jpg").write_bytes(picture_jpeg(1)[:400])
    (report,) = evaluate_together(datasets_in([folder]), SETTINGS)
    assert report.objects == 2
    assert [one.answered for one in report.outcomes] == [None, "2"]
    assert report.recall == 0.5
    assert len(report.unreadable) == 2
    assert "reference 0" in report.unreadable[0]
    assert "photo1.jpg" in report.unreadable[1]


def test_a_duplicate_reference_is_refused(tmp_path: Path) -> None:
    (dataset,) = datasets_in([write_data_set(tmp_path / "small", numbered(range(2)))])
    with pytest.raises(InvalidArgument, match="'0'"):
        evaluate_together([dataset, dataset], SETTINGS)


def test_no_folder_and_a_missing_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument):
        datasets_in([])
    with pytest.raises(NotFound):
        datasets_in([tmp_path / "none"])


if STANFORD.is_dir():  # not shipped

    def test_stanford_photos_are_recognised_and_no_landmark_is_taken_for_anything() -> None:
        reports = {
            one.dataset: one for one in evaluate_together(datasets_in([STANFORD]), RecognitionSettings())
        }
        assert sum(one.wrong for one in reports.values()) == 0
        for name, recall in (("dvd_covers", 0.96), ("museum_paintings", 0.90), ("book_covers", 0.96)):
            assert (reports[name].recall or 0) >= recall
        assert reports["landmarks"].recall is None
