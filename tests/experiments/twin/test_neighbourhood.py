"""Devices of the twin that share models."""

from pathlib import Path

import pytest

from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.traces.plan import PlannedPhoto
from nearsight.experiments.twin.cost_model import CostModel
from nearsight.experiments.twin.photos import TwinPhoto
from nearsight.experiments.twin.session import ADAPTIVE, COOPERATIVE, TwinOutcome, TwinSession, TwinVisitor

_IDS = [f"{number + 1:04d}" for number in range(12)]


def _session(devices: int, edges: int = 1) -> TwinSession:
    """All devices walk past the same objects, one behind the other, two seconds before each."""
    photos = {name: TwinPhoto(name, 30_000, 200.0, at_second_look=True) for name in _IDS}
    visitors = [
        TwinVisitor(
            f"v{number}",
            [
                (PlannedPhoto(number * 2.0 + second, name, Path("p")), photos[name])
                for second, name in enumerate(name for name in _IDS for _ in range(3))
            ],
            number % edges,
        )
        for number in range(devices)
    ]
    transitions = [(f"before-{walk}", name) for walk in range(20) for name in _IDS]
    return TwinSession(_IDS, visitors, CostModel.assumed(), LinkShape(rtt_ms=30.0), transitions, edges=edges)


@pytest.fixture(scope="module")
def shared() -> TwinOutcome:
    return _session(4).play(COOPERATIVE)


def test_devices_fetch_most_models_from_peers(shared: TwinOutcome) -> None:
    assert shared.models["peer_models"] > 2 * shared.models["edge_models"] > 0
    assert shared.models["served_models"] == shared.models["peer_models"]


def test_about_one_of_the_peers_fetches_each_model_from_the_edge(shared: TwinOutcome) -> None:
    assert shared.models["edge_models"] <= len(_IDS) + 2


def test_models_of_peers_pass_their_check(shared: TwinOutcome) -> None:
    assert shared.models["rejected_models"] == 0
    assert shared.models["silent_peers"] == 0


def test_sharing_does_not_change_the_share_of_local_hits(shared: TwinOutcome) -> None:
    alone = _session(4).play(ADAPTIVE)
    shares = [sum(row.answered_by == "device" for row in one.rows) for one in (alone, shared)]
    assert shares[1] == pytest.approx(shares[0], abs=0.1 * len(shared.rows))
    assert alone.models == {}


def test_a_single_device_fetches_its_models_from_the_edge() -> None:
    outcome = _session(1).play(COOPERATIVE)
    assert outcome.models["peer_models"] == 0
    assert outcome.models["edge_models"] > 0


def test_only_devices_at_the_same_edge_share_models() -> None:
    outcome = _session(2, edges=2).play(COOPERATIVE)
    assert outcome.models["peer_models"] == 0


def test_the_same_seed_gives_the_same_run(shared: TwinOutcome) -> None:
    assert _session(4).play(COOPERATIVE).rows == shared.rows
