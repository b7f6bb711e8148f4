"""The benchmark of the Markov model measures a model of the size that it says."""

from nearsight.experiments.bench.markov import run


def test_every_operation_is_measured_on_a_model_of_the_size_asked_for() -> None:
    rows = run(objects=50, transitions=500, repeats=3)
    assert [row["operation"] for row in rows] == [
        "PDF, top 50",
        "PDF, top 500",
        "PDF, all objects",
        "observe",
    ]
    assert {(row["objects"], row["repeats"]) for row in rows} == {(50, 3)}
    assert rows[0]["transitions"] == 500
    assert all(0 < row["median_ms"] <= row["p99_ms"] for row in rows)
