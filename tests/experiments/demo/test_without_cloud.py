"""Real daemons whose cloud is killed: the edge answers without it, also after a restart."""

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from nearsight.common.operation.status import ask_status
from nearsight.device.recognizer import Recognizer
from nearsight.device.recognizer_settings import PrefetchSettings, RecognizerSettings
from nearsight.experiments.demo import run
from nearsight.experiments.demo.material import prepare
from nearsight.experiments.demo.scenario import ALONE, EDGE_CACHE, Scenario
from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.rig.processes import ProcessGroup
from nearsight.experiments.rig.sequence import Tally
from nearsight.experiments.rig.tiers import CATALOGUE, endpoint_of, start_daemon
from nearsight.experiments.rig.warming import WarmUp
from support.waiting import wait_until

pytestmark = pytest.mark.system

OBJECTS = 12
SMALL = Scenario(
    objects=OBJECTS,
    sections=1,
    exhibits_per_section=8,
    visitors=2,
    seconds=6.0,
    alone=8.0,
    photos_per_exhibit=3,
    unknown_share=0.1,
    unknown_photos=2,
    link=LinkShape(rtt_ms=10.0, up_mbps=50.0, down_mbps=50.0),
    timeout_s=60.0,
)

NO_PREFETCHING = RecognizerSettings(prefetch=PrefetchSettings(enabled=False))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("without-cloud")


def wait_for_standby(edge: str) -> None:
    def filled() -> bool:
        (status,) = ask_status([edge], timeout_s=60.0)
        standby = dict(status.details).get(f"{CATALOGUE}: standby", "")
        return f"{OBJECTS} of {OBJECTS} objects" in standby

    wait_until(filled, timeout_s=110.0, what="all objects in the standby")


@pytest.mark.parametrize("edge", [(), ("cache.k_max=0",)], ids=["with a cache", "k = 0"])
def test_an_edge_answers_all_photos_after_its_cloud_was_killed_during_a_session(
    folder: Path, edge: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    class StandbyFirst(run.LiveView):
        """Delays the replay, and so the end of the cloud, until the standby has all objects."""

        def configuration(
            self, name: str, requests: int
        ) -> tuple[Callable[[str], None], Callable[[Tally], None]]:
            on_stage, on_tally = super().configuration(name, requests)

            def on_stage_with_standby(stage: str) -> None:
                on_stage(stage)
                if (name, stage) == (EDGE_CACHE, "replay"):
                    announcement = folder / name / "tiers" / f"edge-{name}.json"
                    endpoint = json.loads(announcement.read_text())["endpoint"]
                    WarmUp(endpoint, CATALOGUE).load_catalogue()
                    wait_for_standby(endpoint)

            return on_stage_with_standby, on_tally

    monkeypatch.setattr(run, "LiveView", StandbyFirst)
    demo = run.run_demo(replace(SMALL, edge=edge), folder)
    results = {one.name: one.metrics for one in demo.results}
    before, after = results[EDGE_CACHE], results[ALONE]
    assert after.answered == after.requests > 0
    assert set(after.answered_by) == {"edge"}
    assert after.wrong == 0
    assert before.recall is not None
    assert after.recall is not None
    assert after.recall >= 0.9 * before.recall


@contextmanager
def running_edge(group: ProcessGroup, name: str, settings: dict[str, object]) -> Iterator[str]:
    """Start an edge; gives its endpoint."""
    process = start_daemon(group, "edge", name, settings)
    yield endpoint_of(process)
    process.stop()


def test_a_restarted_edge_answers_without_its_cloud_and_asks_the_restarted_cloud(
    folder: Path, tmp_path: Path
) -> None:
    material = prepare(SMALL, folder, lambda _: lambda _done, _total: None)
    photos = sorted((material.museum / "visits").glob("*.jpg"))
    with ProcessGroup(tmp_path) as group:
        served = {"database": str(material.database)}
        cloud = start_daemon(group, "cloud", "cloud", served)
        address = endpoint_of(cloud)
        settings: dict[str, object] = {
            "cloud": address,
            "state": str(tmp_path / "edge.db"),
            "cache.k_max": 0,
        }

        def answers(edge: str) -> list[tuple[str | None, str]]:
            with Recognizer(edge, catalogue=CATALOGUE, settings=NO_PREFETCHING) as device:
                found = [device.recognize_blocking(photo, timeout_s=60.0) for photo in photos]
            return [(one.object_id, one.answered_by) for one in found]

        def answers_of_the_cloud(edge: str) -> list[tuple[str | None, str]]:
            """Answers of one round in which the cloud answered every photo within the edge's time limit."""
            rounds: list[list[tuple[str | None, str]]] = []

            def all_of_the_cloud() -> bool:
                rounds.append(answers(edge))
                return {tier for _, tier in rounds[-1]} == {"cloud"}

            wait_until(all_of_the_cloud, timeout_s=110.0, what="answers of the cloud alone")
            return rounds[-1]

        with running_edge(group, "edge-1", settings) as edge:
            before = answers_of_the_cloud(edge)
            wait_for_standby(edge)
        cloud.send_signal(signal.SIGKILL)
        with running_edge(group, "edge-2", settings) as edge:
            wait_for_standby(edge)
            alone = answers(edge)
            assert {tier for _, tier in alone} == {"edge"}
            equal = [one for one, other in zip(alone, before, strict=True) if one[0] == other[0]]
            assert len(equal) >= 0.9 * len(before)
            start_daemon(group, "cloud", "cloud-again", {**served, "server.listen": address})
            assert answers_of_the_cloud(edge) == before
