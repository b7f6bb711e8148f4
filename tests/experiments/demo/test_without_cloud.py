"""A demo with real daemons whose cloud is killed: the edge answers without it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nearsight.common.operation.status import ask_status
from nearsight.experiments.demo import run
from nearsight.experiments.demo.scenario import ALONE, EDGE_CACHE, Scenario
from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.rig.sequence import Tally
from nearsight.experiments.rig.tiers import CATALOGUE
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


def wait_for_standby(edge: str) -> None:
    def filled() -> bool:
        (status,) = ask_status([edge], timeout_s=60.0)
        standby = dict(status.details).get(f"{CATALOGUE}: standby", "")
        return f"{OBJECTS} of {OBJECTS} objects" in standby

    wait_until(filled, timeout_s=110.0, what="all objects in the standby")


def test_an_edge_answers_all_photos_after_its_cloud_was_killed_during_a_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
                    announcement = tmp_path / name / "tiers" / f"edge-{name}.json"
                    endpoint = json.loads(announcement.read_text())["endpoint"]
                    WarmUp(endpoint, CATALOGUE).load_catalogue()
                    wait_for_standby(endpoint)

            return on_stage_with_standby, on_tally

    monkeypatch.setattr(run, "LiveView", StandbyFirst)
    demo = run.run_demo(SMALL, tmp_path)
    results = {one.name: one.metrics for one in demo.results}
    before, after = results[EDGE_CACHE], results[ALONE]
    assert after.answered == after.requests > 0
    assert set(after.answered_by) == {"edge"}
    assert after.wrong == 0
    assert before.recall is not None
    assert after.recall is not None
    assert after.recall >= 0.9 * before.recall
