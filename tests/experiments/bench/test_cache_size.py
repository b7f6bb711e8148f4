"""The benchmark compares ways that agree, and shows where the local scan gets stuck."""

from nearsight.experiments.bench.cache_size import run


def test_the_loop_and_the_exact_choice_agree_and_the_local_scan_stops_at_no_cache() -> None:
    rows = {row["method"]: row for row in run(objects=4000, repeats=3)}
    assert rows["exact"]["k"] == rows["python loop"]["k"] == rows["exact, with ranking"]["k"] > 0
    assert rows["local scan from 0"]["k"] == 0
    assert rows["exact"]["expected_ms"] <= min(row["expected_ms"] for row in rows.values())
    assert all(0 < row["p25_ms"] <= row["median_ms"] <= row["p75_ms"] for row in rows.values())
