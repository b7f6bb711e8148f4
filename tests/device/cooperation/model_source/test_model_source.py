"""Peers first, then a tier: where a model comes from, and that this is counted."""

from __future__ import annotations

import pytest

from nearsight.common.catalogue.answers import models_of
from nearsight.common.errors import Unavailable
from nearsight.protos.catalogue_pb2 import GetObjectModelsResponse
from support.model_source import (
    FIRST,
    RIGHT,
    SECOND,
    Scene,
    model_in,
    reply,
)
from support.objects import same_model


def test_a_peer_is_asked_before_a_tier(scene: Scene) -> None:
    result = scene.ask()
    scene.holders(SECOND)
    assert [node for node, _ in scene.calls] == [SECOND]
    scene.peer_says(reply(RIGHT))
    assert same_model(model_in(result), RIGHT)
    assert scene.tier == []
    account = scene.account
    assert (account.peer_models, account.peer_bytes, account.edge_models) == (1, 4000, 0)
    assert not scene.source.came_from_tier("a")


def test_what_a_peer_says_of_the_catalogue_is_not_passed_on(scene: Scene) -> None:
    result = scene.ask()
    scene.holders(SECOND)
    answer = reply(RIGHT)
    assert isinstance(answer.message, GetObjectModelsResponse)
    answer.message.missing.append("b")
    answer.message.left_out.append("a")
    scene.peer_says(answer)
    fetched = models_of(result.result(0), ["a"])
    assert (fetched.revision, fetched.missing, fetched.left_out) == (5, (), ())


def test_a_model_that_is_asked_for_again_meanwhile_is_not_looked_for_twice(scene: Scene) -> None:
    first, second = scene.ask(), scene.ask()
    scene.store_says()
    assert (len(scene.reads), len(scene.tier)) == (1, 1)
    scene.tier_says(RIGHT)
    assert first.result(0) is second.result(0)
    scene.ask()
    assert len(scene.reads) == 2
    scene.store_says()
    again = scene.ask()
    scene.tier[-1].set_exception(Unavailable("gone"))
    with pytest.raises(Unavailable):
        again.result(0)


def test_alone_the_store_is_not_asked(scene: Scene) -> None:
    scene.neighbours = []
    scene.ask()
    assert scene.reads == []
    assert len(scene.tier) == 1


@pytest.mark.parametrize("tier", ["edge", "cloud"])
def test_models_are_counted_by_the_tier_that_they_came_from(scene: Scene, tier: str) -> None:
    scene.ask()
    scene.store_says()
    scene.tier_says(RIGHT, tier)
    account = scene.account
    assert (account.edge_models, account.cloud_models) == ((1, 0) if tier == "edge" else (0, 1))
    assert account.edge_bytes + account.cloud_bytes == 4000


def test_it_is_known_whether_the_last_model_of_an_object_came_from_a_tier(scene: Scene) -> None:
    assert not scene.source.came_from_tier("a")
    scene.ask()
    scene.store_says()
    scene.tier_says(RIGHT)
    assert scene.source.came_from_tier("a")
    scene.ask()
    scene.holders(FIRST)
    scene.peer_says(reply(RIGHT))
    assert not scene.source.came_from_tier("a")
