"""Models from peers first, then from a tier: claims, silent peers, wrong models."""

from dataclasses import replace

import pytest

from nearsight.common.catalogue.answers import models_of
from nearsight.common.errors import Unavailable
from nearsight.common.recognition.codec import object_model_to_bytes
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.rpc.client import Reply
from nearsight.device.cooperation.model_source import (
    HOLDERS_ASKED,
    LONGEST_WAIT_S,
    MODEL_TIMEOUT_S,
    POLL_S,
    READ_TIMEOUT_S,
)
from nearsight.device.cooperation.protocol import holder_item, model_item
from nearsight.device.cooperation.trust import BACK_OFF_S, LARGEST_ANSWER_BYTES, LONGEST_BACK_OFF_S
from nearsight.device.peers.presence.identity import NodeId
from nearsight.protos.catalogue_pb2 import GetObjectModelsResponse, ObjectSummary
from support.model_source import FIRST, RIGHT, SECOND, THIRD, Scene, forged, listing, model_in, reply
from support.objects import random_model, same_model


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_peer_is_asked_before_a_tier(scene: Scene) -> None:
    result = scene.ask()
    scene.holders(SECOND)
    assert [node for node, _ in scene.calls] == [SECOND]
    scene.peer_answers(reply(RIGHT))
    assert same_model(model_in(result), RIGHT)
    assert scene.tier == []
    account = scene.account
    assert (account.peer_models, account.peer_bytes, account.edge_models) == (1, 4000, 0)


def test_catalogue_facts_of_peers_are_ignored(scene: Scene) -> None:
    result = scene.ask()
    scene.holders(SECOND)
    answer = reply(RIGHT)
    answer.message.missing.append("b")
    answer.message.left_out.append("a")
    scene.peer_answers(answer)
    fetched = models_of(result.result(0), ["a"])
    assert (fetched.revision, fetched.missing, fetched.left_out) == (5, (), ())


def test_a_model_that_is_asked_for_again_meanwhile_is_not_looked_for_twice(scene: Scene) -> None:
    first, second = scene.ask(), scene.ask()
    scene.store_answers()
    assert (len(scene.reads), len(scene.tier)) == (1, 1)
    scene.tier_answers(RIGHT)
    assert first.result(0) is second.result(0)
    scene.ask()
    assert len(scene.reads) == 2
    scene.store_answers()
    again = scene.ask()
    scene.tier[-1].set_exception(Unavailable("gone"))
    with pytest.raises(Unavailable):
        again.result(0)


def test_without_peers_the_store_is_not_asked(scene: Scene) -> None:
    scene.neighbours = []
    scene.ask()
    assert scene.reads == []
    assert len(scene.tier) == 1


@pytest.mark.parametrize("tier", ["edge", "cloud"])
def test_models_are_counted_by_the_tier_that_they_came_from(scene: Scene, tier: str) -> None:
    scene.ask()
    scene.store_answers()
    scene.tier_answers(RIGHT, tier)
    account = scene.account
    assert (account.edge_models, account.cloud_models) == ((1, 0) if tier == "edge" else (0, 1))
    assert account.edge_bytes + account.cloud_bytes == 4000


def test_the_claim_holder_asks_the_tier_and_records_the_source(
    scene: Scene,
) -> None:
    assert not scene.source.came_from_tier("a")
    result = scene.ask()
    assert scene.claims == [True]
    scene.store_answers()
    scene.tier_answers(RIGHT)
    assert same_model(model_in(result), RIGHT)
    assert scene.source.came_from_tier("a")
    scene.ask()
    scene.holders(FIRST)
    scene.peer_answers(reply(RIGHT))
    assert not scene.source.came_from_tier("a")


FOREVER_MS = 2**32 - 1


def test_without_the_claim_a_device_waits_and_fetches_from_the_claim_holder(scene: Scene) -> None:
    result = scene.ask()
    scene.store_answers(wait_ms=5000)
    for _ in range(3):
        assert scene.tier == []
        scene.background.advance(POLL_S)
        scene.store_answers(wait_ms=4000)
    scene.background.advance(POLL_S)
    scene.holders(FIRST)
    scene.peer_answers(reply(RIGHT))
    assert result.done()
    account = scene.account
    assert (account.waited, account.waited_in_vain, account.peer_models) == (1, 0, 1)


def test_a_claim_without_end_does_not_hold_up_for_longer_than_patience(scene: Scene) -> None:
    scene.ask()
    started_s = scene.clock.monotonic()
    while scene.claims[-1]:
        scene.store_answers(wait_ms=FOREVER_MS)
        scene.background.advance(POLL_S)
    assert scene.clock.monotonic() - started_s <= LONGEST_WAIT_S + 2 * POLL_S
    assert scene.account.waited_in_vain == 1
    scene.store_answers()
    scene.tier_answers(RIGHT)
    scene.ask()
    scene.store_answers(wait_ms=FOREVER_MS)  # by the same node: not believed again, for a while
    scene.store_answers()
    assert len(scene.tier) == 2
    scene.tier_answers(RIGHT)
    scene.clock.advance(BACK_OFF_S)
    scene.ask()
    scene.store_answers(wait_ms=FOREVER_MS)
    assert len(scene.tier) == 2


