"""Views of an object share one result, unless a view turns out to show another object."""

from random import Random

import pytest

from nearsight.common.result_cache.auto_refresh import AutoRefresh
from nearsight.common.result_cache.budget import Budget, SequentialTest
from nearsight.common.result_cache.views import ObjectKey, ViewCache

MONA, SCREAM = "mona", "scream"


class Visitor:
    """Looks up photos in a cache; a test provides the answers of the classifier."""

    def __init__(self, cache: ViewCache[str], client: str = "") -> None:
        self.cache = cache
        self.client = client

    def ask(self, view: str, says: str | None, *, together: bool = True) -> str | None:
        """The served result; without one, the cache learns the answer of the classifier."""
        keys = [(self.client, view, grid) for grid in range(3)]
        looked_up, entry = self.cache.find(keys, 0.0)
        if entry is not None:
            return entry.value
        if says is None:
            self.cache.results.contradict(looked_up)
        else:
            self.cache.learn(keys, looked_up, ObjectKey(self.client, says) if together else None, says, 0.0)
        return None

    def asked(self, view: str, says: str, times: int) -> list[bool]:
        """For each of these photos of a view, whether it was served."""
        return [self.ask(view, says) is not None for _ in range(times)]


def visitor(client: str = "") -> Visitor:
    return Visitor(ViewCache(AutoRefresh(1.5), 100), client)


def test_the_first_view_of_an_object_is_verified_five_times_and_the_next_one_once() -> None:
    one = visitor()
    assert one.asked("left", MONA, 6) == [False] * 5 + [True]
    for _ in range(20):
        one.ask("left", MONA)
    assert one.asked("right", MONA, 3) == [False, True, True]
    assert len(one.cache.results) == 1


def test_a_view_that_shows_another_object_is_verified_separately() -> None:
    one = visitor()
    for view, says in (("left", MONA), ("elsewhere", SCREAM)):
        one.asked(view, says, 40)
    # The view of the mona now shows the scream.
    while one.ask("left", SCREAM) is not None:
        pass
    assert one.asked("left", SCREAM, 5) == [False] * 4 + [True]
    assert one.cache.results.counts.corrections == 1


def test_a_return_to_an_object_is_verified_once() -> None:
    one = visitor()
    one.asked("left", MONA, 40)
    one.asked("elsewhere", SCREAM, 1)
    assert one.asked("left", MONA, 2) == [False, True]


def test_a_view_of_the_previous_object_is_not_served_at_the_next_one() -> None:
    """Independently of the number of confirmations."""
    one = visitor()
    one.asked("left", MONA, 40)
    one.asked("right", MONA, 1)
    one.asked("elsewhere", SCREAM, 1)
    assert one.ask("right", SCREAM) is None


def test_after_a_contradiction_all_views_of_the_object_are_verified_again() -> None:
    one = visitor()
    one.asked("left", MONA, 40)
    one.asked("right", MONA, 3)
    while one.ask("left", None) is not None:
        pass
    assert one.asked("right", MONA, 6) == [False] * 5 + [True]


def test_views_that_do_not_share_results_are_verified_separately() -> None:
    one = visitor()
    for view in ("left", "right"):
        served = [one.ask(view, MONA, together=False) is not None for _ in range(6)]
        assert served == [False] * 5 + [True]


def test_visitors_do_not_share_results() -> None:
    one = visitor("ann")
    one.asked("left", MONA, 40)
    assert Visitor(one.cache, "bob").asked("left", MONA, 6) == [False] * 5 + [True]


def test_forget_clears_all_results() -> None:
    one = visitor()
    one.asked("left", MONA, 40)
    one.cache.forget()
    assert one.asked("left", MONA, 6) == [False] * 5 + [True]


def test_a_new_view_does_not_verify_the_photos_that_were_served() -> None:
    """It joins the result that it agrees with."""
    one = visitor()
    assert one.asked("left", MONA, 6)[-1]
    one.ask("right", MONA)
    assert one.cache.results.wrong_hits.bound == 1.0


def test_a_return_to_an_object_does_not_verify_the_photos_that_were_served() -> None:
    one = visitor()
    assert one.asked("left", MONA, 6)[-1]
    one.ask("elsewhere", SCREAM)
    one.ask("left", MONA)
    assert one.cache.results.wrong_hits.bound == 1.0


@pytest.mark.parametrize("new_views", [0.0, 0.6])
def test_errors_are_estimated_and_limited_with_any_share_of_new_views(new_views: float) -> None:
    """A known view of each visitor shows another object in a third of its photos."""
    rng = Random(3)
    cache: ViewCache[str] = ViewCache(SequentialTest(Budget(inferences=0.9), Random(4)), 100_000)
    served = wrong = 0
    for number in range(1_500):
        one = Visitor(cache, str(number))
        one.ask("known", MONA)
        for photo in range(30):
            new = rng.random() < new_views
            truth = SCREAM if not new and rng.random() < 0.3 else MONA
            found = one.ask(f"new {photo}" if new else "known", truth)
            served += found is not None
            wrong += found not in {None, truth}
    assert cache.results.wrong_hits.share == pytest.approx(wrong / served, rel=0.25)
    assert wrong / served < cache.results.wrong_hits.bound
