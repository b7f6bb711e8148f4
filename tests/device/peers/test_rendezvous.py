"""Everybody ranks alike, keys move only with the nodes that they are on, and the load is even."""

import random
import statistics
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.device.peers.presence.identity import NodeId, random_node_id
from nearsight.device.peers.routing.kroute import RendezvousRouter

ROUTER = RendezvousRouter()
NODES = st.frozensets(st.integers(1, 2**64 - 1).map(NodeId), min_size=1, max_size=50)
KEYS = st.text(min_size=1, max_size=30)


@given(KEYS, NODES, st.randoms(use_true_random=False))
def test_the_ranking_is_the_same_in_whatever_order_the_nodes_are_known(
    key: str, nodes: frozenset[NodeId], rng: random.Random
) -> None:
    shuffled = list(nodes)
    rng.shuffle(shuffled)
    ranking = ROUTER.rank(key, shuffled)
    assert ranking == ROUTER.rank(key, nodes)
    assert sorted(ranking) == sorted(nodes)


@given(KEYS, NODES, st.integers(1, 60))
def test_replicas_are_the_first_of_the_ranking(key: str, nodes: frozenset[NodeId], count: int) -> None:
    assert ROUTER.replicas(key, nodes, count) == ROUTER.rank(key, nodes)[:count]


@given(KEYS, NODES, st.data())
def test_a_node_that_leaves_changes_nothing_in_the_order_of_the_others(
    key: str, nodes: frozenset[NodeId], data: st.DataObject
) -> None:
    left = data.draw(st.sampled_from(sorted(nodes)))
    after = ROUTER.rank(key, nodes - {left})
    assert after == tuple(node for node in ROUTER.rank(key, nodes) if node != left)


@given(st.lists(KEYS, max_size=30), NODES, st.integers(1, 2**64 - 1).map(NodeId), st.integers(1, 3))
def test_only_keys_of_the_changed_node_move(
    keys: list[str], nodes: frozenset[NodeId], joined: NodeId, count: int
) -> None:
    for key in keys:
        before, after = (set(ROUTER.replicas(key, there, count)) for there in (nodes, nodes | {joined}))
        if joined not in after:
            assert after == before
        else:
            assert after - {joined} <= before


def test_there_are_no_replicas_without_nodes() -> None:
    assert ROUTER.replicas("key", (), 1) == ROUTER.replicas("key", (), 2) == ()


@pytest.mark.parametrize("numbering", ["random", "in a row"])
def test_the_load_is_even_within_a_few_per_cent_at_50_nodes(numbering: str) -> None:
    rng = random.Random(5)
    nodes = [NodeId(n + 1) if numbering == "in a row" else random_node_id(rng) for n in range(50)]
    keys = 40_000
    load = Counter(ROUTER.replicas(f"model/museum/{number:04}/1", nodes, 1)[0] for number in range(keys))
    mean = keys / 50
    # What chance alone allows: a binomial deviation of 3.5 % of the mean at 800 keys a node.
    assert statistics.pstdev(load[node] for node in nodes) < 0.05 * mean
    assert max(load.values()) < 1.12 * mean
    assert min(load.values()) > 0.88 * mean


def test_the_second_replica_is_spread_as_evenly() -> None:
    nodes = [NodeId(7 * number + 1) for number in range(10)]
    pairs = Counter(ROUTER.replicas(f"key {number}", nodes, 2) for number in range(18_000))
    assert len(pairs) == 90
    assert statistics.pstdev(pairs.values()) < 0.1 * 200


def test_the_ranking_never_changes_from_release_to_release() -> None:
    """Devices of different versions have to agree; these values may only change with the beacon's version."""
    nodes = [NodeId(number) for number in (1, 2, 3, 2**64 - 1)]
    assert ROUTER.rank("model/museum/0001/1", nodes) == (1, 2**64 - 1, 2, 3)
