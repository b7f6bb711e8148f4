"""Standing visitors with real daemons: metrics and targets computed from rows."""

import pytest

from nearsight.experiments.framework.experiment import Results, RunOptions
from nearsight.experiments.studies.approximate_keys.daemons_figure import OFF, ON, SEQUENTIAL, Figure


def _rows(
    number: int, tiers: str, cpu_ms: float, answers: list[tuple[str, str, float]]
) -> list[dict[str, str]]:
    """Photos of object mona in one round; each answer is (object, grain, latency)."""
    return [
        {
            "round": str(number),
            "tiers": tiers,
            "expected": "mona",
            "answered": answer,
            "answered_by": "edge",
            "grain": grain,
            "latency_ms": str(latency_ms),
            "edge_compute_ms": str(latency_ms / 2),
            "late_ms": "0.1",
            "edge_cpu_ms": str(cpu_ms),
        }
        for answer, grain, latency_ms in answers
    ]


def _session(on_ms: float, kept: list[str]) -> dict[str, object]:
    rows = []
    for number, off_ms in enumerate((12.0, 15.0, 12.0)):
        rows += _rows(number, OFF, off_ms, [("mona", "object", 20.0)] * 4)
        answers = [("mona", "object", 22.0), *((one, "result", 2.0) for one in kept)]
        rows += _rows(number, ON, on_ms, answers)
    return Figure().metrics(rows)


def test_the_ratio_of_cpu_times_is_the_median_over_rounds() -> None:
    found = _session(3.0, ["mona"] * 3)
    assert found["ratio"][ON] == {"median": 0.25, "min": 0.2, "max": 0.25, "each": [0.25, 0.2, 0.25]}
    on = found["tiers"][ON]
    assert (on["served"], on["wrong_share"], on["wrong"]) == (0.75, 0.0, 0)
    assert on["compute_ms"] == {"hits": 1.0, "others": 11.0}
    assert all(target.reached for target in Figure().targets(found))


@pytest.mark.parametrize(("on_ms", "kept"), [(5.0, ["mona"] * 3), (3.0, ["mona", "scream"]), (3.0, ["mona"])])
def test_too_much_cpu_time_wrong_answers_and_few_hits_miss_the_targets(on_ms: float, kept: list[str]) -> None:
    missed = [target for target in Figure().targets(_session(on_ms, kept)) if not target.reached]
    assert len(missed) >= 1


def test_photos_without_an_answer_are_in_the_table_and_missing_in_the_curve() -> None:
    answers = [("mona", "object", 20.0)] * 4
    rows = [*_rows(0, OFF, 12.0, answers), *_rows(0, ON, 12.0, answers)]
    rows[0] |= {"answered_by": "", "answered": ""}
    figure = Figure()
    found = figure.metrics(rows)
    assert [line["no answer"] for line in figure.table(found)] == [1, 0]
    off, on, *_ = figure.draw(Results(rows, found)).axes[1].get_lines()
    assert (max(off.get_ydata()), max(on.get_ydata())) == (0.75, 1.0)


def test_the_order_of_configurations_rotates_between_rounds() -> None:

    cells = Figure().cells(RunOptions())
    assert [cell["tiers"] for cell in cells[::3]] == [OFF, ON, SEQUENTIAL]
