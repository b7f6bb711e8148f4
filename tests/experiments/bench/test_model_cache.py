"""The benchmark of the model cache."""

from nearsight.common.model_cache.registry import policy_names
from nearsight.experiments.bench.model_cache import run


def test_every_policy_replays_the_same_requests() -> None:
    rows = run(lambda _: None, functions=60, repetitions=1).rows
    assert [row["policy"] for row in rows] == [*policy_names()]
    assert len({(row["requests"], row["models"]) for row in rows}) == 1
    assert all(0 < row["least_per_s"] <= row["requests_per_s"] <= row["most_per_s"] for row in rows)
    assert all(0 < row["hit_ratio"] < 1 and row["load_ms"] > 0 for row in rows)
