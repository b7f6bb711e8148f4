"""Every answer that a peer can give: none is believed without a voucher."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nearsight.common.recognition.codec import object_model_to_bytes
from nearsight.common.rpc.client import Reply
from nearsight.device.cooperation.protocol import holder_item, model_item
from nearsight.device.peers.presence.identity import NodeId
from nearsight.protos.catalogue_pb2 import ObjectSummary
from support.model_source import (
    FIRST,
    RIGHT,
    RULES,
    SECOND,
    Scene,
    forged,
    listing,
    model_in,
    reply,
)
from support.objects import random_model, same_model


@pytest.mark.parametrize(
    "lie",
    [
        reply(forged(RIGHT)),
        reply(replace(RIGHT, label="another")),
        reply(random_model("b")),
        reply(RIGHT, random_model("b")),
        reply(RIGHT, size_bytes=RULES.largest_answer_bytes + 1),
        replace(reply(RIGHT), blobs=reply(RIGHT).blobs[:-1]),
        replace(reply(RIGHT), blobs=(*reply(RIGHT).blobs[:-1], memoryview(b""))),
        replace(reply(RIGHT), message=ObjectSummary()),
    ],
    ids=["forged", "label", "other object", "two", "huge", "no blob", "truncated", "other message"],
)
def test_a_wrong_model_is_rejected_and_its_peer_not_asked_again(scene: Scene, lie: Reply) -> None:
    result = scene.ask()
    scene.holders(FIRST)
    scene.peer_says(lie)
    assert not result.done()
    scene.tier_says(RIGHT)
    assert same_model(model_in(result), RIGHT)
    account = scene.account
    assert (account.rejected_models, account.rejected_bytes) == (1, lie.received_bytes)
    assert scene.source.liars == (FIRST,)
    scene.clock.advance(10 * RULES.longest_rest_s)
    scene.ask()
    scene.holders(FIRST)
    assert len(scene.calls) == 1
    assert len(scene.tier) == 2


def test_after_a_liar_the_next_holder_is_asked(scene: Scene) -> None:
    result = scene.ask()
    scene.holders(FIRST, SECOND)
    liar, _ = scene.calls[0]
    scene.peer_says(reply(forged(RIGHT)))
    honest, _ = scene.calls[1]
    assert {liar, honest} == {FIRST, SECOND}
    scene.peer_says(reply(RIGHT))
    assert result.done()
    assert scene.tier == []


def test_another_version_is_not_taken_but_no_lie(scene: Scene) -> None:
    scene.ask()
    scene.holders(FIRST)
    scene.peer_says(reply(replace(RIGHT, version=2)))
    assert len(scene.tier) == 1
    assert scene.source.liars == ()
    assert scene.account.rejected_models == 1


def test_peers_are_forgiven_what_only_an_old_listing_spoke_against(scene: Scene) -> None:
    newer = replace(RIGHT, label="made anew")
    scene.ask()
    scene.holders(FIRST)
    scene.peer_says(reply(newer))
    assert scene.source.liars == (FIRST,)
    scene.digests.update(listing(RIGHT, revision=6))
    scene.source.listed()
    scene.background.run()
    assert scene.source.liars == (FIRST,)
    scene.digests.update(listing(newer, revision=7))
    scene.source.listed()
    scene.background.run()
    assert scene.source.liars == ()


def test_holders_that_are_not_here_and_nonsense_in_the_list_are_passed_over(scene: Scene) -> None:
    scene.ask()
    scene.store_says(b"", b"H", b"H" + bytes(8), b"nonsense" * 9, holder_item(NodeId(77)))
    assert scene.calls == []
    assert len(scene.tier) == 1


def test_a_model_in_the_store_itself_is_taken_if_it_is_the_right_one(scene: Scene) -> None:
    result = scene.ask()
    data = object_model_to_bytes(RIGHT)
    wrong = object_model_to_bytes(forged(RIGHT))
    scene.store_says(model_item(b"nonsense"), model_item(wrong), model_item(data))
    assert same_model(model_in(result), RIGHT)
    account = scene.account
    assert (account.peer_models, account.peer_bytes, account.rejected_models) == (1, len(data), 2)


def test_nothing_is_taken_of_peers_that_no_tier_vouches_for(scene: Scene) -> None:
    scene.digests.update(listing(random_model("b")))
    scene.ask()
    assert scene.reads == []
    assert len(scene.tier) == 1