def test_a_node_that_names_only_useless_holders_after_a_wait_is_not_waited_for_again(scene: Scene) -> None:
    for times in range(2):
        scene.ask()
        scene.store_answers(wait_ms=FOREVER_MS)
        scene.background.advance(POLL_S)
        assert len(scene.tier) == times
        scene.store_answers(b"nonsense")
        scene.tier_answers(RIGHT)
    account = scene.account
    assert (account.waited, account.waited_in_vain) == (1, 1)


def test_a_wait_that_succeeds_ends_the_distrust_of_earlier_ones(scene: Scene) -> None:
    for arrives, pause_s in ((False, 10.0), (False, 10.0), (True, 0.0), (False, BACK_OFF_S)):
        scene.ask()
        scene.store_answers(wait_ms=FOREVER_MS)
        scene.background.advance(POLL_S)
        if arrives:
            scene.holders(FIRST)
            scene.peer_answers(reply(RIGHT))
        else:
            scene.store_answers()
            scene.tier_answers(RIGHT)
        scene.clock.advance(pause_s)
    scene.ask()
    scene.store_answers(wait_ms=FOREVER_MS)
    assert scene.claims[-1], "it does not wait"


def test_a_node_that_delays_all_claims_does_not_hide_holders(scene: Scene) -> None:
    result = scene.ask()
    while scene.claims[-1]:
        scene.store_answers(wait_ms=FOREVER_MS)
        scene.background.advance(POLL_S)
    scene.holders(SECOND)
    scene.peer_answers(reply(RIGHT))
    assert same_model(model_in(result), RIGHT)
    assert scene.tier == []


def test_a_read_without_a_claim_is_not_delayed(scene: Scene) -> None:
    scene.ask()
    while scene.claims[-1]:
        scene.store_answers(wait_ms=FOREVER_MS)
        scene.background.advance(POLL_S)
    scene.store_answers(wait_ms=FOREVER_MS)
    assert len(scene.tier) == 1


def test_a_silent_peer_causes_one_short_delay(scene: Scene) -> None:
    scene.ask()
    scene.holders(FIRST)
    scene.background.advance(MODEL_TIMEOUT_S)
    assert len(scene.tier) == 1
    scene.tier_answers(RIGHT)
    scene.ask()
    scene.holders(FIRST)
    assert (len(scene.calls), len(scene.tier)) == (1, 2)
    scene.tier_answers(RIGHT)
    scene.background.advance(BACK_OFF_S)
    scene.ask()
    scene.holders(FIRST)
    assert len(scene.calls) == 2
    assert scene.account.silent_peers == 1


def test_late_answers_are_ignored(scene: Scene) -> None:
    result = scene.ask()
    scene.holders(FIRST)
    scene.background.advance(MODEL_TIMEOUT_S)
    scene.peer_answers(reply(RIGHT))
    assert not result.done()
    scene.tier_answers(RIGHT)
    assert result.done()


def test_not_more_than_a_few_holders_are_asked(scene: Scene) -> None:
    scene.ask()
    scene.holders(FIRST, SECOND, THIRD)
    for _ in range(HOLDERS_ASKED):
        scene.peer_answers(Unavailable("gone"))
    assert len(scene.calls) == HOLDERS_ASKED
    assert len(scene.tier) == 1


def test_a_holder_that_let_the_model_go_is_not_blamed(scene: Scene) -> None:
    scene.ask()
    scene.holders(FIRST)
    scene.peer_answers(Reply(GetObjectModelsResponse(missing=["a"]), (), (), 10, 20))
    assert len(scene.tier) == 1
    account = scene.account
    assert (account.silent_peers, account.rejected_models, scene.source.distrusted) == (0, 0, ())


def test_a_store_that_fails_or_is_silent_leads_to_the_tier(scene: Scene) -> None:
    scene.ask()
    scene.reads[-1].set_exception(Unavailable("gone"))
    scene.background.run()
    assert len(scene.tier) == 1
    scene.tier_answers(RIGHT)
    scene.ask()
    scene.background.advance(READ_TIMEOUT_S)
    assert len(scene.tier) == 2


def test_time_is_always_left_for_the_tier(scene: Scene) -> None:
    scene.source.get_models("museum", ["a"], 1.0)
    started_s = scene.clock.monotonic()
    scene.background.run()
    scene.background.advance(0.1)
    scene.holders(FIRST, SECOND)
    scene.background.advance(0.4)
    assert len(scene.calls) == HOLDERS_ASKED
    assert len(scene.tier) == 1
    assert scene.clock.monotonic() - started_s < 0.6


