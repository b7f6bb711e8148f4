"""The benchmark of warm requests: edge and runtime with the same tensors."""

from nearsight.experiments.bench.inference import run


def test_edge_and_runtime_are_measured_for_every_size() -> None:
    rows = run(lambda _: None, (8, 16), blocks=2, requests=3).rows
    assert [row["input_kb"] for row in rows] == [0.768, 3.072]
    for row in rows:
        assert row["requests"] == 6
        assert row["runtime_ms"] > 0
        assert 0 < row["edge_ms"] < row["call_ms"]
        assert row["least_more_ms"] <= row["more_ms"] <= row["most_more_ms"]
        assert row["reached"] == (row["more_ms"] <= 1.0)
