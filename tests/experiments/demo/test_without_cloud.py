"""Real daemons whose cloud is killed in the middle: the edge goes on alone, also after a restart."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from nearsight.common.operation.status import ask_status
from nearsight.device.recognizer import Recognizer
from nearsight.device.recognizer_settings import PrefetchSettings, RecognizerSettings
from nearsight.experiments.demo.material import prepare
from nearsight.experiments.demo.run import run_demo
from nearsight.experiments.demo.scenario import ALONE, EDGE_CACHE, Scenario
from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.rig.processes import ManagedProcess, ProcessGroup
from nearsight.experiments.rig.rows import summarise
from nearsight.experiments.rig.tiers import CATALOGUE, endpoint_of, start_daemon
from support.waiting import wait_until

pytestmark = pytest.mark.system

OBJECTS = 12
SMALL = Scenario(
    objects=OBJECTS,
    sections=1,
    exhibits_per_section=8,
    visitors=2,
    seconds=10.0,
    alone=6.0,
    photos_per_exhibit=3,
    unknown_share=0.1,
    unknown_photos=2,
    link=LinkShape(rtt_ms=10.0, up_mbps=50.0, down_mbps=50.0),
)

HOLDS_NOTHING = RecognizerSettings(prefetch=PrefetchSettings(enabled=False))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("without-cloud")


@pytest.mark.parametrize("edge", [(), ("cache.k_max=0",)], ids=["with a cache", "k = 0"])
def test_an_edge_whose_cloud_is_killed_in_the_middle_of_a_session_goes_on(
    folder: Path, edge: tuple[str, ...]
) -> None:
    demo = run_demo(replace(SMALL, edge=edge), folder)
    results = {one.name: one.rows for one in demo.results}
    before, after = (summarise(results[name]) for name in (EDGE_CACHE, ALONE))
    assert after.answered == after.requests > 0
    assert set(after.answered_by) == {"edge"}
    assert after.wrong == 0
    assert before.recall is not None
    assert after.recall is not None
    assert after.recall >= 0.9 * before.recall


@contextmanager
def running_edge(group: ProcessGroup, name: str, settings: dict[str, object]) -> Iterator[ManagedProcess]:
    process = start_daemon(group, "edge", name, settings)
    endpoint_of(process)
    yield process
    process.stop()


def wait_for_standby(edge: str) -> None:
    def filled() -> bool:
        (status,) = ask_status([edge], timeout_s=5.0)
        standby = dict(status.details).get(f"{CATALOGUE}: standby", "")
        return f"{OBJECTS} of {OBJECTS} objects" in standby

    wait_until(filled, timeout_s=60.0, what="all objects in the standby")


def test_an_edge_that_restarts_without_its_cloud_answers_and_the_cloud_that_comes_back_is_asked(
    folder: Path, tmp_path: Path
) -> None:
    material = prepare(SMALL, folder, lambda _: lambda _done, _total: None)
    photos = sorted((material.museum / "visits").glob("*.jpg"))
    with ProcessGroup(tmp_path) as group:
        served = {"database": str(material.database)}
        cloud = start_daemon(group, "cloud", "cloud", served)
        address = endpoint_of(cloud)
        kept: dict[str, object] = {"cloud": address, "state": str(tmp_path / "edge.db"), "cache.k_max": 0}

        def answers(edge: str) -> list[tuple[str | None, str]]:
            with Recognizer(edge, catalogue=CATALOGUE, settings=HOLDS_NOTHING) as device:
                found = [device.recognize_blocking(photo, timeout_s=10.0) for photo in photos]
            return [(one.object_id, one.answered_by) for one in found]

        with running_edge(group, "edge-1", kept) as edge:
            before = answers(endpoint_of(edge))
            wait_for_standby(endpoint_of(edge))
        cloud.send_signal(signal.SIGKILL)
        with running_edge(group, "edge-2", kept) as edge:
            wait_for_standby(endpoint_of(edge))
            alone = answers(endpoint_of(edge))
            right = [one for one, other in zip(alone, before, strict=True) if one[0] == other[0]]
            assert {tier for _, tier in before} == {"cloud"}
            assert {tier for _, tier in alone} == {"edge"}
            assert len(right) >= 0.9 * len(before)
            start_daemon(group, "cloud", "cloud-again", {**served, "server.listen": address})
            wait_until(
                lambda: answers(endpoint_of(edge)) == before, timeout_s=60.0, what="the answers of the cloud"
            )
