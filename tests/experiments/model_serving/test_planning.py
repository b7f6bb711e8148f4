"""The planner: bounds compared with every set of models, recommendations, and errors."""

import json
from dataclasses import astuple
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from nearsight.common.errors import InvalidArgument, NotFound
from nearsight.common.inference.measurement import Measurement
from nearsight.common.inference.repository import ModelRepository, manifest_of_file
from nearsight.common.model_cache.policy import ModelCosts
from nearsight.experiments.model_serving.cli import app
from nearsight.experiments.model_serving.planning import (
    CLAIRVOYANT,
    FIXED_SET,
    Plan,
    costs_of_repository,
    default_budgets,
    default_policies,
    plan,
    read_costs,
)
from nearsight.experiments.traces.model_requests import ModelRequests, write_events

NAMES = tuple("abcde")
COSTS = dict(
    zip(
        NAMES,
        (ModelCosts(100, load_ms, 10.0) for load_ms in (100.0, 200.0, 400.0, 800.0, 1600.0)),
        strict=True,
    )
)


def log(count: int = 600) -> ModelRequests:
    rng = np.random.default_rng(1)
    models = rng.choice(5, count, p=[0.4, 0.3, 0.2, 0.07, 0.03]).astype(np.int32)
    return ModelRequests(np.cumsum(rng.exponential(5.0, count)), models, NAMES)


@pytest.fixture(scope="module")
def planned() -> Plan:
    return plan(log(), COSTS, ("lru", "cremebrulee"), (100, 200, 300, 400, 500))


@pytest.fixture(scope="module", params=range(3))
def unequal(request: pytest.FixtureRequest) -> tuple[ModelRequests, dict[str, ModelCosts], Plan]:
    """Models of different sizes with phases of popularity, and their plan."""
    rng = np.random.default_rng(request.param)
    numbers = zip(
        *(rng.integers(low, high, 5) for low, high in ((50, 500), (100, 3000), (5, 300))), strict=True
    )
    costs = {name: ModelCosts(*map(int, three)) for name, three in zip(NAMES, numbers, strict=True)}
    models = np.repeat(rng.choice(5, 60, p=rng.dirichlet([0.5] * 5)), rng.integers(1, 10, 60))
    requests = ModelRequests(np.cumsum(rng.exponential(2.0, len(models))), models.astype(np.int32), NAMES)
    return requests, costs, plan(requests, costs, default_policies(), default_budgets(costs.values(), 6))


def test_the_fixed_set_is_the_best_of_all_sets_that_fit(
    unequal: tuple[ModelRequests, dict[str, ModelCosts], Plan],
) -> None:
    requests, costs, planned = unequal
    counted = requests.models[len(requests) // 10 :]
    sizes, load_ms, execution_ms = np.array([astuple(one) for one in costs.values()]).T
    sets = [np.isin(range(5), kept) for count in range(6) for kept in combinations(range(5), count)]
    for budget in planned.budgets_bytes:
        fitting = [kept for kept in sets if sizes[kept].sum() <= budget]
        latency_ms = [(execution_ms + np.where(kept, 0, load_ms))[counted] for kept in fitting]
        bound = planned.at(budget)[FIXED_SET]
        assert bound.mean_ms == pytest.approx(min(one.mean() for one in latency_ms), abs=0.01)
        assert bound.p95_ms == min(np.quantile(one, 0.95, method="higher") for one in latency_ms)


def test_no_policy_and_no_fixed_set_is_better_than_clairvoyant(
    unequal: tuple[ModelRequests, dict[str, ModelCosts], Plan],
) -> None:
    *_, planned = unequal
    for budget in planned.budgets_bytes:
        all_ = planned.at(budget)
        assert all_[CLAIRVOYANT].mean_ms == min(one.mean_ms for one in all_.values())
        assert all_[CLAIRVOYANT].p95_ms == min(one.p95_ms for one in all_.values())


def test_with_all_memory_only_executions_remain(planned: Plan) -> None:
    assert planned.best(500).mean_ms == planned.best(500).p95_ms == 10.0
    assert planned.best(500).hit_ratio == 1.0


def test_the_smallest_memory_for_a_percentile_is_found(planned: Plan) -> None:
    p95s = [planned.best(budget).p95_ms for budget in planned.budgets_bytes]
    assert p95s == sorted(p95s, reverse=True)
    least = planned.least_memory(p95s[2])
    assert least is not None
    assert least.budget_bytes == planned.budgets_bytes[p95s.index(p95s[2])]
    assert planned.least_memory(9.0) is None


def test_default_budgets_range_from_the_largest_model_to_all_models() -> None:
    sizes = [ModelCosts(size, 1.0) for size in (10, 30, 60)]
    assert default_budgets(sizes, 3) == (60, 80, 100)
    assert {"lru", "cremebrulee"} < {*default_policies()}
    assert "belady-min" not in default_policies()


@pytest.mark.parametrize(
    ("costs", "budgets", "complaint"),
    [
        ({"a": COSTS["a"]}, (500,), "there are no costs of b, c, d, e"),
        (COSTS, (99, 500), "the smallest budget"),
    ],
)
def test_missing_costs_and_small_budgets_are_refused(
    costs: dict[str, ModelCosts], budgets: tuple[int, ...], complaint: str
) -> None:
    with pytest.raises(InvalidArgument, match=complaint):
        plan(log(20), costs, ("lru",), budgets)


def test_an_empty_log_is_refused() -> None:
    empty = ModelRequests(np.empty(0), np.empty(0, np.int32), ())
    with pytest.raises(InvalidArgument, match="no requests"):
        plan(empty, COSTS, ("lru",), (500,))


def test_costs_are_read_from_a_folder_of_measured_networks(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"weights")
    repository = ModelRepository(tmp_path / "models")
    for name in ("birds", "trees"):
        repository.add(tmp_path / "net.onnx", manifest_of_file(tmp_path / "net.onnx", name))
    repository.note_measured(repository.get("birds"), Measurement(5_000_000, 120.0, 30.0, 4.0, "1.0"))
    assert costs_of_repository(tmp_path / "models") == {"birds": ModelCosts(5_000_000, 120.0, 4.0)}


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ("a,1,2,3\na,1,2,3\n", "line 3: 'a' occurs twice"),
        ("a,0,2,3\n", "line 2: a model cannot have 0 bytes"),
        ("a,1e300,2,3\n", "line 2: memory_mb is 1e\\+300"),
        ("a,1,soon,3\n", "line 2: load_ms is 'soon'"),
        ("a,1,2\n", "line 2: not 4 fields"),
    ],
)
def test_a_malformed_table_of_costs_is_refused_with_its_line(
    tmp_path: Path, rows: str, complaint: str
) -> None:
    path = tmp_path / "costs.csv"
    path.write_text("model,memory_mb,load_ms,execution_ms\n" + rows)
    with pytest.raises(InvalidArgument, match=complaint):
        read_costs(path)
    with pytest.raises(NotFound):
        read_costs(tmp_path / "nothing.csv")


