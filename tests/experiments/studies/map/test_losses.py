"""A loss: slower than the best simpler configuration, beyond chance, and by a relevant amount."""

import pytest

from nearsight.experiments.studies.map.losses import digits, losses_of
from nearsight.experiments.studies.map.places import Place
from nearsight.experiments.twin.session import ADAPTIVE, BOUNDED, ONLY_CLOUD, PREFETCHING
from support.map_rows import FAST, map_rows

HERE = Place(10, 3, 500, "Slow", FAST)


def lose(full_ms: float, bounded_ms: float, others_ms: float = 500.0, runs: int = 1):
    """The loss at one place."""
    known = {ADAPTIVE: full_ms, BOUNDED: bounded_ms}
    rows = map_rows(lambda _place, tiers, _run: known.get(tiers, others_ms), [HERE], runs)
    (loss,) = losses_of(rows, ADAPTIVE, "p50")
    return loss


def test_the_system_is_compared_with_the_best_simpler_one() -> None:
    loss = lose(30.0, 20.0)
    assert (loss.place, loss.rival, loss.full, loss.best) == (HERE, BOUNDED, 30.0, 20.0)
    assert loss.ratio == pytest.approx(1.5)
    assert loss.difference == 10.0
    assert loss.lost
    assert not loss.won


def test_small_differences_are_neither_lost_nor_won() -> None:
    assert not lose(20.9, 20.0).lost
    assert not lose(19.1, 20.0).won
    assert lose(18.9, 20.0).won


def test_with_one_rival_only_this_rival_is_compared() -> None:
    rows = map_rows(lambda _place, tiers, _run: {ADAPTIVE: 30.0, BOUNDED: 20.0}.get(tiers, 500.0), [HERE])
    (loss,) = losses_of(rows, ADAPTIVE, "p50", (PREFETCHING,))
    assert loss.rival == PREFETCHING
    assert loss.won


def swinging(place: Place, tiers: str, run: int) -> float:
    """The full system takes 30 % more with 40 visitors; with others 90 % or 170 % of the time, by run."""
    if tiers != ADAPTIVE:
        return 100.0
    return 130.0 if place.visitors == 40 else 130.0 + 40.0 * (-1) ** run


def test_differences_within_the_variation_between_runs_are_no_loss() -> None:
    few, many = Place(1, 3, 500, "Slow", FAST), Place(40, 3, 500, "Slow", FAST)
    losses = losses_of(map_rows(swinging, [few, many], runs=4), ADAPTIVE, "p50")
    by_visitors = {one.place.visitors: one for one in losses}
    assert by_visitors[1].chance > 0.1
    assert not by_visitors[1].lost
    assert by_visitors[40].chance == 0.0
    assert by_visitors[40].lost


def test_places_with_one_run_use_the_variation_of_places_with_several() -> None:
    repeated, once = Place(1, 3, 500, "Slow", FAST), Place(1, 9, 500, "Slow", FAST)
    rows = [*map_rows(swinging, [repeated], runs=4), *map_rows(swinging, [once])]
    losses = {one.place: one for one in losses_of(rows, ADAPTIVE, "p50")}
    assert losses[once].chance == pytest.approx(2 * losses[repeated].chance)


def test_a_system_without_an_edge_is_no_rival_for_its_cpu() -> None:
    (loss,) = losses_of(map_rows(lambda *_: 1.0, [HERE]), ADAPTIVE, "edge")
    assert loss.rival != ONLY_CLOUD
    assert loss.ratio == pytest.approx(1.0)


def test_the_share_of_missed_photos_is_that_missing_in_recall() -> None:
    (loss,) = losses_of(map_rows(lambda *_: 1.0, [HERE]), ADAPTIVE, "missed")
    assert loss.full == pytest.approx(5.0)


def test_numbers_are_formatted_without_exponents() -> None:
    assert [digits(value) for value in (0.4224, 12.34, 99.6, 1996.4)] == ["0.422", "12.3", "99.6", "1996"]
