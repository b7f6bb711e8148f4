"""Error budgets: traffic that changes, and comparisons per window and at equal inferences."""

import numpy as np
import pytest

from nearsight.experiments.framework.numbers import zipf
from nearsight.experiments.studies.approximate_keys.budget_figure import Figure
from nearsight.experiments.studies.approximate_keys.traffic import APPLICATIONS, flows


def test_phases_change_popularity() -> None:
    usual = zipf(APPLICATIONS, 1.45)
    traffic = flows(20_000, np.random.default_rng(1), phases=(usual, usual[::-1]), packets_kept=10)
    first, second = traffic.applications[:10_000], traffic.applications[10_000:]
    assert traffic.packets.shape == (20_000, 10)
    assert np.bincount(first).argmax() == 0
    assert np.bincount(second).argmax() == APPLICATIONS - 1


def row(**columns: object) -> dict[str, str]:
    usual = {"run": 0, "part": "trade", "keys": "prefix(5)", "phase": 0, "window": 0, "lookups": 100}
    usual |= {"estimated": 0.0, "bound": 1.0, "alarm": 0}
    return {name: str(value) for name, value in (usual | columns).items()}


def test_errors_are_compared_at_equal_inferences_and_refined_keys_with_the_best_fixed_ones() -> None:
    back_offs = {"prefix(5)": ((80, 40), (20, 0)), "prefix(10)": ((60, 10), (30, 4))}
    rows = [
        row(keys=keys, given="back-off", value=value, served=served, wrong=wrong)
        for keys, points in back_offs.items()
        for value, (served, wrong) in enumerate(points)
    ]
    rows += [row(keys=keys, given="error", value=1, served=50, wrong=10) for keys in back_offs]
    rows += [row(keys="prefix(5, 10, 20)", given="error", value=1, served=45, wrong=1)]
    rows += [
        row(part="shift", given=given, value=value, phase=phase, window=phase, served=30, wrong=1 + phase)
        for given, value in (("error", 0.01), ("inferences", 0.8), ("back-off", 1.85))
        for phase in range(3)
    ]
    figure = Figure()
    summary = figure.metrics(rows)
    assert summary["shift"]["error 0.01"]["1"]["wrong"]["mean"] == pytest.approx(0.02)
    assert summary["windows"]["error 0.01"]["farthest"] == pytest.approx(0.02)
    found = {target.text.split(":")[0]: target.value for target in figure.targets(summary)}
    assert found["prefix(5)"] == pytest.approx(10 / 20)
    assert found["prefix(10)"] == pytest.approx(10 / 8)
    assert found["prefix(5, 10, 20)"] == pytest.approx(1 / 7, abs=1e-3)