def test_the_command_prints_and_draws_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_events("log.txt", log(60))
    rows = [f"{name},{one.size_bytes},{one.load_ms},{one.execution_ms}" for name, one in COSTS.items()]
    Path("costs.csv").write_text("\n".join(("model,memory_mb,load_ms,execution_ms", *rows)))
    given = ["log.txt", "--costs", "costs.csv", "--policy", "lru", "--memory-mb", "200,500"]
    done = CliRunner().invoke(app, [*given, "--p95-ms", "100000"])
    assert done.exit_code == 0, done.output
    assert "smallest budget for a p95 of 100000 ms: 200 MB with lru" in done.output
    assert Path("plan.png").stat().st_size > 10_000
    found = json.loads(CliRunner().invoke(app, [*given, "--json"]).stdout)
    assert {(one["policy"], one["budget_bytes"]) for one in found} >= {
        ("lru", 200_000_000),
        ("lru", 500_000_000),
    }


def test_models_without_load_and_execution_times_are_drawn_without_warnings(tmp_path: Path) -> None:
    """Warnings are errors here. No time is positive, so that a logarithmic axis would be empty."""
    write_events(tmp_path / "log.txt", log(60))
    rows = "".join(f"{name},500,0,0\n" for name in NAMES)
    (tmp_path / "costs.csv").write_text(f"model,memory_mb,load_ms,execution_ms\n{rows}")
    given = [str(tmp_path / "log.txt"), "--costs", str(tmp_path / "costs.csv"), "--policy", "lru"]
    done = CliRunner().invoke(app, [*given, "--figure", str(tmp_path / "plan")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "plan.png").exists()
    assert done.output.replace("\n", "").endswith(f"{tmp_path}/plan.png")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--memory-mb", "500,much"),
        ("--memory-mb", "500,nan"),
        ("--memory-mb", "500,1e300"),
        ("--memory-mb", "-inf,500"),
        ("--p95-ms", "nan"),
        ("--p95-ms", "0"),
    ],
)
def test_the_command_refuses_numbers_that_cannot_be_used(tmp_path: Path, option: str, value: str) -> None:
    write_events(tmp_path / "log.txt", log(60))
    (tmp_path / "costs.csv").write_text(
        "model,memory_mb,load_ms,execution_ms\n" + "".join(f"{name},500,9,9\n" for name in NAMES)
    )
    given = [str(tmp_path / "log.txt"), "--costs", str(tmp_path / "costs.csv"), option, value]
    done = CliRunner().invoke(app, given)
    assert isinstance(done.exception, InvalidArgument)
    assert option in str(done.exception)
    assert done.exception.advice


def test_a_plan_needs_a_source_of_costs() -> None:
    done = CliRunner().invoke(app, ["log.txt"])
    assert isinstance(done.exception, (InvalidArgument, NotFound))
