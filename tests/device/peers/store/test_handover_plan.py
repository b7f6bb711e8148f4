"""Plans of hand-overs: offers after changes of the membership, and when an entry may be dropped."""

from __future__ import annotations

import random
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.store.handover_plan import HandoverPlan, Placement

OWN = NodeId(1)
KEYS = tuple(f"model/museum/{number:04}/1" for number in range(200))


def among(*nodes: int, count: int = 2) -> Placement:
    return Placement(frozenset(map(NodeId, nodes)), count)


def held_by(node: NodeId, placement: Placement) -> list[str]:
    return [key for key in KEYS if node in placement.replicas(key)]


def following(plan: HandoverPlan, own: NodeId, keys: Iterable[str], after: Placement) -> HandoverPlan:
    """The plan for the next change of the membership, as `HandoverWorker` makes it."""
    before: tuple[Placement, ...] = ()
    if not plan.receivers():
        before = (plan._after,)
    elif plan._before:
        before = (*plan._before, plan._after)
    return HandoverPlan(own, keys, before, after)


def test_a_node_that_joins_is_offered_the_keys_of_which_it_is_a_replica() -> None:
    before, after = among(1, 2, 3), among(1, 2, 3, 4)
    mine = held_by(OWN, before)
    plan = HandoverPlan(OWN, mine, (before,), after)
    assert set(plan.offers(NodeId(4))) >= {key for key in mine if NodeId(4) in after.replicas(key)}
    kept = [key for key in mine if OWN in after.replicas(key)]
    assert not any(key in plan.offers(node) for node in map(NodeId, (2, 3)) for key in kept)


def test_when_a_node_leaves_only_its_keys_are_offered_to_the_new_replicas() -> None:
    before, after = among(1, 2, 3, 4), among(1, 2, 3)
    mine = held_by(OWN, before)
    plan = HandoverPlan(OWN, mine, (before,), after)
    for node in map(NodeId, (2, 3)):
        moved = {key for key in mine if node in after.replicas(key) and node not in before.replicas(key)}
        assert set(plan.offers(node)) == moved
    assert not plan.droppable()


def test_an_entry_is_droppable_when_all_replicas_have_it() -> None:
    before, after = among(1, 2), among(1, 2, 3, 4)
    key = next(key for key in KEYS if OWN not in after.replicas(key))
    plan = HandoverPlan(OWN, [key], (before,), after)
    assert set(plan.receivers()) == set(after.replicas(key))
    for node in after.replicas(key):
        assert not plan.droppable()
        plan.confirmed(node, [key])
    assert plan.droppable() == {key}
    assert not plan.receivers()


def test_a_refused_entry_is_neither_offered_again_nor_dropped() -> None:
    before, after = among(1, 2), among(1, 2, 3, 4)
    key = next(key for key in KEYS if OWN not in after.replicas(key))
    plan = HandoverPlan(OWN, [key], (before,), after)
    first, second = after.replicas(key)
    plan.refused(first, [key])
    plan.confirmed(second, [key])
    assert not plan.receivers()
    assert not plan.droppable()


def test_a_node_that_leaves_first_offers_entries_that_would_be_lost() -> None:
    before, after = among(1, 2, 3), among(2, 3, 4)
    mine = held_by(OWN, before)
    plan = HandoverPlan(OWN, mine, (before,), after)
    for node in map(NodeId, (2, 3)):
        offers = plan.offers(node)
        fresh = [node not in before.replicas(key) for key in offers]
        assert fresh == sorted(fresh, reverse=True)
    for node in plan.receivers():
        plan.confirmed(node, plan.offers(node))
    assert plan.droppable() == set(mine)


def test_the_last_node_has_no_receiver_and_drops_nothing() -> None:
    for after in (among(), among(1)):
        plan = HandoverPlan(OWN, KEYS, (among(1, 2),), after)
        assert not plan.receivers()
        assert not plan.droppable()


def test_without_a_former_membership_everything_is_offered_to_all_replicas() -> None:
    after = among(1, 2, 3)
    plan = HandoverPlan(OWN, KEYS, (), after)
    for node in map(NodeId, (2, 3)):
        assert set(plan.offers(node)) == set(held_by(node, after))


def test_a_plan_after_an_unfinished_one_repeats_its_open_offers() -> None:
    first, second = among(1, 2), among(1, 2, 3)
    plan = HandoverPlan(OWN, KEYS, (first,), second)
    open_for_3 = set(plan.offers(NodeId(3)))
    assert open_for_3
    again = following(plan, OWN, KEYS, among(1, 2, 3, 4))
    third = among(1, 2, 3, 4)
    still = {key for key in open_for_3 if NodeId(3) in third.replicas(key)}
    assert still <= set(again.offers(NodeId(3)))
    for node in plan.receivers():
        plan.confirmed(node, plan.offers(node))
    after_all = following(plan, OWN, held_by(OWN, second), second)
    assert not after_all.receivers()


def test_entries_added_to_a_plan_are_offered_to_all_replicas() -> None:
    after = among(1, 2, 3)
    plan = HandoverPlan(OWN, (), (after,), after)
    assert not plan.receivers()
    mine = next(key for key in KEYS if OWN in after.replicas(key))
    spare = next(key for key in KEYS if OWN not in after.replicas(key))
    plan.add(mine)
    plan.add(spare)
    for node in map(NodeId, (2, 3)):
        assert set(plan.offers(node)) == {key for key in (mine, spare) if node in after.replicas(key)}
        plan.confirmed(node, plan.offers(node))
    assert plan.droppable() == {spare}
    plan.add(spare)
    assert not plan.droppable()


