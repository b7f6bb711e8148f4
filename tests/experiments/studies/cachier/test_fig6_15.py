"""Figure 6.15: both definitions of latency, presence and targets computed from rows, and a smoke run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from nearsight.common.errors import MissingDependency
from nearsight.experiments.framework.experiment import Results, Row, RunOptions
from nearsight.experiments.rig.peer_group import LOOPBACK
from nearsight.experiments.rig.peer_process import GET, KADEMLIA, NEARSIGHT, OK, PUT
from nearsight.experiments.studies.cachier.fig6_15 import FULL, LEAST_GETS, PAPER, SMOKE, Figure
from nearsight.experiments.studies.cachier.lookup_numbers import ALL_GETS, OVER_NETWORK, mean_per_node
from nearsight.experiments.studies.cachier.lookups import (
    BEACONS,
    GET_PHASE,
    GONE,
    IDLE,
    PUT_PHASE,
    SEES_ALL,
    SYSTEMS,
    LookupMeasurement,
    Setting,
    make_traces,
)

HEAD: Row = {
    "setting": "small",
    "title": "2 nodes, k = 20",
    "nodes": 20,
    "period_s": 5.0,
    "departure_s": 15.0,
    "value_bytes": 1024,
    "rate_mbps": 54.0,
    "place": "namespaces",
    "repetition": 0,
}
OTHER: Row = {"node": "node-01", "key": "k", "late_ms": 0.1, "ms": 0.0, "outcome": "", "local": 0}
COUNTS: Row = {"packets": 0, "bytes": 0, "seconds": 0.0, "system": ""}


def stored(rows: Sequence[Row]) -> list[dict[str, str]]:
    return [{key: str(value) for key, value in {**HEAD, **OTHER, **COUNTS, **row}.items()} for row in rows]


def gets(system: str, node: str, latencies_ms: Sequence[float], *, local: int = 0) -> list[Row]:
    return [
        {"system": system, "kind": GET, "node": node, "ms": ms, "outcome": OK, "local": local}
        for ms in latencies_ms
    ]


def presence(gone_s: float = 15.5, seen_s: float = 4.0, beacon_bytes: int = 4920) -> list[Row]:
    return [
        {"kind": SEES_ALL, "ms": 1000 * seen_s},
        {"kind": GONE, "ms": 1000 * gone_s},
        {"kind": BEACONS, "bytes": beacon_bytes, "packets": 120, "seconds": 30.0},
        {"kind": IDLE, "bytes": 6600, "packets": 120, "seconds": 30.0},
    ]


def lookups() -> list[Row]:
    """Half of the gets of Kademlia are from its own storage; all of ours are sent over the network."""
    return [
        *gets(NEARSIGHT, "node-01", [1.0, 1.0]),
        *gets(NEARSIGHT, "node-02", [3.0, 5.0]),
        *gets(KADEMLIA, "node-01", [0.01, 0.01], local=1),
        *gets(KADEMLIA, "node-02", [10.0, 200.0]),
        *({"system": system, "kind": PUT, "ms": 2.0, "outcome": OK} for system in SYSTEMS),
        {"system": NEARSIGHT, "kind": PUT_PHASE, "packets": 8, "bytes": 1600},
        {"system": KADEMLIA, "kind": PUT_PHASE, "packets": 76, "bytes": 35_000},
        {"system": NEARSIGHT, "kind": GET_PHASE, "packets": 16, "bytes": 1600},
        {"system": KADEMLIA, "kind": GET_PHASE, "packets": 4, "bytes": 400},
    ]


def test_gets_from_own_storage_are_counted_only_in_the_latency_of_all_gets() -> None:
    systems = Figure().metrics(stored([*lookups(), *presence()]))["settings"]["small"]["systems"]
    theirs = systems[KADEMLIA]
    assert theirs["own_storage"] == 0.5
    assert (theirs[ALL_GETS]["count"], theirs[OVER_NETWORK]["count"]) == (4, 2)
    assert theirs[ALL_GETS]["p50_ms"] < 6 < theirs[OVER_NETWORK]["p50_ms"] == 105.0
    assert systems[NEARSIGHT][ALL_GETS] == systems[NEARSIGHT][OVER_NETWORK]
    assert theirs["traffic"]["put"] == {"packets_each": 76.0, "bytes_each": 35_000.0}


def test_the_note_has_the_ratio_of_every_repetition() -> None:
    first = [*gets(NEARSIGHT, "node-01", [1.0] * LEAST_GETS), *gets(KADEMLIA, "node-01", [4.0] * LEAST_GETS)]
    second = [{**row, "repetition": 1, "ms": 2.0} for row in first]
    figure = Figure()
    summary = figure.metrics(stored([*first, *second, *lookups()]))
    target = next(one for one in figure.targets(summary) if f"{ALL_GETS}: p50" in one.text)
    assert target.note == "repetition by repetition 0.250, 1.000"


def test_mean_and_deviation_are_computed_per_node() -> None:
    rows = [row for row in stored(lookups()) if row["system"] == NEARSIGHT]
    assert mean_per_node(rows) == {
        "node-01": (1.0, 0.0),
        "node-02": (4.0, pytest.approx(np.sqrt(2))),
    }


def test_a_get_that_failed_counts_with_its_time_and_misses_the_target() -> None:
    failed: Row = {"system": NEARSIGHT, "kind": GET, "ms": 2000.0, "outcome": "DeadlineExceeded", "local": 0}
    figure = Figure()
    summary = figure.metrics(stored([*lookups(), *presence(), failed]))
    assert summary["settings"]["small"]["systems"][NEARSIGHT]["failed"] == 1
    assert summary["settings"]["small"]["systems"][NEARSIGHT][ALL_GETS]["p99_ms"] > 1000
    (target,) = [one for one in figure.targets(summary) if "failed gets" in one.text]
    assert not target.reached


@pytest.mark.parametrize(
    ("network_gets", "claimed"), [(0, False), (LEAST_GETS - 1, False), (LEAST_GETS, True)]
)
def test_a_target_needs_enough_gets(network_gets: int, claimed: bool) -> None:
    rows = [
        *lookups(),
        *gets(NEARSIGHT, "node-01", [1.0] * LEAST_GETS),
        *gets(KADEMLIA, "node-01", [0.1] * LEAST_GETS, local=1),
        *gets(KADEMLIA, "node-02", [1.0] * (network_gets - 2)),
    ]
    if not network_gets:
        rows = [row for row in rows if row.get("local") or row.get("system") != KADEMLIA]
    figure = Figure()
    texts = [target.text for target in figure.targets(figure.metrics(stored([*rows, *presence()])))]
    assert any(ALL_GETS in text for text in texts)
    assert any(OVER_NETWORK in text for text in texts) == claimed


@pytest.mark.parametrize(
    ("measured", "missed"),
    [
        (presence(), ""),
        (presence(gone_s=17.5), "removed"),
        (presence(seen_s=10.5), "see each other"),
        (presence(beacon_bytes=30 * 300), "beacons of a device"),
    ],
)
def test_the_targets_of_presence_are_those_of_the_slowest_node(measured: list[Row], missed: str) -> None:
    figure = Figure()
    targets = [*figure.targets(figure.metrics(stored([*lookups(), *measured])))]
    failed = [one.text for one in targets[:4] if not one.reached]
    assert [missed in text for text in failed] == ([True] if missed else [])


@pytest.mark.parametrize(
    ("place", "idle_bytes", "judged"),
    [("namespaces", 6600, True), ("namespaces", 0, False), (LOOPBACK, 6600, False)],
)
def test_frames_of_idle_devices_are_judged_only_if_they_were_measured(
    place: str, idle_bytes: int, judged: bool
) -> None:
    *others, idle = presence()
    rows = [{**row, "place": place} for row in (*lookups(), *others, {**idle, "bytes": idle_bytes})]
    figure = Figure()
    targets = figure.targets(figure.metrics(stored(rows)))
    assert any("all frames" in one.text for one in targets) == judged


def test_the_texts_of_targets_have_their_limits() -> None:
    rows = [*gets(NEARSIGHT, "node-01", [1.0] * LEAST_GETS), *gets(KADEMLIA, "node-01", [3.01] * LEAST_GETS)]
    figure = Figure()
    found = [
        one for one in figure.targets(figure.metrics(stored([*rows, *lookups()]))) if "all gets" in one.text
    ]
    assert [one.text.rpartition(" at most ")[2] for one in found] == ["1/3", "0.1"]
    assert found[0].value == pytest.approx(0.3322, abs=1e-3)
    assert found[0].reached


def test_failed_gets_are_not_in_the_means_of_the_nodes() -> None:
    failed: Row = {"system": NEARSIGHT, "kind": GET, "ms": 2000.0, "outcome": "DeadlineExceeded", "local": 0}
    rows = stored([*lookups(), failed])
    assert mean_per_node(row for row in rows if row["system"] == NEARSIGHT)["node-01"] == (1.0, 0.0)
    figure = Figure()
    axes = figure.draw(Results(rows, figure.metrics(rows))).axes[0]
    assert (
        "nearsight: mean of each node's successful gets, with standard deviation"
        in (axes.get_legend_handles_labels()[1])
    )


def test_each_device_puts_its_keys_once_and_gets_them_in_order_of_time() -> None:
    puts, wanted = make_traces(FULL, 20, np.random.default_rng(3))
    assert len(puts) == len(wanted) == 20
    for stored_keys, asked in zip(puts, wanted, strict=True):
        assert len(asked) == FULL.requests
        names = [key for _, key in stored_keys]
        assert len(set(names)) == len(names)
        assert set(names) == {key for _, key in asked}
        assert [at_s for at_s, _ in asked] == sorted(at_s for at_s, _ in asked)
    last_s = max(trace[-1][0] for trace in wanted)
    assert 20 * FULL.requests / last_s == pytest.approx(FULL.get_rate, rel=0.1)


def test_every_key_is_put_once_and_only_other_devices_get_it() -> None:
    puts, wanted = make_traces(FULL, 20, np.random.default_rng(3), others_keys=True)
    stored_keys = [key for trace in puts for _, key in trace]
    assert sorted(stored_keys) == [f"object/{number:04d}" for number in range(FULL.keys)]
    for mine, asked in zip(puts, wanted, strict=True):
        assert len(asked) == FULL.requests
        assert {key for _, key in mine}.isdisjoint(key for _, key in asked)
    counts = Counter(key for trace in wanted for _, key in trace)
    assert counts["object/0000"] > 3 * counts["object/0100"]


def test_early_devices_also_put_the_keys_of_late_ones(tmp_path: Path) -> None:
    setting = Setting("late", "late", 6, PAPER, late=2)
    measurement = LookupMeasurement(tmp_path, setting, SMOKE, np.random.default_rng(1), 1)
    puts, wanted = make_traces(SMOKE, 6, np.random.default_rng(1))
    made = measurement.puts_of_early()
    assert len(made) == 4
    assert {key for trace in made for _, key in trace} == {key for trace in wanted for _, key in trace}
    assert made[3] == puts[3]


@pytest.mark.system
def test_a_smoke_run_measures_everything(smoke_runs) -> None:
    folder: Path = smoke_runs.folder("fig6.15")
    summary = json.loads((folder / "summary.json").read_text())["metrics"]
    (setting,) = summary["settings"].values()
    ours, theirs = (setting["systems"][name] for name in (NEARSIGHT, KADEMLIA))
    assert ours["gets"] == theirs["gets"] == 4 * SMOKE.requests
    assert ours["failed"] == ours["puts_failed"] == 0
    assert summary["presence"]["all_see_all_s"] > 0
    assert summary["presence"]["gone_s"]["most"] > 0


def test_without_kademlia_the_error_has_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearsight.experiments.framework.extra.find_spec", lambda _name: None)
    figure, options = Figure(), RunOptions(smoke=True)
    with pytest.raises(MissingDependency, match=r"kademlia.*pip install"):
        figure.run(options, **figure.cells(options)[0])
