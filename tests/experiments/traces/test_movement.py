"""Generated visitors: a first-order Markov model predicts them best, as the dissertation found."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from nearsight.common.errors import InvalidArgument
from nearsight.experiments.traces.movement import draw_floor_plan, generate_visits
from nearsight.experiments.traces.visits import Visit, sequences


@pytest.fixture(scope="module")
def visits() -> tuple[Visit, ...]:
    return generate_visits(np.random.default_rng(1), sections=3, exhibits_per_section=44, visitors=180)


def accuracy(walks: Sequence[tuple[str, ...]], order: int, top: int) -> float:
    """Share of steps whose exhibit is among the ``top`` that followed the same ``order`` exhibits."""
    cut = round(0.8 * len(walks))
    counts: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for walk in walks[:cut]:
        for at in range(order, len(walk)):
            counts[walk[at - order : at]][walk[at]] += 1
    likely = {past: {name for name, _ in seen.most_common(top)} for past, seen in counts.items()}
    steps = [
        walk[at] in likely.get(walk[at - order : at], ())
        for walk in walks[cut:]
        for at in range(3, len(walk))
    ]
    return float(np.mean(steps))


@pytest.mark.parametrize(("seed", "sections"), [(1, 1), (2, 3)])
def test_a_first_order_model_predicts_best_and_finds_the_next_exhibit_in_its_top_eight(
    seed: int, sections: int
) -> None:
    rng = np.random.default_rng(seed)
    walks = list(sequences(generate_visits(rng, sections=sections)).values())
    top8 = [accuracy(walks, order, 8) for order in range(4)]
    assert max(top8) == top8[1] > 0.8
    top5 = [accuracy(walks, order, 5) for order in range(4)]
    assert max(top5) == top5[1] > 0.6


def test_visitors_are_divided_equally_and_stay_in_their_section(visits: tuple[Visit, ...]) -> None:
    section_of: dict[str, set[int]] = defaultdict(set)
    for visit in visits:
        section_of[visit.visitor].add((int(visit.exhibit) - 1) // 44)
    assert all(len(sections) == 1 for sections in section_of.values())
    assert Counter(sections.pop() for sections in section_of.values()) == {0: 60, 1: 60, 2: 60}


def test_visits_of_one_visitor_do_not_overlap(visits: tuple[Visit, ...]) -> None:
    for earlier, later in pairwise(visits):
        if earlier.visitor == later.visitor:
            assert earlier.end_s <= later.start_s
            assert earlier.exhibit != later.exhibit


def test_dwell_times_are_seconds_to_minutes_with_a_long_tail(visits: tuple[Visit, ...]) -> None:
    stays = np.array([visit.duration_s for visit in visits])
    assert 10 < np.median(stays) < 20
    assert np.median(stays) * 1.2 < stays.mean() < 60


def test_popularity_is_skewed_and_every_exhibit_is_seen(visits: tuple[Visit, ...]) -> None:
    seen = sorted(Counter(visit.exhibit for visit in visits).values(), reverse=True)
    assert len(seen) == 3 * 44
    assert sum(seen[:13]) > 0.2 * sum(seen)


def test_the_same_seed_gives_the_same_visits() -> None:
    first, again, other = (
        generate_visits(np.random.default_rng(seed), sections=2, exhibits_per_section=20, visitors=20)
        for seed in (1, 1, 2)
    )
    assert again == first
    assert other != first


def test_exhibits_can_be_named() -> None:
    visits = generate_visits(
        np.random.default_rng(0), sections=1, exhibits_per_section=2, visitors=3, exhibits=["Night", "Day"]
    )
    assert {visit.exhibit for visit in visits} == {"Night", "Day"}


def test_a_single_exhibit_is_visited_once() -> None:
    visits = generate_visits(np.random.default_rng(0), sections=1, exhibits_per_section=1, visitors=2)
    assert [visit.exhibit for visit in visits] == ["0001", "0001"]


@pytest.mark.parametrize(
    "wrong", [{"sections": 0}, {"visitors": 0}, {"exhibits": ["a"]}, {"sections": 1, "exhibits": ["a"] * 44}]
)
def test_invalid_museums_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument):
        generate_visits(np.random.default_rng(0), **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("exhibits", [1, 2, 7, 44])
def test_a_floor_plan_has_a_place_and_a_share_of_attention_for_each_exhibit(exhibits: int) -> None:
    plan = draw_floor_plan(exhibits, np.random.default_rng(0))
    assert len(plan) == exhibits
    assert plan.attractiveness.sum() == pytest.approx(1)
    assert np.allclose(plan.distances_m, plan.distances_m.T)
