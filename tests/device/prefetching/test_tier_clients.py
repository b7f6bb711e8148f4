"""The catalogue of several tiers: the nearest one that answers is used."""

from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from nearsight.common.background.futures import failed
from nearsight.common.catalogue.answers import models_of
from nearsight.common.clock import ManualClock
from nearsight.common.errors import DeadlineExceeded, NotFound, Unavailable
from nearsight.common.rpc.client import Channel, Reply
from nearsight.common.rpc.settings import ChannelSettings
from nearsight.device.prefetching.tier_clients import CatalogueClient, EdgeClient, TierCatalogues
from support.gallery import exhibit_models
from support.predicting_edge import PredictingEdge
from support.waiting import LONG_S


class Scene:
    """An edge and a cloud; the edge may stop."""

    def __init__(self) -> None:
        self.edge = PredictingEdge(exhibit_models(2))
        self.cloud = PredictingEdge(exhibit_models(2), tier="cloud")
        self.clock = ManualClock()
        rules = ChannelSettings(connect_grace_s=0.05)
        self.clients = [
            EdgeClient(Channel(self.edge.endpoint, client_id="phone", settings=rules), "museum"),
            CatalogueClient(Channel(self.cloud.endpoint, client_id="phone", settings=rules), "museum"),
        ]
        self.tiers = TierCatalogues(self.clients, self.clock)

    def fetch(self) -> str:
        """Fetch a model; returns the tier that gave it."""
        reply = self.tiers.get_models("museum", ["exhibit-1"], LONG_S).result(LONG_S)
        assert len(models_of(reply, ["exhibit-1"]).models) == 1
        return reply.hops[-1].tier

    def stop(self) -> None:
        for client in self.clients:
            client.close()
        self.edge.stop()
        self.cloud.stop()


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.stop()


def test_the_nearest_tier_is_asked_first(scene: Scene) -> None:
    assert scene.fetch() == "edge"
    assert set(scene.tiers.list_objects(LONG_S).result(LONG_S).versions) == {"exhibit-0", "exhibit-1"}
    assert scene.tiers.get_revision(LONG_S).result(LONG_S) == 1
    assert scene.cloud.fetched == []


def test_after_a_failure_the_next_tier_is_asked_first_for_some_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def late(*question: object) -> Future[Reply]:
        asked.append(question)
        return failed(DeadlineExceeded("no answer"))

    with monkeypatch.context() as patch:
        patch.setattr(scene.clients[0], "get_models", late)
        assert [scene.fetch(), scene.fetch()] == ["cloud", "cloud"]
    assert len(asked) == 1
    scene.clock.advance(10.0)
    assert scene.fetch() == "edge"


def test_without_an_answer_the_last_error_is_raised(scene: Scene) -> None:
    scene.edge.stop()
    scene.cloud.stop()
    with pytest.raises(Unavailable):
        scene.fetch()


def test_after_a_refusal_no_other_tier_is_asked(scene: Scene) -> None:
    def refuse(*_: object) -> Future[Reply]:
        return failed(NotFound("no such catalogue"))

    scene.clients[0].get_models = refuse  # type: ignore[method-assign]
    with pytest.raises(NotFound):
        scene.fetch()
    assert scene.cloud.fetched == []
