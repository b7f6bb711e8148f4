"""Traditional policies on traces worked out by hand, and compared with the package libcachesim."""

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest

from nearsight.common.model_cache.model_cache import Load, ModelCache, Wait
from nearsight.common.model_cache.policy import Knowledge, ModelCosts
from nearsight.common.model_cache.registry import make_policy

UNIT = ModelCosts(1, 1.0)


def evictions(
    policy: str, requests: Iterable[str], budget: int, costs: dict[str, ModelCosts] | None = None
) -> str:
    """The evicted models, in order."""
    cache = ModelCache(budget, make_policy(policy))
    found = ""
    for now_s, model in enumerate(requests):
        decision = cache.request(model, (costs or {}).get(model, UNIT), float(now_s))
        if isinstance(decision, Load):
            cache.loaded(model, float(now_s))
            found += "".join(victim.model for victim in decision.evict)
    return found


def test_lru_evicts_the_least_recent() -> None:
    assert evictions("lru", "abcadbe", 3) == "bca"


def test_lfu_evicts_the_fewest_requests_since_the_load_and_of_these_the_least_recent() -> None:
    # b goes for c; when it comes again its two earlier requests do not count any more.
    assert evictions("lfu", "aaabbcb", 2) == "bc"
    assert evictions("lfu", "abac", 2) == "b"
    assert evictions("lfu", "abbacd", 2) == "bc"


def test_popularity_counts_requests_of_all_time() -> None:
    # a returns with its three earlier requests: b goes for d.
    assert evictions("popularity", "aaabbbcad", 2) == "acb"
    assert evictions("lfu", "aaabbbcad", 2) == "aca"


def test_srrip_protects_repeatedly_requested_models_from_a_scan() -> None:
    """Worked by hand; letters with their predictions, oldest first, before the eviction that follows.

    a2 b2 c2, hit a: a0 b2 c2. d: all age by 1: a1 b3 c3, evict b; a1 c3 d2. e: c is at 3, evict c; a1 d2 e2.
    hit e: a1 d2 e0. f: age by 1: a2 d3 e1, evict d; a2 e1 f2. g: age by 1: a3 e2 f3, evict a; e2 f3 g2.
    h: f is at 3, evict f.
    """
    assert evictions("srrip", "abcadeefgh", 3) == "bcdaf"


def test_srrip_ages_until_the_bytes_suffice() -> None:
    costs = {"x": ModelCosts(2, 1.0)}
    # hit b: a2 b0 c2. x: age by 1: a3 b1 c3; a and c go together.
    assert evictions("srrip", "abcbx", 3, costs) == "ac"


def test_arc_keeps_models_that_were_requested_twice_during_a_scan() -> None:
    assert evictions("arc", "ababcdefg", 4) == "cde"


def test_arc_treats_a_recently_evicted_model_as_frequent_when_it_returns() -> None:
    # a b are often, c d once. e evicts c. c returns: the target is 1, d goes, c is often. f: e alone is once,
    # not above the target, so a goes; g and h evict e and f.
    assert evictions("arc", "ababcdecfgh", 4) == "cdaef"


def test_arc_changes_its_target_once_for_all_requests_that_wait_for_one_load() -> None:
    # As above, but four more requests for c arrive during its load. The target stays 1, so e goes for g.
    cache, found = ModelCache(4, make_policy("arc")), ""
    for now_s, model in enumerate("ababcdecfgh"):
        decision = cache.request(model, UNIT, float(now_s))
        if isinstance(decision, Load):
            found += "".join(victim.model for victim in decision.evict)
            for _ in range(4):
                assert cache.request(model, UNIT, float(now_s)) == Wait()
            cache.loaded(model, float(now_s))
    assert found == "cdaef"


def test_gdsf_prefers_small_costly_frequent_models() -> None:
    costs = {"a": ModelCosts(2, 8.0), "b": ModelCosts(1, 3.0), "c": ModelCosts(1, 10.0)}
    # Scores a 4, b 3: c evicts b (L = 3). b scores 3 + 3 = 6 and evicts a, at 4.
    assert evictions("gdsf", "abcb", 3, costs) == "ba"


def test_gdsf_ages_models_that_were_frequent_before() -> None:
    # a scores 3, b 1. Each new model starts at the last score that went, plus 1: c 2, d 3, and a goes for e.
    assert evictions("gdsf", "aaabcdef", 2) == "bcad"
    assert evictions("lfu", "aaabcdef", 2) == "bcde"


@pytest.mark.needs("libcachesim")
@pytest.mark.parametrize(("policy", "theirs"), [("lru", "LRU"), ("lfu", "LFU"), ("arc", "ARC")])
@pytest.mark.parametrize("size", [20, 100])
def test_hits_are_those_of_libcachesim(policy: str, theirs: str, size: int) -> None:
    import libcachesim  # GPLv3: for comparison only

    rng = np.random.default_rng(1)
    popular = rng.zipf(1.1, size=20_000) % 400
    popular[5_000:8_000] = np.arange(3_000) % 300 + 200  # a scan, then other popularities
    popular[12_000:] = (popular[12_000:] + 150) % 400
    other = getattr(libcachesim, theirs)(size)
    cache = ModelCache(size, make_policy(policy, Knowledge()))
    hits: Counter[str] = Counter()
    for now_s, number in enumerate(popular.tolist()):
        request = libcachesim.Request(obj_id=number, obj_size=1)
        hits["theirs"] += other.get(request)
        if isinstance(cache.request(str(number), UNIT, float(now_s)), Load):
            cache.loaded(str(number), float(now_s))
        else:
            hits["ours"] += 1
    assert hits["ours"] == hits["theirs"] > 0
