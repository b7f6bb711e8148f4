"""Many sessions near the capacity: their cells, and the test for more failures of the full system."""

from __future__ import annotations

import pytest

from nearsight.common.errors import InvalidArgument
from nearsight.experiments.framework.experiment import RunOptions
from nearsight.experiments.framework.running import cells_of
from nearsight.experiments.studies.cachier.scale.configurations import FULL, ORDER
from nearsight.experiments.studies.cachier.scale.operating_point import BASELINE, PAPER
from nearsight.experiments.studies.overload.collapse import Figure, likelihood_of_more
from nearsight.experiments.twin.session import BOUNDED, PREFETCHING
from support.figures import png_size
from support.scale_rows import stored_rows

SESSIONS = 40


def rows(full: list[int], prefetching: int = 0) -> list[dict[str, str]]:
    """Sessions at the baseline, with these numbers of failed photos."""
    found = stored_rows([BASELINE], lambda _point, _tiers: 200.0, costs=PAPER, runs=SESSIONS)
    failed = {FULL: full, PREFETCHING: [prefetching] * SESSIONS}
    for row in found:
        row["failed"] = str(failed.get(row["tiers"], [5] * SESSIONS)[int(row["run"]) - 1])
    return found


def test_there_are_200_sessions_for_each_number_of_visitors() -> None:
    cells = cells_of(Figure(), RunOptions(costs=PAPER))
    assert len(cells) == 600
    assert {cell["point"].visitors for cell in cells.values()} == {8, 10, 12}
    with pytest.raises(InvalidArgument):
        Figure().completed(RunOptions(on="testbed"), lambda _text: None)


@pytest.mark.parametrize(
    ("full", "reached"),
    [
        ([0] * SESSIONS, True),
        ([3] + [0] * (SESSIONS - 1), True),  # one session, by chance
        ([100] * 8 + [0] * (SESSIONS - 8), False),
        ([1] * SESSIONS, False),
    ],
)
def test_the_full_system_is_compared_with_the_best_simpler_one(full: list[int], reached: bool) -> None:
    summary = Figure().metrics(rows(full))
    (target,) = Figure().targets(summary)
    assert summary["visitors"]["5"]["best"] == PREFETCHING
    assert target.reached is reached, target


def test_the_best_configuration_has_the_fewest_failures() -> None:
    summary = Figure().metrics(rows([6] * SESSIONS, prefetching=7))
    assert summary["visitors"]["5"]["best"] not in {PREFETCHING, FULL}
    assert summary["visitors"]["5"]["tiers"][BOUNDED]["failing"] == SESSIONS


def test_equal_and_opposite_pairs_are_not_significant() -> None:
    assert likelihood_of_more([0.0] * 10) == 1.0
    assert likelihood_of_more([1.0, -1.0] * 10) > 0.4
    assert likelihood_of_more([1.0] * 4) == pytest.approx(1 / 16, abs=0.02)


def test_picture_and_table_have_all_configurations() -> None:
    found = rows([1] * SESSIONS)
    assert len([*Figure().table(Figure().metrics(found))]) == len(ORDER)
    assert png_size(Figure(), found) > 10_000
