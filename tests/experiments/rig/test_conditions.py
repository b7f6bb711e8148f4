"""Measurements on a disturbed machine are repeated, up to a limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from nearsight.common.errors import Unavailable
from nearsight.experiments.rig.conditions import Conditions, Watch, pace_ms


def _paces(*values: float) -> Callable[[], float]:
    left: Iterator[float] = iter(values)
    return lambda: next(left)


@pytest.mark.parametrize(
    ("conditions", "reason"),
    [
        (Conditions(5.0, 5.5, 0.05), ""),
        (Conditions(5.0, 7.0, 0.0), "40 % slower"),
        (Conditions(7.0, 5.0, 0.0), "40 % slower"),
        (Conditions(5.0, 5.0, 0.3, ("ffmpeg 7",)), "30 % of the cores (ffmpeg 7)"),
    ],
)
def test_slower_cores_and_other_processes_are_disturbances(conditions: Conditions, reason: str) -> None:
    found = conditions.disturbance(best_ms=5.0)
    assert (reason in found) if reason else not found


def test_an_undisturbed_result_is_returned_with_its_conditions() -> None:
    watch = Watch(pace=_paces(5.0, 5.0, 5.1))
    result, conditions = watch.undisturbed("work", lambda: "done")
    assert result == "done"
    assert conditions.pace_ms == pytest.approx(5.05)


def test_a_disturbed_measurement_is_repeated() -> None:
    watch = Watch(pace=_paces(5.0, 5.0, 9.0, 5.0, 5.0))
    results = iter(["disturbed", "good"])
    assert watch.undisturbed("work", lambda: next(results))[0] == "good"


def test_a_measurement_with_an_unacceptable_result_is_repeated() -> None:
    watch = Watch(pace=lambda: 5.0)
    results = iter([400.0, 3.0])
    late, _ = watch.undisturbed("work", lambda: next(results), lambda ms: "late" if ms > 30 else "")
    assert late == 3.0


def test_the_error_after_the_last_try_has_the_reason() -> None:
    watch = Watch(pace=lambda: 5.0)
    with pytest.raises(Unavailable, match=r"work was disturbed 3 times, the last time: photos were late"):
        watch.undisturbed("work", lambda: None, lambda _: "photos were late")


def test_a_measurement_is_repeated_if_the_machine_became_faster() -> None:
    watch = Watch(pace=_paces(9.0, 9.0, 9.0, 5.0, 9.0, 5.0, 5.0))
    watch.undisturbed("first", lambda: None)
    watch.undisturbed("second", lambda: None)
    assert watch.best_ms == 5.0


def test_the_pace_is_a_positive_time() -> None:
    assert pace_ms(times=2) > 0
