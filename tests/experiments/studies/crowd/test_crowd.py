"""Visitors that move to another section: the edge's decisions in virtual time."""

import json
import math

import numpy as np
import pytest

from nearsight.common.object_cache.profile import CacheProfile
from nearsight.experiments.studies.crowd.crowd import HOUR, NEVER, Figure, watch
from nearsight.experiments.studies.crowd.edge import (
    CrowdEdge,
    EdgeCosts,
    Requests,
    first_requests_needed,
    section_requests,
)

OBJECTS = [f"{number:04d}" for number in range(100)]
PAPER = CacheProfile(
    backend="flann-lsh", query_features=800, largest_k=400, lookup_ms=(51.14, 1.87), recall=(0.9,)
)


def edge(half_life_s: float, k_max: int = 10_000) -> CrowdEdge:
    return CrowdEdge(OBJECTS, EdgeCosts(PAPER, 370.0, k_max), half_life_s, np.random.default_rng(1))


def requests(names: list[str], count: int, seed: int = 2) -> Requests:
    """One request per second for one of these objects."""
    drawn = np.random.default_rng(seed).choice(len(names), size=count)
    return Requests(
        np.arange(count, dtype=np.float64),
        tuple(names[one] for one in drawn),
        dict.fromkeys(names, 1 / len(names)),
    )


def test_an_edge_caches_the_few_requested_objects() -> None:
    one = edge(math.inf)
    asked = requests(OBJECTS[:5], 500)
    for at_s, name in zip(asked.times_s, asked.object_ids, strict=True):
        one.request(name, float(at_s))
    assert one.size == 5
    assert one.expected_hit_ratio(asked.shares) == pytest.approx(0.9)
    assert one.expected_hit_ratio({OBJECTS[9]: 1.0}) == 0.0


def test_models_arrive_after_a_delay() -> None:
    one = edge(math.inf)
    for _ in range(60):  # with fewer requests no cache is worth it
        one.request(OBJECTS[0], 0.0)
    assert one.size == 0
    one.request(OBJECTS[0], 1.0)
    assert one.size == 1
    assert one.changed


def test_the_cache_does_not_exceed_its_bound() -> None:
    one = edge(math.inf, k_max=3)
    asked = requests(OBJECTS[:10], 500)
    for at_s, name in zip(asked.times_s, asked.object_ids, strict=True):
        one.request(name, float(at_s))
        assert one.size <= 3
    assert one.size == 3


def test_an_estimate_with_a_half_life_adapts_with_fewer_requests() -> None:
    before, after = requests(OBJECTS[:20], 10_000), requests(OBJECTS[50:70], 12_000, seed=3)
    regained = {}
    ends = {}
    for half_life_s in (math.inf, 1000.0):
        steady, regained[half_life_s], course = watch(edge(half_life_s), before, after, 10_000.0)
        assert steady == pytest.approx(0.9, abs=0.05)
        assert course[0][1] == 0.0, "no earlier requests for the new section"
        ends[half_life_s] = course[-1][0]
    assert regained[1000.0] < 0.3 * regained[math.inf]
    assert ends == dict.fromkeys(ends, 12_000), "the last sample has the number of requests"


def test_the_oracle_needs_only_first_requests() -> None:
    names = ("a", "a", "b", "a", "b", "c", "a")
    asked = Requests(np.arange(7.0), names, {"a": 0.5, "b": 0.4, "c": 0.1})
    costs = EdgeCosts(PAPER, 3700.0)
    assert first_requests_needed(costs, asked, 0.44) == 1
    assert first_requests_needed(costs, asked, 0.80) == 3
    assert first_requests_needed(costs, asked, 0.85) == 6
    assert first_requests_needed(costs, asked, 0.95) == 7, "more than recall allows"
    bounded = EdgeCosts(PAPER, 3700.0, k_max=2)
    assert first_requests_needed(bounded, asked, 0.80) == 3
    assert first_requests_needed(bounded, asked, 0.85) == 7


def test_no_estimate_adapts_faster_than_the_oracle() -> None:
    before, after = requests(OBJECTS[:20], 2000), requests(OBJECTS[50:70], 4000, seed=3)
    for half_life_s in (60.0, 1000.0, math.inf):
        steady, regained, _course = watch(edge(half_life_s), before, after, 2000.0)
        assert first_requests_needed(EdgeCosts(PAPER, 370.0), after, 0.95 * steady) <= regained


def test_requests_of_a_section_are_for_its_objects_and_start_immediately() -> None:
    asked = section_requests(1, 1800.0, np.random.default_rng(4))
    assert {int(name) for name in asked.object_ids} <= set(range(45, 89))
    assert sum(asked.shares.values()) == pytest.approx(1.0)
    assert asked.times_s[0] < 10
    assert (np.diff(asked.times_s) >= 0).all()
    per_second = len(asked.times_s) / 5400
    assert 2 < per_second < 8, "five visitors, one photo per second of a stay"


def regained(paper: float, ours: float, oracle: float) -> dict[str, object]:
    """A summary of one profile and stay."""
    made = {
        estimate: {
            "requests": {"mean": requests},
            "floor": {"mean": oracle},
            "share_of_paper": requests / paper,
            "share_beyond_floor": (requests - oracle) / (paper - oracle),
        }
        for estimate, requests in ((NEVER, paper), (HOUR, ours))
    }
    return {"regained": {"one": {"4 h": made}}}


def test_the_target_is_half_of_the_papers_requests_if_the_oracle_can_reach_it() -> None:
    for ours, reached in ((400.0, True), (510.0, False)):
        (target,) = Figure().targets(regained(1000.0, ours, oracle=100.0))
        assert (target.value, target.reached) == (ours / 1000, reached)


def test_if_the_oracle_cannot_reach_it_the_requests_beyond_the_oracle_are_compared() -> None:
    (target,) = Figure().targets(regained(1000.0, 700.0, oracle=600.0))
    assert target.value == pytest.approx(0.25)
    assert target.reached
    assert "0.70 of the paper's" in target.text
    assert "an oracle needs 0.60" in target.text
    (target,) = Figure().targets(regained(1000.0, 900.0, oracle=600.0))
    assert not target.reached


@pytest.mark.system
def test_the_summary_has_the_requests_of_each_estimate_and_of_the_oracle(smoke_runs) -> None:
    summary = json.loads((smoke_runs.folder("crowd") / "summary.json").read_text())
    found = summary["metrics"]["regained"]["paper's LSH"]["0.2 h"]
    assert found[NEVER]["share_of_paper"] == 1.0
    assert found[HOUR]["requests"]["mean"] <= found[NEVER]["requests"]["mean"]
    assert 0 < found[HOUR]["floor"]["mean"] <= found[HOUR]["requests"]["mean"]
