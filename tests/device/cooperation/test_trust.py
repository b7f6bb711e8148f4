"""The reputation of peers, and digests of models by a tier."""

import pytest

from nearsight.common.catalogue.answers import Listing
from nearsight.common.recognition.codec import DIGEST_BYTES
from nearsight.device.cooperation.trust import ModelDigest, ModelDigests, PeerReputation
from nearsight.device.peers.presence.identity import NodeId
from nearsight.protos.catalogue_pb2 import ObjectSummary

NODE, OTHER = NodeId(1), NodeId(2)
DIGEST = bytes(range(DIGEST_BYTES))


@pytest.fixture
def reputation() -> PeerReputation:
    return PeerReputation()


def test_a_failing_peer_is_avoided_for_growing_times(reputation: PeerReputation) -> None:
    now_s = -1000.0  # clocks may start anywhere
    for expected_s in (5.0, 10.0, 20.0, 40.0, 80.0, 120.0, 120.0):
        assert reputation.may_be_asked(NODE, now_s)
        reputation.failed(NODE, now_s)
        assert not reputation.may_be_asked(NODE, now_s + expected_s - 0.1)
        assert reputation.may_be_asked(OTHER, now_s)
        now_s += expected_s
    assert reputation.may_be_asked(NODE, now_s)


def test_an_answer_resets_failures(reputation: PeerReputation) -> None:
    for _ in range(5):
        reputation.failed(NODE, 0.0)
    reputation.answered(NODE)
    assert reputation.may_be_asked(NODE, 0.0)
    reputation.failed(NODE, 0.0)
    assert reputation.may_be_asked(NODE, 5.0)


def test_an_answer_does_not_restore_trust_after_a_wrong_model(reputation: PeerReputation) -> None:
    reputation.distrust(NODE, "a", DIGEST)
    reputation.answered(NODE)
    assert not reputation.may_be_asked(NODE, 1e9)
    assert reputation.distrusted == (NODE,)


def test_memory_for_peers_is_bounded(reputation: PeerReputation) -> None:
    for number in range(1, 20_000):
        reputation.failed(NodeId(number), 0.0)
        reputation.distrust(NodeId(number), "a", DIGEST)
    assert len(reputation.distrusted) <= 5000
    assert not reputation.may_be_asked(NodeId(19_999), 0.0)


def test_only_listed_objects_with_a_digest_are_verified() -> None:
    entries = (
        ObjectSummary(object_id="a", version=3, model_digest=DIGEST),
        ObjectSummary(object_id="b", version=1),
        ObjectSummary(object_id="c", version=1, model_digest=DIGEST[:-1]),
    )
    digests = ModelDigests()
    assert (digests.listed, digests.of("a"), digests.object_ids, digests.revision) == (False, None, (), 0)
    digests.update(Listing({"a": 3, "b": 1, "c": 1}, 9, entries))
    assert digests.of("a") == ModelDigest(3, DIGEST)
    assert (digests.of("b"), digests.of("c"), digests.of("x")) == (None, None, None)
    assert (digests.object_ids, digests.revision) == (("a", "b", "c"), 9)
