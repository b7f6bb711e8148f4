"""One of several devices fetches a model from a tier, and the others wait for it; but not for ever."""

from __future__ import annotations

from support.model_source import (
    FIRST,
    RIGHT,
    RULES,
    SECOND,
    Scene,
    model_in,
    reply,
)
from support.objects import same_model

FOREVER_MS = 2**32 - 1


def test_who_holds_the_claim_asks_the_tier(scene: Scene) -> None:
    result = scene.ask()
    assert scene.claims == [True]
    scene.store_says()
    scene.tier_says(RIGHT)
    assert same_model(model_in(result), RIGHT)
    assert scene.account.edge_models == 1
    assert scene.source.came_from_tier("a")


def test_who_does_not_hold_it_waits_and_gets_it_from_the_one_who_fetched_it(scene: Scene) -> None:
    result = scene.ask()
    scene.store_says(wait_ms=5000)
    for _ in range(3):
        assert scene.tier == []
        scene.background.advance(RULES.poll_s)
        scene.store_says(wait_ms=4000)
    scene.background.advance(RULES.poll_s)
    scene.holders(FIRST)
    scene.peer_says(reply(RIGHT))
    assert result.done()
    account = scene.account
    assert (account.waited, account.waited_in_vain, account.peer_models) == (1, 0, 1)


def test_a_claim_without_end_does_not_hold_up_for_longer_than_patience(scene: Scene) -> None:
    scene.ask()
    started_s = scene.clock.monotonic()
    while scene.claims[-1]:
        scene.store_says(wait_ms=FOREVER_MS)
        scene.background.advance(RULES.poll_s)
    assert scene.clock.monotonic() - started_s <= RULES.patience_s + 2 * RULES.poll_s
    assert scene.account.waited_in_vain == 1
    scene.store_says()
    scene.tier_says(RIGHT)
    scene.ask()
    scene.store_says(wait_ms=FOREVER_MS)  # by the same node: not believed again, for a while
    scene.store_says()
    assert len(scene.tier) == 2
    scene.tier_says(RIGHT)
    scene.clock.advance(RULES.rest_s)
    scene.ask()
    scene.store_says(wait_ms=FOREVER_MS)
    assert len(scene.tier) == 2


def test_a_node_that_puts_everybody_off_does_not_hide_who_has_a_model(scene: Scene) -> None:
    result = scene.ask()
    while scene.claims[-1]:
        scene.store_says(wait_ms=FOREVER_MS)
        scene.background.advance(RULES.poll_s)
    scene.holders(SECOND)
    scene.peer_says(reply(RIGHT))
    assert same_model(model_in(result), RIGHT)
    assert scene.tier == []


def test_who_claims_nothing_is_not_put_off(scene: Scene) -> None:
    scene.ask()
    while scene.claims[-1]:
        scene.store_says(wait_ms=FOREVER_MS)
        scene.background.advance(RULES.poll_s)
    scene.store_says(wait_ms=FOREVER_MS)
    assert len(scene.tier) == 1
