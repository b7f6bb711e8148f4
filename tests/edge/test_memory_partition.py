"""Partition of memory: against brute force, the threshold rule, and laws of any traffic."""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.edge.cache_size import Costs
from nearsight.edge.memory_partition import Claim, MemoryPartitioner, NetworkUse, Partition
from support.caching import zipf_ranking

MB = 10**6


def network(name: str, size_mb: int, saved: float, *, pinned: bool = False) -> NetworkUse:
    return NetworkUse(name, size_mb * MB, saved, pinned)


def objects(*saved: float, size_mb: float = 1.0) -> Claim:
    """A claim of objects with these savings, in descending order."""
    return Claim(np.full(len(saved), size_mb * MB), np.array(saved))


def best_partition(
    budget_bytes: int, networks: Sequence[NetworkUse], claims: Mapping[str, Claim]
) -> Partition:
    return MemoryPartitioner(budget_bytes, budget_bytes).divide(networks, claims)


def cached(claim_of: dict[str, Claim], partition_bytes: dict[str, float]) -> float:
    return sum(claim.worth(partition_bytes[name]) for name, claim in claim_of.items())


def test_memory_goes_where_a_byte_saves_the_most_time() -> None:
    networks = [network("hot", 4, 40.0), network("cold", 4, 2.0)]
    found = best_partition(7 * MB, networks, {"museum": objects(9, 5, 1, 0.1), "library": objects(8, 0.2)})
    assert (found.networks_bytes, found.networks) == (4 * MB, {"hot"})
    assert found.caches_bytes == {"museum": 2 * MB, "library": MB}


def test_no_division_into_whole_networks_and_objects_saves_more() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        networks = [network(str(number), 3, float(rng.exponential(9))) for number in range(4)]
        claims = {name: objects(*np.sort(rng.exponential(3, 5))[::-1]) for name in "ab"}
        found = best_partition(9 * MB, networks, claims)
        saved = sum(one.saved for one in networks if one.name in found.networks)
        saved += cached(claims, dict(found.caches_bytes))
        most = max(
            sum(one.saved for one, kept in zip(networks, resident, strict=True) if kept)
            + cached(claims, {"a": a * MB, "b": b * MB})
            for *resident, a, b in product(*4 * [(0, 1)], range(6), range(6))
            if 3 * sum(resident) + a + b <= 9
        )
        assert saved == pytest.approx(most)


def test_an_object_is_cached_if_its_savings_exceed_those_of_others_per_byte() -> None:
    """With linear f and constant recall: requests_hz · (recall · p_i · L_miss - b) over its bytes."""
    ranking, hz, object_bytes = zipf_ranking(40, 0.8), 5.0, 100_000
    lookup_ms, recall = 3.0 + 0.2 * np.arange(41), np.full(41, 0.9)
    lookup_ms[0] = 3.0
    expected_ms = Costs(lookup_ms, recall, 100.0).expected(ranking).evaluate()
    claim = Claim.of_objects(expected_ms, hz, object_bytes)
    worth = hz * (0.9 * ranking.probabilities * 100.0 - 0.2)
    np.testing.assert_allclose(claim.saved, worth[worth > 0])
    dearer = network("net", 1, 1e-9 + 10 * float(worth[12]))  # per byte as much as the 13th object
    found = best_partition(MB + 12 * object_bytes, [dearer], {"museum": claim})
    assert found.networks and found.caches_bytes["museum"] == pytest.approx(12 * object_bytes)


def test_objects_that_only_pay_together_are_claimed_together() -> None:
    expected_ms = np.array([100.0, 103.0, 104.0, 70.0, 65.0, 64.0, 66.0])
    claim = Claim.of_objects(expected_ms, 2.0, 10.0)
    np.testing.assert_allclose(claim.sizes_bytes, [30.0, 10.0, 10.0])
    np.testing.assert_allclose(claim.saved, [60.0, 10.0, 2.0])
    assert Claim.of_objects(np.array([5.0, 6.0]), 2.0, 10.0).worth(100.0) == 0.0


def test_pinned_networks_get_memory_first() -> None:
    networks = [network("pinned", 6, 0.0, pinned=True), network("hot", 4, 50.0)]
    found = best_partition(8 * MB, networks, {"museum": objects(3, 2, 1)})
    assert (found.networks, found.caches_bytes["museum"]) == ({"pinned"}, 2 * MB)


def test_small_changes_move_no_memory_and_large_ones_do() -> None:
    partitioner = MemoryPartitioner(6 * MB, 6 * MB, favour=1.2)
    claims = {"museum": objects(1, 1, 1, 1)}

    def resident(saved: float) -> frozenset[str]:
        return partitioner.divide([network("net", 4, saved)], claims).networks

    assert resident(1.9) == frozenset()
    assert resident(2.2) == frozenset()
    assert resident(3.0) == {"net"}
    assert resident(1.9) == {"net"}
    assert resident(1.5) == frozenset()


def test_free_memory_is_given_to_any_claim() -> None:
    partitioner = MemoryPartitioner(6 * MB, 6 * MB, favour=2.0)
    partitioner.divide([network("net", 4, 1000.0)], {})
    found = partitioner.divide([network("net", 4, 1000.0)], {"museum": objects(0.01, 0.01)})
    assert found.caches_bytes["museum"] == 2 * MB


def test_a_part_grows_only_into_free_memory() -> None:
    partitioner = MemoryPartitioner(10 * MB, 8 * MB)
    partitioner.divide([network("busy", 8, 0.0)], {"museum": objects(*range(9, 0, -1))})
    limits = partitioner.limits(8 * MB, {"museum": MB})
    assert limits.networks_bytes == 0.5 * MB  # of the remaining memory
    assert limits.caches_bytes["museum"] == 2 * MB
    after = partitioner.limits(0, {"museum": 2 * MB})
    assert (after.networks_bytes, after.caches_bytes["museum"]) == (0.5 * MB, 9.5 * MB)


_saved = st.lists(st.floats(0, 100), max_size=6).map(lambda many: sorted(many, reverse=True))


@given(
    st.integers(0, 30),
    st.lists(st.tuples(st.integers(1, 12), st.floats(0, 100)), max_size=5),
    st.tuples(_saved, _saved),
    st.tuples(st.integers(0, 15), st.integers(0, 8), st.integers(0, 7)),
)
def test_all_parts_together_stay_within_the_budget(
    budget_mb: int,
    sizes: list[tuple[int, float]],
    worths: tuple[list[float], list[float]],
    used_mb: tuple[int, int, int],
) -> None:
    networks = [network(str(place), size, saved) for place, (size, saved) in enumerate(sizes)]
    partitioner = MemoryPartitioner(budget_mb * MB, 10 * MB)
    claims = {name: objects(*saved) for name, saved in zip("ab", worths, strict=True)}
    for one in (networks, networks[::-1], networks[1:]):
        partition = partitioner.divide(one, claims)
        assert partition.size_bytes <= budget_mb * MB + 1e-3
        held, *caches = (size * MB for size in used_mb)
        assert partition.networks_bytes <= 10 * MB
        limits = partitioner.limits(held, dict(zip("ab", caches, strict=True)))
        kept = min(limits.networks_bytes, held) + sum(
            min(limits.caches_bytes[name], size) for name, size in zip("ab", caches, strict=True)
        )
        assert limits.size_bytes <= max(budget_mb * MB, sum(used_mb) * MB) + 1e-3
        assert kept <= sum(used_mb) * MB
