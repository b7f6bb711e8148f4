"""A small demo with real daemons: every photo is answered."""

import json
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from nearsight.__main__ import main
from nearsight.experiments.demo.material import prepare
from nearsight.experiments.demo.run import DemoResult, run_demo
from nearsight.experiments.demo.scenario import CONFIGURATIONS, Scenario
from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.rig.processes import ProcessGroup
from nearsight.experiments.rig.rows import read_request_rows, summarise
from nearsight.experiments.rig.tiers import endpoint_of, start_daemon

pytestmark = pytest.mark.system

TINY = Scenario(
    objects=10,
    sections=1,
    exhibits_per_section=6,
    visitors=2,
    seconds=3.0,
    alone=0.0,
    photos_per_exhibit=2,
    unknown_share=0.3,
    unknown_photos=2,
    link=LinkShape(rtt_ms=10.0, up_mbps=50.0, down_mbps=50.0),
    timeout_s=60.0,
)


@dataclass(frozen=True)
class Played:
    """A demo, run once for all tests."""

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


def test_photos_of_the_catalogue_are_recognised_and_others_are_unknown(played: Played) -> None:
    rows = read_request_rows(played.folder / "requests.csv")
    assert len(rows) == 2 * played.photos >= 8
    assert {row.outcome for row in rows} <= {"recognized", "unknown"}
    assert all(not row.answered for row in rows if not row.expected)
    metrics = summarise(rows, TINY.timeout_s)
    assert metrics.precision == 1.0
    assert metrics.recall is not None
    assert metrics.recall >= 0.5  # few photos, taken by hand


def test_both_configurations_send_the_same_photos(played: Played) -> None:
    sent = {
        name: [(row.visitor, row.number, row.expected) for row in result.rows]
        for name, result in zip(CONFIGURATIONS, played.result.results, strict=True)
    }
    assert sent["only-cloud"] == sent["edge-cache"]


def test_a_figure_and_logs_remain_and_no_process(played: Played) -> None:
    assert played.result.figure.stat().st_size > 10_000
    assert (played.folder / "edge-cache" / "tiers" / "edge-edge-cache.log").read_text()
    assert [child for child in psutil.Process().children() if "nearsight" in " ".join(child.cmdline())] == []


def test_a_second_run_uses_the_existing_museum(played: Played) -> None:
    stages: list[str] = []
    reference = next(played.result.museum.glob("references/*.jpg"))
    before = reference.stat().st_mtime_ns

    def stage(name: str) -> object:
        stages.append(name)
        return lambda _done, _total: None

    material = prepare(TINY, played.folder, stage)  # type: ignore[arg-type]
    assert reference.stat().st_mtime_ns == before
    assert sum(trace.photos for trace in material.traces) == played.photos
    assert len(stages) == 4


def test_the_replay_command_replays_visits_with_running_daemons(
    played: Played, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    museum, visits = played.result.museum, str(played.folder / "traces" / "visits.csv")
    config, out = tmp_path / "empty.toml", tmp_path / "rows.csv"
    config.touch()
    with ProcessGroup(tmp_path) as group:
        cloud = start_daemon(group, "cloud", "cloud", {"database": museum / "cloud.db"})
        given = ["--photos", str(museum), "--cloud", endpoint_of(cloud), "--config", str(config)]
        given += ["--seconds", "2", "--timeout", "60", "--visitor", "visitor-002", "--unknown-share", "0.3"]
        assert main(["replay", visits, *given, "--json", "--out", str(out)]) == 0
    printed = json.loads(capsys.readouterr().out)
    rows = read_request_rows(out)
    assert printed["requests"] == printed["answered"] == len(rows) == 2
    assert {row.visitor for row in rows} == {"visitor-002"}
    assert {row.answered_by for row in rows} == {"cloud"}


def test_a_demo_with_invalid_options_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--objects", "50", "--out", str(tmp_path)]) == 2
    assert "give --objects 132 or more" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert main(["demo", "--quick", "--out", str(tmp_path / "file")]) == 2
    assert "is a file" in " ".join(capsys.readouterr().err.replace("│", " ").split())


@pytest.mark.parametrize("option", ["--set", "--compare"])
def test_an_unknown_setting_of_the_edge_is_refused_before_anything_is_written(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--out", str(tmp_path / "demo"), option, "nonsense=1"]) == 5
    assert "unknown setting 'nonsense'" in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()
