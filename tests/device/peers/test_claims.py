"""Devices that miss the same key at once fetch it once."""

from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.store.shared_store import Claims

A, B, C = map(NodeId, (1, 2, 3))


def test_the_first_produces_and_the_others_wait_for_what_is_left_of_its_lease() -> None:
    claims = Claims(lease_s=5.0)
    assert claims.claim("model", A, 0.0) == 0
    assert claims.claim("model", B, 2.0) == 3.0
    assert claims.claim("other", B, 2.0) == 0


def test_who_has_the_claim_keeps_it_but_not_for_longer() -> None:
    claims = Claims(lease_s=5.0)
    claims.claim("model", A, 0.0)
    assert claims.claim("model", A, 4.0) == 0
    assert claims.claim("model", B, 4.0) == 1.0


def test_if_it_is_not_delivered_in_time_the_next_that_asks_produces_it() -> None:
    claims = Claims(lease_s=5.0)
    claims.claim("model", A, 0.0)
    assert claims.claim("model", B, 5.0) == 0
    assert claims.claim("model", A, 5.0) == 5.0


def test_nobody_waits_for_what_was_delivered() -> None:
    claims = Claims(lease_s=5.0)
    claims.claim("model", A, 0.0)
    claims.delivered("model")
    claims.delivered("never claimed")
    assert claims.claim("model", B, 1.0) == 0


def test_the_claims_of_a_node_end_when_it_goes() -> None:
    claims = Claims(lease_s=5.0)
    claims.claim("model", A, 0.0)
    claims.claim("other", B, 0.0)
    claims.gone(A)
    assert claims.claim("model", C, 1.0) == 0
    assert claims.claim("other", C, 1.0) == 4.0


def test_claims_are_bounded() -> None:
    claims = Claims(lease_s=5.0, max_claims=3)
    for number in range(10):
        claims.claim(f"model {number}", A, 0.0)
    assert len(claims) == 3
    assert claims.claim("model 9", B, 0.0) == 5.0
