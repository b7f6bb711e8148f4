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
    """What table 6.4 says of visitors, sections and networks."""
    if tiers == ONLY_CLOUD:
        return 500.0 + 100 * (point.visitors - 1) + (3000 if point.network == "Slow" else 0)
    if tiers == EDGE:
        return 100.0 + 20 * point.visitors + 15 * point.sections
    return 200.0


def targets(figure: ScaleFigure, p50: object = as_printed, costs: str = "measured") -> tuple[Target, ...]:
    rows = stored_rows(list(VARIABLES[figure.variable]), p50, costs=costs)  # type: ignore[arg-type]
    return figure.targets(figure.metrics(rows))


@pytest.mark.parametrize(
    "figure", [Figure6x4(), Figure6x7(), Figure6x12()], ids=[VISITORS, SECTIONS, NETWORK]
)
def test_a_system_as_in_the_table_reaches_all_targets(figure: ScaleFigure) -> None:
    found = targets(figure)
    assert len(found) == 3
    assert all(target.reached for target in found), [target for target in found if not target.reached]


def test_what_is_the_same_everywhere_does_not_grow() -> None:
    missed = [target for target in targets(Figure6x4(), lambda _point, _tiers: 100.0) if not target.reached]
    assert [target.value for target in missed] == [1.0, 1.0]
    assert all("CPU: edge" in target.note for target in missed), "a miss says where the time goes"


def test_what_is_bent_in_the_middle_is_not_flat() -> None:
    def bent(point: OperatingPoint, tiers: str) -> float:
        return 400.0 if tiers == FULL and point.visitors == 8 else as_printed(point, tiers)

    assert [target.reached for target in targets(Figure6x4(), bent)] == [True, True, False]


def test_bounds_in_milliseconds_count_with_the_costs_of_the_dissertation_alone() -> None:
    found = [target for target in targets(Figure6x4(), costs="paper") if target.text.startswith("table 6.4")]
    assert [target.reached for target in found] == [True, True, True]
    slow = targets(Figure6x4(), lambda point, tiers: 2 * as_printed(point, tiers), costs="paper")
    assert [target.reached for target in slow[3:]] == [False, False, False]


def test_a_miss_that_is_understood_says_why_before_the_numbers() -> None:
    missed = [target for target in targets(Figure6x4(), lambda _point, _tiers: 100.0) if not target.reached]
    assert missed[1].note.startswith("our classifier is too fast")
    assert missed[0].note.startswith("at visitors 1")


def test_a_smoke_run_is_not_explained_by_what_is_known_of_whole_ones() -> None:
    figure = Figure6x4()
    rows = stored_rows(list(VARIABLES[VISITORS]), lambda _point, _tiers: 100.0, smoke=True)
    missed = [target for target in figure.targets(figure.metrics(rows)) if not target.reached]
    assert len(missed) == 2
    assert all(target.note.startswith("at visitors 1") for target in missed)
