"""The benchmark of cache sizes compares methods that agree, and a local scan that stops too early."""

from nearsight.experiments.bench.cache_size import run


def test_loop_and_exact_choice_agree_and_the_local_scan_stops_at_size_0() -> None:
    rows = {row["method"]: row for row in run(lambda _: None, objects=4000, repeats=3).rows}
    assert rows["exact"]["k"] == rows["python loop"]["k"] == rows["exact, with ranking"]["k"] > 0
    assert rows["local scan from 0"]["k"] == 0
    assert rows["exact"]["expected_ms"] <= min(row["expected_ms"] for row in rows.values())
    assert all(0 < row["p25_ms"] <= row["median_ms"] <= row["p75_ms"] for row in rows.values())
