"""Table 6.4 as targets."""

from __future__ import annotations

import pytest

from nearsight.experiments.framework.experiment import Target
from nearsight.experiments.studies.cachier.scale.configurations import EDGE, FULL
from nearsight.experiments.studies.cachier.scale.operating_point import (
    NETWORK,
    SECTIONS,
    VARIABLES,
    VISITORS,
    OperatingPoint,
)
from nearsight.experiments.studies.cachier.scale.scale_figure import (
    Figure6x4,
    Figure6x7,
    Figure6x12,
    ScaleFigure,
)
from nearsight.experiments.twin.session import ONLY_CLOUD
from support.scale_rows import stored_rows


def as_printed(point: OperatingPoint, tiers: str) -> float:
    """Latencies according to table 6.4 for visitors, sections and networks."""
    if tiers == ONLY_CLOUD:
        return 500.0 + 100 * (point.visitors - 1) + (3000 if point.network == "Slow" else 0)
    if tiers == EDGE:
        return 100.0 + 20 * point.visitors + 15 * point.sections
    return 100.0 if point.sections == 1 else 200.0  # the table begins at 50 objects


def targets(figure: ScaleFigure, p50: object = as_printed, costs: str = "measured") -> tuple[Target, ...]:
    rows = stored_rows(list(VARIABLES[figure.variable]), p50, costs=costs)  # type: ignore[arg-type]
    return [*figure.targets(figure.metrics(rows))]


@pytest.mark.parametrize(
    ("figure", "count"),
    [(Figure6x4(), 4), (Figure6x7(), 4), (Figure6x12(), 5)],
    ids=[VISITORS, SECTIONS, NETWORK],
)
def test_the_values_of_the_table_reach_all_targets(figure: ScaleFigure, count: int) -> None:
    found = targets(figure)
    assert len(found) == count
    assert all(target.reached for target in found), [target for target in found if not target.reached]


def test_constant_values_miss_the_targets_of_growth() -> None:
    missed = [target for target in targets(Figure6x4(), lambda _point, _tiers: 100.0) if not target.reached]
    assert [target.value for target in missed] == [1.0, 1.0]
    assert all("CPU: edge" in target.note for target in missed), (
        "the note of a miss has the parts of the latency"
    )


def test_a_peak_in_the_middle_misses_the_target_of_a_constant() -> None:
    def bent(point: OperatingPoint, tiers: str) -> float:
        return 400.0 if tiers == FULL and point.visitors == 8 else as_printed(point, tiers)

    assert [target.reached for target in targets(Figure6x4(), bent)] == [True, True, False, True]


def test_bounds_in_milliseconds_apply_only_with_the_costs_of_the_dissertation() -> None:
    found = [target for target in targets(Figure6x4(), costs="paper") if target.text.startswith("table 6.4")]
    assert [target.reached for target in found] == [True, True]
    slow = targets(Figure6x4(), lambda point, tiers: 2 * as_printed(point, tiers), costs="paper")
    assert [target.reached for target in slow[4:]] == [False, False]


@pytest.mark.parametrize(("p50_ms", "reached"), [(5000.0, True), (4999.0, False)])
def test_only_cloud_is_slow_on_every_network_with_the_costs_of_the_dissertation(
    p50_ms: float, reached: bool
) -> None:
    def p50(point: OperatingPoint, tiers: str) -> float:
        return p50_ms if (tiers, point.network) == (ONLY_CLOUD, "Fast") else 6000.0

    cell = targets(Figure6x12(), p50, costs="paper")[-1]
    assert cell.text == "table 6.4, network: only cloud, smallest p50 at least 5000 ms"
    assert cell.reached is reached


def test_unanswered_photos_miss_a_target_independently_of_the_median() -> None:
    rows = stored_rows(list(VARIABLES[VISITORS]), as_printed)
    for row in rows:
        row["requests"] = "100"
        row["failed"] = str(2 * (row["tiers"] == FULL and row["visitors"] == "10"))
    missed = [target for target in Figure6x4().targets(Figure6x4().metrics(rows)) if not target.reached]
    assert [(target.text.split(";")[0], target.value) for target in missed] == [
        ("visitors: adaptive extraction answers", 0.02)
    ]


def test_the_note_of_a_known_miss_begins_with_its_reason() -> None:
    missed = [target for target in targets(Figure6x4(), lambda _point, _tiers: 100.0) if not target.reached]
    assert missed[1].note.startswith("our classifier is too fast")
    assert missed[0].note.startswith("at visitors 1")


def test_misses_of_a_smoke_run_have_no_known_reason() -> None:
    figure = Figure6x4()
    rows = stored_rows(list(VARIABLES[VISITORS]), lambda _point, _tiers: 100.0, smoke=True)
    missed = [target for target in figure.targets(figure.metrics(rows)) if not target.reached]
    assert len(missed) == 2
    assert all(target.note.startswith("at visitors 1") for target in missed)


def test_a_reason_that_the_measurement_contradicts_is_not_given() -> None:
    rows = stored_rows(list(VARIABLES[VISITORS]), lambda _point, _tiers: 100.0)
    for row in rows:
        row["edge_cpu"] = "0.5" if row["visitors"] == "80" else row["edge_cpu"]
    missed = [target for target in Figure6x4().targets(Figure6x4().metrics(rows)) if not target.reached]
    assert missed[1].note.startswith("at visitors 1")


def test_a_smoke_run_with_only_a_value_that_is_not_judged_has_no_target_of_the_shape() -> None:
    figure = Figure6x7()
    rows = stored_rows([OperatingPoint(sections=1)], as_printed, smoke=True)
    shapes = [target.text for target in figure.targets(figure.metrics(rows)) if "largest p50" in target.text]
    assert not any("adaptive extraction" in text for text in shapes)
    assert shapes
