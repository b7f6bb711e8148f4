"""Files of visits and photo requests: round trips, and errors with line and expectation."""

from pathlib import Path

import pytest

from nearsight.common.errors import InvalidArgument, NotFound
from nearsight.experiments.traces.requests import PhotoRequest, read_requests_csv, write_requests_csv
from nearsight.experiments.traces.visits import Visit, read_visits_csv, sequences, write_visits_csv

NAMES = ("a", " a ", 'the "b"', "c, d", "two\nlines", "cr\r", "x\u2028y", "\ufeffé", "x\x1cy", "'", "1e5")


def test_visits_and_photo_requests_read_from_files_equal_the_written_ones(tmp_path: Path) -> None:
    visits = tuple(Visit(name, name[::-1], 0.1 * place, 1e5 / 3) for place, name in enumerate(NAMES))
    write_visits_csv(tmp_path / "visits.csv", visits)
    assert read_visits_csv(tmp_path / "visits.csv") == visits
    requests = tuple(PhotoRequest(name, name, (-1) ** place * 2**60) for place, name in enumerate(NAMES))
    unknown = (PhotoRequest("", "photo.jpg", 0),)
    write_requests_csv(tmp_path / "requests.csv", requests + unknown)
    assert read_requests_csv(tmp_path / "requests.csv") == requests + unknown
    for read, write in ((read_visits_csv, write_visits_csv), (read_requests_csv, write_requests_csv)):
        write(tmp_path / "empty.csv", ())
        assert read(tmp_path / "empty.csv") == ()


def test_files_have_the_columns_of_the_papers(tmp_path: Path) -> None:
    write_visits_csv(tmp_path / "visits.csv", [Visit("v", "e", 0.5, 2.0)])
    write_requests_csv(tmp_path / "requests.csv", [PhotoRequest("0001", "queries/0001_01.jpg", 1500)])
    assert (tmp_path / "visits.csv").read_text() == "visitor,exhibit,start_s,end_s\nv,e,0.5,2.0\n"
    assert (tmp_path / "requests.csv").read_text() == (
        "objectID,imagePath,time_ms\n0001,queries/0001_01.jpg,1500\n"
    )


def test_a_log_with_points_of_interest_is_read_and_further_columns_ignored(tmp_path: Path) -> None:
    path = tmp_path / "stays.csv"
    path.write_text("visitor,group,seq,poi,start_s,end_s\n195,146,0,JerusalemPhoto,51125,51139\n")
    assert read_visits_csv(path) == (Visit("195", "JerusalemPhoto", 51125, 51139),)


def test_a_column_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    path.write_text("visitor,exhibit,start_s,end_s,exhibit\nv,e,0,1,f\n")
    with pytest.raises(InvalidArgument, match=r"line 1: the header is '.*,exhibit'; expected the columns"):
        read_visits_csv(path)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("v,e,0", "line 3: not 4 fields"),
        ("v,e,0,1,2", "line 3: not 4 fields"),
        (",e,0,1", "line 3: visitor is empty; expected a name"),
        ("v, ,0,1", "line 3: exhibit is empty"),
        ("v,e,soon,1", "line 3: start_s is 'soon'; expected a finite number"),
        ("v,e,0,nan", "line 3: end_s is 'nan'"),
        ("v,e,5,1", "line 3: end_s 1 is before start_s 5; expected end_s >= start_s"),
        ("v,e,1e306,1e306", "line 3: a visit from 1e+306 to 1e+306 s; expected times in seconds"),
        ('v,"e,0,1', "not a CSV table"),
    ],
)
def test_a_malformed_visit_is_refused_with_file_line_and_expectation(
    tmp_path: Path, row: str, expected: str
) -> None:
    path = tmp_path / "visits.csv"
    path.write_text(f"visitor,exhibit,start_s,end_s\nv,e,0,1\n{row}\n")
    with pytest.raises(InvalidArgument) as caught:
        read_visits_csv(path)
    assert expected in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("0001,a.jpg,1.5", "time_ms is '1.5'; expected a whole number"),
        (f"0001,a.jpg,1{400 * '0'}", "time_ms is 10000000000000000000…; expected a time in milliseconds"),
        ("0001,,1", "imagePath is empty"),
    ],
)
def test_a_malformed_request_is_refused_with_line_and_expectation(
    tmp_path: Path, row: str, expected: str
) -> None:
    path = tmp_path / "requests.csv"
    path.write_text(f"objectID,imagePath,time_ms\n{row}\n")
    with pytest.raises(InvalidArgument, match="line 2") as caught:
        read_requests_csv(path)
    assert expected in str(caught.value)


def test_times_in_other_units_than_seconds_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    path.write_text("visitor,exhibit,start_s,end_s\nv,e,0,1700000000\n")
    with pytest.raises(InvalidArgument, match=r"line 2: a stay of 1.7e\+09 s; expected times in seconds"):
        read_visits_csv(path)


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", b"\xff\xfe\x00"])
def test_another_table_is_refused_with_the_expected_columns(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "visits.csv"
    path.write_bytes(content)
    with pytest.raises(InvalidArgument) as caught:
        read_visits_csv(path)
    assert "visitor,exhibit,start_s,end_s" in caught.value.advice


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"nothing\.csv"):
        read_visits_csv(tmp_path / "nothing.csv")


@pytest.mark.parametrize(
    ("visitor", "start_s", "end_s"), [("", 0.0, 1.0), ("v", 2.0, 1.0), ("v", 0.0, float("inf"))]
)
def test_an_invalid_visit_is_refused(visitor: str, start_s: float, end_s: float) -> None:
    with pytest.raises(InvalidArgument):
        Visit(visitor, "e", start_s, end_s)


def test_sequences_are_in_order_of_time_without_repetitions() -> None:
    stays = [Visit("v", "b", 5, 6), Visit("v", "a", 0, 1), Visit("v", "a", 2, 3), Visit("w", "a", 0, 9)]
    assert sequences(stays) == {"v": ("a", "b"), "w": ("a",)}
