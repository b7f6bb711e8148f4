"""Request rows as CSV."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import InvalidArgument, NotFound
from nearsight.experiments.rig.rows import COLUMNS, RequestRow, read_request_rows, write_rows

texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=10)
times = st.floats(-1e6, 1e6).map(lambda value: round(value, 4))
counts = st.integers(0, 10**9)
rows = st.builds(
    RequestRow,
    **dict.fromkeys(("configuration", "visitor", "expected", "answered", "outcome", "answered_by"), texts),
    **dict.fromkeys(("number", "outcomes", "sent_bytes", "received_bytes"), counts),
    **{name: times for name in COLUMNS if name.endswith(("_ms", "_s"))},
)


@given(st.lists(rows, max_size=5))
def test_rows_survive_a_file(tmp_path_factory: pytest.TempPathFactory, given_rows: list[RequestRow]) -> None:
    path = tmp_path_factory.mktemp("rows") / "requests.csv"
    write_rows(path, given_rows)
    assert read_request_rows(path) == tuple(given_rows)


def test_a_missing_latency_stays_missing(tmp_path: Path) -> None:
    row = RequestRow("a", "v", 0, 0.0, 0.0, "", "", "lost", 0, "", math.nan)
    write_rows(tmp_path / "r.csv", [row])
    assert math.isnan(read_request_rows(tmp_path / "r.csv")[0].latency_ms)


def test_a_missing_file_and_another_table_are_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"none\.csv"):
        read_request_rows(tmp_path / "none.csv")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InvalidArgument, match="line 1"):
        read_request_rows(tmp_path / "other.csv")


def test_a_broken_number_names_its_line(tmp_path: Path) -> None:
    write_rows(tmp_path / "r.csv", [RequestRow("a", "v", 0, 0.0, 0.0, "", "", "unknown", 1, "edge", 12.5)])
    text = (tmp_path / "r.csv").read_text().replace("12.5", "fast")
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(InvalidArgument, match="line 2: latency_ms is 'fast'"):
        read_request_rows(tmp_path / "r.csv")