def test_a_search_waits_for_the_first_listing_with_a_limit() -> None:
    scene = Scene(listed=False)
    scene.ask()
    scene.background.advance(0.5)
    assert (scene.reads, scene.tier) == ([], [])
    scene.digests.update(listing(RIGHT))
    scene.background.advance(POLL_S)
    assert len(scene.reads) == 1
    unlisted = Scene(listed=False)
    unlisted.ask()
    unlisted.background.advance(LONGEST_WAIT_S + POLL_S)
    assert len(unlisted.tier) == 1


@pytest.mark.parametrize(
    "lie",
    [
        reply(forged(RIGHT)),
        reply(replace(RIGHT, label="another")),
        reply(random_model("b")),
        reply(RIGHT, random_model("b")),
        reply(RIGHT, size_bytes=LARGEST_ANSWER_BYTES + 1),
        replace(reply(RIGHT), blobs=reply(RIGHT).blobs[:-1]),
        replace(reply(RIGHT), blobs=(*reply(RIGHT).blobs[:-1], memoryview(b""))),
        replace(reply(RIGHT), message=ObjectSummary()),
    ],
    ids=["forged", "label", "other object", "two", "huge", "no blob", "truncated", "other message"],
)
def test_a_wrong_model_is_rejected_and_its_peer_not_asked_again(scene: Scene, lie: Reply) -> None:
    result = scene.ask()
    scene.holders(FIRST)
    scene.peer_answers(lie)
    assert not result.done()
    scene.tier_answers(RIGHT)
    assert same_model(model_in(result), RIGHT)
    account = scene.account
    assert (account.rejected_models, account.rejected_bytes) == (1, lie.received_bytes)
    assert scene.source.distrusted == (FIRST,)
    scene.clock.advance(10 * LONGEST_BACK_OFF_S)
    scene.ask()
    scene.holders(FIRST)
    assert len(scene.calls) == 1
    assert len(scene.tier) == 2


def test_after_a_liar_the_next_holder_is_asked(scene: Scene) -> None:
    result = scene.ask()
    scene.holders(FIRST, SECOND)
    liar, _ = scene.calls[0]
    scene.peer_answers(reply(forged(RIGHT)))
    honest, _ = scene.calls[1]
    assert {liar, honest} == {FIRST, SECOND}
    scene.peer_answers(reply(RIGHT))
    assert result.done()
    assert scene.tier == []


def test_another_version_is_refused_without_blame(scene: Scene) -> None:
    scene.ask()
    scene.holders(FIRST)
    scene.peer_answers(reply(replace(RIGHT, version=2)))
    assert len(scene.tier) == 1
    assert scene.source.distrusted == ()
    assert scene.account.rejected_models == 1


@pytest.mark.parametrize("newer", [(replace(RIGHT, version=2),), ()], ids=["replaced", "removed"])
def test_a_model_that_was_replaced_or_removed_during_the_search_is_not_used(
    scene: Scene, newer: tuple[ObjectModel, ...]
) -> None:
    result = scene.ask()
    scene.holders(FIRST)
    scene.digests.update(listing(*newer, revision=6))
    scene.peer_answers(reply(RIGHT))
    assert not result.done()
    assert (len(scene.tier), scene.account.peer_models, scene.source.distrusted) == (1, 0, ())


def test_blame_by_an_outdated_listing_is_withdrawn(scene: Scene) -> None:
    newer = replace(RIGHT, label="made anew")
    scene.ask()
    scene.holders(FIRST)
    scene.peer_answers(reply(newer))
    assert scene.source.distrusted == (FIRST,)
    scene.digests.update(listing(RIGHT, revision=6))
    scene.source.listed()
    scene.background.run()
    assert scene.source.distrusted == (FIRST,)
    scene.digests.update(listing(newer, revision=7))
    scene.source.listed()
    scene.background.run()
    assert scene.source.distrusted == ()


def test_absent_holders_and_invalid_items_are_skipped(scene: Scene) -> None:
    scene.ask()
    scene.store_answers(b"", b"H", b"H" + bytes(8), b"nonsense" * 9, holder_item(NodeId(77)))
    assert scene.calls == []
    assert len(scene.tier) == 1


def test_a_model_stored_directly_is_used_if_its_digest_matches(scene: Scene) -> None:
    result = scene.ask()
    data = object_model_to_bytes(RIGHT)
    wrong = object_model_to_bytes(forged(RIGHT))
    scene.store_answers(model_item(b"nonsense"), model_item(wrong), model_item(data))
    assert same_model(model_in(result), RIGHT)
    account = scene.account
    assert (account.peer_models, account.peer_bytes, account.rejected_models) == (1, len(data), 2)


def test_models_without_a_digest_of_a_tier_are_not_fetched_from_peers(scene: Scene) -> None:
    scene.digests.update(listing(random_model("b")))
    scene.ask()
    assert scene.reads == []
    assert len(scene.tier) == 1
