"""Offers of hand-overs: which entries a node offers after changes of the membership, so that none is lost."""

from __future__ import annotations

import random
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.routing.cluster_view import rank
from nearsight.device.peers.store.handover import Members, Offers

OWN, REPLICAS = NodeId(1), 2
KEYS = tuple(f"model/museum/{number:04}/1" for number in range(200))


def nodes(*numbers: int) -> frozenset[NodeId]:
    return frozenset(map(NodeId, numbers))


def replicas(key: str, members: Iterable[NodeId], count: int = REPLICAS) -> tuple[NodeId, ...]:
    return rank(key, tuple(members))[:count]


def held_by(node: NodeId, members: frozenset[NodeId]) -> list[str]:
    return [key for key in KEYS if node in replicas(key, members)]


def changed(before: frozenset[NodeId], after: frozenset[NodeId]) -> Members:
    return Members(before | after, before & after)


def offers(before: frozenset[NodeId], after: frozenset[NodeId], keys: Iterable[str]) -> Offers:
    return changed(before, after).offers(OWN, keys, after, REPLICAS)


def test_a_node_that_joins_is_offered_the_keys_of_which_it_is_a_replica() -> None:
    before, after = nodes(1, 2, 3), nodes(1, 2, 3, 4)
    mine = held_by(OWN, before)
    found = offers(before, after, mine)
    assert set(found[NodeId(4)]) == {key for key in mine if NodeId(4) in replicas(key, after)}
    for node in nodes(2, 3) & found.keys():
        assert not any(OWN in replicas(key, after) for key in found[node])


def test_when_a_node_leaves_only_its_keys_are_offered_to_the_new_replicas() -> None:
    before, after = nodes(1, 2, 3, 4), nodes(1, 2, 3)
    mine = held_by(OWN, before)
    found = offers(before, after, mine)
    for node in nodes(2, 3):
        moved = {key for key in mine if node in replicas(key, after) and node not in replicas(key, before)}
        assert set(found[node]) == moved


def test_a_node_that_leaves_offers_all_and_first_entries_that_would_be_lost() -> None:
    before, after = nodes(1, 2, 3, 4), nodes(2, 3, 4)
    found = offers(before, after, held_by(OWN, before))
    for node in after:
        fresh = [node not in replicas(key, before) for key in found[node]]
        assert fresh == sorted(fresh, reverse=True)
    for key in held_by(OWN, before):
        assert {node for node, keys in found.items() if key in keys} == set(replicas(key, after))


def test_the_last_node_has_no_receiver() -> None:
    for after in (nodes(), nodes(1)):
        assert not offers(nodes(1, 2), after, KEYS)


def test_without_known_members_everything_is_offered_to_all_replicas() -> None:
    after = nodes(1, 2, 3)
    found = Members().offers(OWN, KEYS, after, REPLICAS)
    unsure = changed(after, after).offers(OWN, KEYS, after, REPLICAS, KEYS)
    for node in nodes(2, 3):
        assert set(found[node]) == set(unsure[node]) == set(held_by(node, after))


class Group:
    """Nodes that hold keys and hand them over; a step may deliver part of the offers."""

    def __init__(self, count: int, keys: tuple[str, ...]) -> None:
        self.keys = keys
        start = nodes(*range(1, count + 1))
        self.held = {node: {key for key in keys if node in replicas(key, start)} for node in start}
        self.members = {node: changed(start, start) for node in start}
        self.unsure: dict[NodeId, set[str]] = {node: set() for node in start}

    def change(self, node: NodeId) -> None:
        """The node joins if it is no member; else it dies."""
        before = frozenset(self.held)
        if node in self.held:
            del self.held[node], self.members[node], self.unsure[node]
        else:
            self.held[node], self.members[node], self.unsure[node] = set(), Members(), set()
        seen = changed(before, frozenset(self.held))
        self.members = {each: known.combined_with(seen) for each, known in self.members.items()}

    def offers(self, giver: NodeId, after: frozenset[NodeId] | None = None) -> Offers:
        after = frozenset(self.held) if after is None else after
        return self.members[giver].offers(giver, self.held[giver], after, REPLICAS, self.unsure[giver])

    def deliver(self, giver: NodeId, part: int | None) -> None:
        """One node hands over some or all of its offers; after all, it drops what others should hold."""
        for receiver, keys in self.offers(giver).items():
            self.held[receiver] |= set(keys[:part])
        if part is None:
            now = frozenset(self.held)
            self.members[giver] = changed(now, now)
            self.unsure[giver].clear()
            self.held[giver] = {key for key in self.held[giver] if giver in replicas(key, now)}

    def finish(self) -> None:
        for giver in self.held:
            self.deliver(giver, None)

    def deliver_some(self, rng: random.Random) -> None:
        for giver in rng.sample(sorted(self.held), rng.randint(0, len(self.held))):
            self.deliver(giver, rng.randint(0, 5))

    def check_all_replicas_hold_their_keys(self) -> None:
        for key in self.keys:
            holders = {node for node, held in self.held.items() if key in held}
            assert holders == set(replicas(key, self.held))


