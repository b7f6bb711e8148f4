"""The benchmark of the Markov model."""

from nearsight.experiments.bench.markov import run


def test_every_operation_is_measured_with_a_model_of_the_requested_size() -> None:
    rows = run(lambda _: None, objects=50, transitions=500, repeats=3).rows
    assert [row["operation"] for row in rows] == [
        "PDF, top 50",
        "PDF, top 500",
        "PDF, all objects",
        "observe",
    ]
    assert {(row["objects"], row["repeats"]) for row in rows} == {(50, 3)}
    assert rows[0]["transitions"] == 500
    assert all(0 < row["median_ms"] <= row["p99_ms"] for row in rows)
    assert all(0 < row["model_mib"] < 200 for row in rows)
