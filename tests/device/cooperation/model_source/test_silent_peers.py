"""Peers, stores and tiers that do not answer: what that costs."""

from __future__ import annotations

import pytest

from nearsight.common.errors import Unavailable
from nearsight.common.rpc.client import Reply
from nearsight.protos.catalogue_pb2 import GetObjectModelsResponse
from support.model_source import (
    FIRST,
    RIGHT,
    RULES,
    SECOND,
    THIRD,
    Scene,
    listing,
    reply,
)


def test_a_peer_that_never_answers_costs_a_short_time_once(scene: Scene) -> None:
    scene.ask()
    scene.holders(FIRST)
    scene.background.advance(RULES.model_timeout_s)
    assert len(scene.tier) == 1
    scene.tier_says(RIGHT)
    scene.ask()
    scene.holders(FIRST)
    assert (len(scene.calls), len(scene.tier)) == (1, 2)
    scene.tier_says(RIGHT)
    scene.background.advance(RULES.rest_s)
    scene.ask()
    scene.holders(FIRST)
    assert len(scene.calls) == 2
    assert scene.account.silent_peers == 1


def test_an_answer_that_comes_too_late_changes_nothing(scene: Scene) -> None:
    result = scene.ask()
    scene.holders(FIRST)
    scene.background.advance(RULES.model_timeout_s)
    scene.peer_says(reply(RIGHT))
    assert not result.done()
    scene.tier_says(RIGHT)
    assert result.done()


def test_not_more_than_a_few_holders_are_asked(scene: Scene) -> None:
    scene.ask()
    scene.holders(FIRST, SECOND, THIRD)
    for _ in range(RULES.holders_asked):
        scene.peer_says(Unavailable("gone"))
    assert len(scene.calls) == RULES.holders_asked
    assert len(scene.tier) == 1


def test_a_holder_that_let_the_model_go_is_not_blamed(scene: Scene) -> None:
    scene.ask()
    scene.holders(FIRST)
    scene.peer_says(Reply(GetObjectModelsResponse(missing=["a"]), (), (), 10, 20))
    assert len(scene.tier) == 1
    account = scene.account
    assert (account.silent_peers, account.rejected_models, scene.source.liars) == (0, 0, ())


def test_a_store_that_fails_or_is_silent_leads_to_the_tier(scene: Scene) -> None:
    scene.ask()
    scene.reads[-1].set_exception(Unavailable("gone"))
    scene.background.run()
    assert len(scene.tier) == 1
    scene.tier_says(RIGHT)
    scene.ask()
    scene.background.advance(RULES.read_timeout_s)
    assert len(scene.tier) == 2


def test_however_little_time_there_is_some_is_left_for_the_tier(scene: Scene) -> None:
    scene.source.get_models("museum", ["a"], 1.0)
    started_s = scene.clock.monotonic()
    scene.background.run()
    scene.background.advance(0.1)
    scene.holders(FIRST, SECOND)
    scene.background.advance(0.4)
    assert len(scene.calls) == RULES.holders_asked
    assert len(scene.tier) == 1
    assert scene.clock.monotonic() - started_s < 0.6


def test_a_search_waits_for_the_first_listing_but_not_for_ever() -> None:
    scene = Scene(listed=False)
    scene.ask()
    scene.background.advance(0.5)
    assert (scene.reads, scene.tier) == ([], [])
    scene.digests.update(listing(RIGHT))
    scene.background.advance(RULES.poll_s)
    assert len(scene.reads) == 1
    unlisted = Scene(listed=False)
    unlisted.ask()
    unlisted.background.advance(RULES.patience_s + RULES.poll_s)
    assert len(unlisted.tier) == 1


def test_the_failure_of_the_tier_is_the_failure_of_the_search(scene: Scene) -> None:
    result = scene.ask()
    scene.store_says()
    scene.tier[-1].set_exception(Unavailable("gone"))
    with pytest.raises(Unavailable):
        result.result(0)
