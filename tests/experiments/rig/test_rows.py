"""Request rows as CSV, and metrics as pure functions of them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearsight.common.errors import InvalidArgument, NotFound
from nearsight.experiments.rig.rows import (
    COLUMNS,
    RequestRow,
    accounting_errors,
    latency_in_words,
    latency_percentiles,
    precision,
    read_request_rows,
    recall,
    summarise,
    write_rows,
)
from support.disks import full_disk

texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=10)
times = st.floats(-1e6, 1e6).map(lambda value: round(value, 4))
counts = st.integers(0, 10**9)
rows = st.builds(
    RequestRow,
    **dict.fromkeys(
        ("configuration", "visitor", "expected", "answered", "outcome", "answered_by", "grain"), texts
    ),
    **dict.fromkeys(("number", "outcomes", "sent_bytes", "received_bytes"), counts),
    **{name: times for name in COLUMNS if name.endswith(("_ms", "_s"))},
)


@settings(max_examples=25)
@given(st.lists(rows, max_size=5))
def test_rows_read_from_a_file_equal_the_written_ones(
    tmp_path_factory: pytest.TempPathFactory, given_rows: list[RequestRow]
) -> None:
    path = tmp_path_factory.mktemp("rows") / "requests.csv"
    write_rows(path, given_rows)
    assert read_request_rows(path) == tuple(given_rows)


def test_a_full_disk_leaves_the_rows_of_an_earlier_replay(tmp_path: Path) -> None:
    row = RequestRow("a", "v", 0, 0.0, 0.0, "", "", "lost", 0, "", 1.0)
    write_rows(tmp_path / "r.csv", [row])
    with full_disk(), pytest.raises(OSError, match=r"r\.csv"):
        write_rows(tmp_path / "r.csv", [row] * 1000)
    assert read_request_rows(tmp_path / "r.csv") == (row,)
    assert [*tmp_path.iterdir()] == [tmp_path / "r.csv"]


def test_a_latency_of_nan_is_written_and_read(tmp_path: Path) -> None:
    row = RequestRow("a", "v", 0, 0.0, 0.0, "", "", "lost", 0, "", math.nan)
    write_rows(tmp_path / "r.csv", [row])
    assert math.isnan(read_request_rows(tmp_path / "r.csv")[0].latency_ms)


def test_a_missing_file_and_another_table_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"none\.csv"):
        read_request_rows(tmp_path / "none.csv")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InvalidArgument, match="line 1"):
        read_request_rows(tmp_path / "other.csv")


@pytest.mark.parametrize(
    ("valid", "invalid", "column", "expected"),
    [("12.5", "fast", "latency_ms", "a number"), ("77", "7.5", "number", "a whole number")],
)
def test_an_invalid_number_is_refused_with_its_line(
    tmp_path: Path, valid: str, invalid: str, column: str, expected: str
) -> None:
    write_rows(tmp_path / "r.csv", [RequestRow("a", "v", 77, 0.0, 0.0, "", "", "unknown", 1, "edge", 12.5)])
    text = (tmp_path / "r.csv").read_text().replace(valid, invalid)
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(InvalidArgument, match=f"line 2: {column} is '{invalid}'") as refused:
        read_request_rows(tmp_path / "r.csv")
    assert refused.value.advice == f"expected {expected}"


ROW = RequestRow(
    configuration="edge-cache",
    visitor="v1",
    number=0,
    time_s=0.0,
    late_ms=0.1,
    expected="a",
    answered="a",
    outcome="recognized",
    outcomes=1,
    answered_by="edge",
    latency_ms=10.0,
)
TIMEOUT_S = 5.0
WRONG = replace(ROW, answered="b")
MISSED = replace(ROW, answered="", outcome="unknown", answered_by="cloud")
FOREIGN = replace(ROW, expected="", answered="", outcome="unknown", answered_by="cloud")
FALSE_ALARM = replace(FOREIGN, answered="b", outcome="recognized")
FAILED = replace(ROW, answered="", outcome="DeadlineExceeded", answered_by="", latency_ms=5000.0)
LOST = replace(FAILED, outcome="lost", outcomes=0, latency_ms=math.nan)


def test_recall_counts_correct_answers_among_photos_of_known_objects() -> None:
    assert recall([ROW, ROW, WRONG, MISSED, FOREIGN, FALSE_ALARM]) == pytest.approx(2 / 4)


def test_a_failed_or_lost_request_lowers_recall() -> None:
    assert recall([ROW, FAILED]) == pytest.approx(1 / 2)
    assert recall([ROW, LOST]) == pytest.approx(1 / 2)


def test_precision_counts_correct_answers_among_those_that_name_an_object() -> None:
    assert precision([ROW, ROW, WRONG, MISSED, FOREIGN, FALSE_ALARM, FAILED]) == pytest.approx(2 / 4)


def test_unknown_for_an_object_outside_the_catalogue_changes_neither() -> None:
    assert (recall([ROW, FOREIGN]), precision([ROW, FOREIGN])) == (1.0, 1.0)


def test_ratios_without_requests_are_none() -> None:
    assert recall([FOREIGN]) is None
    assert precision([MISSED, FAILED]) is None
    assert summarise([], TIMEOUT_S).latency_ms == {}


def test_percentiles_are_those_of_the_answered_requests_if_all_were_answered() -> None:
    rows = [replace(ROW, latency_ms=float(ms)) for ms in range(1, 101)]
    assert latency_percentiles(rows, TIMEOUT_S) == pytest.approx({"p50": 50.5, "p95": 95.05, "p99": 99.01})


@pytest.mark.parametrize("failed", [FAILED, LOST, replace(FAILED, outcome="Overloaded", latency_ms=2.0)])
def test_requests_without_an_answer_count_with_at_least_the_timeout(failed: RequestRow) -> None:
    summary = summarise([ROW, ROW, failed, failed, failed], TIMEOUT_S)
    assert summary.latency_ms == pytest.approx({"p50": 5000.0, "p95": 5000.0, "p99": 5000.0})
    assert (summary.requests, summary.answered) == (5, 2)
    assert latency_percentiles([replace(failed, latency_ms=5003.0)], TIMEOUT_S)["p50"] == 5003.0


@pytest.mark.parametrize(("latency_ms", "words"), [(4999.0, "4999"), (5000.0, "≥ 5000"), (5003.2, "≥ 5003")])
def test_a_percentile_from_the_timeout_on_is_shown_as_a_lower_bound(latency_ms: float, words: str) -> None:
    assert latency_in_words(latency_ms, TIMEOUT_S) == words


def test_tiers_wrong_answers_and_outcomes_are_counted() -> None:
    summary = summarise([ROW, WRONG, MISSED, FAILED, FALSE_ALARM], TIMEOUT_S)
    assert summary.answered_by == {"cloud": 2, "edge": 2}
    assert summary.wrong == 2
    assert summary.outcomes == {"DeadlineExceeded": 1, "recognized": 3, "unknown": 1}


@pytest.mark.parametrize("outcomes", [0, 2])
def test_requests_without_exactly_one_outcome_are_accounting_errors_and_not_answered(outcomes: int) -> None:
    wrong = replace(ROW, number=7, outcomes=outcomes)
    (error,) = accounting_errors([ROW, FAILED, wrong])
    assert error == f"request 7 of v1 (edge-cache) got {outcomes} outcomes"
    assert summarise([wrong], TIMEOUT_S).answered == 0