@settings(max_examples=60, deadline=None)
@given(st.integers(3, 8), st.lists(st.integers(1, 12).map(NodeId), min_size=1, max_size=10))
def test_after_finished_hand_overs_each_key_is_at_exactly_its_replicas(
    count: int, changes: list[NodeId]
) -> None:
    group = Group(count, KEYS[:40])
    for node in changes:
        if len(group.held) > REPLICAS or node not in group.held:
            group.change(node)
            group.finish()
        group.check_all_replicas_hold_their_keys()


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 6), st.lists(st.integers(1, 12).map(NodeId), max_size=8), st.integers(0, 2**32))
def test_joins_and_clean_departures_during_hand_overs_lose_nothing(
    count: int, changes: list[NodeId], seed: int
) -> None:
    """No node dies, so every key must survive; in the end all keys are at their replicas."""
    rng = random.Random(seed)
    group = Group(count, KEYS[:40])
    for node in changes:
        if node in group.held:
            if len(group.held) == 1:
                continue
            for receiver, keys in group.offers(node, frozenset(group.held) - {node}).items():
                group.held[receiver] |= set(keys)
                group.unsure[receiver] |= set(keys)  # its worker receives these keys as misplaced
        group.change(node)
        group.deliver_some(rng)
        assert set.union(*group.held.values()) == set(group.keys)
    for _ in range(3):
        group.finish()
    group.check_all_replicas_hold_their_keys()


@settings(max_examples=100, deadline=None)
@given(st.integers(3, 6), st.lists(st.booleans(), max_size=5), st.integers(0, 2**32))
def test_a_death_during_unfinished_hand_overs_loses_no_key(
    count: int, finished: list[bool], seed: int
) -> None:
    """Nodes join in quick succession, then one dies: with two replicas nothing is lost."""
    rng = random.Random(seed)
    group = Group(count, KEYS[:40])
    for number, finishes in enumerate(finished):
        group.change(NodeId(20 + number))
        group.finish() if finishes else group.deliver_some(rng)
    group.change(rng.choice(sorted(group.held)))
    assert set.union(*group.held.values()) == set(group.keys)
    for _ in range(3):
        group.finish()
    group.check_all_replicas_hold_their_keys()


@settings(max_examples=100, deadline=None)
@given(st.integers(3, 8), st.integers(1, 3), st.integers(0, 2**32))
def test_nodes_with_different_views_never_drop_the_last_copies(count: int, copies: int, seed: int) -> None:
    rng = random.Random(seed)
    everybody = [NodeId(number) for number in range(1, count + 1)]
    keys = KEYS[:20]
    held = {node: {key for key in keys if rng.random() < 0.6} for node in everybody}
    enough = {key: min(copies, sum(key in mine for mine in held.values())) for key in keys}
    for _ in range(60):
        node = rng.choice(everybody)
        seen = frozenset({node, *rng.sample(everybody, rng.randint(0, count))})
        found = Members().offers(node, held[node], seen, copies)
        reached = rng.sample(sorted(found), rng.randint(0, len(found)))
        for receiver in reached:
            held[receiver] |= set(found[receiver])
        kept = {key for receiver in found.keys() - reached for key in found[receiver]}
        held[node] = {key for key in held[node] if key in kept or node in replicas(key, seen, copies)}
        for key in keys:
            assert sum(key in mine for mine in held.values()) >= enough[key]
