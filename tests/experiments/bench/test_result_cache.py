"""The benchmark of the result cache."""

from nearsight.experiments.bench.result_cache import run
from nearsight.experiments.studies.approximate_keys.traffic_figures import FUNCTIONS


def test_every_approximation_is_measured_beside_the_ball_tree() -> None:
    rows = run(lambda _: None, size=200, blocks=2).rows
    assert [row["function"] for row in rows] == [*FUNCTIONS]
    assert {(row["size"], row["lookups"]) for row in rows} == {(200, 2000)}
    assert all(0 < row["p25_us"] <= row["median_us"] <= row["p75_us"] <= row["p99_us"] for row in rows)
    assert all(0 < row["least_faster"] <= row["times_faster"] <= row["most_faster"] for row in rows)
    assert all(row["new_us"] > 0 and row["ball_tree_us"] > 0 for row in rows)
