"""The benchmark of the visitor's page: one row for each visit, and the limit of its size."""

import pytest

pytestmark = [pytest.mark.system, pytest.mark.needs("chromium")]


def test_the_page_is_loaded_twice_and_is_small_enough() -> None:
    from nearsight.experiments.bench.page import MAX_BYTES, bench_page

    first, second = bench_page(True, lambda _: None).rows
    assert (first["visit"], second["visit"]) == ("first", "second")
    for row in (first, second):
        assert 0 < row["least_ms"] <= row["usable_ms"] <= row["most_ms"]
        assert 0 < row["page_bytes"] <= MAX_BYTES
