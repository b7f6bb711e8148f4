"""The experiment ``peers``: metrics and targets computed from rows, and a smoke run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import pytest

from nearsight.experiments.framework.experiment import Results, Row, RunOptions
from nearsight.experiments.framework.running import cells_of
from nearsight.experiments.studies.peers import endurance as module
from nearsight.experiments.studies.peers.endurance import (
    GONE,
    HANDED_OVER,
    MISCOUNTED,
    POSTPONED,
    REPEATED,
    UNREADABLE,
    Endurance,
    EndurancePlan,
)
from nearsight.experiments.studies.peers.peers import (
    ALONE,
    EDGE_BYTES,
    ENDURANCE,
    PHOTO,
    PREFETCHING,
    SHARING,
    Figure,
)

TINY = EndurancePlan(nodes=3, survivors=2, keys=60, merges=2, period_s=0.5, departure_s=6.0)
"""A process that a busy machine stops for five seconds is not taken for a dead one."""


def stored(rows: Sequence[Row]) -> list[dict[str, str]]:
    common: Row = {"repetition": 0, "place": "namespaces", "expected": "", "answered": "", "answered_by": ""}
    return [{key: str(value) for key, value in {**common, **row}.items()} for row in rows]


def endurance(lost: int = 0, off: int = 0) -> list[Row]:
    rows: list[Row] = []
    for death, left in ((0, 4), (1, 3), (2, 2)):
        values = {HANDED_OVER: 0.5, REPEATED: 2, UNREADABLE: 0, MISCOUNTED: 0, POSTPONED: 1}
        if death:
            values[GONE] = 2.0 + death
        if death == 2:
            values |= {UNREADABLE: lost, MISCOUNTED: off}
        rows += [
            {"part": ENDURANCE, "devices": "", "kind": kind, "death": death, "left": left, "value": value}
            for kind, value in values.items()
        ]
    return rows


def prefetching(sharing_bytes: int = 350, sharing_ms: float = 20.0) -> list[Row]:
    rows: list[Row] = []
    for devices, edge_bytes, ms in ((ALONE, 1000, 20.0), (SHARING, sharing_bytes, sharing_ms)):
        common: Row = {"part": PREFETCHING, "devices": devices, "death": 0, "left": 0}
        photo: Row = {**common, "kind": PHOTO, "expected": "1", "answered": "1", "answered_by": "device"}
        rows += [{**photo, "value": ms}] * 9
        rows.append({**photo, "value": 3 * ms, "answered": "", "answered_by": "edge"})
        rows.append({**common, "kind": EDGE_BYTES, "value": edge_bytes})
    return rows


def missed(rows: Sequence[Row]) -> list[str]:
    figure = Figure()
    return [one.text for one in figure.targets(figure.metrics(stored(rows))) if not one.reached]


def test_metrics_are_computed_from_rows() -> None:
    found = Figure().metrics(stored([*endurance(), *prefetching()]))
    lost, sharing = found["nothing_lost"], found["prefetching"][SHARING]
    assert (lost["nodes"], lost["survivors"], lost["deaths"]) == (4, 2, 2)
    assert (lost["unreadable"], lost["miscounted"], lost["postponed_merges"]) == (0, 0, 3)
    assert lost["noticed_s"] == {"median": 3.5, "most": 4.0}
    assert sharing["edge_model_bytes"] == 350
    assert (sharing["p50_ms"], sharing["recall"], sharing["wrong"]) == (20.0, 0.9, 0)
    assert sharing["answered_by"] == {"device": 0.9, "edge": 0.1, "cloud": 0.0}


def test_good_rows_reach_all_targets() -> None:
    assert missed([*endurance(), *prefetching()]) == []


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([*endurance(lost=1), *prefetching()], "unreadable keys"),
        ([*endurance(off=1), *prefetching()], "error of a counter"),
        ([*endurance(), *prefetching(sharing_bytes=401)], "bytes of models"),
    ],
)
def test_each_fault_misses_its_own_target(rows: list[Row], text: str) -> None:
    assert [text in one for one in missed(rows)] == [True]


def test_slower_recognition_misses_its_targets() -> None:
    texts = missed([*endurance(), *prefetching(sharing_ms=22.0)])
    assert len(texts) == 2
    assert "p50" in texts[0]


def test_ratios_are_computed_per_repetition() -> None:
    second = [{**row, "repetition": 1} for row in prefetching(sharing_ms=30.0)]
    rows = stored([*endurance(), *prefetching(), *second])
    assert Figure().metrics(rows)["ratios"] == {"p50": [1.0, 1.5], "p95": [1.0, 1.5]}


def test_a_repetition_with_one_configuration_has_no_ratio() -> None:
    silent = [{**row, "repetition": 1} for row in prefetching() if row["devices"] == ALONE]
    assert Figure().metrics(stored([*endurance(), *prefetching(), *silent]))["ratios"]["p50"] == [1.0]


def test_photos_without_an_answer_are_in_the_table_and_missing_in_the_curve() -> None:
    rows = stored([*endurance(), *prefetching()])
    silent = next(row for row in rows if row["kind"] == PHOTO and row["devices"] == SHARING)
    silent["answered_by"] = ""
    figure = Figure()
    found = figure.metrics(rows)
    assert [line["no answer"] for line in figure.table(found)] == [0, 1]
    alone, sharing = figure.draw(Results(rows, found)).axes[2].get_lines()
    assert (max(alone.get_ydata()), max(sharing.get_ydata())) == (1.0, 0.9)
    assert str(sharing.get_label()).endswith("1 failed")


class _Group:
    """A group that detects a failure 2 s after it, and whose merges take 10 s."""

    def __init__(self, nodes: int) -> None:
        self.nodes = [SimpleNamespace(node_id=str(number)) for number in range(nodes)]
        self.place, self.now_s = "here", 100.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...

    def start(self) -> None: ...

    def wait_all_see_all(self, *_: object) -> None: ...

    def kill(self, victim: SimpleNamespace) -> float:
        self.nodes.remove(victim)
        return self.now_s

    def wait_gone(self, _node_id: str, since_s: float, _timeout_s: float) -> list[float]:
        return [since_s + 1.0, since_s + 2.0]

    def ask_all(self, _nodes: object, command: Any, _timeout_s: float = 0.0) -> list[dict[str, Any]]:
        told = command(0) if callable(command) else command
        self.now_s += 10.0 if told["do"] == "merge" else 0.5
        held = [f"key/{number}" for number in range(TINY.keys)]
        answer = {"failed": [], "postponed": 0, "keys": held, "counts": {}}
        return [answer for _ in self.nodes]


def test_the_hand_over_begins_when_the_failure_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = _Group(TINY.nodes)
    monkeypatch.setattr(module, "PeerGroup", lambda *_: group)
    monkeypatch.setattr(module, "ask_all", group.ask_all)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: group.now_s))
    rows = Endurance(tmp_path, TINY, np.random.default_rng(1), seed=7).run()
    values = {(row["death"], row["kind"]): row["value"] for row in rows}
    assert values[0, HANDED_OVER] == 0.5
    assert (values[1, GONE], values[1, HANDED_OVER]) == (2.0, 8.5)


def test_the_order_of_configurations_alternates() -> None:
    keys = [*cells_of(Figure(), RunOptions())]
    assert keys[:5] == [
        "nothing-lost",
        "prefetching-0-alone",
        "prefetching-0-sharing",
        "prefetching-1-sharing",
        "prefetching-1-alone",
    ]


@pytest.mark.system
def test_no_value_is_lost_with_a_device(tmp_path: Path) -> None:
    rows = Endurance(tmp_path, TINY, np.random.default_rng(1), seed=7).run()
    values = {(row["death"], row["kind"]): row["value"] for row in rows}
    assert values[1, UNREADABLE] == values[1, MISCOUNTED] == 0
    assert float(values[1, GONE]) > 0


@pytest.mark.system
def test_a_smoke_run_measures_everything(smoke_runs) -> None:
    folder: Path = smoke_runs.folder("peers")
    summary = json.loads((folder / "summary.json").read_text())["metrics"]
    assert summary["nothing_lost"]["unreadable"] == summary["nothing_lost"]["miscounted"] == 0
    assert summary["prefetching"][ALONE]["requests"] == summary["prefetching"][SHARING]["requests"] > 0
    assert summary["prefetching"][ALONE]["edge_model_bytes"] > 0
    assert summary["prefetching"][SHARING]["list_bytes"] > 0, "the list of checksums for models of peers"
