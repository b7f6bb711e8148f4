"""A tiny demo with real daemons: every photo gets its answer, also when the edge is killed in mid-replay."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import psutil
import pytest

from nearsight.device.recognizer import Recognizer
from nearsight.experiments.demo.deployment import CATALOGUE, child_environment, deploy
from nearsight.experiments.demo.material import Material, prepare
from nearsight.experiments.demo.run import DemoResult, run_demo
from nearsight.experiments.demo.scenario import CONFIGURATIONS, EDGE_CACHE, Scenario
from nearsight.experiments.replay import Ledger, replay
from nearsight.experiments.testbed.link import LinkShape
from nearsight.experiments.testbed.metrics import accounting_errors, summarise
from nearsight.experiments.testbed.plan import PlannedPhoto, load_photos, plan_from_requests
from nearsight.experiments.testbed.processes import ProcessGroup
from nearsight.experiments.testbed.rows import RequestRow, read_request_rows

TINY = Scenario(
    objects=10,
    sections=1,
    exhibits_per_section=6,
    visitors=2,
    seconds=3.0,
    photos_per_exhibit=2,
    unknown_share=0.3,
    unknown_photos=2,
    link=LinkShape(rtt_ms=10.0, up_mbps=50.0, down_mbps=50.0),
)


@dataclass(frozen=True)
class Played:
    """A demo that ran once for all tests."""

    folder: Path
    result: DemoResult

    @property
    def photos(self) -> int:
        """Requests of each configuration."""
        return len(self.result.results[0].rows)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("demo")
    return Played(folder, run_demo(TINY, folder))


def test_both_configurations_answer_every_photo(played: Played) -> None:
    summary = json.loads((played.folder / "summary.json").read_text())
    assert list(summary["configurations"]) == list(CONFIGURATIONS)
    for name, configuration in summary["configurations"].items():
        assert configuration["requests"] == configuration["answered"] == played.photos, name
        assert {"p50", "p95", "p99"} == set(configuration["latency_ms"])
        assert sum(configuration["answered_by"].values()) == played.photos
        assert configuration["bytes"]["to-cloud"]["up"] > 1000
        assert {"cloud", "link", "devices"} <= set(configuration["cpu_s"])
        assert configuration["link"]["calibration"]["asked"]["rtt_ms"] == 10.0
    assert set(summary["configurations"]["only-cloud"]["answered_by"]) == {"cloud"}
    assert "devices-edge" in summary["configurations"]["edge-cache"]["bytes"]


def test_known_photos_are_recognised_and_strangers_are_unknown(played: Played) -> None:
    rows = read_request_rows(played.folder / "requests.csv")
    assert len(rows) == 2 * played.photos >= 8
    assert {row.outcome for row in rows} <= {"recognized", "unknown"}
    assert all(not row.answered for row in rows if not row.expected)
    metrics = summarise(rows)
    assert metrics.precision == 1.0
    assert metrics.recall is not None
    assert metrics.recall >= 0.5  # a handful of hand-held photos


def test_both_configurations_send_the_same_photos(played: Played) -> None:
    sent = {
        name: [(row.visitor, row.number, row.expected) for row in result.rows]
        for name, result in zip(CONFIGURATIONS, played.result.results, strict=True)
    }
    assert sent["only-cloud"] == sent["edge-cache"]


def test_a_figure_and_logs_are_left_and_no_process(played: Played) -> None:
    assert played.result.figure.stat().st_size > 10_000
    assert "stopped" in (played.folder / "edge-cache" / "edge.log").read_text()
    assert [child for child in psutil.Process().children() if "nearsight" in " ".join(child.cmdline())] == []


def test_a_second_run_uses_the_museum_that_is_there(played: Played) -> None:
    stages: list[str] = []
    reference = next(played.result.museum.glob("references/*.jpg"))
    before = reference.stat().st_mtime_ns

    def stage(name: str) -> object:
        stages.append(name)
        return lambda _done, _total: None

    material = prepare(TINY, played.folder, stage)  # type: ignore[arg-type]
    assert reference.stat().st_mtime_ns == before
    assert material.photos == played.photos
    assert len(stages) == 4


def test_every_request_has_one_outcome_when_the_edge_is_killed_in_mid_replay(
    played: Played, tmp_path: Path
) -> None:
    material: Material = prepare(TINY, played.folder, lambda _name: lambda _done, _total: None)
    photos = [photo for trace in material.traces for photo in plan_from_requests(trace.path, material.museum)]
    plan = [
        PlannedPhoto(number * 0.1, photo.object_id, photo.path)
        for number, photo in enumerate(islice(cycle(photos), 24))
    ]
    with ProcessGroup(tmp_path, child_environment()) as group:
        tiers = deploy(group, EDGE_CACHE, TINY, database=material.database, profile=material.profile)

        def kill_edge_after_six(row: RequestRow) -> None:
            if row.number == 6:
                tiers.daemons["edge"].send_signal(signal.SIGKILL)

        with Recognizer(tiers.edge, tiers.cloud, CATALOGUE, device_id="v") as recognizer:
            ledger = Ledger("edge-cache", "v", kill_edge_after_six)
            rows = replay(plan, load_photos(plan), recognizer, ledger, timeout_s=5.0)
    assert tiers.daemons["edge"].exit_code == -signal.SIGKILL
    assert len(rows) == 24
    assert accounting_errors(rows) == []
    assert all(row.is_answered for row in rows[-6:]), "the cloud takes over"
    assert all(row.edge_compute_ms == 0 for row in rows[-6:])
