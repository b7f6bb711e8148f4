"""Evaluating data sets: what counts as right, wrong and missed, and several sets in one catalogue."""

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
from support.gallery import SETTINGS, SIDE
from support.pictures import photo_jpeg, picture_jpeg

FIGURES = {"recall", "precision", "wrong", "queries", "extract_ms", "match_ms", "verify_ms"}
STANFORD = Path(os.environ.get("NEARSIGHT_SMVS", "no such folder"))
"""Stanford Mobile Visual Search, where a person has it: it may not be shipped."""


def outcome(expected: str | None, answered: str | None) -> Outcome:
    return Outcome(Path("photo.jpg"), expected, answered, 12, 1.0, 2.0, 3.0)


def make_folder(folder: Path, seeds: range, unknown: range = range(0)) -> Path:
    """References and a photo of each seed, photos of the unknown ones, and their labels."""
    for name in ("references", "queries"):
        (folder / name).mkdir(parents=True)
    lines = ["query,object_id"]
    for seed in seeds:
        (folder / "references" / f"{seed}.jpg").write_bytes(picture_jpeg(seed, side=SIDE))
    for seed in (*seeds, *unknown):
        (folder / "queries" / f"photo{seed}.jpg").write_bytes(photo_jpeg(seed, side=SIDE))
        lines.append(f"photo{seed}.jpg,{seed if seed in seeds else ''}")
    (folder / "labels.csv").write_text("\n".join(lines))
    return folder


def test_figures_count_right_wrong_and_missed_answers() -> None:
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


def test_recall_and_precision_are_absent_where_they_mean_nothing() -> None:
    report = EvaluationReport("landmarks", 5, (outcome(None, None),))
    assert (report.recall, report.precision, report.wrong) == (None, None, 0)
    assert EvaluationReport("empty", 0, ()).to_json()["queries"] == 0


def test_a_data_set_is_learnt_and_asked(tmp_path: Path) -> None:
    (dataset,) = datasets_in([make_folder(tmp_path / "small", range(4), range(10, 12))])
    done: list[int] = []
    (report,) = evaluate_together([dataset], SETTINGS, progress=done.append)
    assert set(report.to_json()) == FIGURES
    assert (report.recall, report.precision, report.wrong) == (1.0, 1.0, 0)
    assert (report.objects, len(report.outcomes)) == (4, 6)
    assert sum(done) == steps([dataset]) == 10
    assert all(one.extract_ms > 0 and one.match_ms > 0 for one in report.outcomes)


def test_several_folders_share_one_catalogue_and_get_a_report_each(tmp_path: Path) -> None:
    # Both folders call their objects 0 and 1; the second one's are other pictures.
    first = make_folder(tmp_path / "a" / "set", range(2))
    second = make_folder(tmp_path / "b" / "set", range(2), range(3, 4))
    for seed in range(2):
        (second / "references" / f"{seed}.jpg").write_bytes(picture_jpeg(seed + 20, side=SIDE))
        (second / "queries" / f"photo{seed}.jpg").write_bytes(photo_jpeg(seed + 20, side=SIDE))
    reports = evaluate_together(datasets_in([first, second]), SETTINGS)
    assert [report.objects for report in reports] == [4, 4]
    assert [report.recall for report in reports] == [1.0, 1.0]
    assert total(reports).to_json()["queries"] == 5
    content = reports_to_json(reports)
    assert set(content) == {*FIGURES, "datasets"}


def test_one_folder_gives_exactly_the_figures(tmp_path: Path) -> None:
    reports = evaluate_together(datasets_in([make_folder(tmp_path / "small", range(2))]), SETTINGS)
    assert set(reports_to_json(reports)) == FIGURES


def test_images_that_cannot_be_used_are_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "small", range(3))
    (folder / "references" / "0.jpg").write_bytes(b"no image")
    (folder / "queries" / "photo1.jpg").write_bytes(picture_jpeg(1)[:400])
    (report,) = evaluate_together(datasets_in([folder]), SETTINGS)
    assert report.objects == 2
    assert [one.answered for one in report.outcomes] == [None, "2"]
    assert report.recall == 0.5
    assert len(report.unreadable) == 2
    assert "reference 0" in report.unreadable[0]
    assert "photo1.jpg" in report.unreadable[1]


def test_a_reference_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    (dataset,) = datasets_in([make_folder(tmp_path / "small", range(2))])
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
