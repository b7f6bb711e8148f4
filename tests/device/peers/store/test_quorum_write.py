"""Writes: which nodes receive them, and when they are complete."""

from __future__ import annotations

import pytest

from nearsight.common.errors import InvalidArgument, Unavailable
from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.store.quorum_write import WritePlan

A, B, C, D = (NodeId(number) for number in range(1, 5))
GONE = Unavailable("gone")
REFUSED = InvalidArgument("too large")


def test_a_write_is_done_when_all_replicas_accepted_it() -> None:
    write = WritePlan((A, B, C), replicas=2)
    assert write.begin() == (A, B)
    assert write.accepted(B) == ()
    assert not write.done and write.outstanding == {A}
    assert write.accepted(A) == ()
    assert write.done and write.lacking((A, B, C)) == ()
    write.check((A, B, C))


def test_a_node_that_fails_is_replaced_by_the_next() -> None:
    write = WritePlan((A, B, C, D), replicas=2)
    write.begin()
    assert write.failed(A, GONE) == (C,)
    assert write.failed(C, GONE) == (D,)
    write.accepted(B)
    write.accepted(D)
    assert write.done
    write.check((B, D))


def test_a_write_needs_at_least_one_replica() -> None:
    write = WritePlan((A,), replicas=3)
    assert write.begin() == (A,)
    write.accepted(A)
    assert write.done
    write.check((A,))
    write = WritePlan((A, B), replicas=2)
    write.begin()
    write.failed(A, GONE)
    write.failed(B, GONE)
    assert write.done
    with pytest.raises(Unavailable):
        write.check((A, B))


def test_a_refusal_is_an_error_only_if_no_replica_accepted() -> None:
    write = WritePlan((A, B, C), replicas=2)
    write.begin()
    assert write.refused(A, REFUSED) == ()
    assert write.accepted(B) == ()
    assert write.done and write.lacking((A, B, C)) == ()
    write.check((A, B, C))
    write = WritePlan((A, B, C), replicas=2)
    write.begin()
    write.refused(A, REFUSED)
    assert write.failed(B, GONE) == (C,)
    write.failed(C, GONE)
    with pytest.raises(InvalidArgument):
        write.check((A, B, C))


def test_a_replica_that_failed_and_is_still_a_member_gets_the_write_again() -> None:
    write = WritePlan((A, B, C), replicas=2)
    write.begin()
    assert write.failed(A, GONE) == (C,)
    write.accepted(B)
    write.accepted(C)
    assert write.done and write.lacking((A, B, C)) == (A,)
    assert write.lacking((B, C)) == ()  # A left
    write.repeat((A,))
    assert not write.done
    assert write.accepted(A) == ()
    assert write.done and write.lacking((A, B, C)) == ()


def test_a_write_accepted_only_by_other_nodes_fails() -> None:
    write = WritePlan((A, B, C), replicas=2)
    write.begin()
    write.failed(A, GONE)
    write.failed(B, GONE)
    write.accepted(C)
    assert write.done
    with pytest.raises(Unavailable):
        write.check((A, B, C))
    write.check((B, C))  # A left
