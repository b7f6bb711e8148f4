"""Which peers are worth asking, and which models a tier vouches for."""

from __future__ import annotations

import pytest

from nearsight.common.catalogue_answers import Listing
from nearsight.common.recognition.digest import DIGEST_BYTES
from nearsight.device.cooperation.rules import CooperationRules
from nearsight.device.cooperation.standing import PeerStanding
from nearsight.device.cooperation.vouchers import Voucher, Vouchers
from nearsight.device.peers.node_id import NodeId
from nearsight.protos.catalogue_pb2 import ObjectSummary

RULES = CooperationRules(rest_s=5.0, longest_rest_s=60.0)
NODE, OTHER = NodeId(1), NodeId(2)
DIGEST = bytes(range(DIGEST_BYTES))


@pytest.fixture
def standing() -> PeerStanding:
    return PeerStanding(RULES)


def test_a_peer_that_fails_again_and_again_rests_longer_and_longer(standing: PeerStanding) -> None:
    now_s = -1000.0  # clocks may start anywhere
    for expected_s in (5.0, 10.0, 20.0, 40.0, 60.0, 60.0):
        assert standing.may_be_asked(NODE, now_s)
        standing.failed(NODE, now_s)
        assert not standing.may_be_asked(NODE, now_s + expected_s - 0.1)
        assert standing.may_be_asked(OTHER, now_s)
        now_s += expected_s
    assert standing.may_be_asked(NODE, now_s)


def test_an_answer_makes_good_for_failures(standing: PeerStanding) -> None:
    for _ in range(5):
        standing.failed(NODE, 0.0)
    standing.answered(NODE)
    assert standing.may_be_asked(NODE, 0.0)
    standing.failed(NODE, 0.0)
    assert standing.may_be_asked(NODE, 5.0)


def test_no_answer_makes_good_for_a_lie(standing: PeerStanding) -> None:
    standing.lied(NODE, "a", DIGEST)
    standing.answered(NODE)
    assert not standing.may_be_asked(NODE, 1e9)
    assert standing.liars == (NODE,)
    standing.forgive(lambda object_id, digest: (object_id, digest) != ("a", DIGEST))
    assert standing.liars == (NODE,)
    standing.forgive(lambda object_id, digest: (object_id, digest) == ("a", DIGEST))
    assert standing.may_be_asked(NODE, 0.0)


def test_what_is_remembered_of_strangers_is_bounded(standing: PeerStanding) -> None:
    for number in range(1, 20_000):
        standing.failed(NodeId(number), 0.0)
        standing.lied(NodeId(number), "a", DIGEST)
    assert len(standing.liars) <= 5000
    assert not standing.may_be_asked(NodeId(19_999), 0.0)


def test_only_what_has_a_digest_is_vouched_for() -> None:
    entries = (
        ObjectSummary(object_id="a", version=3, model_digest=DIGEST),
        ObjectSummary(object_id="b", version=1),
        ObjectSummary(object_id="c", version=1, model_digest=DIGEST[:-1]),
    )
    vouchers = Vouchers()
    assert (vouchers.listed, vouchers.of("a"), vouchers.object_ids, vouchers.revision) == (False, None, (), 0)
    vouchers.update(Listing({"a": 3, "b": 1, "c": 1}, 9, entries))
    assert vouchers.of("a") == Voucher(3, DIGEST)
    assert (vouchers.of("b"), vouchers.of("c"), vouchers.of("x")) == (None, None, None)
    assert (vouchers.object_ids, vouchers.revision) == (("a", "b", "c"), 9)
