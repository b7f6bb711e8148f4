"""One node's view of the cluster, and when the node counts as synchronised."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.routing.cluster_view import ClusterView, View

A, B, C = (NodeId(number) for number in range(1, 4))


@given(
    st.dictionaries(st.integers(1, 2**64 - 1).map(NodeId), st.integers(1, 2**64 - 1), min_size=2, max_size=6)
)
def test_nodes_with_the_same_members_have_the_same_view(incarnations: dict[NodeId, int]) -> None:
    views = {View.of(own, incarnations[own], incarnations.items()).digest for own in incarnations}
    assert len(views) == 1


def test_views_differ_by_nodes_and_by_restarts() -> None:
    views = [View.of(A, 1, ()), View.of(A, 2, ()), View.of(A, 1, [(B, 1)]), View.of(A, 1, [(B, 2)])]
    assert len({view.digest for view in views}) == len(views)


def test_a_node_is_synchronised_once_all_others_reported_completion_for_its_view() -> None:
    alone, two, three = View.of(A, 1, ()), View.of(A, 1, [(B, 1)]), View.of(A, 1, [(B, 1), (C, 1)])
    cluster = ClusterView(A, alone)
    assert cluster.synchronised(alone.digest)
    cluster.update(three)
    assert not cluster.synchronised(three.digest) and set(cluster.missing()) == {B, C}
    cluster.complete(B, three.digest)
    cluster.complete(C, two.digest)
    assert cluster.missing() == (C,)
    cluster.complete(C, three.digest)
    assert cluster.synchronised(three.digest) and not cluster.synchronised(two.digest)
    cluster.discard_reports()
    assert not cluster.synchronised(three.digest)


def test_a_completion_may_arrive_before_its_node_is_a_member() -> None:
    two = View.of(A, 1, [(B, 1)])
    cluster = ClusterView(A, View.of(A, 1, ()))
    cluster.complete(B, two.digest)
    cluster.update(two)
    assert cluster.synchronised(two.digest)


def test_a_node_that_rejoins_must_report_completion_again() -> None:
    alone, two = View.of(A, 1, ()), View.of(A, 1, [(B, 1)])
    cluster = ClusterView(A, two)
    cluster.complete(B, two.digest)
    cluster.update(alone)
    cluster.update(two)
    assert not cluster.synchronised(two.digest)


def test_completions_of_unknown_nodes_are_bounded() -> None:
    cluster = ClusterView(A, View.of(A, 1, [(B, 1)]))
    for number in range(10_000):
        cluster.complete(NodeId(100 + number), 1)
    assert len(cluster._completed) <= 4096
    cluster.complete(B, cluster.view.digest)
    assert cluster.synchronised(cluster.view.digest)
