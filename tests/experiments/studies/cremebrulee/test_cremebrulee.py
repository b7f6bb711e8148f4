"""Metrics of the figures of CremeBrulee, and their workloads."""

import numpy as np
import pytest

from nearsight.experiments.framework.experiment import RunOptions
from nearsight.experiments.studies.cremebrulee import profiles_figure
from nearsight.experiments.studies.cremebrulee.memory_figures import Memory
from nearsight.experiments.studies.cremebrulee.policy_figures import SimulationPolicies
from nearsight.experiments.studies.cremebrulee.table_1 import Table1
from nearsight.experiments.studies.cremebrulee.workloads import SIMULATION, TESTBED, Table2, workload
from nearsight.experiments.traces.model_requests import Association


def test_table_1_equals_that_of_the_paper() -> None:
    figure, options = Table1(), RunOptions()
    rows = [
        {name: str(value) for name, value in row.items()}
        for cell in figure.cells(options)
        for row in figure.run(options, **cell)
    ]
    summary = figure.metrics(rows)
    assert all(target.reached for target in figure.targets(summary))
    oracle = [row for row in rows if row["policy"] == "cremebrulee-oracle"]
    assert [row["resident"] for row in oracle[5:9]] == ["0 2", "1 2", "0 2", "0 2"]


def test_gains_are_computed_per_run() -> None:
    rows = [
        {
            **{"association": "popular-and-costly", "size_gb": "128", "run": run, "policy": policy},
            **{f"p{at}_s": "0" for at in (50, 60, 70, 75, 80, 85, 90, 95, 99)},
            **{"load_s": load_s, "load_per_miss_s": "1", "hit_ratio": "0.5"},
        }
        for run, loads in (("0", "2.0 1.0"), ("1", "8.0 6.0"))
        for policy, load_s in zip(("popularity", "cremebrulee"), loads.split(), strict=True)
    ]
    gain = SimulationPolicies().metrics(rows)["gains"]["popular-and-costly"]["128"]["cremebrulee/popularity"]
    assert (gain["mean"], gain["min"], gain["max"]) == (0.375, 0.25, 0.5)


def test_the_testbed_has_the_models_of_the_paper_and_the_simulation_one_per_function() -> None:
    testbed = workload(TESTBED, "uniform", RunOptions(), 0)
    assert len(testbed.requests.names) == 26
    simulated = workload(SIMULATION, "popular-and-costly", RunOptions(), 0, share=0.1)
    assert len(simulated.requests.names) == len(np.unique(simulated.requests.models)) > 200
    assert len(simulated.requests) == pytest.approx(1676, rel=0.1)


def test_the_simulation_of_the_paper_is_shown_beside_its_workload_only() -> None:
    numbers = {"mean": 1.0, "std": 0.0}
    one = dict.fromkeys(("requests", "models", "memory_gb", "correlation", "most_popular"), numbers)
    lines = Table2().table(
        {"workloads": {scale: dict.fromkeys(Association, one) for scale in (TESTBED, SIMULATION)}}
    )
    shown = [line["association"] for line in lines if "(" in str(line["models (paper)"])]
    assert shown == [*Association, Association.POPULAR_AND_COSTLY, Association.POPULAR_AND_CHEAP]


def test_calculated_prices_have_their_own_columns() -> None:
    assert {(*line,) for line in profiles_figure.Figure().table({})} == {("network", "calculated", "paper's")}


def test_the_same_seed_and_run_draw_the_same_requests() -> None:
    first, again, other = (workload(TESTBED, "uniform", RunOptions(), run) for run in (0, 0, 1))
    assert np.array_equal(first.requests.times_s, again.requests.times_s)
    assert len(first.requests.times_s) != len(other.requests.times_s)


def test_load_and_execution_at_half_the_memory_are_compared_with_those_at_all_of_it() -> None:
    def row(association: str, size_gb: int, load_s: float) -> dict[str, str]:
        parts = {
            "execution_s": 1.0,
            "load_s": load_s,
            "queue_s": 9.0,
            "load_per_miss_s": 1.0,
            "hit_ratio": 1.0,
        }
        return {"association": association, "size_gb": str(size_gb), **{k: str(v) for k, v in parts.items()}}

    names = {"uniform": 1.5, "round-robin": 1.0, "popular-and-costly": 0.5, "popular-and-cheap": 0.2}
    rows = [row(name, size, load_s * (size == 11)) for name, load_s in names.items() for size in (11, 22)]
    figure = Memory()
    correlated, uncorrelated, best = figure.targets(figure.metrics(rows))
    assert (correlated.value, uncorrelated.value, best.value) == (0.5, 1.5, 1.2)
    assert correlated.reached and uncorrelated.reached and best.reached
