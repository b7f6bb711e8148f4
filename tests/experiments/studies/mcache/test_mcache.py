"""mCache's study: rates for policies, workloads, and metrics computed from rows."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from matplotlib.colors import to_hex
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument
from nearsight.common.model_cache.policy import ModelCosts
from nearsight.experiments.framework.drawing import new_picture
from nearsight.experiments.framework.experiment import RunOptions
from nearsight.experiments.framework.running import check
from nearsight.experiments.model_serving.profiles import COLUMNS
from nearsight.experiments.model_serving.simulation import Served
from nearsight.experiments.model_serving.workloads import Recipe
from nearsight.experiments.model_serving.zoo import mcache_models
from nearsight.experiments.studies.mcache import (
    ablation_figure,
    policies_figure,
    profiles_figure,
    testbed_figure,
    workloads_figure,
)
from nearsight.experiments.studies.mcache.contenders import (
    CLAIRVOYANT,
    IAM,
    LFU,
    POLICIES,
    MomentaryRates,
    play,
)
from nearsight.experiments.traces.arrivals import ARRIVAL_PROCESSES
from nearsight.experiments.traces.model_requests import ModelRequests

TRAFFIC = Recipe(ARRIVAL_PROCESSES["on-off"], requests=300)


def test_momentary_rates_are_those_of_the_generated_traffic() -> None:
    workload = TRAFFIC.draw(mcache_models(), np.random.default_rng(1))
    rates = MomentaryRates(workload)
    for now_s in (0.0, 700.0, 3_000.0):
        true = workload.segments.rates_at(now_s, 7)
        told = [rates.rate(name, now_s) for name in workload.requests.names]
        assert told == pytest.approx(true.tolist())


@pytest.mark.parametrize("policy", POLICIES)
def test_models_larger_than_the_share_of_memory_are_loaded(policy: str) -> None:
    workload = TRAFFIC.draw(mcache_models(), np.random.default_rng(1))
    served = play(policy, workload, 0.01)
    assert not served.refused.any()
    assert served.hit_ratio < 0.6


def test_requests_are_shuffled_within_ten_minutes() -> None:
    workload = TRAFFIC.draw(mcache_models(), np.random.default_rng(1))
    shuffled = ablation_figure.shuffled(workload, np.random.default_rng(2))
    assert np.all(np.diff(shuffled.requests.times_s) >= 0)

    def counts(times_s: NDArray[np.float64]) -> list[int]:
        return [int(count) for count in np.histogram(times_s, np.arange(0, 3_601, 600))[0]]

    assert counts(shuffled.requests.times_s) == counts(workload.requests.times_s)
    assert shuffled.requests.counts().tolist() == workload.requests.counts().tolist()
    assert shuffled.requests.times_s.tolist() != workload.requests.times_s.tolist()


def row(**columns: object) -> dict[str, str]:
    usual: dict[str, object] = {"process": "poisson", "functions": 300, "fixed_mb": 500, "run": 0}
    usual |= {"latency_s": 1.0, "hit_ratio": 0.5, "load_s": 4.0, "load_s_of_misses": 8.0}
    return {name: str(value) for name, value in (usual | columns).items()}


def test_the_distance_from_table_3_is_computed_from_its_gains() -> None:
    rows = []
    for memory, policy in product(ablation_figure.TABLE_3, POLICIES):
        gain = ablation_figure.TABLE_3[memory].get(policy, 0.0)
        rows.append(row(memory=memory, policy=policy, load_s=4 * (1 - gain)))
    found = ablation_figure.Figure().metrics(rows)["poisson"]["300"]["500"]
    said = [gain for one in ablation_figure.TABLE_3.values() for gain in one.values()]
    assert found["distances"]["per request"] == pytest.approx(0.0, abs=1e-3)
    assert found["distances"]["per miss"] == pytest.approx(np.sqrt(np.mean(np.square(said))), abs=1e-3)


def test_gains_are_computed_per_run() -> None:
    loads = {LFU: (4.0, 8.0), IAM: (3.0, 4.0), CLAIRVOYANT: (2.0, 2.0)}
    rows = [
        row(memory="0.4", policy=policy, run=run, load_s=load_s, latency_s=load_s + 1.0)
        for policy, both in loads.items()
        for run, load_s in enumerate(both)
    ]
    iam = policies_figure.Figure().metrics(rows)["0.4"][IAM]
    assert iam["gain"]["each"] == [0.25, 0.5]
    assert iam["share_of_gap"]["each"] == [0.5, pytest.approx(2 / 3, abs=1e-3)]
    assert iam["throughput"]["each"] == [1.25, 1.8]


def test_profiles_compare_load_and_execution() -> None:
    rows = [
        dict.fromkeys(COLUMNS, "9")
        | {"network": name, "file_mb": str(file_mb), "cycle": str(cycle)}
        | {"load_ms": str(load_ms + cycle), "execution_ms": "20"}
        for name, file_mb, load_ms in (("large", 90.0, 400.0), ("small", 3.0, 100.0), ("middle", 30.0, 18.0))
        for cycle in range(3)
    ]
    figure = profiles_figure.Figure()
    summary = figure.metrics(rows)
    assert [*summary] == ["small", "middle", "large"]
    assert summary["large"]["load_over_execution"] == pytest.approx(401 / 20)
    loading, growing = figure.targets(summary)
    assert (loading.value, loading.reached) == (pytest.approx(19 / 20), False)
    assert growing.value == pytest.approx(0.5)


def live_row(policy: str, where: str, load_s: float, latency_s: float) -> dict[str, str]:
    numbers = {"load_s": load_s, "p95_load_s": 0.0, "latency_s": latency_s, "hit_ratio": 0.5}
    counts = {"evictions": 1, "refused": 0, "requests": 10}
    cell = {"clients": "1", "memory": "0.4", "run": "0", "policy": policy, "where": where}
    return {**cell, **{name: str(value) for name, value in (numbers | counts).items()}}


def test_a_live_edge_is_compared_with_the_simulator_and_with_lfu() -> None:
    rows = [
        live_row("lfu", "edge", 0.22, 0.6),
        live_row("lfu", "simulator", 0.20, 0.5),
        live_row("iam", "edge", 0.10, 0.3),
        live_row("iam", "simulator", 0.10, 0.25),
        live_row("forecast", "edge", 0.10, 0.5),
        live_row("forecast", "simulator", 0.10, 0.5),
        live_row("cremebrulee-oracle", "simulator", 0.05, 0.2),
    ]
    figure = testbed_figure.Figure()
    summary = figure.metrics(rows)
    cell = summary["1"]["0.4"]
    assert cell["lfu"]["difference"] == pytest.approx(0.1)
    assert cell["iam"]["edge"]["over_lfu"] == pytest.approx(2.0)
    assert cell["cremebrulee-oracle"]["simulator"]["over_lfu"] == pytest.approx(2.5)
    assert [target.reached for target in figure.targets(summary)] == [True, False]
    assert "at least 1.5" in next(iter(figure.targets(summary))).text


def served(load_ms: Sequence[float], refused: Sequence[int]) -> Served:
    found = Served(np.array(load_ms), np.array(load_ms) > 0, *np.zeros((3, len(load_ms))))
    return replace(found, refused=np.isin(np.arange(len(load_ms)), refused))


def test_refused_requests_are_counted_and_left_out_of_the_means_of_both_sides() -> None:
    live = served([9.0, 0.0, 0.0, 4.0, 2.0, 0.0, 0.0, 0.0, 0.0, 2.0], refused=(0, 1, 2))
    row = testbed_figure._row(live, 1, live.refused)
    assert (row["load_s"], row["hit_ratio"]) == (pytest.approx(8 / 7 / 1e3, abs=1e-5), round(4 / 7, 5))
    assert (row["requests"], row["refused"]) == (9, 2), "without the first tenth"
    costs = {"one": ModelCosts(1_000_000, 40.0, 10.0), "two": ModelCosts(1_000_000, 80.0, 10.0)}
    requests = ModelRequests(np.arange(4.0), np.array([0, 1, 0, 1], np.int32), ("one", "two"))
    unload_ms = {"one": 4.0, "two": 2.0}
    simulator = testbed_figure._Simulator(requests, costs, unload_ms, 1_000_000, 0)
    assert simulator.row("lru", 0.0)["load_s"] == pytest.approx(0.063)
    assert simulator.row("lru", 0.0, np.array([True, False, True, False]))["load_s"] == pytest.approx(0.084)


def test_nothing_is_agreed_on_if_the_edge_refuses_all_requests() -> None:
    live = served([0.0] * 4, refused=range(4))
    row = {name: str(value) for name, value in testbed_figure._row(live, 0, live.refused).items()}
    cell = {"clients": "0", "memory": "0.4", "run": "0", "policy": "lfu"}
    figure = testbed_figure.Figure()
    summary = figure.metrics([{**cell, "where": where, **row} for where in ("edge", "simulator")])
    assert [target.reached for target in figure.targets(summary)] == [False]


def test_only_closed_loops_are_compared_by_speed() -> None:
    live, simulated, refused = (live_row("lfu", where, 0.2, 0.5) for where in ("edge", "simulator", "edge"))
    refused |= {"run": "1", "refused": "1"}
    closed = [live, simulated, refused]
    figure = testbed_figure.Figure()
    lines = [*figure.table(figure.metrics([*({**one, "clients": "0"} for one in closed), *closed]))]
    assert [line["speed over LFU"] for line in lines] == ["", "1.00"]
    assert [line["refused"] for line in lines] == ["1", "1"], "of all runs"


def test_the_star_of_mcache_is_over_the_bar_of_iam() -> None:
    policies = ("lfu", "iam", "forecast")
    by_memory = {"0.4": {policy: {"edge": {"over_lfu": 1.0}} for policy in policies}}
    axes = new_picture(4.0, 3.0).subplots()
    testbed_figure._draw_bars(axes, by_memory, "over_lfu")
    iam = next(bar for bar in axes.patches if to_hex(bar.get_facecolor()) == testbed_figure._COLOURS["iam"])
    (star,) = axes.lines
    assert star.get_xdata()[0] == pytest.approx(iam.get_x() + iam.get_width() / 2)


def test_the_target_of_quantiles_states_what_is_judged() -> None:
    def cell(latency_s: float) -> dict[str, object]:
        spread = {"median": latency_s, "min": latency_s, "max": latency_s}
        return {"latency_s": spread, "loading": spread, "load_p90_s": 1.0}

    latencies = {"uniform": 4.0, "round-robin": 3.0, "popular-and-costly": 2.0, "popular-and-cheap": 1.0}
    summary = {name: dict.fromkeys(workloads_figure.MEMORY, cell(one)) for name, one in latencies.items()}
    target = workloads_figure.Figure().targets(summary)[0]
    assert (target.value, target.reached) == (0.5, False)
    assert "lowest mean latency of the four" in target.text


def test_closed_loops_have_the_requested_number_of_clients() -> None:
    figure = testbed_figure.Figure()
    assert {cell["clients"] for cell in figure.cells(RunOptions())} == {0, 1, 4}
    assert {cell["clients"] for cell in figure.cells(RunOptions(clients=7))} == {0, 7}
    check(figure, RunOptions(clients=7))
    with pytest.raises(InvalidArgument, match="mcache-policies does not use --clients"):
        check(policies_figure.Figure(), RunOptions(clients=7))


def test_the_target_of_open_loops_is_a_mean_difference_of_a_tenth() -> None:
    rows = [
        {**live_row(policy, where, load_s, 1.0), "clients": "0", "memory": memory}
        for memory, edge_s in (("0.4", 0.22), ("0.8", 0.26))
        for policy in ("lfu", "lru")
        for where, load_s in (("edge", edge_s if policy == "lru" else 0.2), ("simulator", 0.2))
    ]
    figure = testbed_figure.Figure()
    targets = figure.targets(figure.metrics(rows))
    assert [(target.value, target.reached) for target in targets] == [(0.05, True), (0.15, False)]
