"""Errors of the twin, computed from rows."""

from __future__ import annotations

import pytest

from nearsight.experiments.framework.experiment import Results
from nearsight.experiments.studies.twin_validation.bench import CONFIGURATIONS_COMPARED, FIT, TRACES, schedule
from nearsight.experiments.studies.twin_validation.twin_validation import TESTBED, TWIN, Figure


def rows(twin_ms: float = 100.0) -> list[dict[str, str]]:
    """Twenty photos per configuration, one of them outside the catalogue."""
    return [
        {
            "point": point,
            "source": source,
            "tiers": tiers,
            "expected": "" if number == 0 else "0001",
            "answered": "" if number == 0 else "0001",
            "answered_by": "edge" if number < 15 else "cloud",
            "latency_ms": str(100.0 if source == TESTBED else twin_ms),
            "late_ms": "0.1",
            "sent_bytes": "10",
        }
        for point in (FIT, "baseline")
        for source in (TESTBED, TWIN)
        for tiers in CONFIGURATIONS_COMPARED
        for number in range(20)
    ]


def test_equal_rows_have_no_error() -> None:
    figure = Figure()
    found = figure.metrics(rows())
    assert set(found["points"]["baseline"][CONFIGURATIONS_COMPARED[0]]["errors"].values()) == {0.0}
    targets = [*figure.targets(found)]
    assert len(targets) == 12, "the point of the fit has no target"
    assert all(target.reached for target in targets)


def test_a_twin_that_is_20_per_cent_slower_misses_its_targets() -> None:
    figure = Figure()
    missed = [target for target in figure.targets(figure.metrics(rows(120.0))) if not target.reached]
    assert [target.value for target in missed] == [pytest.approx(0.2)] * 6


def test_notes_have_the_variation_of_the_testbed_with_one_trace() -> None:
    figure, made = Figure(), rows()
    for number, row in enumerate(made):
        row["trace"], row["repetition"] = "1", str(number % 2 + 1)
        if row["source"] == TESTBED and row["point"] == FIT and number % 2:
            row["latency_ms"] = "110.0"
    found = figure.metrics(made)
    one = found["points"][FIT][CONFIGURATIONS_COMPARED[0]]
    assert one["itself"] == {"p50": pytest.approx(0.1), "p95": pytest.approx(0.1), "device": 0.0, "edge": 0.1}
    notes = {target.note for target in figure.targets(found)}
    ours, twins = (
        "two sessions of the testbed with the same photos differ by 10",
        "runs of the twin vary by",
    )
    assert notes >= {f"{ours} %, {twins} 0 %", f"{ours} points, {twins} 7 points"}


def test_photos_without_an_answer_are_in_the_table_and_missing_in_the_curve() -> None:
    figure, made = Figure(), rows()
    made[0]["answered_by"] = ""
    found = figure.metrics(made)
    assert [line["no answer %"] for line in figure.table(found)] == ["5.0 / 0.0", *["0.0 / 0.0"] * 5]
    real, twin, *_ = figure.draw(Results(made, found)).axes[0].get_lines()
    assert (max(real.get_ydata()), max(twin.get_ydata())) == (0.95, 1.0)


def test_the_variation_of_the_testbed_is_not_computed_from_different_traces() -> None:
    figure, made = Figure(), rows()
    for number, row in enumerate(made):
        row["trace"] = str(number % 2 + 1)
        if row["source"] == TWIN and number % 2:
            row["latency_ms"] = "110.0"
    one = figure.metrics(made)["points"]["baseline"][CONFIGURATIONS_COMPARED[0]]
    assert one["itself"] == {}
    assert one["traces"]["p50"] == [0.0, pytest.approx(0.1)]


def test_each_trace_is_replayed_once_and_only_that_of_the_fit_repeatedly() -> None:
    fitted, compared = schedule(FIT), schedule("baseline")
    assert {trace for trace, _, _ in fitted} == {1}
    assert max(repetition for _, repetition, _ in fitted) > 1
    assert {repetition for _, repetition, _ in compared} == {1}
    assert len(set(compared)) == len(compared) == sum(TRACES.values())
