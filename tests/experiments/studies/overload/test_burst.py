"""A burst at one edge: the photos of each phase, and the targets after it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nearsight.experiments.framework.experiment import Results, RunOptions
from nearsight.experiments.studies.overload import burst
from nearsight.experiments.studies.overload.burst import (
    AFTER,
    BEFORE,
    CROWD,
    DURING,
    FULL,
    FULL_PLAN,
    PLAIN,
    STEADY,
    Figure,
)
from support.figures import png_size

SHOWN = [(f"{number}", Path(f"{number}.jpg")) for number in range(30)]


def rows(after_ms: float, failed: bool = False) -> list[dict[str, str]]:
    """Three repetitions; before the burst every photo takes 100 ms."""
    latency_ms = {BEFORE: 100.0, DURING: 3000.0, AFTER: after_ms}
    return [
        {
            "repetition": str(repetition),
            "capacity_per_s": "20.0",
            "who": who,
            "phase": phase,
            "time_s": str(at_s + number / 10),
            "latency_ms": str(latency + repetition),
            "answered_by": "" if failed and phase == AFTER else "edge",
        }
        for repetition in range(3)
        for at_s, (phase, latency) in zip((10, 30, 60), latency_ms.items(), strict=True)
        for who in (*STEADY, *([CROWD] if phase == DURING else []))
        for number in range(5)
    ]


def test_the_crowd_sends_three_times_the_capacity_for_twenty_seconds() -> None:
    rng = np.random.default_rng(1)
    sent = [
        burst._crowd_photos(SHOWN, FULL_PLAN, 30.0 / FULL_PLAN.crowd, rng) for _ in range(FULL_PLAN.crowd)
    ]
    times = [photo.at_s for one in sent for photo in one]
    assert len(times) == pytest.approx(3 * 30 * 20, rel=0.02)
    assert (min(times), max(times)) == (pytest.approx(30.0, abs=0.5), pytest.approx(50.0, abs=0.5))


def test_steady_visitors_send_the_same_photos_before_and_after() -> None:
    sent = burst._steady_photos(SHOWN, FULL_PLAN, np.random.default_rng(1))
    before = [(photo.at_s - 10, photo.path) for photo in sent if 10 <= photo.at_s < 30]
    after = [(photo.at_s - 60, photo.path) for photo in sent if photo.at_s >= 60]
    assert [path for _, path in before] == [path for _, path in after]
    assert np.allclose([at for at, _ in before], [at for at, _ in after])
    assert len(before) == 20


@pytest.mark.parametrize(
    ("after_ms", "failed", "reached"),
    [(115.0, False, [True, True]), (130.0, False, [False, True]), (100.0, True, [False, False])],
)
def test_the_targets_are_the_latency_and_answers_from_before_the_burst(
    after_ms: float, failed: bool, reached: list[bool]
) -> None:
    targets = [*Figure().targets(Figure().metrics(rows(after_ms, failed)))]
    assert [target.text.split(":")[0] for target in targets] == [PLAIN, PLAIN, FULL, FULL]
    assert [target.reached for target in targets] == 2 * reached


def test_picture_and_table_have_all_phases() -> None:
    table = Figure().table(Figure().metrics(rows(100.0)))
    assert [(line["devices"], line["phase"]) for line in table] == [
        *((who, phase) for who in STEADY for phase in (BEFORE, DURING, AFTER)),
        (CROWD, DURING),
    ]
    assert png_size(Figure(), rows(100.0)) > 10_000


def test_refused_photos_count_with_the_timeout_and_are_drawn_apart() -> None:
    refused = rows(1.0, failed=True)
    found = Figure().metrics(refused)
    for name in ("p50_ms", "p95_ms"):
        assert found["who"][PLAIN][AFTER][name]["median"] == 5000.0
    assert found["as_before"][PLAIN]["median"] == pytest.approx(5000 / 101, abs=1e-3)
    axes = Figure().draw(Results(refused, found)).axes[0]
    drawn = {str(line.get_label()): line.get_ydata() for line in axes.get_lines()}
    assert set(drawn[f"{PLAIN}: no answer"]) == {5000.0}
    assert min(drawn[PLAIN]) == 100.0


def test_there_is_a_cell_per_repetition() -> None:
    assert len(Figure().cells(RunOptions())) == FULL_PLAN.repetitions