class Group:
    """Nodes that hold keys and hand them over by their plans; a step may deliver part of the open offers."""

    def __init__(self, nodes: int, count: int, keys: tuple[str, ...]) -> None:
        self.count, self.keys = count, keys
        self.held: dict[NodeId, set[str]] = {NodeId(number): set() for number in range(1, nodes + 1)}
        start = self.placement()
        for key in keys:
            for node in start.replicas(key):
                self.held[node].add(key)
        self.plans = {node: HandoverPlan(node, held, (start,), start) for node, held in self.held.items()}

    def placement(self) -> Placement:
        return Placement(frozenset(self.held), self.count)

    def change(self, node: NodeId) -> None:
        """The node joins if it is no member; else it dies."""
        if node in self.held:
            del self.held[node], self.plans[node]
        else:
            self.held[node] = set()
            self.plans[node] = HandoverPlan(node, (), (), self.placement())
        after = self.placement()
        self.plans = {
            each: following(plan, each, self.held[each], after) for each, plan in self.plans.items()
        }

    def deliver(self, giver: NodeId, part: int | None) -> None:
        """One node hands over some or all of its open offers, and drops what is droppable then."""
        plan = self.plans[giver]
        for receiver in plan.receivers():
            keys = plan.offers(receiver)[:part]
            self.held[receiver] |= {key for key in keys if key in self.held[giver]}
            plan.confirmed(receiver, keys)
        droppable = plan.droppable()
        self.held[giver] -= droppable
        plan._droppable -= droppable

    def finish(self) -> None:
        for giver in self.plans:
            self.deliver(giver, None)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(3, 8),
    st.lists(st.integers(1, 12).map(NodeId), min_size=1, max_size=10),
    st.integers(0, 2**32),
)
def test_after_finished_hand_overs_each_key_is_at_exactly_its_replicas(
    nodes: int, changes: list[NodeId], seed: int
) -> None:
    group = Group(nodes, 2, KEYS[:40])
    for node in changes:
        if len(group.held) > 2 or node not in group.held:
            group.change(node)
            group.finish()
        after = group.placement()
        for key in group.keys:
            assert {holder for holder in group.held if key in group.held[holder]} == set(after.replicas(key))


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 6), st.data(), st.integers(0, 2**32))
def test_joins_and_clean_departures_during_hand_overs_lose_nothing(
    nodes: int, data: st.DataObject, seed: int
) -> None:
    """No node dies, so every key must survive; in the end all keys are at their replicas."""
    rng = random.Random(seed)
    group = Group(nodes, 2, KEYS[:40])
    for node in data.draw(st.lists(st.integers(1, 12).map(NodeId), max_size=8)):
        if node in group.held:
            if len(group.held) == 1:
                continue
            left = Placement(frozenset(group.held) - {node}, 2)
            leaving = following(group.plans[node], node, group.held[node], left)
            for receiver in leaving.receivers():
                group.held[receiver] |= set(leaving.offers(receiver))
                for key in leaving.offers(receiver):
                    group.plans[receiver].add(key)
        group.change(node)
        for giver in rng.sample(sorted(group.held), rng.randint(0, len(group.held))):
            group.deliver(giver, rng.randint(0, 5))
        assert set.union(*group.held.values()) == set(group.keys)
    for _ in range(3):
        group.finish()
    after = group.placement()
    for key in group.keys:
        assert {node for node in group.held if key in group.held[node]} >= set(after.replicas(key))


@settings(max_examples=100, deadline=None)
@given(st.integers(3, 6), st.lists(st.booleans(), max_size=5), st.integers(0, 2**32))
def test_a_death_during_unfinished_hand_overs_loses_no_key(
    nodes: int, finished: list[bool], seed: int
) -> None:
    """Nodes join in quick succession, then one dies: with two replicas nothing is lost."""
    rng = random.Random(seed)
    group = Group(nodes, 2, KEYS[:40])
    for number, finishes in enumerate(finished):
        group.change(NodeId(20 + number))
        for giver in rng.sample(sorted(group.held), rng.randint(0, len(group.held))):
            group.deliver(giver, None if finishes else rng.randint(0, 5))
    group.change(rng.choice(sorted(group.held)))
    assert set.union(*group.held.values()) == set(group.keys)
    for _ in range(3):
        group.finish()
    after = group.placement()
    for key in group.keys:
        assert {node for node in group.held if key in group.held[node]} >= set(after.replicas(key))


@settings(max_examples=100, deadline=None)
@given(st.integers(3, 8), st.integers(1, 3), st.integers(0, 2**32))
def test_nodes_with_different_views_never_drop_the_last_copies(nodes: int, count: int, seed: int) -> None:
    rng = random.Random(seed)
    everybody = [NodeId(number) for number in range(1, nodes + 1)]
    keys = KEYS[:20]
    held = {node: {key for key in keys if rng.random() < 0.6} for node in everybody}
    enough = {key: min(count, sum(key in mine for mine in held.values())) for key in keys}
    plans = {}
    for _ in range(60):
        node = rng.choice(everybody)
        if node not in plans or rng.random() < 0.3:
            seen = frozenset({node, *rng.sample(everybody, rng.randint(0, nodes))})
            plans[node] = HandoverPlan(node, held[node], (), Placement(seen, count))
        plan = plans[node]
        for receiver in rng.sample(plan.receivers(), rng.randint(0, len(plan.receivers()))):
            offers = [key for key in plan.offers(receiver) if key in held[node]]
            held[receiver] |= set(offers)
            plan.confirmed(receiver, offers)
        if rng.random() < 0.5:
            held[node] -= plan.droppable()
            plan._droppable.clear()
        for key in keys:
            assert sum(key in mine for mine in held.values()) >= enough[key]
